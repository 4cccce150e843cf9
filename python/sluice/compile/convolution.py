"""A convolution of a graph as the call of sluice's op that computes it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from .nodes import aten, fake_value, given, is_floating

_CONVOLUTION = aten.convolution.default


class Convolution(NamedTuple):
    """An aten convolution as a call of sluice's op, or the reason why there is none."""

    node: Node
    op: str  # sluice's
    x: Node
    arguments: tuple[Any, ...]  # after the input
    padding: int
    refusal: str | None

    def padded(self, left: int, right: int) -> tuple[tuple[Any, ...], dict[str, int]]:
        """The arguments after the input with additional zero padding on both sides, and the keyword arguments."""
        weight, bias, stride, padding, *rest = self.arguments
        more = {} if left == right else {"padding_right": padding + right}
        return (weight, bias, stride, padding + left, *rest), more


def is_convolution(node: Node) -> bool:
    """Whether a node is an aten convolution, of any number of dimensions."""
    return node.op == "call_function" and node.target is _CONVOLUTION


def read(node: Node) -> Convolution:
    """Reads the convolution of a node for which `is_convolution` holds."""
    values: list[Any] = [given(node, argument.name, None) for argument in _CONVOLUTION._schema.arguments]
    x, weight, bias, stride, padding, dilation, is_transposed, output_padding, groups = values
    op = "conv_transpose1d" if is_transposed else "conv1d"
    numbers = [*stride, *padding, *dilation, *output_padding, groups]
    refusal = _why_not(x, weight, bias, len(stride), numbers) or _why_torchs(x, groups)
    if refusal is not None:
        return Convolution(node, op, x, (), 0, refusal)
    behind = (output_padding[0], groups, dilation[0]) if is_transposed else (dilation[0], groups)
    return Convolution(node, op, x, (weight, bias, stride[0], padding[0], *behind), padding[0], None)


def _why_not(x: Any, weight: Any, bias: Any, dimensions: int, numbers: list[Any]) -> str | None:
    if dimensions != 1:
        return f"it has {dimensions} dimensions"
    if not all(type(value) is int for value in numbers):
        return "its stride, padding or dilation is known only at run time"
    values = [fake_value(tensor) for tensor in (x, weight, bias) if tensor is not None]
    for value, tensor in zip(values, (x, weight, bias), strict=False):
        if value is None or not is_floating(tensor):
            return "sluice does not take one of its tensors"
        assert values[0] is not None
        if value.dtype != values[0].dtype or value.device != values[0].device:
            return "its tensors differ in dtype or device"
    if values[0] is not None and values[0].dim() != 3:
        return "its input is not (batch, channels, length)"
    return None


def _why_torchs(x: Any, groups: int) -> str | None:
    """Why torch's kernel computes the sums anyway: Inductor then fuses the ops around them at least as well."""
    value = fake_value(x)
    assert value is not None
    is_half = value.dtype in (torch.float16, torch.bfloat16)
    if value.device.type == "cuda" and not is_half and (groups == 1 or groups != value.shape[1]):
        return f"on a GPU torch computes convolutions of {value.dtype} that are not depthwise"
    return None


def fake_result(target: Any, arguments: tuple[Any, ...], options: dict[str, Any], x: Node) -> torch.Tensor:
    """An op's fake result for the fake values of nodes.

    Raises:
        RuntimeError: the op refuses them.
    """
    tensor = fake_value(x)
    if not isinstance(tensor, FakeTensor):
        raise RuntimeError(f"the graph has no fake value of {x}")
    values, named = torch.fx.node.map_arg((arguments, options), lambda node: node.meta["val"])
    with tensor.fake_mode, torch.no_grad():
        result: torch.Tensor = target(*values, **named)
    return result
