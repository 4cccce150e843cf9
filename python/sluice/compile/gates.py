"""Gates, `x * sigmoid(other)`: products that are written out, and `glu` on the halves of one tensor.

    tanh(a) * sigmoid(b) -> convolution        convolution(a, pre="tanh()|gate($0)", pre_operands=[b])
    glu(x) -> convolution                      convolution(x[:, :C], pre="gate($0)", pre_operands=[x[:, C:]])

A stage keeps the shape, so a `glu` is written as a stage of the first half while the pass runs. The op itself is one
pass over memory already: it returns where nothing has taken the stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import Graph, Node

from .. import stages
from .convolution import call, fake_result
from .effects import erase_unused
from .nodes import aten, fake_value, given, is_floating, is_same_place, same_sizes
from .stage import GraphStage

_TRANSFORM = torch.ops.sluice.transform.default
_GATE = stages.gate(torch.empty((), device="meta")).text


def gate_stages(root: Node) -> Iterator[GraphStage]:
    """The gates that end in `root`, one for each factor that can be its x."""
    if root.target is _TRANSFORM and root.args[1:] == (_GATE,) and root.kwargs.keys() == {"operands"}:
        x, [other] = root.args[0], root.kwargs["operands"]  # type: ignore[misc]
        assert isinstance(x, Node)
        yield GraphStage(x, root, frozenset(), ((stages.gate, (other,)),))
    if root.target is not aten.mul.Tensor:
        return
    for x, factor in (root.args[:2], root.args[:2][::-1]):
        if isinstance(x, Node) and isinstance(factor, Node) and _is_gate(x, factor):
            yield GraphStage(x, root, frozenset((factor,)), ((stages.gate, (factor.args[0],)),))


def _is_gate(x: Node, factor: Node) -> bool:
    """Whether the factor is a sigmoid for each element of x: one for each channel is cheaper computed once."""
    if factor.target is not aten.sigmoid.default or x in (factor, factor.args[0]):
        return False
    value, other = fake_value(x), fake_value(factor)
    return value is not None and other is not None and is_same_place(value, other)


@contextmanager
def glus_as_gates(graph: Graph) -> Iterator[None]:
    """Inside, a graph's `glu` is the gate of its first half by its second; gates that are left become `glu` again."""
    gates = [gate for node in list(graph.nodes) if (gate := _unfolded(graph, node)) is not None]
    yield
    for gate in gates:
        if not gate._erased:
            _restore(graph, gate)


def _unfolded(graph: Graph, node: Node) -> Node | None:
    """The gate in the place of a `glu`; None if the node is none that sluice computes."""
    if node.target is not aten.glu.default or not is_floating(node.args[0]):
        return None
    x, value = node.args[0], fake_value(node.args[0])
    dim, expected = given(node, "dim", -1), fake_value(node)
    assert isinstance(x, Node)
    assert value is not None
    size = value.shape[dim]
    if not isinstance(size, int) or expected is None:
        return None
    with graph.inserting_before(node):
        a, b = (call(graph, aten.slice.Tensor, x, dim, *ends) for ends in ((0, size // 2), (size // 2, size)))
        gate = graph.call_function(_TRANSFORM, (a, _GATE), {"operands": [b]})
    result = fake_result(_TRANSFORM, gate.args, gate.kwargs, x)
    gate.meta.update(node.meta, val=result)
    is_same = result.dtype == expected.dtype and same_sizes(result.stride(), expected.stride())
    if is_same:
        node.replace_all_uses_with(gate)
    erase_unused([node if is_same else gate])
    return gate if is_same else None


def _restore(graph: Graph, gate: Node) -> None:
    half = gate.args[0]
    assert isinstance(half, Node)
    with graph.inserting_before(gate):
        node = graph.call_function(aten.glu.default, half.args[:2])
    node.meta.update(gate.meta)
    gate.replace_all_uses_with(node)
    erase_unused([gate])
