"""Depthwise conv1d of channels-last tensors with many taps: which calls go by rows of positions, and their results."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sluice
from common import assert_close
from fourier_problems import exact
from planned_calls import IS_BY_ROWS
from sluice import stages
from sluice.plan import H200, Plan


def channels_last(*shape: int, dtype: torch.dtype, device: str = "meta") -> torch.Tensor:
    batch, channels, length = shape
    return torch.empty(batch, length, channels, dtype=dtype, device=device).mT


def plan(x: torch.Tensor, taps: int, *, post: Any = None, pre: Any = None, **options: Any) -> Plan:
    w = torch.empty(x.shape[1], 1, taps, dtype=x.dtype, device="meta")
    return sluice.plan("conv1d", x, w, groups=x.shape[1], post=post, pre=pre, device=H200, **options)


def is_by_rows(*arguments: Any, **options: Any) -> bool:
    return IS_BY_ROWS in plan(*arguments, **options).detail


# dtype, channels, the most taps by channels, the least by rows.
@pytest.mark.parametrize(
    ("dtype", "channels", "most", "least"),
    [
        (torch.bfloat16, 1024, 159, 160),
        (torch.float16, 1023, 55, 56),
        (torch.float16, 1026, 55, 56),
        (torch.float32, 1024, 191, 192),
        (torch.float32, 97, 191, 192),
    ],
)
def test_taps_decide(dtype: torch.dtype, channels: int, most: int, least: int) -> None:
    x = channels_last(8, channels, 2048, dtype=dtype)
    assert not is_by_rows(x, most)
    assert is_by_rows(x, least)
    assert not is_by_rows(x.contiguous(), least)
    assert not is_by_rows(x[..., :64], 48)
    assert not is_by_rows(x, least, schedule="direct")


@pytest.mark.parametrize(
    ("dtype", "channels", "least"), [(torch.bfloat16, 1023, 16), (torch.float32, 1023, 16), (torch.float32, 1024, 40)]
)
def test_a_chain_before_the_convolution_needs_fewer_taps(dtype: torch.dtype, channels: int, least: int) -> None:
    x = channels_last(8, channels, 2048, dtype=dtype)
    assert is_by_rows(x, least, pre=stages.silu())
    assert not is_by_rows(x, least - 1, pre=stages.silu())


def test_operands_must_be_the_same_at_all_positions() -> None:
    x = channels_last(8, 512, 2048, dtype=torch.float32)
    of_channels = torch.empty(512, 1, device="meta")
    assert is_by_rows(x, 256, post=stages.mul(of_channels))
    assert is_by_rows(x, 256, post=stages.mul(torch.empty((), device="meta")))
    assert not is_by_rows(x, 256, post=stages.mul(channels_last(8, 512, 2048 - 255, dtype=torch.float32)))
    assert not is_by_rows(x, 256, pre=stages.mul(x))


def test_what_cannot_go_by_rows() -> None:
    x = channels_last(8, 512, 4096, dtype=torch.float32)
    assert not is_by_rows(x, 256, stride=2)
    assert not is_by_rows(x, 256, dilation=2)  # only long filters have one, which are for half types
    assert is_by_rows(channels_last(8, 512, 4096, dtype=torch.bfloat16), 256, dilation=2)
    assert not is_by_rows(channels_last(8, 512, 4096, dtype=torch.float64), 256)
    assert not is_by_rows(channels_last(1, 16, 1024, dtype=torch.float32), 256)  # launches take longer


def test_the_workspace_has_rows_of_whole_words() -> None:
    found = plan(channels_last(2, 513, 4099, dtype=torch.bfloat16), 200)
    assert found.method == "long_filter"
    assert found.workspace_bytes == 2 * 2 * 513 * (4104 + 3904)
    assert found.alignment == found.copy_width == 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("channels", "length", "taps"), [(3, 70000, 257), (40, 9001, 300), (129, 3000, 256)])
@pytest.mark.parametrize("padding", [0, 100])
def test_results(device: str, dtype: torch.dtype, channels: int, length: int, taps: int, padding: int) -> None:
    length = length if device == "cuda" else length // 8 + taps
    x = torch.randn(1, length, channels, device=device, dtype=dtype).mT
    w = torch.randn(channels, 1, taps, device=device, dtype=dtype) / taps**0.5
    b, gain = torch.randn(channels, device=device, dtype=dtype), torch.rand(channels, 1, device=device)
    result = sluice.conv1d(x, w, b, 1, padding, 1, channels, post=stages.mul(gain))
    assert result.stride(1) == 1
    assert_close(result, exact(x, w, b, padding) * gain.double())
