"""The strides of torch's convolution modules, which the modules of sluice return as well.

torch makes a (B, C, L) input contiguous, and takes one of (B, C, H, W) as it is. Its result is channels-last where that
input or the weight has channels-last strides, which a tensor with a single channel may have too, else contiguous.
"""

from __future__ import annotations

import torch

from .._fake import is_channels_last


def returns_channels_last(input: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether torch's convolution of them is channels-last; the weight's rank says how many dimensions it has."""
    spatial = weight.dim() - 2
    if input.is_cuda and input.dtype == torch.float64:  # which cuDNN has no channels-last kernels for
        return False
    if _has_its_strides(weight, spatial):
        return True
    return (spatial == 2 or input.is_contiguous()) and _has_its_strides(input, spatial)


def without_channels_last(input: torch.Tensor, spatial: int) -> torch.Tensor:
    """The input, contiguous if sluice's result would otherwise be channels-last."""
    return input.contiguous() if is_channels_last(input, spatial) else input


def channels_last(result: torch.Tensor, spatial: int) -> torch.Tensor:
    """The result in channels-last memory."""
    channel = result.dim() - spatial - 1
    return result.movedim(channel, -1).contiguous().movedim(-1, channel)


def _has_its_strides(tensor: torch.Tensor, spatial: int) -> bool:
    """The rule of torch for a tensor with one or two dimensions after the channels."""
    sizes, strides = tuple(tensor.shape[-spatial:]), tensor.stride()[-spatial:]
    channels, of_channels = tensor.shape[-spatial - 1], tensor.stride(-spatial - 1)
    if strides[-1] < of_channels * max(channels, 1):  # the usual case
        return False
    batch, of_batch = (tensor.shape[0], tensor.stride(0)) if tensor.dim() > spatial + 1 else (1, channels * of_channels)
    if spatial == 1:
        sizes, strides = (1, *sizes), (sizes[0] * strides[0], *strides)
    ordered = [(channels, of_channels), (sizes[1], strides[1]), (sizes[0], strides[0]), (batch, of_batch)]
    least = 0
    for size, stride in ordered:
        if size == 0 or stride < least:
            return False
        least = stride * size
    *_, (height, of_height), _ = ordered
    return of_channels != 0 and of_channels != of_height * height
