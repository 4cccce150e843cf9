"""Convolutions of torch on a CPU as convolutions of one-row images, which oneDNN computes faster channels-last.

    convolution(x, weight) -> squeeze(convolution(unsqueeze(x), channels-last weight))

torch makes the input of a one-dimensional convolution contiguous, and takes an image as it is. Paddings do as well.
oneDNN brings a weight into its own order at each call: that takes as long as some hundred positions, and longer for a
channels-last input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from .convolution import call, read
from .nodes import aten, fake_value

# Measured on an AMD EPYC with AVX2, torch 2.13: below, the order of the weight decides.
_LEAST_POSITIONS, _LARGEST_WEIGHT = 512, 2**18
# The op of an image for a padding of the length.
_PADDINGS: dict[Any, Any] = {
    aten.constant_pad_nd.default: aten.constant_pad_nd.default,
    aten.reflection_pad1d.default: aten.reflection_pad2d.default,
    aten.replication_pad1d.default: aten.replication_pad2d.default,
}


def is_padding(node: Node) -> bool:
    """Whether a node pads the length alone."""
    return node.target in _PADDINGS and len(node.args[1]) == 2  # type: ignore[arg-type]


def is_faster_as_image(node: Node) -> bool:
    """Whether a node of a graph with fake values is such a convolution, and its lengths at the trace are worth it."""
    if node.target is not aten.convolution.default:
        return False
    x, weight = fake_value(node.args[0]), fake_value(node.args[1])
    if x is None or weight is None or x.dtype != torch.float32 or x.device.type != "cpu":
        return False
    if read(node).refusal is not None or node.args[8] != 1 or not torch.backends.mkldnn.is_available():
        return False
    return is_long(x) and weight.numel() <= _LARGEST_WEIGHT


def is_long(x: torch.Tensor) -> bool:
    """Whether sequences have so many positions at the trace that the order of a weight takes little of the time."""
    sizes = [_at_trace(size) for size in (x.shape[0], x.shape[2])]
    return sizes[0] * sizes[1] >= _LEAST_POSITIONS


def as_image(graph: Graph, node: Node, is_final: bool = True) -> None:
    """Makes a convolution or a padding the squeezed result of one of images.

    Args:
        graph: the graph.
        node: a convolution or a padding.
        is_final: whether the graph runs as it is; Inductor brings weights into the order that it wants.
    """
    x, second, *others = node.args
    with graph.inserting_before(node):
        image = call(graph, aten.unsqueeze.default, x, 2)
        if node.target in _PADDINGS:
            rows = () if node.target is aten.constant_pad_nd.default else (0, 0)
            result = call(graph, _PADDINGS[node.target], image, [*second, *rows], *others)  # type: ignore[misc]
        else:
            bias, stride, padding, dilation, is_transposed, output_padding, groups = others
            filters = call(graph, aten.unsqueeze.default, second, 2)
            if is_final:
                filters = call(graph, aten.clone.default, filters, memory_format=torch.channels_last)
            numbers = [1, *stride], [0, *padding], [1, *dilation], is_transposed, [0, *output_padding], groups  # type: ignore[misc]
            result = call(graph, aten.convolution.default, image, filters, bias, *numbers)
    node.target, node.args = aten.squeeze.dim, (result, 2)


def _at_trace(size: int | torch.SymInt) -> int:
    """A size at the call that is traced; 0 if none is known."""
    return size if isinstance(size, int) else size.node.hint or 0
