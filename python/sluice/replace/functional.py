"""Calls of `torch.nn.functional` convolutions in a traced forward, which a `Fused` calls like modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._library import loses_gradient
from ..chain import Chain
from ..conv1d import conv1d
from ..conv_transpose1d import conv_transpose1d
from ..nn.chained import is_plain
from ..nn.convolution import after, is_torchs_kernel, operands_of


class Bound:
    """A convolution's call without its input. sluice computes it under the conditions of a module with its arguments.

    Args:
        weight, bias: its tensors.
        numbers: the other arguments, as the subclass names them.
    """

    transposed: bool
    _torchs: Callable[..., torch.Tensor]
    _sluices: Callable[..., torch.Tensor]

    def __init__(self, weight: Any, bias: Any, **numbers: Any) -> None:
        self.weight, self.bias, self._numbers = weight, bias, numbers
        self.stride, self.dilation = _tuple(numbers["stride"]), _tuple(numbers["dilation"])
        self.padding = numbers["padding"] if isinstance(numbers["padding"], str) else _tuple(numbers["padding"])
        self.output_padding = _tuple(numbers.get("output_padding", 0))
        self.groups, self.kernel_size = numbers["groups"], tuple(weight.shape[2:])
        by_groups = weight.shape[1] * self.groups
        self.in_channels, self.out_channels = (
            (weight.shape[0], by_groups) if self.transposed else (by_groups, weight.shape[0])
        )

    def __call__(self, x: torch.Tensor, *, pre: Chain | None = None, post: Chain | None = None) -> torch.Tensor:
        """`post(convolution(pre(x)))`."""
        tensors = [x, self.weight, *operands_of(pre), *operands_of(post), *([] if self.bias is None else [self.bias])]
        if not all(map(is_plain, tensors)) or loses_gradient(tensors):
            return after(post, self._torchs(after(pre, x), self.weight, self.bias, **self._numbers))
        if not pre and not post and is_torchs_kernel(self, self.weight, x):  # type: ignore[arg-type]
            return self._torchs(x, self.weight, self.bias, **self._numbers)
        return self._sluices(x, self.weight, self.bias, **self._numbers, pre=pre, post=post)


class BoundConv1d(Bound):
    """`torch.nn.functional.conv1d`."""

    transposed = False

    def __init__(
        self, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: Any = 1
    ) -> None:
        super().__init__(weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)

    _torchs = staticmethod(torch.nn.functional.conv1d)
    _sluices = staticmethod(conv1d)


class BoundConvTranspose1d(Bound):
    """`torch.nn.functional.conv_transpose1d`."""

    transposed = True

    def __init__(
        self,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: Any = 1,
        dilation: Any = 1,
    ) -> None:
        numbers = {"padding": padding, "output_padding": output_padding, "groups": groups, "dilation": dilation}
        super().__init__(weight, bias, stride=stride, **numbers)

    _torchs = staticmethod(torch.nn.functional.conv_transpose1d)
    _sluices = staticmethod(conv_transpose1d)


# From torch's function to the class of its calls.
BOUND: dict[Any, type[Bound]] = {
    torch.nn.functional.conv1d: BoundConv1d,
    torch.nn.functional.conv_transpose1d: BoundConvTranspose1d,
}
NAMES = frozenset(function.__name__ for function in BOUND)


def _tuple(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
