"""The long filters' kernel: the same bits in both forms and in every run, borders, random problems, memory."""

from __future__ import annotations

import functools
import random

import pytest
import torch

import sluice
from common import (
    HALF_TYPES,
    TOLERANCE,
    assert_close,
    contiguous,
    ends_of_words,
    offset_by_one,
    parts_of_positions,
    permuted,
    relative_error,
)
from linked_forms import assert_forms_agree, link_mode
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU


LAYOUTS = [contiguous, offset_by_one, ends_of_words]
CHANNELS_LAST = [permuted, parts_of_positions]
GATHERED = 128  # more taps than the depthwise kernels have where words of channels are gathered


def long_filter(x, w, b=None, padding: int = 0, dilation: int = 1, **options) -> torch.Tensor:
    """By the kernel of that name, and no other."""
    groups = x.shape[1]
    asked = {name: value for name, value in options.items() if name != "out"}
    assert sluice.plan("conv1d", x, w, b, 1, padding, dilation, groups, **asked).method == "long_filter"
    return sluice.conv1d(x, w, b, 1, padding, dilation, groups, **options)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_random_problems(dtype: torch.dtype, layout) -> None:
    rng = random.Random(torch.initial_seed())
    for _ in range(40):
        taps, dilation = max(5, int(2 ** rng.uniform(2, 9))), rng.choice([1, 1, 1, 2, 3])
        reach = (taps - 1) * dilation + 1
        padding = rng.choice([0, reach // 2, reach - 1, rng.randint(0, reach + 9)])
        length = max(int(2 ** rng.uniform(3, 13)), reach + 192 - 2 * padding)
        problem = (rng.randint(1, 3), rng.randint(1, 40), length, taps, padding, dilation)
        x = layout(torch.randn(problem[:3], device="cuda", dtype=dtype))
        w = torch.randn(problem[1], 1, taps, device="cuda", dtype=dtype) / taps**0.5
        b = torch.randn(problem[1], device="cuda", dtype=dtype)
        results = length + 2 * padding - reach + 1
        around = torch.full((problem[0], problem[1] + 4, results + 6), 7.0, device="cuda", dtype=dtype)
        out = around[:, 2 : 2 + problem[1], 3 : 3 + results].fill_(float("nan"))
        sluice.conv1d(x, w, b, 1, padding, dilation, problem[1], out=out)
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), 1, padding, dilation, problem[1])
        assert relative_error(out, wanted) <= TOLERANCE[dtype], problem
        out.fill_(7.0)
        assert bool((around == 7.0).all()), problem


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("taps", [9, 31, 64, 200])
def test_the_same_bits_in_both_forms_and_every_run(taps: int, layout, dtype: torch.dtype, linked_always: None) -> None:
    x = layout(torch.randn(3, 70, 1501, device="cuda", dtype=dtype))
    w = torch.randn(70, 1, taps, device="cuda", dtype=dtype) / taps**0.5
    b, gain = torch.randn(70, device="cuda", dtype=dtype), torch.rand(70, 1, device="cuda") + 0.5
    plain = long_filter(x, w, b, taps // 2)
    residual = torch.randn_like(plain)
    passes = sluice.transform(long_filter(x, w, b, taps // 2, dtype=torch.float32), stages.gelu(), dtype=dtype)
    assert_close(long_filter(x, w, b, taps // 2, post=stages.gelu()), passes.double())
    assert_forms_agree(functools.partial(long_filter, x, w, b, taps // 2), residual, gain)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layout", CHANNELS_LAST, ids=lambda f: f.__name__)
def test_random_problems_with_channels_last(dtype: torch.dtype, layout) -> None:
    rng = random.Random(torch.initial_seed())
    for _ in range(40):
        taps, dilation = int(2 ** rng.uniform(4, 8)), rng.choice([1, 1, 1, 2])
        reach = (taps - 1) * dilation + 1
        padding = rng.choice([0, reach // 2, reach - 1, rng.randint(0, reach + 9)])
        length = max(int(2 ** rng.uniform(3, 12)), reach + 48 - 2 * padding)
        channels = rng.choice([16, 31, 32, 33, 64, 96, rng.randint(16, 150)])
        problem = (rng.randint(1, 3), channels, length, taps, padding, dilation)
        x = layout(torch.randn(problem[:3], device="cuda", dtype=dtype))
        w = torch.randn(channels, 1, taps, device="cuda", dtype=dtype) / taps**0.5
        b = torch.randn(channels, device="cuda", dtype=dtype)
        results = length + 2 * padding - reach + 1
        around = torch.full((problem[0], results + 2, channels + 5), 7.0, device="cuda", dtype=dtype)
        first = rng.choice([0, 0, 1, 3])
        out = around[:, 1 : 1 + results, first : first + channels].mT.fill_(float("nan"))
        sluice.conv1d(x, w, b, 1, padding, dilation, channels, out=out)
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), 1, padding, dilation, channels)
        assert relative_error(out, wanted) <= TOLERANCE[dtype], problem
        out.fill_(7.0)
        assert bool((around == 7.0).all()), problem


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layout", CHANNELS_LAST, ids=lambda f: f.__name__)
@pytest.mark.parametrize("taps", [16, 31, 64, 200])
def test_channels_last_have_the_same_bits_in_both_forms(taps: int, layout, dtype, linked_always: None) -> None:
    taps += GATHERED if layout is parts_of_positions else 0
    x = layout(torch.randn(3, 72, 901, device="cuda", dtype=dtype))
    w = torch.randn(72, 1, taps, device="cuda", dtype=dtype) / taps**0.5
    b, gain = torch.randn(72, device="cuda", dtype=dtype), torch.rand(72, 1, device="cuda") + 0.5
    for infinities in (False, True):
        if infinities:
            x[torch.rand_like(x) < 0.001] = float("inf")
        for options in ({}, {"post": stages.silu()}, {"pre": stages.snake(gain), "post": stages.leaky_relu(0.1)}):
            wanted = long_filter(x, w, b, taps // 2, **options)
            for mode in ("always", "never"):
                with link_mode(mode):
                    again = long_filter(x, w, b, taps // 2, **options)
                torch.testing.assert_close(again, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(("length", "taps"), [(128, 5), (130, 8), (131, 31), (128, 64), (129, 50), (200, 100)])
def test_short_rows(length: int, taps: int, dtype: torch.dtype) -> None:
    for channels in (1, 5, 64):
        for layout in LAYOUTS:
            x = layout(torch.randn(33, channels, length, device="cuda", dtype=dtype))
            w = torch.randn(channels, 1, taps, device="cuda", dtype=dtype) / taps**0.5
            for padding in (taps - 1, taps // 2):
                wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=padding, groups=channels)
                assert_close(long_filter(x, w, None, padding), wanted)


def test_thousands_of_taps() -> None:
    for taps in (1000, 2048, 4096):
        x = torch.randn(2, 3, 9001, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(3, 1, taps, device="cuda", dtype=torch.bfloat16) / taps**0.5
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=taps - 1, groups=3)
        assert_close(long_filter(x, w, None, taps - 1), wanted)


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_infinities_have_the_same_bits_in_both_forms(layout, linked_always: None) -> None:
    x = layout(torch.randn(2, 24, 3000, device="cuda", dtype=torch.bfloat16))
    w = torch.randn(24, 1, 40, device="cuda", dtype=torch.bfloat16)
    x[torch.rand_like(x) < 0.01] = float("inf")
    x[torch.rand_like(x) < 0.01] = float("nan")
    post = stages.silu() | stages.scale(0.5)
    if layout is contiguous:
        post = post | stages.add(torch.randn(24, 1, device="cuda"))
    result = long_filter(x, w, None, 39, post=post)
    with link_mode("never"):
        other = long_filter(x, w, None, 39, post=post)
    torch.testing.assert_close(result, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.large
def test_over_2_31_elements() -> None:
    batch, channels, length = 3, 1024, 2**31 // (2 * 1024) + 13
    x = torch.empty(batch, channels, length, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    w = torch.randn(channels, 1, 31, device="cuda", dtype=torch.bfloat16)
    y = long_filter(x, w, None, 15)
    for b, c in ((0, 0), (1, 700), (2, 1023)):
        wanted = torch.nn.functional.conv1d(x[b, c].double()[None, None], w[c].double()[None], padding=15)
        assert_close(y[b, c], wanted[0, 0])
    assert not y.isnan().any()


@pytest.mark.sanitize
@pytest.mark.parametrize("mode", ["never", "always"], ids=["interpreted", "linked"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_under_sanitizers(layout, mode: str) -> None:
    for length, taps in ((177, 31), (301, 9), (1500, 64), (64, 200)):
        x = layout(torch.randn(2, 5, length, device="cuda", dtype=torch.float16))
        w = torch.randn(5, 1, taps, device="cuda", dtype=torch.float16)
        states = torch.randn(2, 5, taps - 1, device="cuda", dtype=torch.float16)
        gain = torch.rand(5, 1, device="cuda")
        with link_mode(mode):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu() | stages.mul(gain)}):
                long_filter(x, w, None, taps - 1, **chains)
            sluice.causal_conv1d(x, w[:, 0], activation="silu", initial_states=states)
            x[0, 1, length // 2] = float("inf")
            long_filter(x, w, None, taps - 1)
    torch.cuda.synchronize()


@pytest.mark.sanitize
@pytest.mark.parametrize("mode", ["never", "always"], ids=["interpreted", "linked"])
@pytest.mark.parametrize("layout", CHANNELS_LAST, ids=lambda f: f.__name__)
def test_channels_last_under_sanitizers(layout, mode: str) -> None:
    for length, taps in ((177, 31), (301, 16), (64, 100)):
        taps += GATHERED if layout is parts_of_positions else 0
        x = layout(torch.randn(2, 40, length, device="cuda", dtype=torch.float16))
        w = torch.randn(40, 1, taps, device="cuda", dtype=torch.float16)
        with link_mode(mode):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu()}):
                long_filter(x, w, None, taps - 1, **chains)
            x[0, 1, length // 2] = float("inf")
            long_filter(x, w, None, taps - 1)
    torch.cuda.synchronize()
