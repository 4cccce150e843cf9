"""The backend of `sluice.replace`: Dynamo's graph with its convolutions folded, which runs as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.fx import Graph, GraphModule, Node

from ..nn.kept import Kept
from .ahead import Ahead, Call
from .backend import needs_gradients
from .batch_norms import is_counted, unfold_batch_norms
from .calls import call_torchs_functions
from .capture import captured
from .constants import Split, constants_of, pack_weights, split
from .cuda_graphs import CudaGraphs, Inputs, why_not_captured
from .fold import Fold, Outcome, log
from .gain import ALWAYS, NONE, Gain, on_cpu, times_of
from .gates import glus_as_gates
from .guards import guard_tf32
from .in_place import restore_writes, without_writes
from .layout import to_channels_last
from .linking import link_ahead
from .nodes import is_parameter, may_alias, source_of
from .policy import AsItIs
from .transforms import fold_transforms


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

    Args:
        model: the model.
        cuda_graphs: captures of its calls; None where none are wanted.

    Attributes:
        notes: of their convolutions, each with the name of its weight in the model.
        gain: of all of them.
        is_new: whether a graph has entered, or none has yet, since this was last set to False.
        functions: torch.nn.functional's functions that the graphs stand for, by name.
        cuda_graphs: as given.
        ahead: what runs ahead of the calls.
    """

    def __init__(self, model: torch.nn.Module, cuda_graphs: CudaGraphs | None = None) -> None:
        self._model, self.cuda_graphs, self.ahead = model, cuda_graphs, Ahead()
        self._norms = [part for part in model.modules() if is_counted(part)]
        self._kept: dict[FoldedGraph, Kept] = {}
        self._counting: dict[FoldedGraph, list[torch.nn.Module | None]] = {}
        self.notes: list[tuple[str, Note]] = []
        self.gain, self.is_new = NONE, True
        self.functions: dict[str, Any] = {}

    def enter(self, graph: FoldedGraph, inputs: Sequence[Any]) -> None:
        """Notes a graph at its first call."""
        if graph not in self._kept:
            self._kept[graph] = Kept()
            self._counting[graph] = [self.norm_of(inputs[i]) for i in graph.means]
            names = {id(one): name for name, one in (*self._model.named_parameters(), *self._model.named_buffers())}
            self.notes.extend((names.get(id(inputs[note.weight]), ""), note) for note in graph.notes)
            self.gain, self.is_new = self.gain + graph.gain, True
            self.functions = {**self.functions, **graph.functions}

    def run_ahead(self, arguments: tuple[Any, ...]) -> Call | None:
        """The call of a graph that is expected for a call of the model."""
        return self.ahead.run(lambda graph, inputs: graph.run(self, inputs), arguments)

    def constants(self, graph: FoldedGraph, read: tuple[torch.Tensor, ...], compute: Callable[..., Any]) -> Any:
        """What parameters alone decide of a graph that has entered."""
        norms = self._counting[graph]
        if None in norms:
            return compute(*read)
        # torch writes statistics without counting their versions, but it counts the batches of a norm.
        batches = tuple([norm._buffers["num_batches_tracked"] for norm in norms])  # type: ignore[union-attr]
        return self._kept[graph].of((*read, *batches), lambda: compute(*read))  # type: ignore[arg-type]

    def norm_of(self, mean: object) -> torch.nn.Module | None:
        """The norm with this running mean, if it counts its batches."""
        return next((norm for norm in self._norms if norm._buffers["running_mean"] is mean), None)


class _Current(threading.local):
    """The call that the thread runs.

    Attributes:
        graphs: the model's.
        arguments: the model's.
        ahead: the call of a graph that has run ahead of it.
    """

    graphs: Graphs | None = None
    arguments: tuple[Any, ...] = ()
    ahead: Call | None = None


current = _Current()


class FoldedGraph:
    """A graph of ops of torch and sluice, with what its parameters alone decide taken out.

    Args:
        found: its parts.
        notes: of its convolutions.
        gain: what it gains over Python's calls of the same functions.
        functions: torch.nn.functional's functions in Dynamo's graph, by name.
        means: indices of running means in what is taken out.
        places: which inputs of `rest` are what.
        why_not: why it cannot be a CUDA graph; empty if it can.

    Attributes:
        is_whole: whether it is all that the call of a model runs.
    """

    is_whole = False

    def __init__(
        self,
        found: Split,
        notes: list[Note],
        gain: Gain,
        functions: dict[str, Any],
        means: Sequence[int],
        places: Inputs,
        why_not: str,
    ) -> None:
        self.notes, self.gain, self.functions, self.means = notes, gain, functions, means
        self._places, self._why_not = places, why_not
        # torch's tracers make graphs whose code is compiled again where it is called.
        self._first = None if found.first is None else GraphModule(found.first, found.first.graph).forward
        self._reads, self._rest = found.reads, GraphModule(found.rest, found.rest.graph).forward

    def __call__(self, *inputs: Any) -> Any:
        """The graph's results."""
        graphs, (ahead, current.ahead) = current.graphs, (current.ahead, None)
        if graphs is None:
            return self.run(None, inputs)
        if ahead is not None and ahead.is_of(self, inputs):
            return ahead.results
        if ahead is not None:
            graphs.ahead.miss()
        graphs.enter(self, inputs)
        results = self.run(graphs, inputs)
        if self.is_whole and not self._why_not:
            graphs.ahead.expect(self, inputs, current.arguments)
        return results

    def run(self, graphs: Graphs | None, inputs: Sequence[Any]) -> Any:
        """The results, with what these graphs keep."""
        given = tuple(inputs)
        if (first := self._first) is not None:
            read = tuple([inputs[i] for i in self._reads])
            given += first(*read) if graphs is None else graphs.constants(self, read, first)
        if graphs is None or graphs.cuda_graphs is None:
            return self._rest(*given)
        if self._why_not:
            graphs.cuda_graphs.reasons[self._why_not] = None
            return self._rest(*given)
        return graphs.cuda_graphs.run(self, self._rest, given, self._places)


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
    guard_tf32(graph)
    made = captured(graph)
    if isinstance(made, str):
        log.debug("a graph runs as it is: %s", made)
        return graph.forward
    places = made.graph.find_nodes(op="placeholder")
    allowed = None if weights is None else {p for p, one in zip(places, inputs, strict=True) if id(one) in weights}
    parameters = [i for i, node in enumerate(graph.graph.find_nodes(op="placeholder")) if is_parameter(node)]
    counted = {places[i] for i in parameters if current.graphs is not None and current.graphs.norm_of(inputs[i])}
    calls = [node.target for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    before = times_of(made.graph, len(calls))
    passes = _Passes(made.graph, {places[i] for i in parameters}, counted)
    passes.run(allowed)
    notes = [Note(places.index(source), outcome.chains, outcome.reason)
             for outcome in passes.outcomes if (source := source_of(outcome.weight)) is not None]  # fmt: skip
    why_not = why_not_captured(made.graph)
    found = split(made, parameters)
    kept = 0 if found.first is None else sum(not _is_view(node) for node in found.first.graph.nodes)
    changes = passes.convolutions + passes.others + kept
    if is_for_cuda_graphs:
        gain = ALWAYS
    elif any(isinstance(one, torch.Tensor) and one.is_cuda for one in inputs):
        gain = Gain(before, times_of(found.rest.graph))
    else:
        gain = on_cpu(changes, len(calls))
    call_torchs_functions(found.rest.graph)
    functions = {one.__name__: one for one in calls if getattr(one, "__module__", None) == F.__name__}  # type: ignore
    if changes == 0 and not is_for_cuda_graphs:
        found = Split(None, (), graph)
    means = [places.index(mean) for mean in passes.means]
    return FoldedGraph(found, notes, gain, functions, means, _places(found.rest, inputs, parameters), why_not)


class _Passes:
    """The passes over a graph in aten ops.

    Args:
        graph: the graph.
        parameters: its inputs that are parameters or buffers.
        counted: the inputs that are running means of norms that count their batches.

    Attributes:
        outcomes: of its convolutions.
        means: running means that what is kept depends on.
        convolutions: the number that became sluice's.
        others: the number of rows of pointwise ops, and of norms in weights.
    """

    def __init__(self, graph: Graph, parameters: set[Node], counted: set[Node]) -> None:
        self._graph, self._parameters, self._counted = graph, parameters, counted
        self.outcomes: list[Outcome] = []
        self.means: list[Node] = []
        self.convolutions = self.others = 0

    def run(self, allowed: set[Node] | None) -> None:
        """Folds convolutions with these weights, and more where all are allowed (None)."""
        graph, policy = self._graph, AsItIs(allowed)
        changed = without_writes(graph)
        if allowed is None:
            self.means, self.others = unfold_batch_norms(graph, self._parameters, self._counted, policy)
        with glus_as_gates(graph):
            fold = Fold(graph, policy)
            self.convolutions, self.outcomes = fold.run(), fold.outcomes
            if allowed is None:
                self.others += fold_transforms(graph, constants_of(graph, self._parameters))
        self.others += to_channels_last(graph, self._parameters)
        log.info("%d convolutions of a graph are sluice's, %d other changes", self.convolutions, self.others)
        restore_writes(graph, changed)
        graph.eliminate_dead_code()
        pack_weights(graph, self._parameters)
        link_ahead(graph)


def _places(rest: GraphModule, inputs: Sequence[Any], parameters: Sequence[int]) -> Inputs:
    """What the inputs of the rest are: the graph's own, and constants behind them."""
    read = [bool(node.users) for node in rest.graph.find_nodes(op="placeholder")]
    tensors = {i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor)}
    fixed = [i for i in range(len(read)) if read[i] and (i >= len(inputs) or i in tensors.intersection(parameters))]
    numbers = [i for i in range(len(inputs)) if i not in tensors]
    return Inputs(tuple(sorted(tensors.difference(parameters))), tuple(fixed), tuple(numbers))


def _is_view(node: Node) -> bool:
    return node.op != "call_function" or may_alias(node)
