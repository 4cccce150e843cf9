"""A depthwise `torch.nn.Conv2d`, computed by `sluice.filter2d`."""

from __future__ import annotations

import torch

from .._autocast import cast_arguments, is_autocast_on
from .._autograd import loses_gradient
from ..filter2d import filter2d
from ..nn.chained import is_ours, is_patched, stands_for
from ..nn.layout import channels_last, returns_channels_last, without_channels_last

_CONV_FORWARD, _FORWARD = torch.nn.Conv2d._conv_forward, torch.nn.Conv2d.forward


class DepthwiseConv2d(torch.nn.Conv2d):
    """`torch.nn.Conv2d` with as many groups as channels.

    `sluice.replace` sets a module's class to this; torch's attributes stay. torch's code runs if grad mode is on and
    the input or a parameter requires grad, or if `sluice.filter2d` does not take the tensors.

    Shape:
        input: (B, C, H, W) or (C, H, W); the result: (B, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> import torch, sluice
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1, groups=4))
        >>> type(sluice.replace(model).model[0]).__name__
        'DepthwiseConv2d'

    Source: `torch.nn.Conv2d`.
    """

    @stands_for(torch.nn.Conv2d.forward)
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The result of torch's forward."""
        if torch.nn.Conv2d.forward is not _FORWARD:
            patched: torch.Tensor = torch.nn.Conv2d.forward(self, input)
            return patched
        weight, bias = self.weight, self.bias
        if is_patched(self, "_conv_forward", _CONV_FORWARD) or _is_torchs(self, input, weight, bias):
            plain: torch.Tensor = self._conv_forward(input, weight, bias)
            return plain
        image, kernel, offsets = cast_arguments(input, weight, bias)
        is_last = returns_channels_last(image, weight)
        result = filter2d(
            image if is_last else without_channels_last(image, 2),
            kernel.squeeze(1),
            offsets,
            self.padding,  # type: ignore[arg-type]
            stride=self.stride,  # type: ignore[arg-type]
            dilation=self.dilation,  # type: ignore[arg-type]
            padding_mode=self.padding_mode,
        )
        return channels_last(result, 2) if is_last else result


def _is_torchs(module: DepthwiseConv2d, *tensors: torch.Tensor | None) -> bool:
    for tensor in tensors:
        if tensor is not None and not is_ours(tensor):
            return True
    input, weight, bias = tensors[:3]
    assert input is not None
    assert weight is not None
    is_mixed = (input.dtype != weight.dtype or (bias is not None and bias.dtype != weight.dtype)) and not (
        is_autocast_on(input.device.type)
    )
    # torch has its own errors for shapes that do not fit, and results for images without pixels.
    fits = input.dim() in (3, 4) and input.shape[-3] == module.in_channels and input.numel() > 0
    return is_mixed or not fits or loses_gradient(tensors)
