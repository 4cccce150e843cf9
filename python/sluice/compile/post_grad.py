"""The pass as Inductor takes it: with a key for its caches, and left out where a gradient is needed."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import custom_graph_pass
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import select_decomp_table
from torch.fx import Graph

from ..info import __version__
from .fold import Fold, log
from .leftover import decompose_kept

# Told whether the graph is one of inference, where torch has it.
_Base: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", CustomGraphPass)


class FoldConvolutions(_Base):  # type: ignore[misc]
    """Makes sluice's ops of a graph's convolutions and the pointwise ops around them.

    Args:
        is_ahead: runs ahead of Inductor's own passes, on a graph whose activations are not decomposed yet; decomposes
            those that are left.
        others: passes that run after it on the same graph.
    """

    def __init__(self, is_ahead: bool = False, others: tuple[Callable[..., None], ...] = ()) -> None:
        self.is_ahead = is_ahead
        self.others = others

    def __call__(self, graph: Graph, is_inference: bool | None = None) -> None:
        """Changes the graph in place."""
        if _is_inference() if is_inference is None else is_inference:
            fold = Fold(graph)
            count = fold.run()
            if fold.convolutions:
                log.info("%d of %d convolutions are sluice's", count, len(fold.convolutions))
        else:
            log.debug("a graph is left alone: gradients are needed")
        if self.is_ahead:
            decompose_kept(graph, select_decomp_table())
        for other in self.others:
            if _Base is not CustomGraphPass and isinstance(other, _Base):
                other(graph, is_inference=is_inference)  # type: ignore[call-arg]
            else:
                other(graph)

    def uuid(self) -> Any:
        """A text that is another one for other code of the pass; None where one of `others` has none."""
        keys = [other.uuid() if isinstance(other, CustomGraphPass) else None for other in self.others]
        return None if None in keys else f"sluice {__version__} {_hash_of_sources()} {self.is_ahead} {keys}"


def _is_inference() -> bool:
    """The same of the graph that is compiled now, where torch does not say it to a pass: no result has a gradient."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return metadata is None or not metadata.traced_tangents


@functools.cache
def _hash_of_sources() -> str:
    """Of this package, and of how chains are written."""
    here = pathlib.Path(__file__).parent
    digest = hashlib.sha256()
    for path in (*sorted(here.glob("*.py")), here.parent / "chain.py", here.parent / "stages.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


passes = FoldConvolutions()
