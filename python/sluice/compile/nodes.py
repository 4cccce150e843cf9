"""Properties of a node of an aten graph: its fake value, its numbers, its users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from .._fake import FLOATING, is_strided

aten, prims = torch.ops.aten, torch.ops.prims


def fake_value(node: object) -> torch.Tensor | None:
    """The fake tensor that a node stands for; None where it stands for something else."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def is_parameter(node: Node) -> bool:
    """Whether an input of Dynamo's graph is a parameter or a buffer of a module."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", ())


def is_floating(node: object) -> bool:
    """Whether a node is a tensor that sluice's ops take."""
    value = fake_value(node)
    return value is not None and value.dtype in FLOATING and is_strided(value) and value.device.type in ("cpu", "cuda")


def is_known(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds for all of them; it makes no guard."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def same_sizes(a: Sequence[int | torch.SymInt], b: Sequence[int | torch.SymInt]) -> bool:
    """Whether two shapes, or two strides, are equal for all values of their symbols."""
    return len(a) == len(b) and all(is_known(m == n) for m, n in zip(a, b, strict=True))


def has_contiguous_strides(x: torch.Tensor) -> bool:
    """Whether a sequence (B, C, L) lies as a new tensor would, for all values of its symbols."""
    _, channels, length = x.shape
    return same_sizes(x.stride(), (channels * length, length, 1))


def is_same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one shape and one device."""
    return a.device == b.device and same_sizes(a.shape, b.shape)


def broadcasts(operand: torch.Tensor, shape: Sequence[int | torch.SymInt]) -> bool:
    """Whether an operand broadcasts to `shape` and does not enlarge it."""
    if operand.dim() > len(shape):
        return False
    pairs = zip(reversed(operand.shape), reversed(shape), strict=False)
    return all((isinstance(extent, int) and extent == 1) or is_known(extent == size) for extent, size in pairs)


def number(value: object) -> float | int | None:
    """A number that is written into the graph, also as a tensor of one; None for anything else."""
    if isinstance(value, Node):
        if value.target is aten.full.default and not value.args[0]:
            return number(value.args[1])
        return number(value.args[0]) if value.target is aten.scalar_tensor.default else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def is_number(value: object, wanted: float) -> bool:
    """Whether it is a number that is written as `wanted`, be it with the digits of float32."""
    found = number(value)
    return found is not None and abs(found - wanted) <= 1e-6 * abs(wanted)


def reads_size(node: Node) -> bool:
    """Whether a node takes nothing of a tensor but its extent in a dimension."""
    return node.target is aten.sym_size.int


def readers(node: Node) -> list[Node]:
    """The users that take the values of a node."""
    return [user for user in node.users if not reads_size(user)]


def is_closed(x: Node, root: Node, interior: frozenset[Node]) -> bool:
    """Whether nothing but the nodes of a stage, which ends in `root`, reads x and what comes in between."""
    inside = interior | {root}
    return all(user in inside for node in (x, *interior) for user in readers(node))


def is_write(node: Node) -> bool:
    """Whether a node is an op that writes to an argument."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def may_alias(node: Node) -> bool:
    """Whether the result of a call may share memory with what the call reads."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return True
    if target is aten._unsafe_view.default or torch.Tag.maybe_aliasing_or_mutating in target.tags:
        return True
    return any(value.alias_info is not None for value in target._schema.returns)


def given(node: Node, name: str, default: Any) -> Any:
    """An argument of an aten op by its name in the schema."""
    if name in node.kwargs:
        return node.kwargs[name]
    assert isinstance(node.target, torch._ops.OpOverload)
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == name and position < len(node.args):
            return node.args[position]
    return default


def source_of(node: Node) -> Node | None:
    """The graph's input that a weight is, or the first input that it is computed from."""
    level = [node]
    while level:
        if (found := next((one for one in level if one.op == "placeholder"), None)) is not None:
            return found
        level = list(dict.fromkeys(one for node in level for one in node.all_input_nodes))
    return None
