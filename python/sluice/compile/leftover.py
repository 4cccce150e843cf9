"""Activations that are not decomposed before the pass, and the decomposition of the activations that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from .nodes import aten, fake_value

# Each would be arithmetic by the time that the pass sees it.
KEPT = (
    aten.gelu.default,
    aten.silu.default,
    aten.leaky_relu.default,
    aten.elu.default,
    aten.softplus.default,
    aten.hardtanh.default,
    aten.clamp.default,
)

Table = dict[Any, Callable[..., Any]]


class KeepingTable(Table):
    """Inductor's decompositions without `KEPT`'s. Its pickle, a part of a cache's key, is the name of a function."""

    def __reduce__(self) -> tuple[Callable[[], Table], tuple[()]]:
        return keeping_table, ()


def keeping_table() -> KeepingTable:
    """The table for Inductor's configuration as it is now."""
    from torch._inductor.decomposition import select_decomp_table

    return KeepingTable({target: made for target, made in select_decomp_table().items() if target not in KEPT})


def decompose_kept(graph: Graph, table: Table) -> None:
    """Replaces the ops of `KEPT` by their decompositions in `table`."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in KEPT and node.target in table:
            _decompose(node, table)


def _decompose(node: Node, table: Table) -> None:
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs, value = node.all_input_nodes, fake_value(node)
    assert value is not None

    def call(*tensors: torch.Tensor) -> Any:
        values = dict(zip(inputs, tensors, strict=True))
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    with enable_python_dispatcher(), torch.no_grad():
        traced = make_fx(call, table, tracing_mode="real")(*(one.meta["val"] for one in inputs))
    placeholders = traced.graph.find_nodes(op="placeholder")
    places = dict(zip(placeholders, inputs, strict=True))
    with node.graph.inserting_before(node):
        result = node.graph.graph_copy(traced.graph, places)
    assert isinstance(result, Node)
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)
