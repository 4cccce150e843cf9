"""Convolutions that are calls of functions: F.conv1d and F.conv_transpose1d."""

from __future__ import annotations

from typing import Any

import torch

from .values import NoStreamError

# The positional arguments after the input.
CONVOLUTIONS = {
    "conv1d": ("weight", "bias", "stride", "padding", "dilation", "groups"),
    "conv_transpose1d": ("weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
}


class Call:
    """A call, with what a convolution of torch.nn has."""

    padding_mode = "zeros"

    def __init__(self, name: str, weight: torch.Tensor, bias: torch.Tensor | None, given: dict[str, Any]) -> None:
        self.weight, self.bias, self.transposed = weight, bias, name == "conv_transpose1d"
        self.stride, self.dilation = _number(given.get("stride", 1)), _number(given.get("dilation", 1))
        self.output_padding, (self.groups,) = _number(given.get("output_padding", 0)), _number(given.get("groups", 1))
        padding = given.get("padding", 0)
        self.padding = padding if isinstance(padding, str) else _number(padding)
        first, second = weight.shape[0], weight.shape[1] * self.groups
        self.in_channels, self.out_channels = (first, second) if self.transposed else (second, first)
        self.kernel_size = (weight.shape[2],)

    def parameters(self) -> list[torch.Tensor]:
        """The tensors, as a module has them."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]


def _number(value: Any) -> tuple[int]:
    found = value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value
    if not isinstance(found, int):
        raise NoStreamError("takes numbers that are not known")
    return (found,)
