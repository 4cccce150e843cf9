"""Dense float32 convolutions at full precision on a GPU's tensor cores: sums of split products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import LAYOUTS, Layout, relative_error
from gpu_tensors import DEVICE
from marks import ON_GPU, ON_TENSOR_CORES
from rows import naming
from tf32 import tf32_allowed

pytestmark = [*ON_GPU, *ON_TENSOR_CORES]

LEAST_ERROR = 2.0**-147  # a factor's own error: the low parts of denormal numbers are cut too
INFINITY, NAN = float("inf"), float("nan")


class Case(NamedTuple):
    """A convolution of (2, 64, 1000), or a transposed one."""

    ours: Callable[..., torch.Tensor]
    torchs: Callable[..., torch.Tensor]
    op: str
    numbers: tuple[int, ...]
    weight: tuple[int, int, int]

    def make(self, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
        x = layout(torch.randn(2, 64, 1000, device=DEVICE))
        return x, torch.randn(self.weight, device=DEVICE)

    def run(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        plan = sluice.plan(self.op, x, w, None, *self.numbers)
        assert plan.method == "dense", plan
        return self.ours(x, w, None, *self.numbers)

    def expected(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.torchs(x, w, None, *self.numbers)


CASES = [
    Case(sluice.conv1d, F.conv1d, "conv1d", (1, 6, 3), (72, 64, 5)),
    Case(sluice.conv1d, F.conv1d, "conv1d", (2, 3), (310, 64, 7)),
    Case(sluice.conv_transpose1d, F.conv_transpose1d, "conv_transpose1d", (2, 1), (64, 72, 5)),
]
each_case = pytest.mark.parametrize(
    ("case", "layout"),
    [
        pytest.param(case, layout, id=f"{case.op}-{case.numbers[0]}-{layout.__name__}")
        for case in CASES
        for layout in LAYOUTS
    ],
)

# Factors of both ends of the range whose products are in its middle, and products near both ends.
SCALES = [
    (1.0, 1.0), (1e-20, 1e20), (1e20, 1e-20), (2e37, 1e-3), (1e-3, 2e37), (1e-8, 1e-28), (1e16, 1e18),
    (1e-37, 1e10), (1e-38, 1e5), (1e-39, 1e6), (1e6, 1e-39), (1e-41, 1e8), (1e8, 1e-41), (1e-40, 1.0), (1.0, 1e-38),
]  # fmt: skip


@each_case
def test_the_whole_range_is_as_accurate_as_torch(case: Case, layout: Layout) -> None:
    plain_x, plain_w = case.make(layout)
    for of_x, of_w in SCALES:
        x, w = plain_x * of_x, plain_w * of_w
        with naming(of_x, of_w):
            result, wanted = case.run(x, w), case.expected(x.double(), w.double())
            torchs = case.expected(x, w)
            of_factors = case.expected(torch.ones_like(x), w.abs()) + case.expected(x.abs(), torch.ones_like(w))
            allowed = 2 * (torchs.double() - wanted).abs().max() + LEAST_ERROR * of_factors.double()
            assert bool(((result.double() - wanted).abs() <= allowed).all())
            if max(1e-37, of_x, of_w) < 1e30 and min(of_x, of_w) > 1e-30 and of_x * of_w > 1e-30:
                assert relative_error(result, wanted) <= 5e-7


@each_case
def test_mixed_magnitudes(case: Case, layout: Layout) -> None:
    x, w = case.make(layout)
    x = layout(x * torch.exp(4 * torch.randn_like(x)))
    w = w * torch.exp(2 * torch.randn_like(w))
    result, wanted = case.run(x, w), case.expected(x.double(), w.double())
    assert relative_error(result, wanted) <= 1e-6
    # One product may be nearly the whole sum; each of its factors may lose its last bit.
    allowed = 2 * (case.expected(x, w).double() - wanted).abs().max() + 2.0**-22 * case.expected(x.abs(), w.abs())
    assert bool(((result.double() - wanted).abs() <= allowed).all())


@each_case
def test_sums_of_integers_are_exact(case: Case, layout: Layout) -> None:
    x, w = (tensor.mul(3).round() for tensor in case.make(layout))
    result = case.run(layout(x), w)
    assert torch.equal(result.double(), case.expected(x.double(), w.double()))


@each_case
def test_values_that_are_not_finite_are_as_on_the_cpu(case: Case, layout: Layout) -> None:
    """In both factors, against zeros and numbers whose low parts have either sign.

    On the CPU padding has no products; here an infinite weight times its zeros is NaN.
    """
    x, w = case.make(layout)
    x[:, ::7], w[::5] = x[:, ::7].round(), w[::5].round()
    signalling = torch.tensor([0x7F800001], dtype=torch.int32, device=DEVICE).view(torch.float32)[0]
    for number, (of_x, of_w) in enumerate(
        [(INFINITY, None), (-INFINITY, None), (NAN, None), (signalling, None), (None, INFINITY), (None, -INFINITY),
         (None, NAN), (INFINITY, -INFINITY), (3.4028235e38, 0.25)]
    ):  # fmt: skip
        one, other = x.clone(), w.clone()
        if of_x is not None:
            one[0, number, 300], one[1, 3 * number, 500 + number] = of_x, of_x
        if of_w is not None:
            other[number, 2 * number, 1] = of_w
        inside = slice(20, -20) if of_w is not None else slice(None)
        result = case.run(layout(one), other).cpu()[..., inside]
        wanted = case.expected(one.cpu(), other.cpu())[..., inside]
        with naming(of_x, of_w):
            assert torch.equal(result.isnan(), wanted.isnan())
            special = wanted.isinf()
            assert torch.equal(result.isinf(), special)
            assert torch.equal(result[special], wanted[special])


@each_case
def test_both_precisions(case: Case, layout: Layout) -> None:
    """Each has the same bits in every run, by a packed weight too; the setting decides which runs."""
    x, w = case.make(layout)
    results = {}
    for allowed in (False, True, False):
        with tf32_allowed(allowed):
            result = case.ours(x, w, None, *case.numbers)
            assert torch.equal(result, case.ours(x, w, None, *case.numbers))
            assert torch.equal(result, results.setdefault(allowed, result))
            if case.op == "conv1d":
                packed = sluice.pack(w)
                assert torch.equal(result, sluice.conv1d(x, packed, None, *case.numbers))
        if case.op == "conv1d":  # packed for the other precision
            with tf32_allowed(not allowed):
                other = sluice.conv1d(x, packed, None, *case.numbers)
                assert torch.equal(other, sluice.conv1d(x, w, None, *case.numbers))
    wanted = case.expected(x.double(), w.double())
    assert relative_error(results[False], wanted) <= 1e-6
    assert 1e-5 < relative_error(results[True], wanted) <= 1e-3
