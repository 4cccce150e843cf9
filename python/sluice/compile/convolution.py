"""A convolution of a graph as the call of sluice's op that computes it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node

from .._precision import settings
from ..pack import on_tensor_cores
from .nodes import aten, fake_value, given, is_floating

_CONVOLUTION = aten.convolution.default
# Sluice's own ops with chains, as modules of sluice call them, by the name of the raw op.
_SLUICES = ("sluice.conv1d.default", "sluice.conv_transpose1d.default", "sluice.filter2d.default")


class Convolution(NamedTuple):
    """A convolution as a call of sluice's op, or the reason why there is none.

    Attributes:
        node: the convolution in the graph.
        op: the name of sluice's op.
        x: its input.
        arguments: the positional arguments after the input.
        options: the keyword arguments.
        refusal: why sluice cannot compute it; None if it can.
    """

    node: Node
    op: str
    x: Node
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    refusal: str | None

    @property
    def weight(self) -> Node:
        """The weight's node."""
        weight = self.node.args[1]
        assert isinstance(weight, Node)
        return weight

    @property
    def is_sluices(self) -> bool:
        """Whether the graph calls sluice's op already."""
        return self.node.target is not _CONVOLUTION

    @property
    def is_depthwise(self) -> bool:
        """Whether each input channel has filters of its own, or one channel becomes one."""
        if self.op == "filter2d":
            return True
        weight, groups = fake_value(self.weight), self.arguments[5]
        assert weight is not None
        if self.op == "conv_transpose1d":
            inputs, outputs = weight.shape[0], weight.shape[1] * groups
        else:
            inputs, outputs = weight.shape[1] * groups, weight.shape[0]
        return isinstance(groups, int) and inputs == groups and (groups > 1 or outputs == 1)

    @property
    def is_on_tensor_cores(self) -> bool:
        """Whether a GPU's tensor cores may compute it."""
        x = fake_value(self.x)
        return x is not None and x.is_cuda and on_tensor_cores(x.dtype, x.device)

    def padded(self, left: int, right: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments after the input with additional zero padding on both sides, and the keyword arguments."""
        if left == right == 0:
            return self.arguments, self.options
        weight, bias, stride, padding, *rest = self.arguments
        more = {} if left == right else {"padding_right": padding + right}
        return (weight, bias, stride, padding + left, *rest), {**self.options, **more}


def is_convolution(node: Node) -> bool:
    """Whether a node is a convolution of aten, of any number of dimensions, or of sluice."""
    return node.op == "call_function" and (node.target is _CONVOLUTION or str(node.target) in _SLUICES)


def read(node: Node, has_guard: bool = False) -> Convolution:
    """Reads the convolution of a node for which `is_convolution` holds.

    Args:
        node: the node.
        has_guard: whether the graph is compiled again when torch's TF32 setting changes; else a convolution of aten
            is not said to be in TF32.
    """
    if node.target is not _CONVOLUTION:
        return _read_sluices(node)
    values: list[Any] = [given(node, argument.name, None) for argument in _CONVOLUTION._schema.arguments]
    x, weight, bias, stride, padding, dilation, is_transposed, output_padding, groups = values
    op = "conv_transpose1d" if is_transposed else "conv1d"
    numbers = [*stride, *padding, *dilation, *output_padding, groups]
    refusal = _why_not(x, weight, bias, len(stride), numbers)
    if refusal is not None:
        return Convolution(node, op, x, (), {}, refusal)
    behind = (output_padding[0], groups, dilation[0]) if is_transposed else (dilation[0], groups)
    found = Convolution(node, op, x, (weight, bias, stride[0], padding[0], *behind), {}, None)
    return found._replace(options={"precision": "tf32"}) if has_guard and _may_be_tf32(found) else found


def _may_be_tf32(convolution: Convolution) -> bool:
    """Whether torch allows TF32 for it on a GPU that has the kernels; depthwise kernels do not use it."""
    x = fake_value(convolution.x)
    if x is None or x.dtype != torch.float32 or convolution.is_depthwise:
        return False
    return convolution.is_on_tensor_cores and settings.allows_tf32


def _read_sluices(node: Node) -> Convolution:
    x, *arguments = node.args
    assert isinstance(x, Node)
    op = str(node.target).split(".")[1]
    positional = [argument for argument in node.target._schema.arguments if not argument.kwarg_only]  # type: ignore
    arguments += [argument.default_value for argument in positional[len(node.args) :]]
    return Convolution(node, op, x, tuple(arguments), dict(node.kwargs), None)


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


def fake_result(target: Any, arguments: tuple[Any, ...], options: dict[str, Any], x: Node) -> torch.Tensor:
    """An op's fake result for the fake values of nodes.

    Raises:
        RuntimeError: the op refuses them.
    """
    tensor = fake_value(x)
    if not isinstance(tensor, FakeTensor):
        raise RuntimeError(f"the graph has no fake value of {x}")
    values, named = torch.fx.node.map_arg((arguments, options), lambda node: node.meta["val"])
    with tensor.fake_mode, torch.no_grad(), enable_python_dispatcher():
        result: torch.Tensor = target(*values, **named)
    return result


def call(graph: Graph, target: Any, *arguments: Any, **options: Any) -> Node:
    """Writes the call of an op with its fake result into a graph; its first argument is a node."""
    node = graph.call_function(target, arguments, options)
    node.meta["val"] = fake_result(target, arguments, options, arguments[0])
    return node


def contiguous_copy(graph: Graph, x: Node) -> Node:
    """Writes a contiguous copy of a tensor into a graph."""
    return call(graph, aten.clone.default, x, memory_format=torch.contiguous_format)
