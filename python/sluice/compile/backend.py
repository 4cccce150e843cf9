"""`backend="sluice"` of torch.compile: Inductor, with sluice's ops for convolutions and the ops around them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch


def sluice(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The function that torch.compile calls for `backend="sluice"`.

    If no gradient is needed, 1-d convolutions and their pointwise neighbours become sluice's ops; everything else,
    and every graph that needs gradients, is Inductor's. `TORCH_LOGS="+sluice"` says what became of each
    convolution.

    Args:
        graph: of torch's dynamo.
        inputs: its arguments, parameters included.
        mode: as `torch.compile`'s, for Inductor.
        options: Inductor's configuration, as `torch.compile`'s.

    Example:
        >>> import torch, sluice
        >>> model = torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3), torch.nn.GELU())
        >>> compiled = torch.compile(model, backend="sluice")
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    from .fold import log
    from .guards import guard_tf32
    from .leftover import keeping_table
    from .post_grad import FoldConvolutions

    patches: dict[str, Any] = torch._TorchCompileInductorWrapper(mode, options, None).config
    if needs_gradients(graph, inputs):
        log.debug("a graph is left to Inductor: gradients are needed")
        return compile_fx(graph, inputs, config_patches=patches)  # type: ignore[return-value]
    guard_tf32(graph)
    others = patches.get("post_grad_custom_pre_pass", config.post_grad_custom_pre_pass) or ()
    if not isinstance(others, (list, tuple)):
        others = (others,)
    with config.patch(patches):
        # Frozen graphs are matched by Inductor first, in its own decompositions.
        keeps = not config.freezing
        table = keeping_table() if keeps else None
    own = FoldConvolutions(is_ahead=keeps, others=tuple(others), has_guard=True)
    return compile_fx(  # type: ignore[return-value]
        graph, inputs, config_patches={**patches, "post_grad_custom_pre_pass": own}, decompositions=table
    )


def needs_gradients(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a gradient may be wanted of a graph with these inputs."""
    if not torch.is_grad_enabled():
        return False
    tensors = (*inputs, *graph.parameters(), *graph.buffers())
    return any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def _reset() -> None:
    """torch._dynamo.reset() calls this: it forgets the CUDA graphs of `mode="reduce-overhead"`."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None:
        trees.reset_cudagraph_trees()


sluice.reset = _reset  # type: ignore[attr-defined]
