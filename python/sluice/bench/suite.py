"""The types of a suite and its cases: `benchmarks/bench_<suite>.py` fills these and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..info import linking
from ..plan import Plan
from .ceilings import FMA_TFLOPS
from .schema import Parameters
from .timing import Call, Clock, ColdClock

# The dtype labels of cases. "tf32": float32 where torch allows TF32 for convolutions.
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}

# `Case.allows_tf32` of dense convolutions by their label. Other cases of "fp32" leave torch's setting as it is.
ALLOWS_TF32 = {"fp32": False, "tf32": True}

# Peers that are compiled when they are first called: seconds, so a quick run leaves them out.
SLOW_PEERS = frozenset({"torch_compile", "torch_compile_reduce_overhead", "torch_compile_max_autotune", "jiterator"})


# Every schedule: `direct`, and the schedules of kernels/shared/pipeline/rings.def (a test compares the two).
SCHEDULES = (
    "direct",
    "sync",
    "cooperative",
    "barrier",
    "single_stage",
    "two_stage",
    "multi_stage",
    "producer_consumer",
    "thread_scope",
    "primitives",
    "bulk",
)


@dataclasses.dataclass(frozen=True)
class Workload:
    """The tensors and callables of one case, on a device.

    Attributes:
        ours: the call that is timed, as a user writes it; returns the result.
        write: the same call with `out=`; the check passes it a poisoned tensor.
        reference: the result in float64, or its slices along dimension 0 if all of it would not fit; on the host or
            on the device.
        plan: how `ours` runs.
        traffic: bytes: each input read once, each output written once.
        flops: floating-point operations where only FMA applies; 0 where they cannot be the limit.
        matmul_flops: floating-point operations that tensor cores can do, at the rate of the case's dtype; 0 if they are
            never the limit.
        peers: callables timed with `ours`, by their names in the results; None where a peer cannot be measured. A
            peer that raises when it is called is published as null as well.
        linked: whether `ours` runs its chains linked; None: seen by calling it once.
        floor_peer: the peer whose time is the floor, in a suite whose floor is neither bytes nor flops.
        fma_tflops: the rate that `flops` are possible at.
        link_seconds: the lower bound of the host link and the compute, if the host link is the floor.
    """

    ours: Callable[[], torch.Tensor]
    write: Callable[[torch.Tensor], object]
    reference: Callable[[], torch.Tensor | Iterable[torch.Tensor]]
    plan: Plan
    traffic: int
    flops: int = 0
    matmul_flops: int = 0
    peers: Mapping[str, Call | None] = dataclasses.field(default_factory=dict)
    linked: bool | None = None
    floor_peer: str | None = None
    fma_tflops: float = FMA_TFLOPS
    link_seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the results.

    Attributes:
        name: unique in its suite.
        params: the case's numbers, under the names that `results.PARAMETERS` lists; `dtype` must be there.
        make: allocates the workload. Nothing is allocated before, so cases can be listed without a GPU.
        auto: whether schedule="auto" picks, rather than a forced schedule.
        tolerance: relative L2 error that the result may have; None means what check.py allows the dtype.
        part: the part of the suite that it belongs to, which has a results file of its own; None: the suite has no
            parts. Cases of a part may share what they build and compile.
        allows_tf32: torch's TF32 setting for convolutions while the case is made, checked and timed; None leaves the
            setting as it is, by torch's default on.
    """

    name: str
    params: Parameters
    make: Callable[[torch.device], Workload]
    auto: bool = True
    tolerance: float | None = None
    part: str | None = None
    allows_tf32: bool | None = None

    @contextlib.contextmanager
    def tf32_setting(self) -> Iterator[None]:
        """In this context torch's setting is `allows_tf32`; afterwards it is what it was."""
        if self.allows_tf32 is None:
            yield
            return
        before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, self.allows_tf32
        try:
            yield
        finally:
            torch.backends.cudnn.allow_tf32 = before


@dataclasses.dataclass(frozen=True)
class Suite:
    """The cases of `benchmarks/bench_<name>.py`, which calls it `SUITE`.

    Attributes:
        name: as in the file's name.
        cases: in the order of the results.
        clock: makes what times them: cold on the GPU, warm in a CUDA graph, or on the host.
        device: the type of the device that it runs on, "cuda" or "cpu".
        release: called after each part: drops what its cases share.
        cpu_cases: of a suite for the GPU: what `--cpu` runs instead, with results of the CPU.
        cudnn_benchmark: whether cuDNN searches the fastest algorithm of a convolution, which torch's default is not.
    """

    name: str
    cases: Sequence[Case]
    clock: Callable[[torch.device], Clock] = ColdClock
    device: str = "cuda"
    release: Callable[[], object] = lambda: None
    cpu_cases: Sequence[Case] = ()
    cudnn_benchmark: bool = True

    def parts(self) -> dict[str | None, Suite]:
        """The suite with the cases of each part, by the part's name; a suite without parts is one, named None."""
        cases: dict[str | None, list[Case]] = {}
        for case in self.cases:
            cases.setdefault(case.part, []).append(case)
        return {part: dataclasses.replace(self, cases=own) for part, own in cases.items()}

    def on_cpu(self) -> Suite:
        """The suite with its cases for the CPU, which may be none."""
        return self if self.device == "cpu" else dataclasses.replace(self, cases=self.cpu_cases, device="cpu")


def runs_linked(call: Call) -> bool:
    """Whether the call launches kernels with their chains linked in, and none that interpret one."""
    before = linking()
    call()
    after = linking()
    changes: list[int] = [
        after.get(name, 0) - before.get(name, 0) for name in ("linked_launches", "interpreted_launches")
    ]
    return changes[0] > 0 and changes[1] == 0


def fresh(*shape: int, dtype: str, device: torch.device) -> torch.Tensor:
    """A tensor of `shape` with normally distributed values that no other run has."""
    return torch.randn(shape, dtype=DTYPES[dtype], device=device)


def compiled(function: Callable[..., object], *args: Any, mode: str | None = None) -> Call:
    """`torch.compile(function, mode=mode)` on `args`, for these shapes only; compiled when it is first called."""
    programs: list[Callable[..., object]] = []

    def call() -> object:
        if not programs:
            programs.append(torch.compile(function, dynamic=False, fullgraph=True, mode=mode))
        return programs[0](*args)

    return call
