"""Suite `transform`: a stage chain over one tensor, beside a copy of the same bytes and what users have today."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from sluice.bench import DTYPES, Case, Suite, Workload, compiled, fresh

_SCHEDULES = ("direct", "sync", "multi_stage", "thread_scope")
_ONE_INPUT = "silu(1.5*x + 0.25) * 0.7"
_TWO_INPUTS = "silu(1.5*x + y)"

# jiterator hands half types over as they are or as float, depending on the version: both convert to float.
_ONE_INPUT_CODE = """
template <typename T> T chain(T x) {
  float v = 1.5f * static_cast<float>(x) + 0.25f;
  return static_cast<T>(v / (1.0f + expf(-v)) * 0.7f);
}
"""
_TWO_INPUTS_CODE = """
template <typename T> T chain(T x, T y) {
  float v = 1.5f * static_cast<float>(x) + static_cast<float>(y);
  return static_cast<T>(v / (1.0f + expf(-v)));
}
"""


def _one_input(x: torch.Tensor) -> torch.Tensor:
    return F.silu(1.5 * x + 0.25) * 0.7


def _two_inputs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(1.5 * x + y)


def _jiterator(code: str, *tensors: torch.Tensor) -> torch.Tensor:
    return _jitted(code)(*tensors)


@functools.cache
def _jitted(code: str):
    return torch.cuda.jiterator._create_jit_fn(code)


def _make(n: int, offset: int, dtype: str, inputs: int, schedule: str, device: torch.device) -> Workload:
    # The base pointer is what `offset` moves; results are always fresh, and so aligned.
    tensors = [fresh(offset + n, dtype=dtype, device=device)[offset:] for _ in range(inputs)]
    x = tensors[0]
    if inputs == 1:
        chain = stages.scale(1.5) | stages.shift(0.25) | stages.silu() | stages.scale(0.7)
        eager, code = _one_input, _ONE_INPUT_CODE
    else:
        chain = stages.scale(1.5) | stages.add(tensors[1]) | stages.silu()
        eager, code = _two_inputs, _TWO_INPUTS_CODE
    target = torch.empty_like(x)
    peers = {
        "torch": lambda: eager(*tensors),
        "torch_compile": compiled(eager, *tensors),
        "jiterator": lambda: _jiterator(code, *tensors),
        # cub::DeviceTransform has no Python binding, so it cannot run here.
        "cub": None,
    }
    if schedule != "auto":
        peers = {}  # the same as in the row of "auto"
    if inputs == 1:
        peers["copy"] = lambda: target.copy_(x)  # of x as it lies; the floor copies aligned bytes
    return Workload(
        ours=lambda: sluice.transform(x, chain, schedule=schedule),
        write=lambda out: sluice.transform(x, chain, schedule=schedule, out=out),
        reference=lambda: sluice.reference.transform(x.double(), chain),
        plan=sluice.plan("transform", x, chain, schedule=schedule),
        traffic=(inputs + 1) * n * DTYPES[dtype].itemsize,
        peers=peers,
    )


def _size(n: int) -> str:
    power = n.bit_length() - 1
    rest = n - 2**power
    return f"2^{power}+{rest}" if rest else f"2^{power}"


def chain_case(dtype: str, n: int, *, offset: int = 0, inputs: int = 1, schedule: str = "auto") -> Case:
    """The chain on `n` elements that start `offset` elements behind an aligned address."""
    name = f"{dtype} {_size(n)}"
    if offset:
        name += f" offset {offset}"
    if inputs == 2:
        name += " two inputs"
    if schedule != "auto":
        name += f" {schedule}"
    return Case(
        name=name,
        params={"n": n, "offset": offset, "dtype": dtype, "op": _ONE_INPUT if inputs == 1 else _TWO_INPUTS},
        make=functools.partial(_make, n, offset, dtype, inputs, schedule),
        auto=schedule == "auto",
    )


SUITE = Suite(
    "transform",
    [
        chain_case("bf16", 2**26),
        chain_case("bf16", 2**26, offset=1),
        chain_case("bf16", 2**26, inputs=2),
        chain_case("bf16", 2**24),
        chain_case("bf16", 2**28),
        chain_case("bf16", 2**28 + 3),
        chain_case("fp32", 2**26),
        *(chain_case("bf16", 2**26, schedule=schedule) for schedule in _SCHEDULES),
    ],
)
