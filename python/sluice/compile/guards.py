"""A guard on torch's TF32 setting, for graphs whose convolutions the setting decides."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from .. import _precision


def guard_tf32(graph: GraphModule) -> None:
    """Makes Dynamo compile a graph again when TF32 is allowed or no longer allowed, if the graph may use it.

    Dynamo adds guards until its backend returns. Without Dynamo around it, as in an export, the setting is a constant.

    Args:
        graph: of Dynamo.
    """
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import AttrSource
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is None or not any(_may_be_tf32(node.meta.get("example_value")) for node in graph.graph.nodes):
        return
    try:
        tracer: Any = InstructionTranslator.current_tx()  # None behind the last frame
    except AttributeError:  # the thread has traced nothing
        return
    if tracer is None:
        return
    module = tracer.import_source(_precision.__name__)
    source = AttrSource(AttrSource(module, "settings"), "allows_tf32")
    context.guards_context.dynamo_guards.add(source.make_guard(GuardBuilder.CONSTANT_MATCH))


def _may_be_tf32(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == torch.float32
