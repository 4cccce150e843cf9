"""Depthwise conv1d by rows of positions on a GPU: bits, counts of channels, a state, memory."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import TOLERANCE, memory_in_use, relative_error
from marks import ON_GPU
from planned_calls import IS_BY_ROWS

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


def test_a_state_before_the_first_position() -> None:
    x = torch.randn(2, 4000, 50, device="cuda").mT
    w, states = weights(50, 400, torch.float32)[:, 0], torch.randn(2, 50, 399, device="cuda")
    result = sluice.causal_conv1d(x, w, initial_states=states)
    assert IS_BY_ROWS in sluice.plan("causal_conv1d", x, w, initial_states=states).detail
    whole = torch.cat([states.double(), x.double()], 2)
    wanted = torch.nn.functional.conv1d(whole, w.double()[:, None], groups=50)
    assert relative_error(result, wanted) <= TOLERANCE[torch.float32]


def test_it_keeps_no_memory() -> None:
    x = torch.randn(2, 3000, 80, device="cuda").mT
    w = weights(80, 300, torch.float32)
    out = by_rows(x, w)
    before = memory_in_use()
    for _ in range(3):
        by_rows(x, w, out=out)
    assert memory_in_use() == before


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
