"""gated_channels and eight_taps_channels: dilations, chains with tensors, histories, tails of tiles, poison around."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sluice
from common import (
    NAN,
    NARROW_TYPES,
    TOLERANCE,
    Given,
    contiguous,
    double_chain,
    error_of_sums,
    in_float64,
    permuted,
    sliced,
)
from gpu_tensors import DEVICE, around, placed, randn
from linked_forms import link_mode
from marks import LINKED_ON_GPU
from sluice import reference, stages

pytestmark = LINKED_ON_GPU

DILATIONS = [1, 2, 3, 7]
FEW_TAPS = ("few_taps_channels", "gated_channels", "eight_taps_channels")


def kernel_of(taps: int, dilation: int, has_pre: bool, has_tensors: bool) -> str:
    if taps > 4:
        return "eight_taps_channels"
    return "gated_channels" if dilation > 1 or has_pre or has_tensors else "few_taps_channels"


def draw_length(rng: random.Random, channels: int, dilation: int, dtype: torch.dtype) -> int:
    """1 to 40, or around one or two tiles: adjacent threads have four channels each."""
    lanes = 32
    while lanes > 1 and lanes // 2 >= -(-channels // 4):
        lanes //= 2
    tile = 64 // lanes * (16 // dtype.itemsize) * dilation
    around_tiles = rng.randint(1, 2) * tile + rng.randint(-dilation - 2, dilation + 2)
    return rng.randint(1, 40) if rng.random() < 0.6 or around_tiles < 1 else around_tiles


def quads(rng: random.Random, sizes: tuple[int, int, int], fill: float, dtype: torch.dtype) -> torch.Tensor:
    """Channels-last, inside other memory, with aligned vectors of four channels.

    With one position the channels are contiguous as well.
    """
    return placed(sizes, "cl", 4 * rng.randrange(3), 4 * rng.choice([0, 0, 1, 2]), fill, dtype)


class Problem:
    """x, a weight and a bias, and a poisoned part of wider memory to write."""

    def __init__(self, rng: random.Random, dtype: torch.dtype, taps: int, dilation: int, channels: int) -> None:
        span = (taps - 1) * dilation
        padding = rng.choice([0, 1, span // 2, span, rng.randint(0, span + 5)])
        length = max(draw_length(rng, channels, dilation, dtype), span + 1 - 2 * padding)
        batch = rng.randint(1, 2)
        self.x = quads(rng, (batch, channels, length), NAN, dtype).copy_(randn(batch, channels, length))
        self.w = (randn(channels, 1, taps) / taps**0.5).to(dtype)
        self.b = randn(channels, dtype=dtype)
        self.sizes = (batch, channels, length + 2 * padding - span)
        self.out = quads(rng, self.sizes, 7.0, dtype)
        self.numbers = (1, padding, dilation, channels)
        self.name = (taps, dilation, padding, tuple(self.x.shape), self.x.stride(), self.out.stride())

    def run(self, **given: Any) -> torch.Tensor:
        return sluice.conv1d(self.x, self.w, self.b, *self.numbers, **given)

    def kernel(self, **given: Any) -> str:
        return sluice.plan("conv1d", self.x, self.w, self.b, *self.numbers, out=self.out, **given).kernel

    def into_out(self, **given: Any) -> torch.Tensor:
        """A copy of the result; checks the memory around it."""
        self.out.fill_(NAN)
        self.run(out=self.out, **given)
        result = self.out.clone()
        self.out.fill_(7.0)
        assert bool((around(self.out) == 7.0).all()), self.name
        return result


def assert_near(result: torch.Tensor, wanted: torch.Tensor, name: object) -> None:
    """Compares sums of numbers near 1 with such numbers in the chain."""
    allowed = 4 * max(TOLERANCE[result.dtype], 5e-6)
    torch.testing.assert_close(result.double(), wanted, rtol=allowed, atol=allowed, msg=lambda text: f"{name}: {text}")


NUMBERS: list[Given] = [
    {},
    {"post": stages.silu()},
    {"pre": stages.scale(2.0) | stages.shift(0.5)},
    {"pre": stages.silu(), "post": stages.scale(0.5) | stages.silu()},
]


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("given", NUMBERS, ids=lambda given: "-".join(given) or "none")
def test_chains_of_numbers(given: Given, dtype: torch.dtype) -> None:
    """All sums of the method have one order, and all forms of a chain the same bits."""
    rng = random.Random(torch.initial_seed())
    most = 4 if "pre" in given else 8
    every = itertools.product(range(1, most + 1), DILATIONS, (4, 8, 36, 132, 516))
    for number, (taps, dilation, channels) in enumerate(every):
        problem = Problem(rng, dtype, taps, dilation, channels)
        assert problem.kernel(**given) == kernel_of(taps, dilation, "pre" in given, False), problem.name
        result = problem.into_out(**given)
        with link_mode("never"):  # to link each schedule's kernel would take most of the time
            assert torch.equal(result, problem.run(schedule="two_stage", **given)), problem.name
            assert torch.equal(result, problem.run(**given)), problem.name
        if number % 3 == 0 and not given:
            bias = problem.b.double()
            exact = torch.nn.functional.conv1d(problem.x.double(), problem.w.double(), bias, *problem.numbers)
            error = error_of_sums(result, exact, problem.x, problem.w, *problem.numbers)
            assert error <= TOLERANCE[dtype], problem.name


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_channels_that_are_no_quads(dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for taps, dilation, channels in itertools.product((2, 4, 7), DILATIONS, (6, 33, 130)):
        problem = Problem(rng, dtype, taps, dilation, channels)
        assert problem.kernel() not in FEW_TAPS, problem.name
        assert torch.equal(problem.into_out(), problem.run(schedule="two_stage")), problem.name


# --- operands -------------------------------------------------------------------------------------------------------
Operand = Callable[..., torch.Tensor]  # makes a new one each time: for the result, or for "x"
CHAINS: dict[str, Callable[[Operand], Given]] = {
    "gates": lambda o: {"pre": stages.mul(o("x")), "post": stages.mul(o())},
    "number and residual": lambda o: {"pre": stages.scale(2.0), "post": stages.add(o())},
    "several": lambda o: {
        "pre": stages.scale(2.0) | stages.mul(o("x")),
        "post": stages.silu() | stages.mul(o()) | stages.add(o()),
    },
    "residual": lambda o: {"post": stages.add(o())},
    "silu and gate": lambda o: {"post": stages.silu() | stages.mul(o())},
}
# Chains that also have float32 operands: each dtype needs a separate, slow link.
FLOAT32_OPERANDS = ("several", "residual")


def operands(rng: random.Random, problem: Problem, dtype: torch.dtype) -> Operand:
    """Numbers of 0.5 to 1.5 that broadcast to x or to the result, of any layout."""

    def draw(of: str = "result") -> torch.Tensor:
        batch, channels, length = problem.x.shape if of == "x" else problem.sizes
        full = (batch, channels, length)
        shape = rng.choice([full, full, full, (channels, 1), (batch, 1, 1), (length,), (batch, channels, 1), (1,)])
        numbers = torch.rand(shape, device=DEVICE).add(0.5).to(dtype)
        if shape != full:
            return numbers
        part = placed(full, rng.choice(["cl", "cl", "cf"]), rng.randrange(8), rng.choice([0, 1, 4, 8]), NAN, dtype)
        return rng.choice([permuted(numbers), part.copy_(numbers), numbers])

    return draw


def check_chain(rng: random.Random, problem: Problem, name: str, kernel: str, dtype: torch.dtype) -> None:
    given = CHAINS[name](operands(rng, problem, dtype))
    assert problem.kernel(**given) == kernel, problem.name
    result = problem.into_out(**given)
    wanted = in_float64(reference.conv1d, problem.x, problem.w, problem.b, *problem.numbers, **given)
    assert_near(result, wanted, (name, problem.name))
    with link_mode("never"):
        assert torch.equal(result, problem.run(**given)), (name, problem.name)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_chains_with_tensors(name: str, dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    every = itertools.product((1, 2, 3, 4), DILATIONS, range(2))
    for number, (taps, dilation, _) in enumerate(every):
        problem = Problem(rng, dtype, taps, dilation, rng.choice([4, 8, 36, 132, 516]))
        wide = name in FLOAT32_OPERANDS and number % 3 == 0
        check_chain(rng, problem, name, "gated_channels", torch.float32 if wide else dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", ["residual", "silu and gate"])
def test_eight_taps_with_tensors(name: str, dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for taps, dilation, _ in itertools.product((5, 6, 7, 8), (1, 2, 3), range(2)):
        problem = Problem(rng, dtype, taps, dilation, rng.choice([4, 8, 36, 132, 516]))
        check_chain(rng, problem, name, "eight_taps_channels", dtype)


# --- histories ------------------------------------------------------------------------------------------------------
def check_history(rng: random.Random, taps: int, dilation: int, dtype: torch.dtype, make: Callable[..., Given]) -> None:
    channels, batch = rng.choice([4, 8, 36, 132, 516]), rng.randint(1, 2)
    length = draw_length(rng, channels, dilation, dtype)
    sizes = (batch, channels, length)
    x = quads(rng, sizes, NAN, dtype).copy_(randn(*sizes))
    w, b = (randn(channels, taps) / taps**0.5).to(dtype), randn(channels, dtype=dtype)
    layout = rng.choice([contiguous, permuted, sliced])
    states = layout(randn(batch, channels, (taps - 1) * dilation, dtype=dtype))
    chains = make(x)
    given = {"dilation": dilation, "initial_states": states, **chains}
    out, name = quads(rng, sizes, 7.0, dtype), (taps, dilation, sizes, x.stride(), layout.__name__)
    kernel = sluice.plan("causal_conv1d", x, w, b, out=out, **given).kernel
    assert kernel == kernel_of(taps, dilation, "pre" in chains, "residual" in chains or "post" in chains), name
    out.fill_(NAN)
    sluice.causal_conv1d(x, w, b, out=out, **given)
    tokens = reference.transform(x, chains["pre"], dtype=dtype) if "pre" in chains else x
    last = (1, 0, dilation, channels)
    whole = torch.cat([states, tokens], 2)
    wanted = torch.nn.functional.conv1d(whole.double(), w[:, None].double(), b.double(), *last)
    if chains:
        wanted = wanted + chains["residual"].double() if "residual" in chains else wanted
        post = double_chain(chains["post"]) if "post" in chains else sluice.Chain()
        assert_near(out, reference.transform(wanted, post, dtype=torch.float64), name)
    else:
        assert error_of_sums(out, wanted, whole, w[:, None], *last) <= TOLERANCE[dtype], name
        assert torch.equal(out, sluice.causal_conv1d(x, w, b, schedule="two_stage", **given)), name
    with link_mode("never"):
        assert torch.equal(out, sluice.causal_conv1d(x, w, b, **given)), name
    out.fill_(7.0)
    assert bool((around(out) == 7.0).all()), name


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_histories_with_a_dilation(dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for taps, dilation, _ in itertools.product(range(2, 9), DILATIONS, range(3)):
        check_history(rng, taps, dilation, dtype, lambda x: {})


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_histories_behind_gates(dtype: torch.dtype) -> None:
    """`pre` applies only to tokens: a history has earlier results of `pre`."""
    rng = random.Random(torch.initial_seed())

    def gates(x: torch.Tensor) -> Given:
        return {"pre": stages.mul(torch.rand_like(x) + 0.5), "residual": torch.randn_like(x)}

    for taps, dilation in itertools.product((2, 3, 4), DILATIONS):
        check_history(rng, taps, dilation, dtype, gates)
    for taps, dilation in itertools.product((5, 8), (1, 3)):
        check_history(rng, taps, dilation, dtype, lambda x: {"residual": torch.randn_like(x)})


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_an_output_depends_on_its_window_alone(dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for taps, dilation in itertools.product(range(1, 9), DILATIONS):
        sizes, padding = (2, 12, rng.randint(60, 90)), rng.randint(0, (taps - 1) * dilation + 2)
        x = quads(rng, sizes, NAN, dtype).copy_(randn(*sizes))
        for value in (NAN, float("inf")):
            x[torch.rand(x.shape, device=DEVICE) < 0.01] = value
        w, ones = torch.rand(12, 1, taps, device=DEVICE).add(0.5).to(dtype), torch.ones(12, 1, taps, device=DEVICE)
        given: Given = {"padding": padding, "dilation": dilation, "groups": 12}
        touched = torch.nn.functional.conv1d((~x.isfinite()).float(), ones, **given)
        assert torch.equal(sluice.conv1d(x, w, **given).isfinite(), touched < 0.5), (taps, dilation, padding)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_under_sanitizers(dtype: torch.dtype) -> None:
    """Tensors fill their allocations; there is no chain, because it would have to be linked."""
    for taps, dilation, length in ((4, 2, 37), (4, 7, 30), (6, 1, 35), (8, 2, 61)):
        x, w = permuted(randn(2, 36, length, dtype=dtype)), randn(36, taps, dtype=dtype)
        states = permuted(randn(2, 36, (taps - 1) * dilation, dtype=dtype))
        for given in ({}, {"initial_states": states}):
            result = sluice.causal_conv1d(x, w, dilation=dilation, **given)
            whole = torch.cat([given.get("initial_states", torch.zeros_like(states)), x], 2)
            wanted = torch.nn.functional.conv1d(whole.double(), w[:, None].double(), None, 1, 0, dilation, 36)
            assert error_of_sums(result, wanted, whole, w[:, None], 1, 0, dilation, 36) <= TOLERANCE[dtype]
