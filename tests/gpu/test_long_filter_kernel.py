"""The long filters' kernel: the same bits in both forms and in every run, borders, random problems, memory."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import TOLERANCE, assert_close, contiguous, offset_by_one, relative_error
from linked_forms import link_mode
from sluice import stages

pytestmark = pytest.mark.gpu

HALF_TYPES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _needs_cuda(cuda: str) -> None:
    pass


def ends_of_words(x: torch.Tensor) -> torch.Tensor:
    """Rows that begin in the middle of words, each elsewhere: a part of a wider tensor."""
    wide = x.new_full((x.shape[0], x.shape[1] + 3, x.shape[2] + 5), float("nan"))
    part = wide[:, 2 : 2 + x.shape[1], 3 : 3 + x.shape[2]]
    part.copy_(x)
    return part


LAYOUTS = [contiguous, offset_by_one, ends_of_words]


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
        taps, dilation = max(8, int(2 ** rng.uniform(2, 9))), rng.choice([1, 1, 1, 2, 3])
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
    for options in (
        {},
        {"post": stages.gelu()},
        {"pre": stages.snake(gain), "post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(gain)},
        {"pre": stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
    ):
        wanted = long_filter(x, w, b, taps // 2, **options)
        for _ in range(3):
            assert torch.equal(long_filter(x, w, b, taps // 2, **options), wanted)
        with link_mode("never"):
            assert torch.equal(long_filter(x, w, b, taps // 2, **options), wanted)


def test_infinities_have_the_same_bits_in_both_forms(linked_always: None) -> None:
    x = torch.randn(2, 9, 3000, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(9, 1, 40, device="cuda", dtype=torch.bfloat16)
    x[torch.rand_like(x) < 0.01] = float("inf")
    x[torch.rand_like(x) < 0.01] = float("nan")
    post = stages.silu() | stages.add(torch.randn(9, 1, device="cuda"))
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
