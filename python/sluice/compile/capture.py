"""Dynamo's graph of torch functions as a graph of aten ops, which does the same in the same order."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from ..nn.chained import PLAIN

_FOLDED = frozenset((torch.conv1d, torch.conv_transpose1d, torch.conv2d, torch.sin))
# Names of functions that change what later functions do begin with one of these.
_MODES = ("set_", "_set_", "_enter_", "_exit_")
# Functions that change the shape of an input, whose fake value then differs.
_RESHAPING = frozenset((
    "t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "as_strided_",
))  # fmt: skip


def captured(graph: GraphModule) -> GraphModule | str:
    """The graph in aten ops without decompositions, traced with Dynamo's fake values, or the reason why there is none.

    Nothing is made functional: writes stay writes, and views stay views.
    """
    if not any(map(_may_be_folded, graph.graph.nodes)):
        return "it has no convolution"
    inputs = [node.meta.get("example_value") for node in graph.graph.find_nodes(op="placeholder")]
    if (other := next((value for value in inputs if not _is_plain(value)), None)) is not None:
        return f"an input is a {type(other).__name__}"
    for node in graph.graph.nodes:
        if node.op == "call_module" or isinstance(node.target, torch._ops.HigherOrderOperator):
            return f"it calls {node.target}"
        name = str(getattr(node.target, "__name__", node.target))
        if node.op != "placeholder" and (name in _RESHAPING or name.startswith(_MODES)):
            return f"it calls {name}"
    _skip_dropouts(graph.graph)
    try:
        with _mode_of(inputs), torch.no_grad(), enable_python_dispatcher():
            return make_fx(graph, {}, _allow_non_fake_inputs=True)(*inputs)
    except Exception as error:  # whatever its class: torch's kernels of fake tensors raise classes of their own
        return f"torch does not trace it: {type(error).__name__}: {error}"


def _skip_dropouts(graph: Graph) -> None:
    """Takes out dropouts that return their input, which torch's tracer makes copies of."""
    for function, name in ((torch.nn.functional.dropout, "training"), (torch.dropout, "train")):
        for node in graph.find_nodes(op="call_function", target=function):
            values = {**dict(zip(("input", "p", name), node.args, strict=False)), **node.kwargs}
            if values.get(name, True) is False or values.get("p", 0.5) == 0:
                node.replace_all_uses_with(values["input"])
                graph.erase_node(node)


def _may_be_folded(node: Node) -> bool:
    if node.op == "call_method":
        return node.target == "sin"
    return node.op == "call_function" and (node.target in _FOLDED or str(node.target).startswith("sluice."))


def _is_plain(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or type(value) in (*PLAIN, FakeTensor)


def _mode_of(inputs: list[Any]) -> AbstractContextManager[Any]:
    """The mode of Dynamo's fake values. Its tracing context has another mode by now."""
    return next((value.fake_mode for value in inputs if isinstance(value, FakeTensor)), nullcontext())
