"""Rows of suite `conv1d_depthwise` with states and sequences: prefill, bfloat16, four taps, SiLU.

A row's sequences are packed by their starts (`cu_seqlens`), by an id at each position (`seq_idx`), or by their starts
with states in the slots of a cache ("paged"). "states" are rows that are sequences, with initial and final states.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import sluice
from depthwise_cases import activations, package_call
from sluice.bench import Case, Workload, compiled, fresh
from sluice.bench.check import WrongResultError

# One kernel serves every call: there is no choice of schedule, and `sluice.plan` has no plan for it.
_PLAN = sluice.Plan(schedule="direct", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="one kernel")
_TAPS = 4
_HISTORY = _TAPS - 1


@dataclasses.dataclass(frozen=True)
class Problem:
    """`lengths` are the lengths of the sequences in a row; `form` is one of `FORMS`."""

    batch: int
    channels: int
    lengths: Sequence[int]
    layout: str
    form: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.batch, self.channels, sum(self.lengths)


@dataclasses.dataclass(frozen=True)
class Prefill:
    """The tensors of a call.

    `options` are the options of `sluice.causal_conv1d`, except a paged call's cache: that is `cache`, which never
    changes. `eager(x, weight, cache, *operands)` is the code that users write today; its weight is (C, 1, K).
    `package` has the options of Dao-AILab's function.
    """

    x: torch.Tensor
    weight: torch.Tensor
    options: dict[str, Any]
    eager: Callable[..., Any]
    operands: tuple[Any, ...] = ()
    package: dict[str, Any] | None = None
    cache: torch.Tensor | None = None

    def convolve(
        self, cache: torch.Tensor | None, out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The result, and the states after it, if the call has any."""
        result = sluice.causal_conv1d(
            self.x, self.weight, activation="silu", state_cache=cache, out=out, **self.options
        )
        return result if isinstance(result, tuple) else (result, cache)

    def expected(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The result and the states, computed in `dtype`."""
        options = {name: option for name, option in self.options.items() if name != "return_final_states"}
        x, weight = self.x.to(dtype), self.weight.to(dtype)
        # cuDNN would search algorithms for sequences of every length.
        with torch.backends.cudnn.flags(enabled=False):
            return sluice.reference.causal_conv1d(x, weight, activation="silu", state_cache=self.cache, **options)

    def traffic(self) -> int:
        """Bytes: x, the result, the weight and the indices once; states that are read, and states that are written."""
        total = 2 * self.x.nbytes + self.weight.nbytes
        total += sum(option.nbytes for option in self.options.values() if isinstance(option, torch.Tensor))
        if self.options.get("return_final_states"):
            total += self.options["initial_states"].nbytes  # final states: as many bytes
        if self.cache is not None:
            old = self.options["has_initial_state"]
            total += (len(old) + int(old.sum())) * self.cache[0].nbytes
        return total


# --- what users have ----------------------------------------------------------------------------------------------
def _torch(x: torch.Tensor, weight: torch.Tensor, cache: None) -> torch.Tensor:
    return F.silu(F.conv1d(x, weight, padding=_HISTORY, groups=len(weight))[..., : x.shape[-1]])


def _torch_states(
    x: torch.Tensor, weight: torch.Tensor, cache: None, initial: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' slow path for a chunk: concatenates the states before it."""
    columns = torch.cat([initial, x], dim=-1)
    return F.silu(F.conv1d(columns, weight, groups=len(weight))), columns[..., x.shape[-1] :].clone()


def _spread(x: torch.Tensor, places: torch.Tensor, columns: int) -> torch.Tensor:
    """Scatters x's positions to `places` among `columns`, in x's layout; the others are zeros."""
    batch, channels, _ = x.shape
    wide = x.new_zeros(batch, columns, channels).mT if x.stride(1) == 1 else x.new_zeros(batch, channels, columns)
    return wide.index_copy_(2, places, x)


def _picked(y: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Gathers y's positions at `places`, in its layout."""
    return y.mT.index_select(1, places).mT if y.stride(1) == 1 else y.index_select(2, places)


def _torch_packed(
    x: torch.Tensor, weight: torch.Tensor, cache: None, places: torch.Tensor, columns: int
) -> torch.Tensor:
    """One convolution for all sequences, each after K - 1 zeros, instead of one convolution for each."""
    y = F.conv1d(_spread(x, places, columns), weight, groups=len(weight))
    return F.silu(_picked(y, places - _HISTORY))


def _torch_paged(
    x: torch.Tensor,
    weight: torch.Tensor,
    cache: torch.Tensor,
    places: torch.Tensor,
    columns: int,
    history: torch.Tensor,
    last: torch.Tensor,
    slots: torch.Tensor,
    old: torch.Tensor,
) -> torch.Tensor:
    """The same with states at `history` instead of zeros; `last` is each sequence's last columns."""
    wide, channels = _spread(x, places, columns), len(weight)
    states = torch.where(old[:, None, None], cache[slots], 0)
    wide.index_copy_(2, history, states.transpose(0, 1).reshape(1, channels, -1))
    kept = wide.index_select(2, last).view(channels, len(slots), -1).transpose(0, 1)
    cache.index_copy_(0, slots, kept)
    y = F.conv1d(wide, weight, groups=channels)
    return F.silu(_picked(y, places - _HISTORY))


# --- the forms ----------------------------------------------------------------------------------------------------
def _tensors(problem: Problem, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """x and the weight, scaled so that results have variance 1, where SiLU is nonlinear and its error shows."""
    weight = fresh(problem.channels, _TAPS, dtype="bf16", device=device) * _TAPS**-0.5
    return activations(problem.shape, "bf16", problem.layout, device), weight


def _states(count: int, problem: Problem, device: torch.device) -> torch.Tensor:
    """(count, C, K-1), contiguous in x's contiguous dimension; the package takes no others."""
    return activations((count, problem.channels, _HISTORY), "bf16", problem.layout, device)


def _starts(problem: Problem, device: torch.device) -> torch.Tensor:
    starts = torch.tensor([0, *problem.lengths]).cumsum(0)
    return starts.to(device, torch.int32)


def _ids(problem: Problem, device: torch.device) -> torch.Tensor:
    """(1, T): the number of the sequence at each position."""
    counts = torch.tensor(list(problem.lengths))
    return torch.arange(len(counts)).repeat_interleave(counts)[None].to(device, torch.int32)


def _of_package(problem: Problem, **options: Any) -> dict[str, Any] | None:
    """The package's options; it takes states and sequences only in channels-last."""
    return {"activation": "silu", **options} if problem.layout == "cl" else None


def with_states(problem: Problem, device: torch.device) -> Prefill:
    """Rows with initial and final states."""
    x, weight = _tensors(problem, device)
    options = {"initial_states": _states(problem.batch, problem, device), "return_final_states": True}
    operands = (options["initial_states"],)
    return Prefill(x, weight, options, _torch_states, operands, _of_package(problem, **options))


def _packed(problem: Problem, device: torch.device, **options: torch.Tensor) -> Prefill:
    x, weight = _tensors(problem, device)
    # The package has no cu_seqlens, so it gets the ids of the same sequences.
    package = _of_package(problem, seq_idx=_ids(problem, device))
    if len(problem.lengths) == 1:
        return Prefill(x, weight, options, _torch, (), package)
    return Prefill(x, weight, options, _torch_packed, _places(problem, device), package)


def _places(problem: Problem, device: torch.device) -> tuple[torch.Tensor, int]:
    """The column of each position if each sequence follows its history, and the number of columns."""
    ids = _ids(problem, device)[0].long()
    places = torch.arange(len(ids), device=device) + _HISTORY * (ids + 1)
    return places, len(ids) + _HISTORY * len(problem.lengths)


def by_starts(problem: Problem, device: torch.device) -> Prefill:
    return _packed(problem, device, cu_seqlens=_starts(problem, device))


def by_ids(problem: Problem, device: torch.device) -> Prefill:
    return _packed(problem, device, seq_idx=_ids(problem, device))


def paged(problem: Problem, device: torch.device) -> Prefill:
    """Packed by starts, with states in random slots of a cache twice as large; every other sequence has a state."""
    count = len(problem.lengths)
    slots = torch.randperm(2 * count, device=device)[:count]
    old = torch.arange(count, device=device) % 2 == 0
    starts = _starts(problem, device)
    options = {"cu_seqlens": starts, "cache_indices": slots.int(), "has_initial_state": old}
    before = torch.arange(_HISTORY, device=device)
    firsts = starts.long() + _HISTORY * torch.arange(count + 1, device=device)  # begins of the histories
    history, last = ((first[:, None] + before).flatten() for first in (firsts[:-1], firsts[1:] - _HISTORY))
    operands = (*_places(problem, device), history, last, slots, old)
    given = _packed(problem, device, **options)
    # The package has no states of packed sequences, so it does less work here than sluice.
    return dataclasses.replace(given, eager=_torch_paged, operands=operands, cache=_states(2 * count, problem, device))


# The words of a case's name; `fn` contains them too.
FORMS: dict[str, Callable[[Problem, torch.device], Prefill]] = {
    "states": with_states,
    "cu_seqlens": by_starts,
    "seq_idx": by_ids,
    "paged": paged,
}


def _make(problem: Problem, device: torch.device) -> Workload:
    given = FORMS[problem.form](problem, device)
    # Each call has a cache of its own. The check compares the first result of `ours` with that of `write`.
    ours, eager = (None if given.cache is None else given.cache.clone() for _ in range(2))

    def write(out: torch.Tensor) -> None:
        _, states = given.convolve(None if given.cache is None else given.cache.clone(), out)
        if states is not None and not torch.equal(states, given.expected(given.x.dtype)[1]):
            raise WrongResultError("the states must have the bits of the reference's")

    arguments = (given.x, given.weight[:, None], eager, *given.operands)
    package = given.package
    return Workload(
        ours=lambda: given.convolve(ours)[0],
        write=write,
        reference=lambda: given.expected(torch.float64)[0],
        plan=_PLAN,
        traffic=given.traffic(),
        flops=2 * given.x.numel() * _TAPS,
        peers={
            "torch": lambda: given.eager(*arguments),
            # Compiling takes seconds per case.
            "torch_compile": compiled(given.eager, *arguments) if problem.form == "states" else None,
            "causal_conv1d": None if package is None else package_call(given.x, given.weight, None, **package),
        },
    )


def sequence_case(problem: Problem, what: str = "") -> Case:
    """The case of a problem; `what` names its sequences."""
    batch, channels, length = problem.shape
    words = " ".join(filter(None, (problem.form, what)))
    return Case(
        name=f"{batch}x{channels}x{length} K={_TAPS} bf16 {problem.layout} {words}",
        params={
            "B": batch,
            "C": channels,
            "L": length,
            "K": _TAPS,
            "dtype": "bf16",
            "layout": problem.layout,
            "op": "causal_conv1d",
            "fn": f"silu, {words}",
        },
        make=functools.partial(_make, problem),
    )


def shared_out(tokens: int, count: int) -> tuple[int, ...]:
    """`count` lengths that differ by one at most."""
    return tuple(tokens * (n + 1) // count - tokens * n // count for n in range(count))


_CHANNELS, _TOKENS = 8192, 16384
_SHORT = 500 * (8,)
PACKINGS = {
    "1": (_TOKENS,),
    "32": shared_out(_TOKENS, 32),
    "1000": shared_out(_TOKENS, 1000),
    "1 long, 1000 short": (*_SHORT, _TOKENS - 2 * sum(_SHORT), *_SHORT),
}


def _packings(form: str, layout: str, *names: str) -> list[Case]:
    return [
        sequence_case(Problem(1, _CHANNELS, lengths, layout, form), name)
        for name, lengths in PACKINGS.items()
        if not names or name in names
    ]


SEQUENCES = [
    *(sequence_case(Problem(8, 5120, (2048,), layout, "states")) for layout in ("cf", "cl")),
    *_packings("cu_seqlens", "cl"),
    *_packings("cu_seqlens", "cf", "32", "1000"),
    *_packings("seq_idx", "cl"),
    *_packings("seq_idx", "cf", "32", "1000"),
    *_packings("paged", "cl"),
]
