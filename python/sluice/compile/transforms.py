"""Pointwise ops that stand beside no convolution of sluice: several in a row become one pass.

On a GPU torch adds a convolution's bias in a pass of its own, which joins the row behind:

    convolution(x, weight, bias) -> gelu        convolution(x, weight, None) -> transform("add($0,1.0)|gelu()", bias)
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch.fx import Graph, Node

from .. import stages
from .convolution import call, fake_result
from .effects import barriers_of, erase_unused
from .graph_stages import ahead
from .nodes import aten, fake_value, is_closed, readers, same_sizes
from .stage import GraphStage, compose

_LEAST_OPS = 2


def fold_transforms(graph: Graph, constants: Container[Node] = ()) -> int:
    """Replaces rows of pointwise ops by `sluice.transform`; returns their number. For graphs that run as they are.

    Args:
        graph: in aten ops, with fake values.
        constants: nodes that are computed once, and stay.
    """
    barriers, found = barriers_of(graph), 0
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node._erased and node not in constants:
            row = _stages(node, barriers)
            ops = sum(1 + len(stage.interior) for stage in row if stage.calls)
            if ops > 0 and ops + _adds_bias(row[0]) >= _LEAST_OPS:
                found += _replace(graph, row)
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


def _adds_bias(first: GraphStage) -> bool:
    """Whether the row's input is a convolution whose bias may be added in the row."""
    node, x = first.x, fake_value(first.x)
    if node.target is not aten.convolution.default or not isinstance(node.args[2], Node) or x is None:
        return False
    return x.is_cuda and x.dim() == 3 and is_closed(node, first.root, first.interior)


def _without_bias(graph: Graph, node: Node) -> GraphStage:
    """The stage that adds the bias of a convolution to the result of a new convolution."""
    x, weight, bias, *others = node.args
    assert isinstance(bias, Node)
    with graph.inserting_before(node):
        start = graph.call_function(aten.convolution.default, (x, weight, None, *others))
        column = call(graph, aten.unsqueeze.default, bias, -1)
    start.meta.update(node.meta)
    return GraphStage(start, node, frozenset(), ((stages.add, (column,)),))


def _replace(graph: Graph, row: list[GraphStage]) -> bool:
    root = row[-1].root
    if _adds_bias(row[0]):
        row = [_without_bias(graph, row[0].x), *row]
    start = row[0].x
    x, expected = fake_value(start), fake_value(root)
    assert x is not None
    assert expected is not None
    chain = compose(row, x.dtype)
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
