"""The pass as Inductor takes it: with a key for its caches, and skipped if gradients are needed."""

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

from .._precision import settings
from ..info import __version__
from .fold import Fold, log
from .gates import glus_as_gates
from .images import as_image, is_faster_as_image
from .leftover import decompose_kept
from .policy import ForInductor

# A torch that has this base class tells the pass whether the graph is for inference.
_Base: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", CustomGraphPass)


class FoldConvolutions(_Base):  # type: ignore[misc]
    """Makes sluice's ops of a graph's convolutions and the pointwise ops around them.

    Args:
        is_ahead: the pass runs before Inductor's own, on a graph whose activations are not decomposed yet, and
            decomposes the activations that remain.
        others: passes that run after it on the same graph.
        has_guard: whether graphs are compiled again when torch's TF32 setting changes.
    """

    def __init__(
        self, is_ahead: bool = False, others: tuple[Callable[..., None], ...] = (), has_guard: bool = False
    ) -> None:
        self.is_ahead, self.has_guard = is_ahead, has_guard
        self.others = others

    def __call__(self, graph: Graph, is_inference: bool | None = None) -> None:
        """Changes the graph in place."""
        if _is_inference() if is_inference is None else is_inference:
            with glus_as_gates(graph):
                fold = Fold(graph, ForInductor(self.has_guard))
                count = fold.run()
            for node in filter(is_faster_as_image, list(graph.nodes)):
                as_image(graph, node, is_final=False)  # then Inductor's layouts are channels-last
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
        """A key that changes with the code of the pass; None if one of `others` has no key."""
        keys = [other.uuid() if isinstance(other, CustomGraphPass) else None for other in self.others]
        allows_tf32 = self.has_guard and settings.allows_tf32
        own = f"sluice {__version__} {_hash_of_sources()} {self.is_ahead} {allows_tf32}"
        return None if None in keys else f"{own} {keys}"


def _is_inference() -> bool:
    """Whether the current graph is for inference, if torch does not tell the pass: no result has a gradient."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return metadata is None or not metadata.traced_tangents


@functools.cache
def _hash_of_sources() -> str:
    """The hash of this package's sources and of the sources that write chains."""
    here = pathlib.Path(__file__).parent
    digest = hashlib.sha256()
    for path in (*sorted(here.glob("*.py")), here.parent / "chain.py", here.parent / "stages.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


passes = FoldConvolutions()
