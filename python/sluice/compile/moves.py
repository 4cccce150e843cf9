"""Pads and trims of positions, through which pointwise stages move to the convolution.

x -> elu -> reflection_pad -> convolution            x -> reflection_pad -> convolution(pre="elu(1.0)")
convolution -> [..., 1:-1] -> tanh                   convolution(post="tanh()") -> [..., 1:-1]
"""

from __future__ import annotations

from torch.fx import Node

from .. import stages
from .nodes import aten, fake_value, given, is_known, is_number, readers
from .stage import GraphStage

_PADS = (aten.reflection_pad1d.default, aten.replication_pad1d.default)
# Stages that leave zero as it is.
_ZERO_STAYS = frozenset(
    (
        stages.leaky_relu, stages.relu, stages.elu, stages.silu, stages.gelu, stages.tanh, stages.neg, stages.abs,
        stages.square, stages.cast,
    )
)  # fmt: skip


def moves_ahead(x: Node) -> list[Node]:
    """The pads that end in x, the first one last, if nothing else reads what is between them."""
    found: list[Node] = []
    while _pads(x) and len(readers(x)) == 1:
        found.append(x)
        x = x.args[0]  # type: ignore[assignment]
    return found


def moves_behind(x: Node) -> list[Node]:
    """The trims that follow x, in their order, if nothing else reads what is between them."""
    found: list[Node] = []
    while len(users := readers(x)) == 1 and _trims(users[0], x):
        [x] = users
        found.append(x)
    return found


def may_move(stage: GraphStage, moves: list[Node]) -> bool:
    """Whether a stage computes the same on the other side of the moves."""
    if any(move.target is aten.constant_pad_nd.default for move in moves) and not _keeps_zero(stage):
        return False
    return all(_is_same_everywhere(operand) for operand in stage.operands)


def _keeps_zero(stage: GraphStage) -> bool:
    return all(make in _ZERO_STAYS for make, _ in stage.calls)


def _is_same_everywhere(operand: Node) -> bool:
    """Whether an operand has the same values at all positions."""
    value = fake_value(operand)
    return value is not None and (value.dim() == 0 or is_known(value.shape[-1] == 1))


def _pads(node: Node) -> bool:
    if node.target in _PADS:
        return True
    if node.target is not aten.constant_pad_nd.default or not isinstance(node.args[1], (list, tuple)):
        return False
    return len(node.args[1]) == 2 and is_number(given(node, "value", 0), 0)


def _trims(node: Node, x: Node) -> bool:
    """Whether the node is x without some of its positions."""
    value = fake_value(x)
    if node.target is not aten.slice.Tensor or node.args[0] is not x or value is None:
        return False
    return node.all_input_nodes.count(x) == 1 and given(node, "dim", 0) in (-1, value.dim() - 1)


def zeros_of(node: Node) -> tuple[int, int] | None:
    """The positions that a pad of zeros adds to the left and right; None for any other node."""
    if not _pads(node) or node.target in _PADS:
        return None
    left, right = node.args[1]  # type: ignore[misc]
    return (left, right) if type(left) is type(right) is int and left >= 0 and right >= 0 else None  # type: ignore[operator]
