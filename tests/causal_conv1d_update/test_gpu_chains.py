"""causal_conv1d_update on a GPU: chains without the interpreter, weights of any kind, out=x, graphs, early launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import sluice
from common import NARROW_TYPES, Given, permuted
from gpu_tensors import DEVICE, randn
from marks import ON_GPU
from sequence_problems import numbers_that_are_none
from sluice import stages
from update_problems import assert_same_bits, check, twin

pytestmark = ON_GPU


class Case(NamedTuple):
    """A call that some kernel takes."""

    width: int
    dilation: int
    columns: int
    tokens: int | None = None  # None: x has two dimensions
    channels: int = 264
    sequences: int = 3

    def x(self, dtype: torch.dtype) -> torch.Tensor:
        if self.tokens is None:
            return randn(self.sequences, self.channels, dtype=dtype)
        return randn(self.sequences, self.tokens, self.channels, dtype=dtype).mT

    def state(self, dtype: torch.dtype) -> torch.Tensor:
        return randn(self.sequences, self.channels, self.columns, dtype=dtype)

    def weight(self, dtype: torch.dtype) -> torch.Tensor:
        return randn(self.channels, self.width, dtype=dtype)


KERNELS = {
    "words": Case(4, 1, 3),
    "words, a row in one access": Case(4, 1, 4),
    "words, nine columns": Case(4, 3, 9),
    "words, many": Case(4, 1, 3, None, 5120, 66),
    "rows": Case(3, 1, 4, 5),
    "registers": Case(4, 1, 3, 5, 33),
    "general": Case(12, 1, 12, 3),
}


def update(x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor, *others: Any, **given: Any) -> torch.Tensor:
    return sluice.causal_conv1d_update(x, state, weight, *others, **given)


# --- chains ---------------------------------------------------------------------------------------------------------
def like(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Random numbers in x's layout."""
    return torch.randn_like(x, dtype=dtype or x.dtype)


def part_of_wider(x: torch.Tensor) -> torch.Tensor:
    """Numbers that begin at an odd channel of a wider tensor."""
    rows = x if x.dim() == 2 else x.mT
    wide = torch.randn((*rows.shape[:-1], rows.shape[-1] + 5), device=x.device).to(x.dtype)
    part = wide[..., 1 : 1 + rows.shape[-1]]
    return part if x.dim() == 2 else part.mT


def each_sequence(x: torch.Tensor) -> torch.Tensor:
    return randn(x.shape[0], *(1,) * (x.dim() - 1), dtype=x.dtype)


def each_channel(x: torch.Tensor) -> torch.Tensor:
    return randn(x.shape[1], *(1,) * (x.dim() - 2), dtype=x.dtype)


# Its tokens are kept after the op's own SiLU, whose last bit may differ from torch's.
TWO_BEFORE = "two stages before"
CHAINS: dict[str, Callable[[torch.Tensor], Given]] = {
    "gates": lambda x: {"pre": stages.mul(like(x)), "post": stages.mul(like(x))},
    "residual": lambda x: {"residual": like(x)},
    "add twice": lambda x: {"post": stages.add(like(x), alpha=2.0)},
    "numbers": lambda x: {"pre": stages.scale(2.0), "residual": like(x), "post": stages.silu()},
    "parts of wider": lambda x: {"pre": stages.mul(part_of_wider(x)), "post": stages.mul(part_of_wider(x))},
    "float32 gates": lambda x: {"pre": stages.mul(like(x, torch.float32)), "post": stages.mul(like(x, torch.float32))},
    "each sequence": lambda x: {"pre": stages.mul(each_sequence(x)), "residual": each_sequence(x)},
    "each channel": lambda x: {"pre": stages.mul(each_channel(x)), "post": stages.mul(each_channel(x))},
    TWO_BEFORE: lambda x: {"pre": stages.mul(like(x)) | stages.silu(), "post": stages.shift(0.5)},
    "three stages": lambda x: {"post": stages.mul(like(x)) | stages.add(like(x)) | stages.silu()},
    "four stages": lambda x: {"residual": like(x), "post": stages.mul(like(x)) | stages.silu() | stages.scale(0.5)},
    "tanh": lambda x: {"pre": stages.mul(like(x)), "post": stages.tanh()},
    "div": lambda x: {"post": stages.div(like(x).abs() + 1)},
}
LIGHT_ROWS = [(3, 1, 3), (3, 1, 2), (4, 1, 3), (4, 1, 4), (4, 3, 9)]
# The interpreter runs this many stages, and a factor of 1 changes no bits.
ONES = stages.scale(1.0) | stages.scale(1.0) | stages.scale(1.0) | stages.scale(1.0)


def interpreted(given: Given) -> Given:
    post = given.get("post")
    return {**given, "post": ONES if post is None else post | ONES}


def test_a_factor_of_one_changes_no_bits() -> None:
    for dtype, whole in ((torch.float16, torch.int16), (torch.bfloat16, torch.int16), (torch.float32, torch.int32)):
        numbers = torch.randint(-(2**31), 2**31, (70_000,), device=DEVICE).to(torch.int32)
        every = numbers if whole is torch.int32 else torch.arange(-(2**15), 2**15, device=DEVICE, dtype=whole)
        x = every.view(dtype)
        x = x[~x.isnan()]
        assert_same_bits(sluice.transform(x, ONES), x)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_interpreters_bits(name: str, dtype: torch.dtype) -> None:
    every = itertools.product(LIGHT_ROWS, (None, 1, 4), (None, "silu"))
    for number, ((width, dilation, columns), tokens, activation) in enumerate(every):
        case = Case(width, dilation, columns, tokens, (264, 136, 33)[(number // 2 + number // 6) % 3])
        x, state, weight = case.x(dtype), case.state(dtype), case.weight(dtype)
        bias = randn(case.channels, dtype=dtype) if number // 6 % 2 else None
        given = CHAINS[name](x) | {"dilation": dilation}
        other = state.clone()
        wanted = update(x, other, weight, bias, activation, **interpreted(given))
        if number % 3 == 0 and name != TWO_BEFORE:
            result, moved = check(x, state, weight, bias, activation, **given), state.clone()
            update(x, moved, weight, bias, activation, **given)
        else:
            moved = state.clone()
            result = update(x, moved, weight, bias, activation, **given)
        assert_same_bits(result, wanted)
        assert_same_bits(moved, other)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_chains_of_packed_tokens(dtype: torch.dtype) -> None:
    """An operand is indexed by its token among all tokens, or is the same for all sequences of a call."""
    starts, slots = torch.tensor([1, 1, 2, 5, 9, 14], device=DEVICE), torch.tensor([5, 0, -1, 2, 4], device=DEVICE)
    for number, (name, (width, more)) in enumerate(itertools.product(CHAINS, ((3, 0), (4, 5)))):
        if name == "each sequence":  # tokens are rows of one dimension
            continue
        x, weight, state = randn(16, 264, dtype=dtype), randn(264, width, dtype=dtype), randn(6, 264, width - 1 + more)
        given = CHAINS[name](x) | {"query_start_loc": starts, "conv_state_indices": slots}
        if number % 2:
            given["state_at"] = "front"
        state = (permuted if number % 4 > 1 else torch.Tensor.contiguous)(state.to(dtype))
        other, moved = state.clone(), state.clone()
        wanted = update(x, other, weight, None, "silu", **interpreted(given))
        assert_same_bits(update(x, moved, weight, None, "silu", **given), wanted)
        assert_same_bits(moved, other)
        if name != TWO_BEFORE:
            check(x, state, weight, None, "silu", **given)


# --- weights --------------------------------------------------------------------------------------------------------
def eight_bytes_further(t: torch.Tensor) -> torch.Tensor:
    """A dense tensor that begins half a word after a word boundary."""
    elements = 8 // t.itemsize
    return t.new_empty(t.numel() + elements)[elements:].view(t.shape).copy_(t)


def every_second(t: torch.Tensor) -> torch.Tensor:
    return torch.stack([t, t + 1], dim=-1)[..., 0]


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "words, many"])
def test_weights_and_biases(name: str, dtype: torch.dtype) -> None:
    """In every layout and dtype the same numbers give the same bits."""
    case = KERNELS[name]
    x, state, dense, bias = case.x(dtype), case.state(dtype), case.weight(dtype), randn(case.channels, dtype=dtype)
    weights = [dense, dense.float(), dense.t().contiguous().t(), eight_bytes_further(dense), every_second(dense)]
    biases = [bias, bias.float(), every_second(bias), eight_bytes_further(bias), bias.double()]
    given: Given = {"dilation": case.dilation}
    wanted, without = check(x, state, dense, bias, "silu", **given), check(x, state, dense, **given)
    for weight, own_bias in itertools.product(weights, biases):
        assert_same_bits(update(x, state.clone(), weight, own_bias, "silu", **given), wanted)
    for weight in weights:
        assert_same_bits(check(x, state, weight, **given), without)
    check(x, state, randn(case.channels, case.width), randn(case.channels), **given)  # no half type has these


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_numbers_that_are_none_keep_their_bits(name: str, dtype: torch.dtype) -> None:
    """Kept tokens and moved columns keep every encoding of NaN."""
    case = KERNELS[name]

    def some_none(t: torch.Tensor) -> torch.Tensor:
        none = numbers_that_are_none(*t.shape, dtype=dtype, device=DEVICE)
        return t.copy_(torch.where(torch.rand(t.shape, device=DEVICE) < 0.2, none, t))

    x, state = some_none(case.x(dtype)), some_none(case.state(dtype))
    check(x, state, case.weight(dtype), dilation=case.dilation)
    if case.sequences == 3:
        slots = torch.tensor([2, -1, 0], device=DEVICE)
        check(x, state, case.weight(dtype), dilation=case.dilation, state_at="front", conv_state_indices=slots)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_a_result_in_the_tokens_memory(name: str, dtype: torch.dtype) -> None:
    case = KERNELS[name]
    x, state, weight, bias = case.x(dtype), case.state(dtype), case.weight(dtype), randn(case.channels, dtype=dtype)
    gate = like(x)
    for given in ({}, {"pre": stages.mul(gate), "residual": gate}):
        own, moved, other = twin(x), state.clone(), state.clone()
        wanted = update(x, other, weight, bias, "silu", dilation=case.dilation, **given)
        assert update(own, moved, weight, bias, "silu", dilation=case.dilation, out=own, **given) is own
        assert_same_bits(own, wanted)
        assert_same_bits(moved, other)


# --- launches one after another -------------------------------------------------------------------------------------
class Step:
    """Kernels of torch before and after the op: each reads what the kernel before wrote, or overwrites what it read."""

    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        self.tokens, self.state, self.base = case.x(dtype), case.state(dtype), case.weight(dtype)
        self.weight, self.bias = torch.zeros_like(self.base), randn(case.channels, dtype=dtype)
        self.dilation = case.dilation
        self.settle: Callable[[], None] = lambda: None

    def twin(self) -> Step:
        copy = object.__new__(Step)
        copy.__dict__ = {name: twin(t) if isinstance(t, torch.Tensor) else t for name, t in self.__dict__.items()}
        return copy

    def run(self, update_settled: Callable[..., torch.Tensor]) -> torch.Tensor:
        torch.mul(self.base, 1.25, out=self.weight)  # the kernel just before writes the weight
        self.settle()
        first = update_settled(self.tokens, self.state, self.weight, self.bias, dilation=self.dilation)
        self.weight.fill_(float("nan"))  # the next one overwrites it
        self.settle()
        y = self.tokens * 2
        self.settle()
        second = update_settled(y, self.state, self.base, None, "silu", dilation=self.dilation)
        z = second + 1
        self.settle()
        # Two updates of one state; the second update takes the first update's results.
        third = update_settled(z, self.state, self.base, self.bias, dilation=self.dilation)
        fourth = update_settled(third, self.state, self.base, out=third, dilation=self.dilation)
        self.tokens.copy_(fourth).clamp_(-2, 2)
        self.settle()
        return torch.stack([first.float(), second.float(), z.float(), fourth.float()])


def settled(step: Step, times: int) -> list[torch.Tensor]:
    """The results if each kernel ends before the next one starts."""

    def update_and_wait(*arguments: Any, **given: Any) -> torch.Tensor:
        result = update(*arguments, **given)
        torch.cuda.synchronize()
        return result

    step.settle = torch.cuda.synchronize
    return [step.run(update_and_wait) for _ in range(times)]


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_calls_one_behind_another(name: str, dtype: torch.dtype) -> None:
    """A kernel may start before the previous one has ended, and waits for its writes."""
    step = Step(KERNELS[name], dtype)
    other = step.twin()
    found = [step.run(update) for _ in range(20)]
    for one, wanted in zip(found, settled(other, 20), strict=True):
        assert_same_bits(one, wanted)
    assert_same_bits(step.state, other.state)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_replays_of_a_cuda_graph(name: str, dtype: torch.dtype) -> None:
    """Twenty consecutive replays have the bits of the same calls outside a graph."""
    step = Step(KERNELS[name], dtype)
    other, unused, graph = step.twin(), step.twin(), torch.cuda.CUDAGraph()
    unused.run(update)  # the first launch of a kernel loads it
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = step.run(update)
    assert_same_bits(step.state, other.state)  # a capture runs nothing
    found = []
    for _ in range(20):
        graph.replay()
        found.append(result.clone())
    for one, wanted in zip(found, settled(other, 20), strict=True):
        assert_same_bits(one, wanted)
    assert_same_bits(step.state, other.state)
