"""Graphs for the compiler's pass: traced without Inductor, folded, and counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from rows import naming
from sluice.compile.fold import Fold
from sluice.compile.gates import glus_as_gates
from sluice.compile.leftover import keeping_table

# The graph that the pass sees before Inductor's decompositions, and after them.
FORMS = {"kept": keeping_table, "decomposed": select_decomp_table}


def traced(
    function: Callable[..., Any], *inputs: Any, form: str = "decomposed", mode: str = "fake"
) -> torch.fx.GraphModule:
    """The aten graph of a function."""
    with torch.no_grad():
        return make_fx(lambda *args: function(*args), FORMS[form](), tracing_mode=mode)(*inputs)


def folded(function: Callable[..., Any], *inputs: Any, **options: Any) -> torch.fx.GraphModule:
    """The same after the pass."""
    module = traced(function, *inputs, **options)
    with glus_as_gates(module.graph):
        Fold(module.graph).run()
    module.graph.lint()
    module.recompile()
    return module


Row = tuple[Callable[..., Any], list[torch.Tensor]]


class FoldedRows:
    """Functions in one graph after the pass, each with its own inputs and result: the start of a trace costs most.

    Args:
        rows: by name, a function and its inputs.
        options: of `folded`.

    Attributes:
        module: the graph.
        results: of each row, computed by the module.
        placeholders: of each row, its inputs in the graph.
    """

    def __init__(self, rows: dict[Any, Row], **options: Any) -> None:
        self.rows = rows
        inputs = [value for _, own in rows.values() for value in own]
        try:
            self.module = folded(self._together, *inputs, **options)
        except Exception:
            for name, (function, own) in rows.items():  # which row raises it
                with naming(name):
                    folded(function, *own, **options)
            raise
        with torch.no_grad():
            self.results = dict(zip(rows, self.module(*inputs), strict=True))
        places = iter(self.module.graph.find_nodes(op="placeholder"))
        self.placeholders = {name: list(itertools.islice(places, len(own))) for name, (_, own) in rows.items()}

    def _together(self, *inputs: torch.Tensor) -> list[Any]:
        left = iter(inputs)
        return [function(*itertools.islice(left, len(own))) for function, own in self.rows.values()]

    def only_node(self, name: Any) -> torch.fx.Node:
        """The op of sluice that alone reads a row's first input and makes its result."""
        [node] = self.placeholders[name][0].users
        assert str(node.target).startswith("sluice."), node
        assert [user.op for user in node.users] == ["output"]
        return node


def calls(graph: torch.fx.Graph | torch.fx.GraphModule) -> list[str]:
    """The ops of a graph, by name."""
    graph = graph.graph if isinstance(graph, torch.fx.GraphModule) else graph
    return [str(node.target) for node in graph.nodes if node.op == "call_function" and "sym_" not in str(node.target)]


def of_sluice(graph: torch.fx.Graph | torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes of a graph that call sluice's ops."""
    graph = graph.graph if isinstance(graph, torch.fx.GraphModule) else graph
    return [node for node in graph.nodes if str(node.target).startswith("sluice.")]


class Seen:
    """The aten graphs that Inductor compiles, after all passes."""

    def __init__(self, monkeypatch: Any) -> None:
        from torch._inductor import graph

        self.graphs: list[torch.fx.GraphModule] = []
        run = graph.GraphLowering.run

        def recorded(lowering: Any, *args: Any) -> Any:
            self.graphs.append(lowering.module)
            return run(lowering, *args)

        monkeypatch.setattr(graph.GraphLowering, "run", recorded)

    def calls(self) -> list[str]:
        """The ops of all of them."""
        return [name for graph in self.graphs for name in calls(graph)]
