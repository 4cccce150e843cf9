"""The graph of a stream, made of an analysed model's."""

from __future__ import annotations

import copy
from typing import Any

import torch

from .analysis import Analysis
from .fuse import Fuser
from .layers import Recurrent
from .trace import function_name, is_nothing, remove_dead


def built(analysis: Analysis) -> torch.fx.GraphModule:
    """A module of (x, step, states): the model's graph with layers that have states."""
    graph, root = analysis.graph, analysis.whole
    _fold(analysis)
    for node in analysis.copied:
        node.op, node.target, node.args, node.kwargs = "call_method", "clone", node.args[:1], {}
    for node in analysis.skipped - analysis.copied:
        _skip(node)
    for node, sizes in analysis.sizes.items():
        node.args, node.kwargs = (node.args[0], sizes), {}
    for node, index in analysis.indices.items():
        if all(part == slice(None) for part in index):
            _skip(node)
        else:
            node.update_arg(1, index)
    _skip_identities(analysis)
    fuser = Fuser(analysis)
    with torch.no_grad():
        fuser.run()
    for node in analysis.copied:
        if not fuser.is_written_after(node):  # a layer does what wrote
            _skip(node)
    root.layers = torch.nn.ModuleList(analysis.layers.values())
    x = next(iter(graph.nodes))
    with graph.inserting_after(x):
        step = graph.placeholder("step")
    with graph.inserting_after(step):
        states = graph.placeholder("states")
    for place, (node, layer) in enumerate(analysis.layers.items()):
        given: dict[str, Any] = {}
        if node in fuser.residuals:
            given["residual"] = fuser.residuals[node]
        with graph.inserting_before(node):
            new = graph.call_module(f"layers.{place}", (node.args[0], step, states), given)
        if isinstance(layer, Recurrent):
            for user in list(node.users):  # the first of its results
                user.replace_all_uses_with(new)
                graph.erase_node(user)
        node.replace_all_uses_with(new)
        for other, residual in fuser.residuals.items():
            if residual is node:
                fuser.residuals[other] = new
        graph.erase_node(node)
    remove_dead(graph, dict(root.named_modules()))
    _keep_modes(graph, root)
    graph.lint()
    return torch.fx.GraphModule(root, graph)


def _fold(analysis: Analysis) -> None:
    """Tensors that do not depend on the input become attributes."""
    for place, (node, value) in enumerate(analysis.constants.items()):
        if isinstance(value, torch.Tensor):
            name = f"constant{place}"
            analysis.whole.register_buffer(name, value.detach(), persistent=False)
            with analysis.graph.inserting_before(node):
                node.replace_all_uses_with(analysis.graph.get_attr(name))
    for node in reversed(analysis.constants):
        if not node.users:  # else a write would run at every step
            analysis.graph.erase_node(node)


def _keep_modes(graph: torch.fx.Graph, root: torch.nn.Module) -> None:
    """Modules with a mode become copies in eval mode, which share tensors: the model's may change their mode."""
    modules, kept = dict(root.named_modules()), torch.nn.ModuleList()
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(module := modules.get(str(node.target)), _MODAL):
            own = copy.copy(module)
            own.training = False
            node.target = f"kept.{len(kept)}"
            kept.append(own)
    root.kept = kept


def _skip_identities(analysis: Analysis) -> None:
    """Modules without a stage, dropouts in eval mode, and `contiguous`: layers take any layout."""
    modules = dict(analysis.whole.named_modules())
    for node in list(analysis.graph.nodes):
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        is_call = node.op in ("call_function", "call_method")
        if is_nothing(module) if module is not None else is_call and function_name(node) in _IDENTITIES:
            _skip(node)


_MODAL = torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU
_IDENTITIES = "contiguous", "dropout", "feature_dropout", "alpha_dropout"


def _skip(node: torch.fx.Node) -> None:
    node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
    node.graph.erase_node(node)
