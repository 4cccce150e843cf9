"""Values of a graph that parameters alone decide, such as weight_norm's weight: kept until a parameter changes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from .._polyphase import has_kernel
from ..nn.packing import may_be_packed
from ..pack import packed_transposed
from .convolution import call, read
from .nodes import fake_value, is_known, is_write, may_alias

_CONV1D, _CONV_TRANSPOSE1D = torch.ops.sluice.conv1d.default, torch.ops.sluice.conv_transpose1d.default


class Split(NamedTuple):
    """A graph in two parts.

    Attributes:
        first: computes the constants from the inputs in `reads`; None if there are none.
        reads: indices of those inputs.
        rest: computes the graph's results from all inputs and the constants.
    """

    first: GraphModule | None
    reads: tuple[int, ...]
    rest: GraphModule


def split(module: GraphModule, parameters: Sequence[int]) -> Split:
    """Takes apart what the inputs of these indices alone decide. The module becomes `rest`."""
    graph = module.graph
    inputs = graph.find_nodes(op="placeholder")
    constants = constants_of(graph, {inputs[i] for i in parameters})
    kept = [node for node in constants if any(user not in constants for user in node.users)]
    if not kept:
        return Split(None, (), module)
    first, places = Graph(), dict[Node, Node]()
    reads = [i for i in parameters if any(user in constants for user in inputs[i].users)]
    for i in reads:
        places[inputs[i]] = first.placeholder(inputs[i].name)
    for node in constants:
        places[node] = first.node_copy(node, places.__getitem__)
    first.output(tuple(places[node] for node in kept))
    with graph.inserting_after(inputs[-1]):
        for node in reversed(kept):
            new = graph.placeholder(node.name)
            new.meta.update(node.meta)
            node.replace_all_uses_with(new, delete_user_cb=lambda user: user not in constants)
    for node in reversed(constants):
        graph.erase_node(node)
    module.recompile()
    return Split(GraphModule(module, first), tuple(reads), module)


def pack_weights(graph: Graph, parameters: set[Node]) -> None:
    """Packs the weights of tensor-core kernels where parameters alone decide them."""
    constants = constants_of(graph, parameters)
    for op, pack in ((_CONV1D, _pack), (_CONV_TRANSPOSE1D, _pack_transposed)):
        for node in graph.find_nodes(op="call_function", target=op):
            weight = node.args[1]
            if "packed" in node.kwargs or not (weight in constants or weight in parameters):
                continue
            options = {"precision": node.kwargs["precision"]} if "precision" in node.kwargs else {}
            with graph.inserting_before(node):
                packed = pack(graph, node, weight, options)
            if packed is not None:
                node.update_kwarg("packed", packed)


def _pack(graph: Graph, node: Node, weight: Node, options: dict[str, Any]) -> Node | None:
    if not may_be_packed(fake_value(weight)):
        return None
    return call(graph, torch.ops.sluice._pack_conv1d_weight.default, weight, None, **options)


def _pack_transposed(graph: Graph, node: Node, weight: Node, options: dict[str, Any]) -> Node | None:
    """Writes the ops of `packed_transposed` into the graph."""
    result, value = fake_value(node), fake_value(weight)
    *_, stride, _, _, groups, dilation = read(node).arguments
    if result is None or value is None or not may_be_packed(value, groups) or not has_kernel(stride, dilation):
        return None
    numbers = stride, dilation, is_known(result.stride(-2) == 1)
    with torch.no_grad():
        traced = make_fx(lambda w: packed_transposed(w, w.dtype, numbers, options))(value)
    [own] = traced.graph.find_nodes(op="placeholder")
    packed = graph.graph_copy(traced.graph, {own: weight})
    assert isinstance(packed, Node)
    return packed


def constants_of(graph: Graph, parameters: set[Node]) -> dict[Node, None]:
    """The nodes that parameters alone decide, in their order, but for memory that the graph writes or returns."""
    changed = _written_or_returned(graph)
    found: dict[Node, None] = {}
    for node in graph.nodes:
        inputs = node.all_input_nodes
        is_decided = bool(inputs) and all(
            one not in changed and (one in found or one in parameters) for one in inputs
        )  # fmt: skip
        if is_decided and node.op == "call_function" and node not in changed and not _is_impure(node):
            found[node] = None
    return found


def _written_or_returned(graph: Graph) -> set[Node]:
    """The nodes whose memory an op writes or the graph returns, and the nodes that may share it."""
    changed: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or is_write(node):
            changed.update(node.all_input_nodes)
        if node in changed and node.op == "call_function" and may_alias(node):
            changed.update(node.all_input_nodes)
    for node in graph.nodes:  # views of what is written elsewhere
        if node.op == "call_function" and may_alias(node) and any(one in changed for one in node.all_input_nodes):
            changed.add(node)
    return changed


def _is_impure(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is not operator.getitem
    return is_write(node) or torch.Tag.nondeterministic_seeded in target.tags or target.namespace not in (
        "aten", "prims", "sluice"
    )  # fmt: skip
