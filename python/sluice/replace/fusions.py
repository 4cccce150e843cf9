"""Folds nodes of a trace into the chains of convolutions, if nothing else reads them.

A fusion is a convolution, the stages before it and those after it. It runs at its last node, so nothing between its
first and last node may write into a tensor.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import fx

from .classes import OURS, has_other_hooks, own_class
from .conv_wrapper import ConvWrapper, wrapper_of
from .functional import BOUND
from .fused import Fused
from .known import chain_of_module
from .source import is_calm
from .stage import TracedStage, stage_of

_MOST_STAGES = 6
_MOST_OPERANDS = 3
# Stages that leave zero as it is.
_ZERO_STAYS = frozenset(
    ("nothing", "leaky_relu", "relu", "elu", "silu", "gelu", "tanh", "snake", "neg", "abs", "square")
)


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A convolution and the stages that are folded into it.

    Attributes:
        path: the module; empty for a call of a function.
        function: its name.
    """

    path: str
    pre: tuple[TracedStage, ...]
    post: tuple[TracedStage, ...]
    function: str = ""

    def __str__(self) -> str:
        shown = [self.function] if self.function else []
        for name, part in (("pre", self.pre), ("post", self.post)):
            labels = [stage.label for stage in part if stage.label != "nothing"]
            if labels:
                shown.append(f"{name}: {' | '.join(labels)}")
        return ", ".join(shown)


def fold(graph: fx.Graph, modules: dict[str, torch.nn.Module]) -> list[Fusion]:
    """Puts fused calls into the graph."""
    _erase_unused(graph, modules)
    fusions = []
    for node in list(graph.nodes):
        if _is_foldable(node, modules):
            fusion = _Grower(graph, modules, node).fusion()
            if fusion is not None:
                fusions.append(fusion)
    return fusions


def _is_foldable(node: fx.Node, modules: dict[str, torch.nn.Module]) -> bool:
    if _is_function(node):
        return True
    if node.op != "call_module" or len(node.args) != 1 or not isinstance(node.args[0], fx.Node):
        return False
    module = modules[str(node.target)]
    if wrapper_of(module) is not None:
        return all(value is None for value in node.kwargs.values())
    return own_class(module) in OURS and not node.kwargs and not has_other_hooks(module)


def _is_function(node: fx.Node) -> bool:
    """Whether it calls a convolution of torch.nn.functional, input and weight first."""
    is_called = node.op == "call_function" and node.target in BOUND
    return is_called and len(node.args) >= 2 and isinstance(node.args[0], fx.Node)


def is_calm_module(module: torch.nn.Module) -> bool:
    """Whether a call of the module provably writes into no existing tensor."""
    if any(has_other_hooks(part) for part in module.modules()):
        return False
    if own_class(module) in OURS or wrapper_of(module) is not None:
        return True
    writes = any(getattr(part, "inplace", False) is True for part in module.modules())
    return not writes and chain_of_module(module) is not None


def _erase_unused(graph: fx.Graph, modules: dict[str, torch.nn.Module]) -> None:
    """Erases unused nodes, such as sizes that only conditions read."""
    for node in reversed(list(graph.nodes)):
        is_kept = node.op in ("placeholder", "output", "call_module")
        if not is_kept and not node.users and is_calm(node, modules, is_calm_module):
            graph.erase_node(node)


class _Grower:
    """Finds one convolution's fusion and replaces it."""

    def __init__(self, graph: fx.Graph, modules: dict[str, torch.nn.Module], node: fx.Node) -> None:
        self.graph, self.modules, self.node = graph, modules, node
        self.order = {one: i for i, one in enumerate(graph.nodes)}
        self.members = [node]
        self.post: list[TracedStage] = []
        self.pre: list[TracedStage] = []
        self.wrapper = wrapper_of(modules[str(node.target)]) if node.op == "call_module" else None

    def fusion(self) -> Fusion | None:
        last = self._behind()
        self._ahead()
        is_function = _is_function(self.node)
        if not is_function and all(stage.label == "nothing" for stage in (*self.pre, *self.post)):
            return None
        self._replace(last)
        if is_function:
            return Fusion("", tuple(self.pre), tuple(self.post), getattr(self.node.target, "__name__", ""))
        return Fusion(str(self.node.target), tuple(self.pre), tuple(self.post))

    def _behind(self) -> fx.Node:
        current = self.node
        while len(current.users) == 1 and len(self.post) < _MOST_STAGES:
            [user] = current.users
            stage = stage_of(user, self.modules, current)
            if stage is None or not self._has_room(self.post, stage) or not self._is_calm_with(user):
                break
            if self.wrapper is not None and self.wrapper.trims and stage.operands:
                break
            self.post.append(stage)
            self.members.append(user)
            current = user
        return current

    def _ahead(self) -> None:
        current: Any = self.node.args[0]
        while isinstance(current, fx.Node) and len(self.pre) < _MOST_STAGES:
            stage = stage_of(current, self.modules)
            if stage is None or not self._has_room(self.pre, stage) or not self._is_used_here(current, stage):
                break
            if self.wrapper is not None and not self._passes(stage, self.wrapper):
                break
            if stage.mutates and not (len(stage.value.users) == 1 and self._is_fresh(stage.value)):
                break
            if not self._is_calm_with(current):
                break
            self.pre.insert(0, stage)
            self.members.insert(0, current)
            current = stage.value

    def _has_room(self, stages: list[TracedStage], stage: TracedStage) -> bool:
        return sum(not one.is_constant for one in (*stages, stage)) <= _MOST_OPERANDS

    def _passes(self, stage: TracedStage, wrapper: ConvWrapper) -> bool:
        """Whether the stage may run after the padding instead of before it."""
        has_parts = stage.module is not None and len(self.modules[stage.module]._modules) > 0  # they may be replaced
        if stage.operands or (wrapper.adds_zeros and has_parts):
            return False
        names = (part.partition("(")[0] for part in stage.label.split(" | "))
        return not wrapper.adds_zeros or all(name in _ZERO_STAYS for name in names)

    def _is_used_here(self, node: fx.Node, stage: TracedStage) -> bool:
        """Whether only this fusion reads the node, or two convolutions that both fold it."""
        if len(node.users) == 1:
            return True
        are_convolutions = all(_is_foldable(user, self.modules) and user.args[0] is node for user in node.users)
        return len(node.users) == 2 and are_convolutions and stage.is_cheap

    def _is_fresh(self, node: fx.Node) -> bool:
        """Whether nothing else shares the value's memory."""
        if isinstance(node.target, Fused):
            return True
        if node.op == "call_module" and own_class(self.modules[str(node.target)]) in OURS:
            return True
        stage = stage_of(node, self.modules)
        return stage is not None and stage.module is None and not stage.mutates and stage.label != "nothing"

    def _is_calm_with(self, node: fx.Node) -> bool:
        """Whether the fusion with that node may run at its last node."""
        places = [self.order[one] for one in (*self.members, node)]
        members = {*self.members, node}
        return all(
            one in members or is_calm(one, self.modules, is_calm_module)
            for one, place in self.order.items()
            if min(places) < place < max(places)
        )

    def _replace(self, last: fx.Node) -> None:
        source = self.pre[0].value if self.pre else self.node.args[0]
        marker: fx.Node = last
        operands: list[Any] = []
        for stage in (*self.pre, *self.post):
            if stage.module is not None:
                marker = self._module(stage.module, marker)
                operands.append(marker)
            operands.extend(stage.operands)
        marker = self._function(marker) if _is_function(self.node) else self._module(str(self.node.target), marker)
        with self.graph.inserting_after(marker):
            fused = self.graph.call_function(Fused(self.pre, self.post), (marker, source, *operands))
        last.replace_all_uses_with(fused, delete_user_cb=lambda user: user is not fused)
        for member in sorted(self.members, key=self.order.__getitem__, reverse=True):
            if not member.users:
                self.graph.erase_node(member)

    def _function(self, behind: fx.Node) -> fx.Node:
        with self.graph.inserting_after(behind):
            return self.graph.call_function(BOUND[self.node.target], self.node.args[1:], dict(self.node.kwargs))

    def _module(self, path: str, behind: fx.Node) -> fx.Node:
        with self.graph.inserting_after(behind):
            node = self.graph.get_attr(path)
        node.meta["is_module"] = True
        return node
