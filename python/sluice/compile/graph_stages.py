"""Stages of a graph after a node and before one."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Node

from .composite import INTERIOR, composite_stages, starts
from .gates import gate_stages
from .nodes import is_closed, readers
from .single import single_stages
from .stage import GraphStage

_MOST_VISITED = 32  # nodes after one: gelu by tanh has nine


def behind(x: Node) -> GraphStage | None:
    """The stage that alone reads x; the largest stage, where smaller stages are parts of it."""
    found = [stage for root in _ends(x) for stage in composite_stages(root, x) if is_closed(*stage[:3])]
    if not found and len(users := readers(x)) == 1:
        [user] = users
        several = (*gate_stages(user), *single_stages(user))
        found = [stage for stage in several if stage.x is x and is_closed(*stage[:3])]
    return max(found, key=lambda stage: len(stage.interior), default=None)


def ahead(root: Node) -> Iterator[GraphStage]:
    """The stages that end in `root`, whose nodes nothing else reads.

    Large stages come first; among equals, stages whose x is the end of another stage, so that rows get longer.
    """
    for stage in (*_composites(root), *sorted(_others(root), key=_stops)):
        if _is_alone(stage):
            yield stage


def _composites(root: Node) -> list[GraphStage]:
    found = [stage for x in starts(root) for stage in composite_stages(root, x)]
    return sorted(found, key=lambda stage: -len(stage.interior))


def _others(root: Node) -> Iterator[GraphStage]:
    yield from gate_stages(root)
    yield from single_stages(root)


def _is_alone(stage: GraphStage) -> bool:
    """Whether nothing else reads the stage's nodes before its last node."""
    inside = stage.interior | {stage.root}
    return all(user in inside for node in stage.interior for user in readers(node))


def _stops(stage: GraphStage) -> bool:
    """Whether no stage is before its x although one is before an operand, which could be x."""
    return bool(stage.operands) and not _has_stage(stage.x) and any(map(_has_stage, stage.operands))


def _has_stage(node: Node) -> bool:
    """Whether a value that is read once is computed by a stage."""
    if node.op != "call_function" or len(readers(node)) != 1:
        return False
    several = (*_composites(node), *_others(node))
    return any(not stage.only_casts and stage.why_not() is None and _is_alone(stage) for stage in several)


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
