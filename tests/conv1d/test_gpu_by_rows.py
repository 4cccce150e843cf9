"""Depthwise conv1d by rows of positions on a GPU: bits, any layout of channels, borders, graphs, memory."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import TOLERANCE, relative_error
from marks import ON_GPU
from planned_calls import IS_BY_ROWS
from sluice import stages

pytestmark = ON_GPU

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def by_rows(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, padding: int = 0, **options):
    asked = {name: value for name, value in options.items() if name != "out"}
    assert IS_BY_ROWS in sluice.plan("conv1d", x, w, b, 1, padding, 1, x.shape[1], **asked).detail
    return sluice.conv1d(x, w, b, 1, padding, 1, x.shape[1], **options)


def weights(channels: int, taps: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(channels, 1, taps, device="cuda", dtype=dtype) / taps**0.5


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """The same values, rows of positions that begin at whole words."""
    batch, channels, length = x.shape
    return x.new_empty(batch, channels, -(-length // 8) * 8)[..., :length].copy_(x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [2, 3, 7, 8, 31, 64, 65, 130, 1023])
def test_the_bits_of_rows(dtype: torch.dtype, channels: int) -> None:
    taps, padding = 260, 99
    length = taps + 60_000_000 // (2 * channels * taps) + 3
    x = torch.randn(2, length, channels, device="cuda", dtype=dtype).mT
    w, b = weights(channels, taps, dtype), torch.randn(channels, device="cuda", dtype=dtype)
    result = by_rows(x, w, b, padding)
    rows = rows_of(x)
    out = rows_of(torch.empty_like(result))
    wanted = sluice.conv1d(rows, w, b, 1, padding, 1, channels, out=out)
    assert torch.equal(result, wanted)
    assert result.stride() == (result.shape[2] * channels, 1, channels)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_layouts(dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for _ in range(20):
        taps, channels = rng.randint(200, 700), rng.choice([2, 5, 16, 33, 64, rng.randint(2, 300)])
        batch, padding = rng.randint(1, 3), rng.choice([0, rng.randint(1, taps)])
        length = taps + 60_000_000 // (batch * channels * taps) + rng.randint(0, 20)
        gap, first = rng.choice([0, 1, 8, rng.randint(0, 9)]), rng.choice([0, 1, 3, 8])
        wide = torch.randn(batch, length + 2, channels + gap + first, device="cuda", dtype=dtype)
        x = wide[:, 1:-1, first : first + channels].mT
        w, b = weights(channels, taps, dtype), torch.randn(channels, device="cuda", dtype=dtype)
        results = length + 2 * padding - taps + 1
        around = torch.full((batch, results + 2, channels + 5), 7.0, device="cuda", dtype=dtype)
        out = around[:, 1:-1, first % 5 : first % 5 + channels].mT.fill_(float("nan"))
        problem = (batch, channels, length, taps, padding, gap, first)
        by_rows(x, w, b, padding, out=out)
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), 1, padding, 1, channels)
        assert relative_error(out, wanted) <= TOLERANCE[dtype], problem
        out.fill_(7.0)
        assert bool((around == 7.0).all()), problem


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_chains_and_another_dtype(dtype: torch.dtype, linked_always: None) -> None:
    x = torch.randn(2, 3001, 120, device="cuda", dtype=dtype).mT
    w, gain = weights(120, 300, dtype), torch.rand(120, 1, device="cuda") + 0.5
    sums = torch.nn.functional.conv1d(torch.nn.functional.silu(x.double()), w.double(), groups=120)
    wanted = torch.nn.functional.gelu(sums * gain.double())
    post = stages.mul(gain) | stages.gelu()
    assert relative_error(by_rows(x, w, pre=stages.silu(), post=post), wanted) <= 2 * TOLERANCE[dtype]
    other = torch.float32 if dtype != torch.float32 else torch.bfloat16
    result = by_rows(x, w, pre=stages.silu(), post=post, dtype=other)
    assert result.dtype == other
    assert relative_error(result, wanted) <= 2 * max(TOLERANCE[dtype], TOLERANCE[other])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_that_are_not_finite_stay_in_their_windows(dtype: torch.dtype) -> None:
    x = torch.randn(1, 5000, 60, device="cuda", dtype=dtype).mT
    x[0, 7, 2000], x[0, 59, 4999] = float("inf"), float("nan")
    w = weights(60, 301, dtype)
    result = by_rows(x, w, padding=150)
    touched = torch.zeros(60, 5000, dtype=torch.bool, device="cuda")
    touched[7, 1850:2151] = touched[59, 4849:] = True
    assert torch.equal(~result[0].isfinite(), touched)


def test_a_state_before_the_first_position() -> None:
    x = torch.randn(2, 4000, 50, device="cuda").mT
    w, states = weights(50, 400, torch.float32)[:, 0], torch.randn(2, 50, 399, device="cuda")
    result = sluice.causal_conv1d(x, w, initial_states=states)
    assert IS_BY_ROWS in sluice.plan("causal_conv1d", x, w, initial_states=states).detail
    whole = torch.cat([states.double(), x.double()], 2)
    wanted = torch.nn.functional.conv1d(whole, w.double()[:, None], groups=50)
    assert relative_error(result, wanted) <= TOLERANCE[torch.float32]


def test_a_graph_replays_it() -> None:
    x = torch.randn(2, 3000, 80, device="cuda").mT
    w = weights(80, 300, torch.float32)
    by_rows(x, w)
    graph, out = torch.cuda.CUDAGraph(), torch.empty(2, 2701, 80, device="cuda").mT
    with torch.cuda.graph(graph):
        by_rows(x, w, out=out)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(out, sluice.conv1d(x, w, groups=80))


def test_it_keeps_no_memory() -> None:
    x = torch.randn(2, 3000, 80, device="cuda").mT
    w = weights(80, 300, torch.float32)
    out = by_rows(x, w)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        by_rows(x, w, out=out)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [3, 33, 72])
def test_under_a_sanitizer(dtype: torch.dtype, channels: int) -> None:
    taps = 250
    length = taps + 51_000_000 // (channels * taps) + 1
    x = torch.randn(1, length, channels + 1, device="cuda", dtype=dtype)[..., :channels].mT
    w = weights(channels, taps, dtype)
    wanted = torch.nn.functional.conv1d(x.double(), w.double(), groups=channels)
    assert relative_error(by_rows(x, w), wanted) <= TOLERANCE[dtype]
