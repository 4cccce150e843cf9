"""What nodes do beyond their results: writes, and readers of strides."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from .nodes import aten, is_write, may_alias, reads_size


def is_barrier(node: Node) -> bool:
    """Whether it may write to memory that others read: an op in place, or one that runs graphs or kernels."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return node.op not in ("placeholder", "get_attr", "output") and not _is_python(node)
    return is_write(node)


def barriers_of(graph: Graph) -> dict[Node, int]:
    """The number of barriers up to each node: two nodes with the same number have no barrier between them."""
    found, count = dict[Node, int](), 0
    for node in graph.nodes:
        count += is_barrier(node)
        found[node] = count
    return found


def _is_python(node: Node) -> bool:
    return node.target in _OF_SIZES or getattr(node.target, "__module__", None) in ("_operator", "operator", "math")


_OF_SIZES = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith("sym_"))


def reader_of_strides(root: Node, is_final: bool) -> Node | None:
    """A node after `root` whose result may depend on the strides of what it reads; None where there is none.

    In a graph that runs as it is (`is_final`), that is an output as well, and a view. Inductor gives the graph's
    outputs the strides that they had, and makes reshapes of views.
    """
    seen: set[Node] = set()
    level = list(root.users)
    while level:
        for node in level:
            if node.op == "output":
                if is_final:
                    return node
            elif not _is_python(node) and (_reads_strides(node.target) or (is_final and node.target in _VIEWS)):
                return node
        seen.update(level)
        level = [user for user in dict.fromkeys(user for node in level for user in node.users) if user not in seen]
    return None


_VIEWS = (aten.view.default, aten._unsafe_view.default)


def reader_of_gaps(root: Node) -> Node | None:
    """A node after `root` that sees whether rows lie side by side: an output, a view of other sizes, an unknown op."""
    level = list(root.users)
    while level:
        for node in level:
            if node.op == "output" or node.target in _VIEWS:
                return node
            if not _is_python(node) and _reads_strides(node.target):
                return node
        level = [user for node in level if may_alias(node) and not reads_size(node) for user in node.users]
    return None


def _reads_strides(target: object) -> bool:
    if target is aten.copy_.default:
        return False
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims", "sluice"):
        return True
    return "strid" in str(target) or target is aten.view.dtype or target._schema.is_mutable


def erase_unused(ends: list[Node]) -> None:
    """Erases nodes without users, and what they alone read."""
    while ends:
        node = ends.pop()
        if node._erased or node.users or node.op in ("placeholder", "output") or node.is_impure():
            continue
        inputs = node.all_input_nodes
        node.graph.erase_node(node)
        ends.extend(inputs)
