"""Writes of pointwise ops into values that nothing else sees: for the pass they are ops without a write."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from .nodes import aten, fake_value, is_write, may_alias, reads_size, same_sizes
from .single import POINTWISE


def without_writes(graph: Graph) -> list[Node]:
    """Makes `relu_(x)` a `relu(x)` where x is memory of its own that no later node and no view reads.

    Returns:
        the nodes that it changed.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    changed = []
    for node in graph.nodes:
        target = _without_write(node)
        if target is not None and _is_last_reader(node, order):
            node.target = target
            changed.append(node)
    return changed


def restore_writes(graph: Graph, changed: list[Node]) -> None:
    """Makes the nodes that are left writes again, unless a later node came to read their input."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in changed:
        if not node._erased and _is_last_reader(node, order):
            assert isinstance(node.target, torch._ops.OpOverload)
            packet = getattr(aten, node.target.overloadpacket.__name__ + "_")
            node.target = getattr(packet, node.target._overloadname)


def _without_write(node: Node) -> torch._ops.OpOverload | None:
    """The op that computes a write's values into new memory; None if the node is no write or has no such op."""
    target = node.target
    if not is_write(node) or not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    packet = getattr(aten, target.overloadpacket.__name__.removesuffix("_"), None)
    found: torch._ops.OpOverload | None = getattr(packet, target._overloadname, None)
    if found is None or found is target or found not in POINTWISE or not _keeps(node, found):
        return None
    return found


def _keeps(node: Node, target: torch._ops.OpOverload) -> bool:
    """Whether the op without the write has a result of the written tensor's dtype, shape and strides."""
    x = fake_value(node.args[0])
    if x is None:
        return False
    try:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
        with x.fake_mode, torch.no_grad():  # type: ignore[attr-defined]
            result = target(*args, **kwargs)
    except (KeyError, RuntimeError):
        return False
    return result.dtype == x.dtype and same_sizes(result.shape, x.shape) and same_sizes(result.stride(), x.stride())


def _is_last_reader(node: Node, order: dict[Node, int]) -> bool:
    x = node.args[0]
    if not isinstance(x, Node) or x.op != "call_function" or may_alias(x) or node.all_input_nodes.count(x) != 1:
        return False
    others = [user for user in x.users if user is not node and not reads_size(user)]
    return all(order[user] < order[node] and not may_alias(user) for user in others)
