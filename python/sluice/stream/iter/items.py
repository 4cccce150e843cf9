"""One item of an iterator on one device: to a slot, through `fn`, and back into separate memory."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import faults
from ..arguments import as_tensor, check_modes
from ..calling import call_fn
from ..device.layout import DIRECT, Endpoint, TensorSpec, as_given, charged, memory_order, resolved
from ..device.lent import Lent, Limits
from ..device.pipeline import Flight, Pipeline
from ..device.registered import Registered
from ..device.routes import Allocator, Routes
from ..device.slots import SlotViews, bytes_of
from ..structure import Structure
from .source import is_streamed, result_of, tensors_on_gpus


@dataclasses.dataclass
class Item:
    """An item in flight: its arguments and its result."""

    index: int
    leaves: list[Any]  # leaves of its arguments; host tensors are streamed
    tree_spec: Any  # None: the only argument is a tensor
    given: dict[int, torch.Tensor]  # the host tensors, by their index in `leaves`
    sources: list[Endpoint]
    specs: tuple[TensorSpec, ...]  # layouts of the sources in a slot
    watch: faults.Watch
    has_gpu_tensors: bool  # whether its arguments include tensors on a GPU
    results: list[torch.Tensor] = dataclasses.field(default_factory=list)
    structure: Structure | None = None

    def value(self) -> Any:
        """The complete result."""
        assert self.structure is not None
        return self.structure.rebuild(self.results)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with a first dimension."""
    return tensor.unsqueeze(0) if tensor.dim() == 0 else tensor


def _copies(ends: Sequence[Endpoint], views: SlotViews) -> list[list[int]]:
    """The engine's commands for whole tensors, to or from their views of a slot."""
    pairs = zip(ends, views.pointers, strict=True)
    return [end.copy(0, end.tensor.shape[0], pointer) for end, pointer in pairs if end.tensor.numel()]


class ItemWork:
    """Streams items through one device.

    Args:
        op: for messages.
        fn: of the device.
        lent: its engine and slots.
        limits: depth and budgets.
        checkpoint: called while the host waits.
    """

    def __init__(
        self, op: str, fn: Callable[..., Any], lent: Lent, limits: Limits, checkpoint: Callable[[], None]
    ) -> None:
        self.op, self.fn, self.lent, self.limits = op, fn, lent, limits
        self.engine, self.slots, self.device = lent.engine, lent.slots, lent.engine.device
        self.pipe: Pipeline[Item] = Pipeline(
            lent.engine, limits.depth, limits.event_sets, limits.event_sets, checkpoint
        )
        self.routes = Routes(op, "auto", limits.pinned_budget, limits.ring_bytes, Registered(0, shared=True))
        self.order_of_items: list[int] = []
        # Keeps memory that copies read and write until they are complete.
        self._in_flight: collections.deque[Flight[Item]] = collections.deque()
        self._pinned_each = (limits.pinned_budget - limits.ring_bytes) // (limits.depth + 2)

    def begin(self) -> None:
        """Starts the engine's run."""
        self.engine.kept = self
        self.engine.begin()

    def fetch(self, index: int, item: Any, ready: Sequence[torch.cuda.Event] = ()) -> Flight[Item]:
        """Issues the copies of an item's tensors into a slot; `fn` will wait for `ready`, its GPU tensors' events."""
        check_modes(self.op)
        for event in ready:
            self.engine.follow(event)
        leaves, tree_spec = [item], None
        if type(item) is not torch.Tensor:
            leaves, tree_spec = pytree.tree_flatten(item if isinstance(item, tuple) else (item,))
        given: dict[int, torch.Tensor] = {}
        sources = []
        for i, leaf in enumerate(leaves):
            if not is_streamed(leaf):
                continue
            name = f"a tensor of item {index}"
            given[i] = as_tensor(self.op, name, leaf)
            tensor = _rows(resolved(given[i]))
            sources.append(self.routes.of(tensor, 0, tensor.shape[0], self.device, name))
        watch = faults.Watch(self.op, {f"tensor {i} of item {index}": tensor for i, tensor in given.items()})
        specs = tuple(source.spec(source.tensor.shape[0]) for source in sources)
        has_gpu_tensors = len(given) < len(leaves) and bool(tensors_on_gpus(leaves))
        flight = self.pipe.enter(Item(index, leaves, tree_spec, given, sources, specs, watch, has_gpu_tensors))
        while self._in_flight and self._in_flight[0].sequence < self.engine.known_landed:
            self._in_flight.popleft()
        self._in_flight.append(flight)
        self._grow_input(flight, bytes_of(specs))
        self.pipe.fetch(flight, _copies(sources, self.slots.input(flight.slot, specs)))
        self.engine.flush()  # the next item may take long
        return flight

    def wait_read(self) -> None:
        """Waits until the memory of the item fetched last has been read.

        Tensors on a GPU are read by `fn` itself, so an item that holds some must have been computed.

        Raises:
            RuntimeError: it was changed before that, as its version counter shows.
        """
        if not self._in_flight:
            return
        flight = self._in_flight[-1]
        sources = flight.item.sources
        if flight.item.has_gpu_tensors:
            self.pipe.wait_landed(flight.sequence + 1)
        elif sources:
            self.pipe.wait_read(flight, any(source.route == DIRECT for source in sources))
        flight.item.watch.check()

    def _grow_input(self, flight: Flight[Item], nbytes: int) -> None:
        if self.slots.has_input(flight.slot, nbytes):
            return
        with self.engine.compute():
            self.slots.grow_input(flight.slot, nbytes)
        self._check_budget(flight, 0)
        self.engine.barrier()  # the compute stream may still use memory that the allocator has just returned

    def _check_budget(self, flight: Flight[Item], output: int) -> None:
        budget = self.limits.memory_budget
        if budget is not None and (needed := self.slots.nbytes + output) > budget:
            raise ValueError(f"{self.op}: memory_budget must be at least {needed} for item {flight.item.index}, "
                             f"got {budget}")  # fmt: skip

    def compute(self, flight: Flight[Item]) -> None:
        """Calls `fn` and issues the copies of its result."""
        self.pipe.acquire(flight)
        with self.engine.compute():
            tensors = self._call(flight)
            targets = self._targets(flight.item, tensors)
            specs = tuple(
                TensorSpec(tensor.dtype, tuple(tensor.shape), memory_order(target.tensor))
                for tensor, target in zip(tensors, targets, strict=True)
            )
            if self.slots.grow_output(flight.slot, bytes_of(specs)):
                self._check_budget(flight, sum(charged(t.numel() * t.element_size()) for t in tensors))
            result = self.slots.output(flight.slot, specs)
            with torch.no_grad():
                for view, tensor in zip(result.tensors, tensors, strict=True):
                    view.copy_(tensor)
        del tensors
        self.pipe.commit(flight)
        self.order_of_items.append(flight.item.index)
        self.pipe.store(flight, _copies(targets, result))
        self.engine.flush()

    def _call(self, flight: Flight[Item]) -> list[torch.Tensor]:
        item = flight.item
        leaves = list(item.leaves)
        chunks = self.slots.input(flight.slot, item.specs).tensors
        for (i, given), chunk in zip(item.given.items(), chunks, strict=True):
            tensor = chunk.detach()  # fn may change its shape
            leaves[i] = as_given(tensor.view(()) if given.dim() == 0 else tensor, given)
        arguments = leaves if item.tree_spec is None else list(pytree.tree_unflatten(leaves, item.tree_spec))
        if arguments is not leaves:
            leaves.clear()
        value = call_fn(self.op, self.fn, arguments, lambda: f"item {item.index}")
        tensors, item.structure = result_of(self.op, item.index, value, self.device)
        self._shapes = [tuple(tensor.shape) for tensor in tensors]
        return [_rows(tensor.detach()) for tensor in tensors]

    def _targets(self, item: Item, tensors: list[torch.Tensor]) -> list[Endpoint]:
        left = self._pinned_each if self.engine.is_cuda else 0
        allocate = Allocator(left)
        made = [allocate(list(tensor.shape), tensor.dtype) for tensor in tensors]
        item.results = [t.view(shape) for t, shape in zip(made, self._shapes, strict=True)]
        return [self.routes.of(t, 0, t.shape[0], self.device, "the result") for t in made]

    def abandon(self) -> None:
        """Waits for everything in flight and releases what this iterator allocated."""
        self.pipe.drain()
        self._in_flight.clear()
        self.lent.take_back()
