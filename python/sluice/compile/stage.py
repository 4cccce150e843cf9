"""A stage of a chain as nodes of a graph, and the chain of several stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from .. import stages
from .._fake import chain_cast
from ..chain import Chain
from .nodes import broadcasts, fake_value, is_floating, is_same_place

# A function of sluice.stages and its arguments; nodes stand for tensors.
Call = tuple[Callable[..., Chain], tuple[Any, ...]]


class GraphStage(NamedTuple):
    """The nodes after `x` up to `root`, and the stage calls that they compute of x."""

    x: Node
    root: Node
    interior: frozenset[Node]
    calls: tuple[Call, ...]

    @property
    def operands(self) -> list[Node]:
        """The tensors that the stage reads beside x."""
        return [value for _, values in self.calls for value in values if isinstance(value, Node)]

    @property
    def only_casts(self) -> bool:
        """Whether it only changes the dtype, or nothing."""
        return all(make is stages.cast for make, _ in self.calls)

    def why_not(self) -> str | None:
        """Why a chain cannot take it; None if it can: it keeps the shape, and its operands broadcast to it."""
        x, result = fake_value(self.x), fake_value(self.root)
        if x is None or result is None or not (is_floating(self.x) and is_floating(self.root)):
            return "sluice does not compute in its dtype"
        if not is_same_place(x, result):
            return "it changes the shape or the device"
        for operand in self.operands:
            value = fake_value(operand)
            if value is None or not is_floating(operand):
                return f"{operand} is not a floating-point tensor"
            if value.device != x.device:
                return f"{operand} is on another device"
            if not broadcasts(value, x.shape):
                return f"{operand} does not broadcast to the shape of {self.x}"
        return None


class GraphChain(NamedTuple):
    """A chain of stages in the form that raw ops take."""

    chain: Chain
    operands: list[Node]

    def fits(self, op: str, argument: str) -> bool:
        """Whether the op's parser accepts this number of stages and tensors."""
        try:
            chain_cast(op, argument, self.chain.text, len(self.operands))
        except RuntimeError:
            return False
        return True


def compose(found: list[GraphStage], dtype: torch.dtype) -> GraphChain:
    """The chain of stages whose first x has `dtype`.

    A cast rounds only to a dtype narrower than `dtype`: in half types the graph rounds after each op, the chain only at
    its end.
    """
    tokens: dict[Node, torch.Tensor] = {}  # the chain numbers them

    def value_of(value: Any) -> Any:
        return tokens.setdefault(value, torch.empty((), device="meta")) if isinstance(value, Node) else value

    chain = Chain()
    for stage in found:
        for make, values in stage.calls:
            if make is not stages.cast or _rounds(values[0], dtype):
                chain = chain | make(*map(value_of, values))
    nodes = {id(token): node for node, token in tokens.items()}
    return GraphChain(chain, [nodes[id(token)] for token in chain.operands])


def _rounds(target: torch.dtype, dtype: torch.dtype) -> bool:
    return target != dtype and torch.promote_types(target, dtype) != target
