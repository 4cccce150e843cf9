"""Input, weight and bias of a convolution, drawn so that its results without the bias have a variance of about 1."""

from __future__ import annotations

import torch

from common import Layout, contiguous

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def convolution(
    shape: tuple[int, int, int],
    outputs: int,
    taps: int,
    dtype: torch.dtype,
    layout: Layout = contiguous,
    *,
    groups: int = 1,
    device: str = "cuda",
) -> Tensors:
    """For F.conv1d; `outputs` of all groups."""
    x, inputs = layout(torch.randn(shape, device=device, dtype=dtype)), shape[1] // groups
    w = torch.randn(outputs, inputs, taps, device=device, dtype=dtype) / (inputs * taps) ** 0.5
    return x, w, torch.randn(outputs, device=device, dtype=dtype)


def depthwise(
    shape: tuple[int, int, int],
    taps: int,
    dtype: torch.dtype = torch.float32,
    layout: Layout = contiguous,
    multiplier: int = 1,
    *,
    device: str = "cuda",
) -> Tensors:
    """For F.conv1d with a group for each channel."""
    return convolution(shape, shape[1] * multiplier, taps, dtype, layout, groups=shape[1], device=device)


def transposed(
    shape: tuple[int, int, int],
    outputs: int,
    taps: int,
    dtype: torch.dtype,
    layout: Layout = contiguous,
    *,
    stride: int = 1,
    groups: int = 1,
    device: str = "cuda",
) -> Tensors:
    """For F.conv_transpose1d; `outputs` of a group, `stride` because a result has as many taps fewer."""
    x, terms = layout(torch.randn(shape, device=device, dtype=dtype)), shape[1] // groups * taps / stride
    w = torch.randn(shape[1], outputs, taps, device=device, dtype=dtype) / max(1.0, terms) ** 0.5
    return x, w, torch.randn(groups * outputs, device=device, dtype=dtype)
