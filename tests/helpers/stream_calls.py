"""Calls of `stream_map` on a device of the test, and what an exact result is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sluice

MIB = 1 << 20
ORDERS = ["depth_first", "breadth_first", "sequential"]


def stream(fn: Any, *inputs: Any, device: str, **options: Any) -> Any:
    return sluice.stream_map(fn, *inputs, devices=device, **options)


def exact(result: torch.Tensor, wanted: torch.Tensor) -> None:
    assert result.device.type == "cpu"
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    assert torch.equal(result, wanted)


def two(device: str) -> list[str]:
    """Two devices: the CPU counts as two, so that code for several devices runs everywhere."""
    if device == "cuda":
        if torch.cuda.device_count() < 2:
            pytest.skip("needs two GPUs")
        return ["cuda:0", "cuda:1"]
    return ["cpu:0", "cpu:1"]


def assert_convolved_in_bfloat16(result: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """A depthwise convolution under autocast: inputs are rounded, sums are float32, the result is rounded."""
    with torch.autocast("cpu", enabled=False):
        rounded_x, rounded_weight = x.bfloat16().float(), weight.bfloat16().float()
        wanted = torch.nn.functional.conv1d(rounded_x, rounded_weight, padding=2, groups=len(weight))
    torch.testing.assert_close(result, wanted.bfloat16(), rtol=0.02, atol=0.02)
