"""Codecs' convolutions as streams, beside the same network by hand in torch: rows of suite `codecs`."""

from __future__ import annotations

import copy
import functools
import gc
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn

import sluice
from captured import Captured, Network
from codec_parts import by_hand, costs, reset
from codec_zoo import CODECS, size_of
from direct_clock import Direct
from model_zoo import Size
from sluice.bench import DTYPES, Case, Workload
from sluice.bench.check import WrongResultError, relative_error
from sluice.bench.suite import runs_linked
from sluice.demo.measure import in_float64

STREAMS = (1, 8)
IN_A_GRAPH, EAGER = "sluice", "sluice_eager"
BY_HAND, BY_HAND_IN_A_GRAPH, COMPILED = "torch", "torch_graph", "torch_compile"
PEERS = (EAGER, BY_HAND, BY_HAND_IN_A_GRAPH, COMPILED)

_FACTOR, _TINY = 3.0, 1e-6  # the allowed error: this many times eager torch's of the whole input
# With a larger error of eager torch the comparison means nothing. Code2wav's with random weights is 0.07 in bfloat16.
_LARGEST = 0.15

# A placeholder: a network has no plan of its own.
_PLAN = sluice.Plan(schedule="model", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="a network")


class Subject:
    """A codec's part with chunks of its input, and its ways to take a step, without gradients.

    All ways read a chunk from the same memory, `x`, as a CUDA graph has to.
    """

    def __init__(self, name: str, dtype: str, size: Size, device: torch.device) -> None:
        self.module = copy.deepcopy(_network(name, size)).to(device, DTYPES[dtype])
        self.whole = CODECS[name].inputs(device, DTYPES[dtype], size)[0]
        self.chunks = self.whole.split(size.lengths[1], dim=-1)
        self.x = torch.zeros_like(self.chunks[0], memory_format=torch.contiguous_format)
        stream = sluice.streaming(self.module, slots=size.batch)
        assert stream is not None
        self.stream = stream
        self.hand = by_hand(self.module, size.batch)
        self._networks: dict[str, Network] = {}

    @functools.cached_property
    def reference(self) -> torch.Tensor:
        """The result for the whole input, in float64."""
        return in_float64(self.module, self.whole)

    @functools.cached_property
    def error(self) -> float:
        """Eager torch's for the whole input."""
        with torch.no_grad():
            return relative_error(self.module(self.whole), self.reference)

    def last(self) -> torch.Tensor:
        """The reference of the last chunk."""
        return self.reference[..., -self._length :]

    @property
    def _length(self) -> int:
        """The results of a chunk."""
        return (self.reference.shape[-1] + self.stream.lead) // len(self.chunks)

    def network(self, way: str) -> Network:
        if way not in self._networks:
            self._networks[way] = _MADE[way](self)
        return self._networks[way]

    def step(self, way: str) -> torch.Tensor:
        """The results of the chunk in `x`."""
        return _called(self.network(way), self.x)

    def begin(self, way: str) -> None:
        """Compiles or captures the way, and makes its streams begin as new."""
        self.step(way)
        self.stream.reset()
        reset(self.hand)

    def results(self, way: str, chunks: int | None = None) -> list[torch.Tensor]:
        """The results of the first chunks, by default of all, from the streams' beginning on."""
        self.begin(way)
        found = []
        for chunk in self.chunks[:chunks]:
            self.x.copy_(chunk)
            found.append(self.step(way).clone())
        return found

    def rewind(self, way: str) -> None:
        """Makes the next step the last chunk's."""
        self.results(way, -1)
        self.x.copy_(self.chunks[-1])

    def check(self, name: str, error: float) -> None:
        limit = _FACTOR * self.error + _TINY
        if not error <= limit:
            raise WrongResultError(f"{name}: relative L2 error must be at most {limit:g}, got {error:g}")


@torch.no_grad()
def _called(network: Network, x: torch.Tensor) -> torch.Tensor:
    return network(x)


def _compiled(network: nn.Module, x: torch.Tensor) -> Network:
    """Compiled for x, ahead of a capture."""
    program: Network = torch.compile(network, dynamic=False, fullgraph=True)
    _called(program, x)
    return program


_MADE: dict[str, Callable[[Subject], Network]] = {
    IN_A_GRAPH: lambda subject: Captured(subject.stream),
    EAGER: lambda subject: subject.stream,
    BY_HAND: lambda subject: subject.hand,
    BY_HAND_IN_A_GRAPH: lambda subject: Captured(subject.hand),
    COMPILED: lambda subject: Captured(_compiled(subject.hand, subject.x)),
}


_last_network: dict[tuple[str, str], nn.Module] = {}


def _network(name: str, size: Size) -> nn.Module:
    """On the CPU in float32; of the last name."""
    key = name, str(size.options)
    if key not in _last_network:
        _last_network.clear()
        _last_network[key] = CODECS[name].network(size)
    return _last_network[key]


def release() -> None:
    _last_network.clear()


def _peer(subject: Subject, way: str) -> Direct:
    """A peer's steps. The first call takes all chunks, prints the last chunk's error and raises if it is too large."""
    is_checked = False

    def step() -> torch.Tensor:
        nonlocal is_checked
        if is_checked:
            return subject.step(way)
        found = subject.results(way)
        error = relative_error(found[-1], subject.last())
        print(f"    {way}: relative L2 error {error:.1e}")
        subject.check(way, error)
        is_checked = True
        return found[-1]

    return Direct(step)


def _make(name: str, dtype: str, size: Size, device: torch.device) -> Workload:
    torch._dynamo.reset()
    gc.collect()  # compiled modules are in cycles
    subject = Subject(name, dtype, size, device)
    if not subject.error <= _LARGEST:
        raise WrongResultError(f"{name}: eager torch's error must be at most {_LARGEST}, got {subject.error:g}")
    for way in (EAGER, IN_A_GRAPH):
        found = torch.cat(subject.results(way), dim=-1)[..., subject.stream.lead :]
        subject.check(f"{name}, {way}", relative_error(found, subject.reference))
    linked = runs_linked(lambda: subject.step(EAGER))
    reset(subject.hand)
    with torch.no_grad():
        traffic, flops = costs(subject.hand, subject.x)
    subject.rewind(IN_A_GRAPH)
    return Workload(
        ours=Direct(lambda: subject.step(IN_A_GRAPH)),
        write=lambda out: out.copy_(subject.results(IN_A_GRAPH)[-1]),
        reference=subject.last,
        plan=_PLAN,
        traffic=traffic,
        matmul_flops=flops,
        peers={peer: _peer(subject, peer) for peer in PEERS},
        linked=linked,
    )


def stream_case(name: str, dtype: str, streams: int, size: str = "real") -> Case:
    """A row: a step of so many streams."""
    given = size_of(name, streams, size)
    step = given.lengths[1]
    return Case(
        name=f"{name} {dtype}, {streams} x {step}",
        params={"B": streams, "L": step, "dtype": dtype, "op": name, "fn": "streaming"},
        make=functools.partial(_make, name, dtype, given),
        tolerance=_FACTOR * _LARGEST,
        part=name,
    )


def _here() -> Iterator[str]:
    for name, entry in CODECS.items():
        if (reason := entry.missing()) is None:
            yield name
        else:
            warnings.warn(f"suite codecs leaves {name} out: {reason}", stacklevel=2)


def stream_cases() -> list[Case]:
    """Float32 with torch's default, which allows TF32 in convolutions, and bfloat16."""
    return [stream_case(name, dtype, streams) for name in _here() for dtype in ("fp32", "bf16") for streams in STREAMS]
