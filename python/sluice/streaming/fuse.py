"""Activations and residual sums around a stream's convolutions move into their chains."""

from __future__ import annotations

from typing import Any

import torch

from .. import stages
from ..chain import Chain
from .analysis import Analysis
from .functions import NEW
from .layers import Convolution
from .trace import bound, function_name, is_elementwise, is_in_place


class Fuser:
    """Rewrites an analysed graph in place.

    Attributes:
        residuals: by the node of a layer, what is added to its result.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.residuals: dict[torch.fx.Node, torch.fx.Node] = {}
        self._order = {node: place for place, node in enumerate(analysis.graph.nodes)}
        self._writes = {node for node in self._order if is_in_place(node, analysis.module_of(node))}

    def run(self) -> None:
        """Fuses what can be."""
        for node, layer in self.analysis.layers.items():
            if isinstance(layer, Convolution):  # in the order of the graph
                while self._take_before(node, layer):
                    pass
                while self._take_behind(node, layer):
                    pass

    def is_written_after(self, node: torch.fx.Node) -> bool:
        """Whether a node after it may change what an op reads."""
        return any(self._order[node] < self._order[write] for write in self._writes)

    def _take_before(self, node: torch.fx.Node, layer: Convolution) -> bool:
        source = node.args[0]
        if not isinstance(source, torch.fx.Node) or len(source.users) != 1 or source in self.residuals.values():
            return False
        chain = self._chain_of(source)
        if chain is None or layer.ahead is not None or not layer.may_act_before(chain):
            return False
        if self._is_written_between(source, node):
            return False
        joined = chain if layer.before is None else chain | layer.before
        if len(joined) > _MOST_STAGES:
            return False
        layer.before = joined
        node.replace_input_with(source, source.args[0])  # type: ignore[arg-type]
        self._erase(source)
        return True

    def _take_behind(self, node: torch.fx.Node, layer: Convolution) -> bool:
        if len(node.users) != 1:
            return False
        user = next(iter(node.users))
        if user.args and user.args[0] is node and (chain := self._chain_of(user)) is not None:
            joined = chain if layer.behind is None else layer.behind | chain
            if len(joined) > _MOST_STAGES:
                return False
            layer.behind = joined
        elif (other := self._residual(node, user)) is not None and layer.behind is None and node not in self.residuals:
            self.residuals[node] = other
        else:
            return False
        user.replace_all_uses_with(node)
        self._erase(user)
        return True

    def _residual(self, node: torch.fx.Node, user: torch.fx.Node) -> torch.fx.Node | None:
        """What a sum adds to the node's value, if it is there before the node."""
        if function_name(user) != "add" or len(user.args) != 2 or user.kwargs:
            return None
        other = user.args[1] if user.args[0] is node else user.args[0]
        if not isinstance(other, torch.fx.Node) or other is node or self.analysis.time_of(other) is None:
            return None
        is_alike = self.analysis.time_of(other).rank == 3  # type: ignore[union-attr]
        if not is_alike or self._order[other] > self._order[node] or self._is_written_between(node, user):
            return None
        if user in self._writes and user.args[0] is other and not self._is_free(other, user):
            return None
        return other

    def _is_written_between(self, first: torch.fx.Node, last: torch.fx.Node) -> bool:
        """Whether a node between them may change what an op reads, so that the op must stay where it is."""
        return any(self._order[first] < self._order[node] < self._order[last] for node in self._writes)

    def _is_own(self, node: torch.fx.Node) -> bool:
        """Whether the node's value is new memory, or a chunk."""
        if node.op == "placeholder" or node in self.analysis.layers:
            return True
        is_call = node.op in ("call_function", "call_method")
        return is_call and node not in self._writes and function_name(node) in NEW

    def _is_free(self, node: torch.fx.Node, user: torch.fx.Node) -> bool:
        """Whether nobody sees that `user` changes the node's value: other users are layers before it."""
        others = [other for other in node.users if other is not user]
        is_read = all(other in self.analysis.layers and self._order[other] < self._order[user] for other in others)
        return is_read and self._is_own(node)

    def _erase(self, node: torch.fx.Node) -> None:
        self._writes.discard(node)
        self.analysis.graph.erase_node(node)

    def _chain_of(self, node: torch.fx.Node) -> Chain | None:
        """The chain of a node that is an activation; None if it changes its input, which others read."""
        if node in self.analysis.layers or self.analysis.time_of(node) is None or not node.args:
            return None
        module, source = self.analysis.module_of(node), node.args[0]
        if not isinstance(source, torch.fx.Node) or (node in self._writes and not self._is_free(source, node)):
            return None
        if module is not None:
            return stages.from_module(module) or None if is_elementwise(module) else None
        if node.op not in ("call_function", "call_method"):
            return None
        make = _FUNCTIONS.get(function_name(node))
        return None if make is None else make(node)


_MOST_STAGES = 4


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _with_number(make: Any, name: str, usual: float) -> Any:
    def of(node: torch.fx.Node) -> Chain | None:
        number = _number(bound(node, "input", name).get(name, usual))
        return None if number is None else make(number)

    return of


def _gelu(node: torch.fx.Node) -> Chain | None:
    approximate = bound(node, "input", "approximate").get("approximate", "none")
    return stages.gelu(approximate) if approximate in ("none", "tanh") else None


_FUNCTIONS: dict[str, Any] = {
    "relu": lambda node: stages.relu(),
    "silu": lambda node: stages.silu(),
    "sigmoid": lambda node: stages.sigmoid(),
    "tanh": lambda node: stages.tanh(),
    "gelu": _gelu,
    "elu": _with_number(stages.elu, "alpha", 1.0),
    "leaky_relu": _with_number(stages.leaky_relu, "negative_slope", 0.01),
}
