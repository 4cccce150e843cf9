"""The weight of a transposed convolution as convolutions of stride 1, whose packed weights its kernels read.

Tap k belongs to polyphase component k modulo the number of components, in reversed order. Components with one tap more
than the others are a range of their own; the components of a range are rows of one convolution
(kernels/operators/conv1d/interleaved/interleave.h):

    by positions   rows are output channels, each with its components; there is one range
    by channels    rows are components, each with its output channels, rounded up
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

# kernels/operators/conv1d/dense/pack.h, kSwizzleRows: by channels a component's rows are a multiple of it.
_ROWS = 8
# kernels/operators/conv1d/interleaved/interleave.h, kMostInterleavedComponents.
_MOST_BY_POSITIONS = 32
# kernels/operators/conv_transpose1d/conv_transpose1d.h, kMostCommonDivisor.
_MOST_COMMON_DIVISOR = 4


def has_kernel(stride: int, dilation: int) -> bool:
    """Whether a dense kernel may run; otherwise most results have no tap, and torch computes them."""
    return math.gcd(stride, dilation) <= _MOST_COMMON_DIVISOR


def may_go_by_positions(taps: int, stride: int, dilation: int) -> bool:
    """Whether the rows of channels-first results are ordered by positions; a single component's have one order."""
    if stride == 1:
        return True
    return dilation == 1 and stride & (stride - 1) == 0 and stride <= _MOST_BY_POSITIONS and taps % stride == 0


def component_ranges(taps: int, stride: int, dilation: int) -> list[tuple[int, int, int]]:
    """First component, components and taps of a component, for each range with taps."""
    components = stride // math.gcd(stride, dilation)
    least, longer = divmod(taps, components)
    ranges = [(0, longer, least + 1), (longer, components - longer, least)]
    return [found for found in ranges if found[1] > 0 and found[2] > 0]


def row_counts(channels: int, taps: int, stride: int, dilation: int) -> list[tuple[int, int]]:
    """Rows and taps of each range, by channels."""
    rounded = channels + -channels % _ROWS
    return [(count * rounded, each) for _, count, each in component_ranges(taps, stride, dilation)]


def polyphase_weights(weight: torch.Tensor, stride: int, dilation: int, by_positions: bool) -> list[torch.Tensor]:
    """(C_in, C_out, K) as a weight (rows, C_in, taps) for each range.

    All are views, paddings and copies: where a graph's parameters alone decide the weight, they decide these too.
    """
    inputs, outputs, taps = weight.shape
    components = stride // math.gcd(stride, dilation)
    by_component = F.pad(weight, (0, -taps % components)).unflatten(2, (-1, components))  # (C_in, C_out, taps, count)
    found = []
    for first, count, each in component_ranges(taps, stride, dilation):
        part = by_component.narrow(2, 0, each).narrow(3, first, count).flip(2)
        if by_positions:
            part = part.permute(1, 3, 0, 2)
        else:
            part = F.pad(part, (0, 0, 0, 0, 0, -outputs % _ROWS)).permute(3, 1, 0, 2)
        found.append(part.reshape(-1, inputs, each))
    return found
