"""Ops of aten as torch's Python functions, whose calls cost the host half as much."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Graph, Node
from torch.utils._python_dispatch import TorchDispatchMode

from .nodes import fake_value

_FUNCTIONS = types.BuiltinFunctionType, types.MethodDescriptorType


def call_torchs_functions(graph: Graph) -> None:
    """Replaces ops by functions that call them with the same arguments, and do nothing else."""
    known: dict[Any, Callable[..., Any] | None] = {}
    for node in graph.nodes:
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            continue
        kinds = tuple(map(type, node.args)), tuple((name, type(value)) for name, value in node.kwargs.items())
        if (target, kinds) not in known:
            known[target, kinds] = _function(node, target)
        if (function := known[target, kinds]) is not None:
            node.target = function


def _function(node: Node, target: torch._ops.OpOverload) -> Callable[..., Any] | None:
    name = target.overloadpacket.__name__
    mode: Any = next((value.fake_mode for one in node.all_input_nodes if (value := fake_value(one)) is not None), None)  # type: ignore[attr-defined]
    if mode is None or any("val" not in one.meta for one in node.all_input_nodes):
        return None
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    for place in (torch, torch._C._nn, torch.Tensor):
        function = getattr(place, name, None)
        if isinstance(function, _FUNCTIONS) and _calls_only(function, target, mode, args, kwargs):
            return function
    return None


def _calls_only(function: Any, target: torch._ops.OpOverload, mode: Any, args: Any, kwargs: Any) -> bool:
    try:
        with mode, torch.no_grad(), enable_python_dispatcher(), _Recorder() as recorder:
            function(*args, **kwargs)
    except (TypeError, RuntimeError):
        return False
    return len(recorder.seen) == 1 and recorder.seen[0] is target


class _Recorder(TorchDispatchMode):
    """Notes the ops that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))
