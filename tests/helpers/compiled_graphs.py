"""Graphs for the compiler's pass: traced without Inductor, folded, and counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from sluice.compile.fold import Fold
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
    Fold(module.graph).run()
    module.graph.lint()
    module.recompile()
    return module


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
