"""A convolution as torch computes it on channels-last images of one row, which cuDNN reads directly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

_MOST_GATHERED = 20_000  # terms per sum if channels are not whole words: conv2d takes up to a second for more


def is_slow(channels: int, taps: int) -> bool:
    """Whether the peer takes so long that it is left out."""
    return channels % 8 != 0 and channels * taps > _MOST_GATHERED


def as_image(
    op: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, numbers: Sequence[int]
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """The input as an image, and the convolution of such images, whose results are (B, C_out, 1, L_out).

    Args:
        op: conv1d or conv_transpose1d.
        x, weight: converted to channels-last here, if they are not yet.
        numbers: the arguments after the bias, in torch's order.
    """
    image, kernel = (tensor[:, :, None].contiguous(memory_format=torch.channels_last) for tensor in (x, weight))
    if op == "conv1d":
        stride, padding, dilation, groups = numbers
        return image, lambda rows: F.conv2d(rows, kernel, bias, (1, stride), (0, padding), (1, dilation), groups)
    stride, padding, spare, groups, dilation = numbers
    of_rows = (1, stride), (0, padding), (0, spare), groups, (1, dilation)
    return image, lambda rows: F.conv_transpose2d(rows, kernel, bias, *of_rows)
