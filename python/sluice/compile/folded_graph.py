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
from .constants import Split, pack_weights, split
from .cuda_graphs import CudaGraphs, Inputs, why_not_captured
from .fold import Fold, log
from .in_place import restore_writes, without_writes
from .layout import to_channels_last
from .linking import link_ahead
from .nodes import may_alias, source_of
from .policy import AsItIs
from .transforms import fold_transforms

# Microseconds that a graph on a GPU saves the host: by sluice's convolution in the place of torch's and the ops around
# it, by a transform in the place of several ops or an op that is computed once, and by a call without Python's modules.
# They have to be more than Dynamo's guards and the entry take. Measured on the host of an H200, torch 2.11.
_SAVED_BY_CONVOLUTION, _SAVED_BY_OTHER, _SAVED_BY_CALL, _LEAST_SAVED = 20.0, 6.0, 1.5, 45.0
_LEAST_CALLS = 12  # on the CPU


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
        places: which inputs of `rest` are what.
        why_not: why it cannot be a CUDA graph; empty if it can.
    """

    def __init__(
        self,
        found: Split,
        notes: list[Note],
        gains: bool,
        functions: dict[str, Any],
        places: Inputs,
        why_not: str,
    ) -> None:
        self.notes, self.gains, self.functions = notes, gains, functions
        self._places, self._why_not = places, why_not
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
        return graphs.cuda_graphs.run(self, self._rest, inputs, self._places)


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
    convolutions = fold.run()
    transforms = fold_transforms(made.graph) if weights is None else 0
    to_channels_last(made.graph)
    log.info("%d convolutions and %d rows of activations of a graph are sluice's", convolutions, transforms)
    notes = [Note(places.index(source), outcome.chains, outcome.reason)
             for outcome in fold.outcomes if (source := source_of(outcome.weight)) is not None]  # fmt: skip
    restore_writes(made.graph, changed)
    made.graph.eliminate_dead_code()
    why_not = why_not_captured(made.graph)
    call_torchs_functions(made.graph)
    given = graph.graph.find_nodes(op="placeholder")
    parameters = [i for i, node in enumerate(given) if _is_parameter(node)]
    pack_weights(made.graph, {places[i] for i in parameters})
    link_ahead(made.graph)
    found = split(made, parameters)
    calls = [node.target for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    functions = {one.__name__: one for one in calls if getattr(one, "__module__", None) == F.__name__}  # type: ignore
    kept = 0 if found.first is None else sum(not _is_view(node) for node in found.first.graph.nodes)
    is_same = convolutions + transforms + kept == 0
    gains = is_for_cuda_graphs or _gains(inputs, convolutions, transforms + kept, len(calls))
    if is_same and not is_for_cuda_graphs:
        found = Split(None, (), graph)
    return FoldedGraph(found, notes, gains, functions, _places(found.rest, inputs, parameters), why_not)


def _gains(inputs: Sequence[Any], convolutions: int, others: int, calls: int) -> bool:
    """Whether a graph saves more than Dynamo's guards take."""
    if any(isinstance(one, torch.Tensor) and one.is_cuda for one in inputs):
        saved = _SAVED_BY_CONVOLUTION * convolutions + _SAVED_BY_OTHER * others + _SAVED_BY_CALL * calls
        return saved >= _LEAST_SAVED
    return convolutions + others > 0 or calls >= _LEAST_CALLS


def _places(rest: GraphModule, inputs: Sequence[Any], parameters: Sequence[int]) -> Inputs:
    """What the inputs of the rest are: the graph's own, and constants behind them."""
    read = [bool(node.users) for node in rest.graph.find_nodes(op="placeholder")]
    tensors = {i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor)}
    fixed = [i for i in range(len(read)) if read[i] and (i >= len(inputs) or i in tensors.intersection(parameters))]
    numbers = [i for i in range(len(inputs)) if i not in tensors]
    return Inputs(tuple(sorted(tensors.difference(parameters))), tuple(fixed), tuple(numbers))


def _is_parameter(node: Node) -> bool:
    """Whether a graph's input is a parameter or a buffer of a module."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", ())


def _is_view(node: Node) -> bool:
    return node.op != "call_function" or may_alias(node)
