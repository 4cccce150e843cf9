"""Convolutions and stencils."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .._apply import compute_dtype
from ..chain import Chain
from .stages import transform


def conv1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
    *,
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`post(F.conv1d(pre(input), ...))`: `pre` rounds to the input's dtype, sums and `post` do not round."""
    compute = compute_dtype(input.dtype)
    x = input if pre is None else transform(input, pre, dtype=input.dtype)
    y = F.conv1d(
        x.to(compute),
        weight.to(compute),
        None if bias is None else bias.to(compute),
        stride,
        padding,
        dilation,
        groups,
    )
    chain = post or Chain()
    return transform(y, chain, dtype=dtype or chain.result_dtype(input.dtype))


def conv_transpose1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
    *,
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`post(F.conv_transpose1d(pre(input), ...))`: `pre` rounds to the input's dtype, sums and `post` do not round."""
    compute = compute_dtype(input.dtype)
    x = input if pre is None else transform(input, pre, dtype=input.dtype)
    offset = None if bias is None else bias.to(compute)
    numbers = stride, padding, output_padding, groups, dilation
    y = F.conv_transpose1d(x.to(compute), weight.to(compute), offset, *numbers)
    chain = post or Chain()
    return transform(y, chain, dtype=dtype or chain.result_dtype(input.dtype))


def _sides(padding: str | tuple[int, int], taps: Sequence[int], dilation: int | tuple[int, int]) -> list[int]:
    """`F.pad`'s pixels: on the left, on the right, above and below."""
    spread = dilation if isinstance(dilation, tuple) else (dilation, dilation)
    sides: list[int] = []
    for d in (1, 0):
        total = spread[d] * (taps[d] - 1) if padding == "same" else 0
        sides += [total // 2, total - total // 2] if isinstance(padding, str) else [padding[d]] * 2
    return sides


def filter2d(
    image: torch.Tensor,
    kernel: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
    bias: torch.Tensor | None = None,
    padding: str | tuple[int, int] = "same",
    *,
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    padding_mode: str = "zeros",
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`post(F.conv2d(pre(image), ...))` over the last two dimensions; a separable kernel is its outer product.

    Padding is `F.pad`'s.
    """
    x = image.float() if image.dtype == torch.uint8 else image
    compute = compute_dtype(x.dtype)
    floating = x.dtype
    if pre is not None:
        x = transform(x, pre, dtype=floating)
    if isinstance(kernel, tuple):
        taps = kernel[0].to(compute)[..., :, None] * kernel[1].to(compute)[..., None, :]
    else:
        taps = kernel.to(compute)
    groups = 1 if taps.dim() == 2 else taps.shape[0]
    count = math.prod(x.shape[:-2])
    if count == 0:  # no planes, of as many channels as F.conv2d takes
        taps, bias, groups = taps.new_ones(taps.shape[-2:]), None, 1
    planes = x.to(compute).reshape(count // groups, groups, *x.shape[-2:])
    offset = None if bias is None else bias.to(compute)
    if padding_mode != "zeros":
        planes, padding = F.pad(planes, _sides(padding, taps.shape[-2:], dilation), mode=padding_mode), "valid"
    y = F.conv2d(planes, taps.reshape(groups, 1, *taps.shape[-2:]), offset, stride, padding, dilation, groups)
    y = y.reshape(*x.shape[:-2], *y.shape[-2:])
    chain = post or Chain()
    return transform(y, chain, dtype=dtype or chain.result_dtype(floating))
