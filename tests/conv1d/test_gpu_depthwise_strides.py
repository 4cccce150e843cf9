"""Depthwise conv1d with strides and dilations: random problems, both forms, borders, poison around."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

import sluice
from common import DTYPES, TOLERANCE, error_of_sums, relative_error
from gpu_tensors import around, placed
from linked_forms import link_mode
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU


def draw(rng: random.Random, dtype: torch.dtype, layout: str):
    """Arguments of a problem and a place for its result; rows that few and many threads share."""
    taps, stride, dilation = rng.randint(1, 24), rng.randint(1, 9), rng.choice([1, 1, 2, 3, 27])
    stride += stride == 1 and dilation == 1
    reach = (taps - 1) * dilation + 1
    padding = rng.choice([0, reach // 2, reach - 1, rng.randint(0, reach + 3)])
    length = max(int(2 ** rng.uniform(0, 13)), reach - 2 * padding, 1)
    channels, multiplier = rng.choice([1, 2, 3, 14, 33, rng.randint(2, 100)]), rng.choice([1, 1, 2, 5])
    sizes = (rng.randint(1, 3), channels, length)
    x = placed(sizes, layout, rng.randint(0, 7), rng.choice([0, 0, 1, 5]), float("nan"), dtype)
    x.copy_(torch.randn(sizes, device="cuda"))
    w = torch.randn(channels * multiplier, 1, taps, device="cuda", dtype=dtype) / taps**0.5
    b = torch.randn(channels * multiplier, device="cuda", dtype=dtype) if rng.random() < 0.5 else None
    results = (sizes[0], channels * multiplier, (length + 2 * padding - reach) // stride + 1)
    out = placed(results, rng.choice([layout, "cf"]), rng.randint(0, 7), rng.choice([0, 0, 1, 5]), 7.0, dtype)
    return (x, w, b, stride, padding, dilation, channels), out


@pytest.mark.parametrize("layout", ["cf", "cl"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_problems(dtype: torch.dtype, layout: str) -> None:
    rng = random.Random(torch.initial_seed())
    ran = set()
    for _ in range(120):
        arguments, out = draw(rng, dtype, layout)
        plan = sluice.plan("conv1d", *arguments, out=out)
        problem = (plan.kernel, arguments[0].shape, arguments[0].stride(), out.stride(), *arguments[1:2], arguments[3:])
        out.fill_(float("nan"))
        sluice.conv1d(*arguments, out=out)
        x, w, b, *rest = arguments
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), None if b is None else b.double(), *rest)
        assert error_of_sums(out, wanted, x, w, *rest) <= TOLERANCE[dtype], problem
        if plan.method == "depthwise":
            ran.add(plan.kernel)
            with contextlib.suppress(ValueError):  # the inputs of a tile do not fit into a ring
                assert torch.equal(out, sluice.conv1d(*arguments, schedule="two_stage")), problem
        out.fill_(7.0)
        assert bool((around(out) == 7.0).all()), problem
    assert ran >= ({"direct_rows", "direct_channels"} if layout == "cl" else {"direct_rows"})


@pytest.mark.parametrize("length", [5, 61, 700, 5003])
@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (1, 3), (5, 2)])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_the_same_bits_in_both_forms(
    dtype: torch.dtype, stride: int, dilation: int, length: int, linked_always: None
) -> None:
    x = placed((3, 14, length), "cf", 1, 0, float("nan"), dtype)
    x.copy_(torch.randn(x.shape, device="cuda"))
    w = torch.randn(28, 1, 7, device="cuda", dtype=dtype)
    gain, scale = torch.rand(14, 1, device="cuda") + 0.5, torch.rand(28, 1, device="cuda") + 0.5
    arguments = (x, w, None, stride, 3 * dilation, dilation, 14)
    residual = torch.randn_like(sluice.conv1d(*arguments))
    for options in (
        {"post": stages.gelu()},
        {"post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)},
        {"pre": stages.snake(gain), "post": stages.silu()},
        {"pre": stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
    ):
        wanted = sluice.conv1d(*arguments, **options)
        plain = (
            sluice.conv1d(sluice.transform(x, options["pre"], dtype=dtype), *arguments[1:])
            if "pre" in options
            else None
        )
        with link_mode("never"):
            assert torch.equal(sluice.conv1d(*arguments, **options), wanted), options
        if plain is not None:  # padding stays zero
            only = sluice.conv1d(*arguments, pre=options["pre"])
            assert relative_error(only, plain) <= TOLERANCE[dtype], options


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_output_depends_on_its_window_alone(dtype: torch.dtype) -> None:
    for taps, stride, dilation, length in ((2, 2, 1, 61), (3, 1, 2, 400), (9, 3, 4, 1501), (20, 8, 1, 3000)):
        x = torch.randn(2, 15, length, device="cuda", dtype=dtype)
        x[torch.rand_like(x.float()) < 0.01] = float("inf")
        x[torch.rand_like(x.float()) < 0.01] = float("nan")
        w = torch.rand(15, 1, taps, device="cuda", dtype=dtype) + 0.5
        numbers = (stride, taps - 1, dilation, 15)
        result = sluice.conv1d(x, w, None, *numbers)
        ones = torch.ones(15, 1, taps, device="cuda")
        touched = torch.nn.functional.conv1d((~x.isfinite()).float(), ones, None, *numbers)
        assert torch.equal(result.isfinite(), touched < 0.5), (taps, length)


@pytest.mark.sanitize
def test_every_way_to_share_a_row() -> None:
    for length in (1, 9, 40, 100, 300, 1100):
        for dtype in (torch.float16, torch.float32):
            x = placed((2, 3, length), "cf", 1, 1, float("nan"), dtype)
            x.copy_(torch.randn(x.shape, device="cuda"))
            w = torch.randn(6, 1, 5, device="cuda", dtype=dtype)
            for stride, dilation in ((2, 1), (1, 2), (3, 3)):
                numbers = (stride, 2 * dilation, dilation, 3)
                wanted = torch.nn.functional.conv1d(x.double(), w.double(), None, *numbers)
                result = sluice.conv1d(x, w, None, *numbers, post=stages.relu())
                assert relative_error(result, wanted.relu()) <= TOLERANCE[dtype], (length, dtype, stride, dilation)
