"""Stages of a graph after a node and before one."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Node

from .composite import INTERIOR, composite_stages, starts
from .nodes import is_closed, readers
from .single import single_stages
from .stage import GraphStage

_MOST_VISITED = 32  # nodes after one: gelu by tanh has nine


def behind(x: Node) -> GraphStage | None:
    """The stage that alone reads x; the largest, where a smaller one is a part of it."""
    found = [stage for root in _ends(x) for stage in composite_stages(root, x) if is_closed(*stage[:3])]
    if not found and len(users := readers(x)) == 1:
        [user] = users
        found = [stage for stage in single_stages(user) if stage.x is x and is_closed(*stage[:3])]
    return max(found, key=lambda stage: len(stage.interior), default=None)


def ahead(root: Node) -> Iterator[GraphStage]:
    """The stages that end in `root`, largest first, whose nodes nothing else reads."""
    found = [stage for x in starts(root) for stage in composite_stages(root, x)]
    found.sort(key=lambda stage: -len(stage.interior))
    for stage in (*found, *single_stages(root)):
        inside = stage.interior | {stage.root}
        if all(user in inside for node in stage.interior for user in readers(node)):
            yield stage


def _ends(x: Node) -> list[Node]:
    """Where a stage with nodes in between may end that starts from x."""
    found: dict[Node, None] = dict.fromkeys(readers(x))
    if len(found) < 2:
        return []
    level = list(found)
    while level and len(found) < _MOST_VISITED:
        level = [user for node in level if node.target in INTERIOR for user in readers(node) if user not in found]
        found.update(dict.fromkeys(level))
    return list(found)
