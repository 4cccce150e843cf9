"""Rows at any alignment and windows in registers: random problems, both forms, borders, poison around."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

import sluice
from common import NARROW_TYPES, TOLERANCE, error_of_sums, relative_error
from gpu_tensors import around, placed
from linked_forms import link_mode
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU

KERNELS = ("few_taps_rows", "plain_rows", "window_rows", "window_channels", "window_channels_pairs")


def draw(rng: random.Random, dtype: torch.dtype, layout: str, taps: int):
    padding = rng.choice([0, taps // 2, taps - 1, rng.randint(0, taps + 3)])
    length = max(int(2 ** rng.uniform(0, 12)), taps - 2 * padding, 1)
    channels = rng.choice([2, 3, 14, 33, 64, rng.randint(2, 200)])
    sizes = (rng.randint(1, 3), channels, length)
    x = placed(sizes, layout, rng.randint(0, 7), rng.choice([0, 0, 1, 2, 5]), float("nan"), dtype)
    x.copy_(torch.randn(sizes, device="cuda"))
    w = torch.randn(channels, 1, taps, device="cuda", dtype=dtype) / taps**0.5
    b = torch.randn(channels, device="cuda", dtype=dtype) if rng.random() < 0.5 else None
    results = (sizes[0], channels, length + 2 * padding - taps + 1)
    out = placed(results, layout, rng.randint(0, 7), rng.choice([0, 0, 1, 2, 5]), 7.0, dtype)
    return (x, w, b, 1, padding, 1, channels), out


@pytest.mark.parametrize("layout", ["cf", "cl"])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_random_problems(dtype: torch.dtype, layout: str) -> None:
    rng = random.Random(torch.initial_seed())
    ran = set()
    for number in range(150):
        many = int(2 ** rng.uniform(0, 9 if layout == "cl" else 10))
        # Half types with 5 to 8 taps are plain_rows' where the schedule is forced; else tensor cores have most of them.
        is_forced = layout == "cf" and number % 5 == 0
        taps, given = (rng.randint(5, 8), {"schedule": "direct"}) if is_forced else (many, {})
        arguments, out = draw(rng, dtype, layout, taps)
        if 0 in out.shape:
            continue
        kernel = sluice.plan("conv1d", *arguments, out=out, **given).kernel
        ran.add(kernel)
        problem = (kernel, arguments[0].shape, arguments[0].stride(), out.stride(), arguments[1].shape, arguments[4])
        out.fill_(float("nan"))
        sluice.conv1d(*arguments, out=out, **given)
        x, w, b, *rest = arguments
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), None if b is None else b.double(), *rest)
        # One tap after another: what rounding adds up to grows with their number's root.
        growth = max(1.0, (w.shape[2] / 128) ** 0.5) if dtype == torch.float32 else 1.0
        assert error_of_sums(out, wanted, x, w, *rest) <= TOLERANCE[dtype] * growth, problem
        if kernel in KERNELS:  # one order of sums in all of the method's kernels
            with contextlib.suppress(ValueError):  # so many taps of a block's channels do not fit into a ring
                assert torch.equal(out, sluice.conv1d(*arguments, schedule="two_stage")), problem
        out.fill_(7.0)
        assert bool((around(out) == 7.0).all()), problem
    rows = {"few_taps_rows", "window_rows"}  # plain_rows holds four taps of float32, which are few
    if dtype != torch.float32:
        rows.add("plain_rows")
    assert ran & {"window_channels", "window_channels_pairs"} if layout == "cl" else ran >= rows


@pytest.mark.parametrize("taps", [3, 4, 7, 33, 100])
@pytest.mark.parametrize("channels", [3, 14, 37, 130])
@pytest.mark.parametrize("layout", ["cf", "cl"])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_the_same_bits_in_both_forms(
    dtype: torch.dtype, layout: str, channels: int, taps: int, linked_always: None
) -> None:
    x = placed((3, channels, 1501), layout, 1, 0, float("nan"), dtype)
    x.copy_(torch.randn(x.shape, device="cuda"))
    w = torch.randn(channels, 1, taps, device="cuda", dtype=dtype) / taps**0.5
    b, gain = torch.randn(channels, device="cuda", dtype=dtype), torch.rand(channels, 1, device="cuda") + 0.5
    arguments = (x, w, b, 1, taps // 2, 1, channels)
    residual = torch.randn_like(sluice.conv1d(*arguments))
    for options in (
        {},
        {"post": stages.gelu()},
        {"post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(gain)},
        {"pre": stages.snake(gain), "post": stages.silu()},
        {"pre": stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
        {"post": stages.silu(), "dtype": torch.float16},
    ):
        wanted = sluice.conv1d(*arguments, **options)
        assert torch.equal(sluice.conv1d(*arguments, **options), wanted), options
        with link_mode("never"):
            assert torch.equal(sluice.conv1d(*arguments, **options), wanted), options


@pytest.mark.parametrize("layout", ["cf", "cl"])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_an_output_depends_on_its_window_alone(dtype: torch.dtype, layout: str) -> None:
    for taps in (2, 3, 4, 5, 9, 18, 19, 20, 21, 40):
        for length in (61, 400):
            x = torch.randn(2, 15, length, device="cuda", dtype=dtype)
            x[torch.rand_like(x.float()) < 0.01] = float("inf")
            x[torch.rand_like(x.float()) < 0.01] = float("nan")
            x = x if layout == "cf" else x.transpose(1, 2).contiguous().transpose(1, 2)
            w = torch.rand(15, 1, taps, device="cuda", dtype=dtype) + 0.5
            result = sluice.conv1d(x, w, padding=taps - 1, groups=15)
            touched = torch.nn.functional.conv1d(
                (~x.isfinite()).float(), torch.ones(15, 1, taps, device="cuda"), padding=taps - 1, groups=15
            )
            assert torch.equal(result.isfinite(), touched < 0.5), (taps, length)


def test_one_filter_for_several_outputs_and_a_history() -> None:
    for taps in (4, 9, 65):
        x, w = torch.randn(2, 7, 1003, device="cuda"), torch.randn(21, 1, taps, device="cuda")
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=taps // 2, groups=7)
        assert relative_error(sluice.conv1d(x, w, padding=taps // 2, groups=7), wanted) <= 1e-6
        for last in (False, True):
            x = torch.randn(2, 37, 1003, device="cuda")
            x = x.transpose(1, 2).contiguous().transpose(1, 2) if last else x
            w, states = torch.randn(37, taps, device="cuda"), torch.randn(2, 37, taps - 1, device="cuda")
            got = sluice.causal_conv1d(x, w, initial_states=states)
            whole = torch.cat([states, x], 2).double()
            wanted = torch.nn.functional.conv1d(whole, w[:, None].double(), groups=37)
            assert relative_error(got, wanted) <= 1e-6, (taps, last)


@pytest.mark.large
def test_over_2_31_elements() -> None:
    length = 2**31 + 4099
    x = torch.empty(1, 1, length, device="cuda", dtype=torch.float32).uniform_(-1, 1)
    for taps in (3, 33):
        w = torch.randn(1, 1, taps, device="cuda")
        y = sluice.conv1d(x, w, padding=1)
        for begin in (0, 2**31 - 2000, y.shape[2] - 4000):
            part = x[..., max(begin - 1, 0) : begin + 4000 + taps - 2].double()
            wanted = torch.nn.functional.conv1d(part, w.double())[..., : 4000 - taps]
            got = y[..., begin + (1 if begin == 0 else 0) :][..., : wanted.shape[2]]
            assert relative_error(got, wanted) <= 1e-6
