"""Pointwise ops that stand beside no convolution: several in a row become one pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from .convolution import fake_result
from .effects import barriers_of, erase_unused
from .graph_stages import ahead
from .nodes import fake_value, readers, same_sizes
from .stage import GraphStage, compose

_LEAST_OPS = 2


def fold_transforms(graph: Graph) -> int:
    """Replaces rows of pointwise ops by `sluice.transform`; returns their number. For graphs that run as they are."""
    barriers, found = barriers_of(graph), 0
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node._erased:
            stages = _stages(node, barriers)
            if sum(1 + len(stage.interior) for stage in stages if stage.calls) >= _LEAST_OPS:
                found += _replace(graph, stages)
    return found


def _stages(root: Node, barriers: dict[Node, int]) -> list[GraphStage]:
    """The stages that end in `root`, as far as nothing else reads the values between them."""
    found: list[GraphStage] = []
    end = root
    while True:
        for stage in ahead(end):
            nodes = (stage.x, *stage.interior, stage.root)
            is_near = stage.x.op != "call_function" or all(barriers.get(one) == barriers[root] for one in nodes)
            if stage.why_not() is None and is_near and _fits([stage, *found]):
                break
        else:
            return found
        found.insert(0, stage)
        end = stage.x
        inside = {*stage.interior, stage.root}
        if any(user not in inside for user in readers(end)):
            return found


def _fits(stages: list[GraphStage]) -> bool:
    x = fake_value(stages[0].x)
    return x is not None and compose(stages, x.dtype).fits("transform", "chain")


def _replace(graph: Graph, stages: list[GraphStage]) -> bool:
    start, root = stages[0].x, stages[-1].root
    x, expected = fake_value(start), fake_value(root)
    assert x is not None
    assert expected is not None
    chain = compose(stages, x.dtype)
    target, arguments = torch.ops.sluice.transform.default, (chain.chain.text,)
    named: dict[str, Any] = {"operands": chain.operands} if chain.operands else {}
    try:
        result = fake_result(target, (start, *arguments), named, start)
    except RuntimeError:
        return False
    if result.dtype != expected.dtype or not same_sizes(result.stride(), expected.stride()):
        return False
    with graph.inserting_before(root):
        new = graph.call_function(target, (start, *arguments), named)
    new.meta["val"] = result
    root.replace_all_uses_with(new)
    erase_unused([root])
    return True
