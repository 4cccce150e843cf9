"""Suite `transform`: stage chains over tensors of any shape, beside a copy of the same bytes and torch's ways."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import sluice
from sluice import Chain, stages
from sluice.bench import Case, Suite, Workload, compiled, fresh, runs_linked

_ROWS, _COLUMNS = 8192, 8200


@dataclasses.dataclass(frozen=True)
class Problem:
    """The computation of a case: `tensors[0]` is the chain's input, `eager` the same on all of them.

    `traffic` counts each input read once and each output written once, in bytes.
    """

    tensors: tuple[torch.Tensor, ...]
    chain: Chain
    eager: Callable[..., torch.Tensor]
    traffic: int
    jiterator: str | None = None
    in_place: bool = False


def _bytes(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


# --- chains over flat tensors -------------------------------------------------------------------------------------
# jiterator passes half types unchanged or as float, depending on the version: both convert to float.
def _code(parameters: str, value: str, result: str) -> str:
    return f"template <typename T> T chain({parameters}) {{ float v = {value}; return static_cast<T>({result}); }}"


def _flat(n: int, offset: int, dtype: str, device: torch.device, count: int = 1) -> tuple[torch.Tensor, ...]:
    # `offset` moves the base pointer of inputs; results are always fresh, so they are aligned.
    return tuple(fresh(offset + n, dtype=dtype, device=device)[offset:] for _ in range(count))


def one_input(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    (x,) = _flat(n, offset, dtype, device)
    return Problem(
        (x,),
        stages.scale(1.5) | stages.shift(0.25) | stages.silu() | stages.scale(0.7),
        lambda x: F.silu(1.5 * x + 0.25) * 0.7,
        2 * _bytes(x),
        _code("T x", "1.5f * static_cast<float>(x) + 0.25f", "v / (1.0f + expf(-v)) * 0.7f"),
    )


def two_inputs(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    x, y = _flat(n, offset, dtype, device, 2)
    return Problem(
        (x, y),
        stages.scale(1.5) | stages.add(y) | stages.silu(),
        lambda x, y: F.silu(1.5 * x + y),
        3 * _bytes(x),
        _code("T x, T y", "1.5f * static_cast<float>(x) + static_cast<float>(y)", "v / (1.0f + expf(-v))"),
    )


def ten_ops(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    (x,) = _flat(n, offset, dtype, device)
    chain = stages.scale(1.1) | stages.shift(0.1) | stages.relu() | stages.silu() | stages.clamp(-1.0, 3.0)
    chain = chain | stages.abs() | stages.square() | stages.shift(0.2) | stages.sqrt() | stages.sigmoid()

    def eager(x: torch.Tensor) -> torch.Tensor:
        y = torch.clamp(F.silu(F.relu(1.1 * x + 0.1)), -1.0, 3.0)
        return torch.sigmoid(torch.sqrt(torch.square(torch.abs(y)) + 0.2))

    return Problem((x,), chain, eager, 2 * _bytes(x))


Function = Callable[[torch.Tensor], torch.Tensor]

# The stage functions, alone and after a bias: as a chain, and as torch's.
FUNCTIONS: dict[str, tuple[Chain, Function]] = {
    "gelu": (stages.gelu(), F.gelu),
    "gelu_tanh": (stages.gelu("tanh"), functools.partial(F.gelu, approximate="tanh")),
    "silu": (stages.silu(), F.silu),
    "snake": (stages.snake(1.3), lambda x: x + torch.sin(1.3 * x).square() / (1.3 + 1e-9)),
    "softplus": (stages.softplus(), F.softplus),
    "tanh": (stages.tanh(), torch.tanh),
    "elu": (stages.elu(), F.elu),
}


def function(chain: Chain, eager: Function, n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    (x,) = _flat(n, offset, dtype, device)
    return Problem((x,), chain, eager, 2 * _bytes(x))


def cpp_stage(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    (x,) = _flat(n, offset, dtype, device)
    soft = stages.cpp("x / (1.0f + a * fabsf(x))", name="soft", a=0.5, reference=lambda x, a: x / (1 + a * x.abs()))
    return Problem((x,), soft, lambda x: x / (1 + 0.5 * x.abs()), 2 * _bytes(x))


def mixed(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    (x,) = _flat(n, offset, dtype, device)
    y = fresh(n, dtype="fp32", device=device)
    return Problem(
        (x, y), stages.mul(y) | stages.silu(), lambda x, y: F.silu(x * y).to(x.dtype), 2 * _bytes(x) + _bytes(y)
    )


def four_in_place(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    # The chain is idempotent, so that the call can be both timed and checked.
    x, low, high, other = _flat(n, offset, dtype, device, 4)
    chain = stages.clamp(low, high) | stages.add(other, 0.0)
    eager = lambda x, low, high, other: x.clamp_(low, high).add_(other, alpha=0.0)  # noqa: E731
    return Problem((x, low, high, other), chain, eager, 5 * _bytes(x), in_place=True)


# --- chains over rows ---------------------------------------------------------------------------------------------
def row_slice(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    wide = fresh(_ROWS, _COLUMNS, dtype=dtype, device=device)
    problem = one_input(1, 0, dtype, device)
    x = wide[:, offset : offset + n // _ROWS]
    return dataclasses.replace(problem, tensors=(x,), traffic=2 * _bytes(x))


def swiglu(n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    wide = fresh(_ROWS, 2 * n // _ROWS, dtype=dtype, device=device)
    gate, value = wide.chunk(2, dim=1)
    return Problem((gate, value), stages.silu() | stages.mul(value), lambda g, v: F.silu(g) * v, 3 * _bytes(gate))


def biased(chain: Chain, eager: Function, n: int, offset: int, dtype: str, device: torch.device) -> Problem:
    x = fresh(_ROWS, n // _ROWS, dtype=dtype, device=device)
    bias = fresh(n // _ROWS, dtype=dtype, device=device)
    return Problem((x, bias), stages.add(bias) | chain, lambda x, b: eager(x + b), 2 * _bytes(x) + _bytes(bias))


_ONE, _TWO, _TEN = "silu(1.5*x + 0.25) * 0.7", "silu(1.5*x + y)", "ten ops"
_CPP, _MIXED, _IN_PLACE = "x / (1 + 0.5 |x|) in C++", "silu(x * y), y fp32", "clamp(x, a, b) + 0 c, in place"
_SLICE, _SWIGLU = f"{_ONE} on a row slice", "silu(g) * v on row halves"


def _alone(name: str) -> str:
    return f"{name}(x)"


def _biased(name: str) -> str:
    return f"{name}(x + b), b a row"


OPS = {
    _ONE: one_input,
    _TWO: two_inputs,
    _TEN: ten_ops,
    _CPP: cpp_stage,
    _MIXED: mixed,
    _IN_PLACE: four_in_place,
    _SLICE: row_slice,
    _SWIGLU: swiglu,
    **{_alone(name): functools.partial(function, *row) for name, row in FUNCTIONS.items()},
    **{_biased(name): functools.partial(biased, *row) for name, row in FUNCTIONS.items()},
}


def _jiterator(code: str, *tensors: torch.Tensor) -> torch.Tensor:
    return _jitted(code)(*tensors)


@functools.cache
def _jitted(code: str):
    return torch.cuda.jiterator._create_jit_fn(code)


def _make(op: str, n: int, offset: int, dtype: str, schedule: str, depth: int | None, device: torch.device) -> Workload:
    problem = OPS[op](n, offset, dtype, device)
    x, chain, eager = problem.tensors[0], problem.chain, problem.eager
    target = x if problem.in_place else None
    peers: dict[str, Callable[[], object] | None] = {}
    if schedule == "auto":  # with a forced schedule they would be the same
        peers["torch"] = lambda: eager(*problem.tensors)
        peers["torch_compile"] = compiled(eager, *problem.tensors)
        code = problem.jiterator
        peers["jiterator"] = None if code is None else lambda: _jiterator(code, *problem.tensors)
    if len(problem.tensors) == 1 and x.is_contiguous():
        copied = torch.empty_like(x)
        peers["copy"] = lambda: copied.copy_(x)  # x with its own alignment; the floor copies aligned bytes
    return Workload(
        ours=lambda: sluice.transform(x, chain, schedule=schedule, depth=depth, out=target),
        write=lambda out: sluice.transform(x, chain, schedule=schedule, depth=depth, out=out),
        reference=lambda: sluice.reference.transform(x.double(), chain, dtype=torch.float64),
        plan=sluice.plan("transform", x, chain, schedule=schedule, depth=depth),
        traffic=problem.traffic,
        peers=peers,
    )


# --- small tensors in a CUDA graph --------------------------------------------------------------------------------
_LAUNCHES = 20


def _captured(call: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(4):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_LAUNCHES):
            call()
    return graph.replay


def _make_graph(n: int, dtype: str, schedule: str, depth: int | None, device: torch.device) -> Workload:
    problem = one_input(n, 0, dtype, device)
    (x,) = problem.tensors
    out, other = torch.empty_like(x), torch.empty_like(x)
    program = compiled(problem.eager, x)
    if schedule == "auto":
        program()
    options: dict[str, Any] = {"schedule": schedule, "depth": depth}
    sluice.prepare(problem.chain, x, out=out, **options)
    linked = runs_linked(lambda: sluice.transform(x, problem.chain, out=out, **options))
    replay = _captured(lambda: sluice.transform(x, problem.chain, out=out, **options))

    def ours() -> torch.Tensor:
        replay()
        return out

    return Workload(
        ours=ours,
        write=lambda result: sluice.transform(x, problem.chain, out=result, **options),
        reference=lambda: sluice.reference.transform(x.double(), problem.chain, dtype=torch.float64),
        plan=sluice.plan("transform", x, problem.chain, **options),
        traffic=problem.traffic,
        peers={
            "torch": _captured(lambda: problem.eager(x)),
            "torch_compile": _captured(program),
            "copy": _captured(lambda: other.copy_(x)),
        }
        if schedule == "auto"
        else {"copy": _captured(lambda: other.copy_(x))},
        linked=linked,
        floor_peer="copy",
    )


def _size(n: int) -> str:
    power = n.bit_length() - 1
    rest = n - 2**power
    return f"2^{power}" if rest == 0 else f"2^{power}+{rest}" if rest < 100 else str(n)


def _suffix(schedule: str, depth: int | None) -> str:
    return "" if schedule == "auto" else f", {schedule}" + ("" if depth is None else f" {depth}")


def chain_case(
    dtype: str, n: int, op: str = _ONE, *, offset: int = 0, schedule: str = "auto", depth: int | None = None
) -> Case:
    """`op` on `n` elements whose first is `offset` elements after an aligned address."""
    name = f"{dtype} {_size(n)} {op}"
    if offset:
        name += f", offset {offset}"
    name += _suffix(schedule, depth)
    return Case(
        name=name,
        params={"n": n, "offset": offset, "dtype": dtype, "op": op},
        make=functools.partial(_make, op, n, offset, dtype, schedule, depth),
        auto=schedule == "auto",
    )


def graph_case(dtype: str, n: int, *, schedule: str = "auto", depth: int | None = None) -> Case:
    """The one-input chain, launched several times by one CUDA graph."""
    op = f"{_ONE}, {_LAUNCHES} launches in a graph"
    return Case(
        name=f"{dtype} {_size(n)} graph of {_LAUNCHES}" + _suffix(schedule, depth),
        params={"n": n, "offset": 0, "dtype": dtype, "op": op},
        make=functools.partial(_make_graph, n, dtype, schedule, depth),
        auto=schedule == "auto",
    )


SUITE = Suite(
    "transform",
    [
        chain_case("bf16", 2**24),
        chain_case("bf16", 2**26),
        chain_case("bf16", 2**26, offset=1),
        chain_case("bf16", 2**28),
        chain_case("bf16", 2**28 + 3),
        chain_case("fp16", 2**26, offset=1),
        chain_case("fp32", 2**24),
        chain_case("fp32", 2**26),
        chain_case("fp32", 2**26, offset=1),
        chain_case("fp32", 2**28 + 3),
        chain_case("bf16", 2**26, _TWO),
        chain_case("bf16", 2**28 + 3, _TWO),
        chain_case("fp32", 2**26, _TWO, offset=1),
        chain_case("bf16", 2**26, _TEN),
        chain_case("bf16", 2**26 + 3, _TEN),
        chain_case("bf16", 2**24, _TEN),
        chain_case("fp16", 2**26, _TEN),
        *(chain_case("bf16", 2**24, _alone(name)) for name in FUNCTIONS),
        *(chain_case(dtype, 2**26, _alone(name)) for dtype in ("bf16", "fp16", "fp32") for name in FUNCTIONS),
        *(chain_case(dtype, _ROWS * 8192, _biased(name)) for dtype in ("bf16", "fp16") for name in FUNCTIONS),
        chain_case("bf16", 2**26, _CPP),
        chain_case("bf16", 2**26, _MIXED),
        chain_case("bf16", 2**26, _IN_PLACE),
        chain_case("bf16", _ROWS * 8192, _SLICE),
        chain_case("bf16", _ROWS * 8191, _SLICE, offset=1),
        chain_case("fp32", _ROWS * 8192, _SLICE),
        chain_case("bf16", _ROWS * 4100, _SWIGLU),
        chain_case("fp32", _ROWS * 4100, _SWIGLU),
        *(graph_case("bf16", 2**power) for power in (10, 14, 17, 20)),
    ],
)
