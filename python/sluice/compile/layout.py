"""Channels-last memory between ops that are faster in it than in (B, C, L).

    x -> conv1d -> conv1d -> y          x -> to channels-last -> conv1d -> conv1d -> to y's strides -> y

On a GPU these ops are sluice's tensor-core kernels, on a CPU torch's convolutions, made two-dimensional. Ops with a
channels-last input have a channels-last result, so only values that enter or leave a region are copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

from .._fake import is_channels_last
from ..nn.packing import HALF_TYPES
from .constants import constants_of
from .convolution import call, contiguous_copy, fake_result
from .images import as_image, is_faster_as_image, is_padding
from .nodes import aten, fake_value, has_contiguous_strides, is_known, is_write, readers, same_sizes
from .single import POINTWISE

_LEAST_CONVOLUTIONS = 4  # in a region, and twice as many as copies: a copy takes as long as a small convolution gains
_CONVOLUTIONS = (torch.ops.sluice.conv1d.default, torch.ops.sluice.conv_transpose1d.default)
_VIEWS = (aten.alias.default, aten.slice.Tensor)
_OURS = (*_CONVOLUTIONS, torch.ops.sluice.transform.default)


def to_channels_last(graph: Graph, parameters: set[Node]) -> int:
    """Makes regions of ops channels-last where it pays; returns their number.

    Args:
        graph: in aten ops, with fake values.
        parameters: its inputs that are parameters or buffers.
    """
    if any(is_write(node) for node in graph.nodes):  # which may go through views
        return 0
    decided = {*constants_of(graph, parameters), *parameters}
    faster = {node for node in graph.nodes if is_faster_as_image(node) and node.args[1] in decided}
    return sum(_convert(graph, region, faster) for region in _regions(graph, faster))


def _regions(graph: Graph, faster: set[Node]) -> Iterator[dict[Node, None]]:
    """Sets of nodes that pass values to each other, each in the graph's order."""
    found: dict[Node, dict[Node, None]] = {}
    for node in graph.nodes:
        if node not in faster and not _follows(node):
            continue
        own = {node: None}
        for other in {id(one): one for x in _sequences(node) if (one := found.get(x)) is not None}.values():
            own = {**other, **own}
        found.update(dict.fromkeys(own, own))
    order = {node: place for place, node in enumerate(graph.nodes)}
    for region in {id(one): one for one in found.values()}.values():
        yield dict.fromkeys(sorted(region, key=order.__getitem__))


def _follows(node: Node) -> bool:
    """Whether a node's result is channels-last if its inputs are."""
    x = fake_value(node)
    if x is None or not _is_sequence(x) or x.dtype not in (HALF_TYPES if x.is_cuda else (torch.float32,)):
        return False
    if node.target in _OURS or (not x.is_cuda and _is_of_length(node)):
        return True
    inputs = [fake_value(one) for one in node.all_input_nodes]
    return node.target in POINTWISE and all(one is not None and same_sizes(one.shape, x.shape) for one in inputs)


def _is_of_length(node: Node) -> bool:
    """Whether a node pads the length or takes a part of it."""
    if node.target is aten.slice.Tensor:
        return node.args[1:2] == (2,)
    return node.target is aten.alias.default or is_padding(node)


def _is_sequence(x: torch.Tensor) -> bool:
    return x.dim() == 3 and not is_known(x.shape[2] == 1)


def _sequences(node: Node) -> list[Node]:
    """The sequences that a node reads; weights are none."""
    if node.target is aten.convolution.default or _is_of_length(node):
        given = [node.args[0]]
    elif node.target in _OURS:
        x, *others = node.args
        operands = [one for one in (*others, *node.kwargs.values()) if isinstance(one, (list, tuple))]
        given = [x, *(one for found in operands for one in found)]
    else:
        given = list(node.all_input_nodes)
    return [one for one in given if isinstance(one, Node) and (x := fake_value(one)) is not None and _is_sequence(x)]  # type: ignore[assignment]


def _convert(graph: Graph, region: dict[Node, None], faster: set[Node]) -> bool:
    region = _without_last_views(region)
    entries = dict.fromkeys(x for node in region for x in _sequences(node) if x not in region and not _is_last(x))
    exits = [node for node in region if any(user not in region for user in readers(node))]
    copies = len(entries) + sum(1 for node in exits if not _has_one_channel(node))
    dense = sum(node in faster or (_is_ours_on_gpu(node) and not _is_depthwise(node)) for node in region)
    if dense < _LEAST_CONVOLUTIONS or dense < 2 * copies or _is_last(next(iter(region))):
        return False
    strides = {node: _value(node).stride() for node in exits}
    if not all(has_contiguous_strides(_value(node)) for node in exits):
        return False
    for entry in entries:
        users = [node for node in region if entry in _sequences(node)]
        copied = _copied(graph, entry, users[0])
        for user in users:
            user.replace_input_with(entry, copied)
    for node in region:
        if node in faster or is_padding(node):
            as_image(graph, node)
        node.meta["val"] = fake_result(node.target, node.args, dict(node.kwargs), node.all_input_nodes[0])  # type: ignore[arg-type]
    for node in exits:
        if not same_sizes(_value(node).stride(), strides[node]):
            _restore(graph, node, region)
    return True


def _without_last_views(region: dict[Node, None]) -> dict[Node, None]:
    """The region without the views that end it, whose strides are their readers'."""
    kept = dict(region)
    for node in reversed(region):
        if node.target in _VIEWS and not any(user in kept for user in readers(node)):
            del kept[node]
    return kept


def _copied(graph: Graph, x: Node, before: Node) -> Node:
    """A channels-last copy."""
    with graph.inserting_before(before):
        return call(graph, aten.transpose.int, contiguous_copy(graph, call(graph, aten.transpose.int, x, 1, 2)), 1, 2)


def _restore(graph: Graph, node: Node, region: dict[Node, None]) -> None:
    """Gives readers outside of the region a contiguous copy."""
    with graph.inserting_after(node):
        copy = contiguous_copy(graph, node)
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy and user not in region)


def _value(node: Node) -> torch.Tensor:
    x = fake_value(node)
    assert x is not None
    return x


def _is_last(node: Node) -> bool:
    return is_channels_last(_value(node))


def _has_one_channel(node: Node) -> bool:
    return is_known(_value(node).shape[1] == 1)


def _is_ours_on_gpu(node: Node) -> bool:
    return node.target in _CONVOLUTIONS and _value(node).is_cuda


def _is_depthwise(node: Node) -> bool:
    weight = fake_value(node.args[1])
    return weight is not None and is_known(weight.shape[1] == 1)
