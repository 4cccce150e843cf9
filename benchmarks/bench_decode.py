"""Suite `decode`: one new token, or a few, for each of many sequences, whose last columns are kept in a state.

A time is that of one update among many in a CUDA graph, with warm caches: each update reads the state that the
previous one has written. The peers run the same way, and so does the floor, a copy of the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from sluice.bench import Case, GraphClock, Suite, Workload, compiled, fresh
from sluice.bench.check import WrongResultError

# One kernel serves every call: there is no choice of schedule, and `sluice.plan` has no plan for it.
_PLAN = sluice.Plan(schedule="direct", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="one kernel")


@dataclasses.dataclass(frozen=True)
class Problem:
    """The sizes of an update, and its options beside `x`, the state and the weight.

    `columns` is the length of a row of the state; `form` one of `FORMS`.
    """

    batch: int
    channels: int
    columns: int
    dtype: str
    tokens: int
    taps: int
    dilation: int
    form: str

    @property
    def history(self) -> int:
        return (self.taps - 1) * self.dilation


@dataclasses.dataclass(frozen=True)
class Step:
    """The tensors of an update.

    `eager(x, state, *operands)` is the code that users write today; it changes its state. `options` are the
    options of `sluice.causal_conv1d_update`. `state` is the state before the first update and never changes.
    """

    x: torch.Tensor
    state: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    activation: str | None
    options: dict[str, Any]
    eager: Callable[..., torch.Tensor]
    operands: tuple[Any, ...]

    def update(self, state: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.causal_conv1d_update(
            self.x, state, self.weight, self.bias, self.activation, out=out, **self.options
        )

    def expected(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The result and the state after it, computed in `dtype`."""
        x, state, weight = (t.to(dtype) for t in (self.x, self.state, self.weight))
        bias = None if self.bias is None else self.bias.to(dtype)
        return sluice.reference.causal_conv1d_update(x, state, weight, bias, self.activation, **self.options)

    def traffic(self, sequences: int) -> int:
        """Bytes: each sequence's state read and written, the result written, everything else read once."""
        read = [self.x, self.weight] + ([] if self.bias is None else [self.bias])
        for option in self.options.values():
            read += option.operands if isinstance(option, sluice.Chain) else []
            read += [option] if isinstance(option, torch.Tensor) else []
        return sum(t.nbytes for t in read) + self.x.nbytes + 2 * sequences * self.state[0].nbytes


# --- what users have ----------------------------------------------------------------------------------------------
def _sums(columns: torch.Tensor, weight: torch.Tensor, dilation: int, tokens: int) -> torch.Tensor:
    """(B, C, tokens) from the last of `columns`, by transformers' multiplication and sum."""
    reach = (weight.shape[1] - 1) * dilation
    windows = columns[..., columns.shape[-1] - reach - tokens :].unfold(-1, reach + 1, 1)
    return (windows[..., ::dilation] * weight[:, None]).sum(-1)


def _torch(
    x: torch.Tensor,
    state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    dilation: int,
    slots: torch.Tensor | None,
) -> torch.Tensor:
    """The state concatenated with the tokens, its last columns kept, then `_sums`."""
    new = x if x.dim() == 3 else x[..., None]
    columns = torch.cat([state if slots is None else state[slots], new], dim=-1)
    kept = columns[..., columns.shape[-1] - state.shape[-1] :]
    if slots is None:
        state.copy_(kept)
    else:
        state.index_copy_(0, slots, kept)
    y = F.silu(_sums(columns, weight, dilation, new.shape[-1]) + bias[:, None])
    return y if x.dim() == 3 else y[..., 0]


def _torch_gated(
    x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor, before: torch.Tensor, behind: torch.Tensor
) -> torch.Tensor:
    """LFM2's short convolution between its two gates; the state has a column for each tap."""
    columns = state.roll(-1, dims=-1)
    columns[..., -1] = before * x
    state.copy_(columns)
    return behind * _sums(columns, weight, 1, 1)[..., 0]


def _torch_accepted(
    x: torch.Tensor,
    state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    accepted: torch.Tensor,
    columns: torch.Tensor,
) -> torch.Tensor:
    """Speculative decoding with equally many tokens in every sequence; `columns` is the history's length."""
    sequences, channels = len(accepted), x.shape[1]
    places = (accepted - 1)[:, None, None] + columns
    history = state.gather(2, places.expand(-1, channels, -1))
    new = x.view(sequences, -1, channels).mT
    joined = torch.cat([history, new], dim=-1)
    state[..., : joined.shape[-1] - 1] = joined[..., 1:]
    y = F.silu(_sums(joined, weight, 1, new.shape[-1]) + bias[:, None])
    return y.mT.reshape(x.shape)


def _causal_conv1d_package(problem: Problem, step: Step) -> Callable[[], object] | None:
    """Dao-AILab's kernel, if the package is installed and supports the form."""
    if problem.form not in ("", "slots") or problem.dilation != 1 or not 2 <= problem.taps <= 4:
        return None
    try:
        package = importlib.import_module("causal_conv1d")
    except ImportError:
        return None
    state, slots = step.state.clone(), step.options.get("conv_state_indices")
    return lambda: package.causal_conv1d_update(
        step.x, state, step.weight, step.bias, step.activation, conv_state_indices=slots
    )


# --- the forms of a state -----------------------------------------------------------------------------------------
def _weights(problem: Problem, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias. The weight is scaled so that results have variance 2, where SiLU is nonlinear."""
    weight = fresh(problem.channels, problem.taps, dtype=problem.dtype, device=device) * problem.taps**-0.5
    return weight, fresh(problem.channels, dtype=problem.dtype, device=device)


def _state(problem: Problem, slots: int, device: torch.device) -> torch.Tensor:
    return fresh(slots, problem.channels, problem.columns, dtype=problem.dtype, device=device)


def moved(problem: Problem, device: torch.device) -> Step:
    """States that move left; several tokens are channels-last, like a projection's output."""
    weight, bias = _weights(problem, device)
    if problem.tokens == 1:
        x = fresh(problem.batch, problem.channels, dtype=problem.dtype, device=device)
    else:
        x = fresh(problem.batch, problem.tokens, problem.channels, dtype=problem.dtype, device=device).mT
    state = _state(problem, problem.batch, device)
    options = {} if problem.dilation == 1 else {"dilation": problem.dilation}
    return Step(x, state, weight, bias, "silu", options, _torch, (weight, bias, problem.dilation, None))


def in_slots(problem: Problem, device: torch.device) -> Step:
    """Half of the slots of a cache, in random order."""
    step = moved(problem, device)
    slots = torch.randperm(2 * problem.batch, device=device)[: problem.batch]
    return dataclasses.replace(
        step,
        state=_state(problem, 2 * problem.batch, device),
        options=step.options | {"conv_state_indices": slots.int()},
        operands=(*step.operands[:-1], slots),
    )


def gated(problem: Problem, device: torch.device) -> Step:
    """LFM2's update: no bias, no activation; both gates and x are thirds of a projection's rows."""
    weight, _ = _weights(problem, device)
    rows = fresh(problem.batch, 3 * problem.channels, dtype=problem.dtype, device=device)
    before, behind, x = rows.chunk(3, dim=1)
    options = {"pre": stages.mul(before), "post": stages.mul(behind)}
    state = _state(problem, problem.batch, device)
    return Step(x, state, weight, None, None, options, _torch_gated, (weight, before, behind))


def accepted(problem: Problem, device: torch.device) -> Step:
    """vLLM's packed speculative decoding: some of each sequence's previous tokens were accepted."""
    weight, bias = _weights(problem, device)
    total = problem.batch * problem.tokens
    x = fresh(total, problem.channels, dtype=problem.dtype, device=device)
    counts = torch.randint(1, problem.tokens + 1, (problem.batch,), device=device)
    options = {
        "query_start_loc": torch.arange(0, total + 1, problem.tokens, dtype=torch.int32, device=device),
        "num_accepted_tokens": counts.int(),
        "state_at": "front",
    }
    operands = (weight, bias, counts, torch.arange(problem.history, device=device))
    return Step(x, _state(problem, problem.batch, device), weight, bias, "silu", options, _torch_accepted, operands)


# The words of a case's name; `fn` contains them too.
FORMS: dict[str, Callable[[Problem, torch.device], Step]] = {
    "": moved,
    "slots": in_slots,
    "gates": gated,
    "accepted": accepted,
}


def _make(problem: Problem, device: torch.device) -> Workload:
    step = FORMS[problem.form](problem, device)
    # Each call has a state of its own. The check compares the first result of `ours` with that of `write`.
    ours, eager = step.state.clone(), step.state.clone()

    def write(out: torch.Tensor) -> None:
        state = step.state.clone()
        step.update(state, out)
        if not torch.equal(state, step.expected(step.x.dtype)[1]):
            raise WrongResultError("the state must have the bits of the reference's")

    return Workload(
        ours=lambda: step.update(ours),
        write=write,
        reference=lambda: step.expected(torch.float64)[0],
        plan=_PLAN,
        traffic=step.traffic(problem.batch),
        peers={
            "torch": lambda: step.eager(step.x, eager, *step.operands),
            "torch_compile": compiled(step.eager, step.x, step.state.clone(), *step.operands),
            "causal_conv1d": _causal_conv1d_package(problem, step),
        },
    )


def decode_case(
    batch: int,
    channels: int,
    columns: int | None = None,
    dtype: str = "bf16",
    *,
    tokens: int = 1,
    taps: int = 4,
    dilation: int = 1,
    form: str = "",
) -> Case:
    """One update of `batch` sequences whose states have `columns`; None: the fewest that the form needs."""
    history = (taps - 1) * dilation
    least = history - 1 + tokens if form == "accepted" else history
    problem = Problem(batch, channels, columns or least, dtype, tokens, taps, dilation, form)
    sizes = f"{batch}x{channels}" + (f"x{tokens}" if tokens > 1 else "")
    spread = f" d={dilation}" if dilation > 1 else ""
    words = f" {form}" if form else ""
    params: dict[str, int | str] = {
        "B": batch,
        "C": channels,
        "L": tokens,
        "K": taps,
        "dilation": dilation,
        "dtype": dtype,
        "op": "causal_conv1d_update",
        "fn": f"{'identity' if form == 'gates' else 'silu'}, state={problem.columns}{words}",
    }
    return Case(
        name=f"{sizes} K={taps}{spread} state={problem.columns} {dtype}{words}",
        params=params,
        make=functools.partial(_make, problem),
    )


_SIZES = ((1, 5120), (1, 8192), (64, 5120), (256, 8192), (17, 6144), (128, 10240))

SUITE = Suite(
    "decode",
    [
        # The taps need K-1 columns; transformers keeps K.
        *(decode_case(*sizes, columns) for sizes in _SIZES for columns in (3, 4)),
        *(decode_case(64, 5120, 4, dtype) for dtype in ("fp16", "fp32")),
        *(decode_case(*sizes, form="slots") for sizes in ((64, 5120), (256, 8192))),
        decode_case(64, 5120, tokens=4),
        decode_case(64, 5120, tokens=4, form="accepted"),
        decode_case(64, 2048, 3, taps=3, form="gates"),
        decode_case(64, 8192, dilation=3),
    ],
    clock=GraphClock,
)
