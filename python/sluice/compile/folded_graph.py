"""The backend of `sluice.replace`: Dynamo's graph with its convolutions folded, which runs as it is."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from ..nn.kept import Kept
from .backend import needs_gradients
from .calls import call_torchs_functions
from .capture import captured
from .constants import Split, split
from .cuda_graphs import CudaGraphs, why_not_captured
from .fold import Fold, log
from .in_place import restore_writes, without_writes
from .nodes import may_alias, source_of
from .policy import AsItIs
from .transforms import fold_transforms

_LEAST_CALLS = 12  # of torch's functions, which cost Python's modules what Dynamo's guards cost


class Note(NamedTuple):
    """What became of a convolution.

    Attributes:
        weight: the index of the graph's input that its weight is made of.
        chains: the texts of its chains.
        reason: why it was left alone; empty if it is sluice's.
    """

    weight: int
    chains: str
    reason: str


class Graphs:
    """The graphs that ran for a model, and what they keep between its calls.

    Attributes:
        notes: of their convolutions, each with its weight.
        gain: whether one of them is faster than Python's calls of the same functions.
        functions: those of torch.nn.functional that they stand for, by name.
        cuda_graphs: captures of their calls; None where none are wanted.
    """

    def __init__(self, cuda_graphs: CudaGraphs | None = None) -> None:
        self.cuda_graphs = cuda_graphs
        self._kept: dict[FoldedGraph, Kept] = {}
        self.notes: list[tuple[weakref.ref[torch.Tensor], Note]] = []
        self.gain = False
        self.functions: dict[str, Any] = {}

    def kept(self, graph: FoldedGraph, inputs: Sequence[Any]) -> Kept:
        """What is kept of a graph; notes the graph at its first call."""
        found = self._kept.get(graph)
        if found is None:
            found = self._kept[graph] = Kept()
            self.notes.extend((weakref.ref(inputs[note.weight]), note) for note in graph.notes)
            self.gain = self.gain or graph.gains
            self.functions = {**self.functions, **graph.functions}
        return found


class _Current(threading.local):
    """The model that the thread runs."""

    graphs: Graphs | None = None


current = _Current()


class FoldedGraph:
    """A graph of ops of torch and sluice, with what its parameters alone decide taken out.

    Args:
        found: its parts.
        notes: of its convolutions.
        gains: whether it is faster than Python's calls of the same functions.
        functions: those of torch.nn.functional in Dynamo's graph.
        moving: the indices of inputs that are tensors, and no parameters.
        why_not: why it cannot be a CUDA graph; empty if it can.
    """

    def __init__(
        self,
        found: Split,
        notes: list[Note],
        gains: bool,
        functions: dict[str, Any],
        moving: Sequence[int],
        why_not: str,
    ) -> None:
        self.notes, self.gains, self.functions = notes, gains, functions
        self._moving, self._why_not = moving, why_not
        # torch's tracers make graphs whose code is compiled again where it is called.
        self._first = None if found.first is None else GraphModule(found.first, found.first.graph).forward
        self._reads, self._rest = found.reads, GraphModule(found.rest, found.rest.graph).forward

    def __call__(self, *inputs: Any) -> Any:
        """The graph's results."""
        graphs = current.graphs
        kept = None if graphs is None else graphs.kept(self, inputs)
        if (first := self._first) is not None:
            read = tuple([inputs[i] for i in self._reads])
            inputs += first(*read) if kept is None else kept.of(read, lambda: first(*read))
        if graphs is None or graphs.cuda_graphs is None:
            return self._rest(*inputs)
        if self._why_not:
            graphs.cuda_graphs.reasons[self._why_not] = None
            return self._rest(*inputs)
        return graphs.cuda_graphs.run(self, self._rest, inputs, self._moving)


def folded(
    graph: GraphModule, inputs: Sequence[Any], weights: set[int] | None, is_for_cuda_graphs: bool = False
) -> Callable[..., Any]:
    """What runs in the place of Dynamo's graph, which runs itself where nothing is folded.

    Args:
        graph: of Dynamo.
        inputs: its arguments, parameters included.
        weights: the ids of the tensors whose convolutions may be folded; None for all.
        is_for_cuda_graphs: whether a graph with nothing folded gains as well.
    """
    if needs_gradients(graph, inputs):
        return graph.forward
    made = captured(graph)
    if isinstance(made, str):
        log.debug("a graph runs as it is: %s", made)
        return graph.forward
    places = made.graph.find_nodes(op="placeholder")
    allowed = None if weights is None else {p for p, one in zip(places, inputs, strict=True) if id(one) in weights}
    changed = without_writes(made.graph)
    fold = Fold(made.graph, AsItIs(allowed))
    count = fold.run()
    if weights is None:
        count += fold_transforms(made.graph)
    log.info("%d convolutions and activations of a graph are sluice's", count)
    notes = [Note(places.index(source), outcome.chains, outcome.reason)
             for outcome in fold.outcomes if (source := source_of(outcome.weight)) is not None]  # fmt: skip
    restore_writes(made.graph, changed)
    made.graph.eliminate_dead_code()
    why_not = why_not_captured(made.graph)
    call_torchs_functions(made.graph)
    given = graph.graph.find_nodes(op="placeholder")
    parameters = [i for i, node in enumerate(given) if _is_parameter(node)]
    moving = [i for i, node in enumerate(given) if isinstance(inputs[i], torch.Tensor) and not _is_parameter(node)]
    found = split(made, parameters)
    is_same = (
        not is_for_cuda_graphs and count == 0 and (found.first is None or all(map(_is_view, found.first.graph.nodes)))
    )
    calls = [node.target for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    functions = {one.__name__: one for one in calls if getattr(one, "__module__", None) == F.__name__}  # type: ignore
    gains = not is_same or len(calls) >= _LEAST_CALLS
    return FoldedGraph(Split(None, (), graph) if is_same else found, notes, gains, functions, moving, why_not)


def _is_parameter(node: Node) -> bool:
    """Whether a graph's input is a parameter or a buffer of a module."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", ())


def _is_view(node: Node) -> bool:
    return node.op != "call_function" or may_alias(node)
