"""The chunks of one device: their tensors, their calls of `fn`, and their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..calling import call_fn
from ..device.layout import LOCAL, Endpoint, TensorSpec, as_given, charged, keep, memory_order
from ..device.lent import Lent
from ..device.limits import one_way_rate
from ..device.pipeline import Flight, Pipeline
from ..device.slots import SlotViews, bytes_of, result_specs
from .chunks import Chunk, automatic_size
from .ledger import Ledger


@dataclasses.dataclass(slots=True)
class Job:
    """A chunk in flight, and its result."""

    chunk: Chunk
    source: SlotViews = dataclasses.field(init=False)  # known when it has a slot
    result: SlotViews | None = None
    extents: tuple[int, ...] = ()  # extents of the result's tensors


class DeviceWork:
    """The steps of chunks on one device (`pipeline.Work`), whose compute stream is the current one."""

    def __init__(self, ledger: Ledger, fn: Callable[..., Any], lent: Lent, limit: int) -> None:
        self.ledger, self.fn, self.lent = ledger, fn, lent
        self.engine, self.slots = lent.engine, lent.slots
        self.device = lent.engine.device
        self.pipe: Pipeline[Job] = Pipeline(
            lent.engine, ledger.limits.depth, ledger.limits.event_sets, limit, checkpoint=ledger.checkpoint
        )
        self.order_of_chunks: list[int] = []  # as they were stored
        self._bytes_after: list[int] = [0]  # bytes moved, by number of landed chunks
        self.first_rows = self._wanted_rows()
        assert ledger.routes is not None
        self._routes = ledger.routes
        self.sources = ledger.sources(self.device, min(self.first_rows, ledger.arguments.extent))
        self._targets: list[Endpoint] = []
        self.fetched_ahead: list[Flight[Job]] = []  # fetched while the first chunk is computed
        self.block = range(0)  # of chunks that this device has taken
        self._has_loops = True  # whether loops issue blocks of several chunks
        self._copied_in = [i for i, s in enumerate(self.sources) if s.route != LOCAL and s.tensor.numel()]
        self._local = [(i, source) for i, source in enumerate(self.sources) if source.route == LOCAL]
        self._to_device = ledger.arguments.to_device
        self.is_lazy = any(t.is_conj() or t.is_neg() for t in ledger.arguments.inputs)
        self._input_specs: dict[int, tuple[TensorSpec, ...]] = {}  # by extent: nearly all chunks have the same
        self._output_specs: dict[tuple[int, ...], tuple[TensorSpec, ...]] = {}  # by extents
        self._bytes_of_rows: dict[int, int] = {}

    def _wanted_rows(self) -> int:
        arguments, limits = self.ledger.arguments, self.ledger.limits
        extent = arguments.extent
        if extent == 0 or any(tensor.numel() == 0 for tensor in arguments.inputs):
            return max(extent, 1)
        if arguments.chunk_size is not None:
            return arguments.chunk_size
        row = sum(tensor.nbytes for tensor in arguments.inputs) / extent
        return automatic_size(extent, row, one_way_rate(self.device, limits.memory_budget))

    def reserve_outputs(self, nbytes: int, count: int, exactly: bool) -> None:
        """Makes the first slots' outputs large enough, with a budget no larger."""
        if self._to_device:  # results do not pass through slots
            return
        if exactly:
            self.slots.release_other_outputs(nbytes)
        for slot in range(count):
            self.slots.grow_output(slot, nbytes)

    def start_over(self) -> None:
        """Releases the memory of a first chunk that did not fit."""
        self.pipe.drain()
        self.fetched_ahead, self.block = [], range(0)
        self.ledger.start_over()
        self.slots.release()
        self._output_specs.clear()

    # --- every chunk ----------------------------------------------------------------------------------------------
    def ahead(self) -> list[Flight[Job]]:
        """Chunks whose copies in are already issued, without the chunks of a block; returned once."""
        count = len(self.fetched_ahead)
        if self.has_block:
            count = sum(flight.item.chunk.index < self.block.start for flight in self.fetched_ahead)
        ahead, self.fetched_ahead = self.fetched_ahead[:count], self.fetched_ahead[count:]
        return ahead

    def begin(self) -> None:
        """Starts the engine's run: everything waits for the work queued on the caller's stream."""
        self.engine.kept = self.ledger
        self.engine.begin()

    def take(self) -> Chunk | None:
        """The next chunk of the call; None at the end, and where a loop issues the next chunks."""
        ledger = self.ledger
        ledger.checkpoint()
        if not self.block:
            self.block = ledger.take()
        if not self.block or self.has_block:
            return None
        index, self.block = self.block[0], self.block[1:]
        return ledger.chunks[index]

    def fetch_ahead(self, count: int) -> None:
        """Fetches the next chunks, whose copies overlap the first chunk's computation."""
        self.engine.flush()  # the first copy need not wait for the others
        while len(self.fetched_ahead) < count and (chunk := self.take()) is not None:
            self.fetched_ahead.append(self.fetch(chunk))

    def fetch(self, chunk: Chunk) -> Flight[Job]:
        """Issues the copies of a chunk's rows into a slot."""
        job = Job(chunk)
        flight = self.pipe.enter(job)
        job.source = self.input_views(flight.slot, chunk.extent)
        self.pipe.fetch(flight, self._source_copies(job))
        return flight

    def input_views(self, slot: int, extent: int) -> SlotViews:
        """The views of a slot's input for a chunk of that many rows."""
        specs = self._input_specs.get(extent)
        if specs is None:
            specs = keep(self._input_specs, extent, tuple(source.spec(extent) for source in self.sources))
        return self.slots.input(slot, specs)

    def _source_copies(self, job: Job) -> list[list[int]]:
        low, extent, pointers, sources = job.chunk.low, job.chunk.extent, job.source.pointers, self.sources
        return [sources[i].copy(low, extent, pointers[i]) for i in self._copied_in]

    def compute(self, flight: Flight[Job]) -> None:
        """Calls `fn` on the compute stream and copies its result into the slot."""
        ledger, chunk = self.ledger, flight.item.chunk
        self.pipe.acquire(flight)
        ledger.current = chunk
        self.place_result(flight, ledger.outputs.take(self.call(flight), chunk, self.device))
        self.pipe.commit(flight)

    def call(self, flight: Flight[Job]) -> Any:
        """The result of `fn` for a chunk whose bytes have arrived."""
        arguments = self._inputs(flight.item)
        if self.is_lazy:
            inputs = self.ledger.arguments.inputs
            arguments = [as_given(tensor, like) for tensor, like in zip(arguments, inputs, strict=True)]
        return call_fn(self.ledger.op, self.fn, arguments, lambda: self.ledger.name(flight.item.chunk))

    def _inputs(self, job: Job) -> list[torch.Tensor]:
        # New tensors each time: fn may change their shape in place.
        tensors = [tensor.detach() for tensor in job.source.tensors]
        if self._local:
            with torch.no_grad():
                for i, source in self._local:
                    tensors[i].copy_(source.tensor.narrow(source.dim, job.chunk.low, job.chunk.extent))
        return tensors

    def place_result(self, flight: Flight[Job], tensors: list[torch.Tensor]) -> None:
        """Copies the result of `fn` into the slot, or into a result on the device."""
        if self._to_device:
            self._place_on_device(flight.item, tensors)
            return
        slot, leaves = flight.slot, self.ledger.outputs.leaves
        extents = tuple([tensor.shape[leaves[i].dim] for i, tensor in enumerate(tensors)])
        specs = self._specs_of_results(extents)
        result = self.slots.known_output(slot, specs)
        if result is None:
            self._grow_output(flight, bytes_of(specs), tensors)
            result = self.slots.output(slot, specs)
        flight.item.result, flight.item.extents = result, extents
        for i, tensor in enumerate(tensors):
            result.tensors[i].copy_(tensor)

    def _specs_of_results(self, extents: tuple[int, ...]) -> tuple[TensorSpec, ...]:
        specs = self._output_specs.get(extents)
        if specs is None:
            orders = [memory_order(assembly.capacity()) for assembly in self.ledger.assemblies]
            leaves = self.ledger.outputs.leaves
            specs = keep(self._output_specs, extents, result_specs(leaves, extents, orders))
        return specs

    def output_views(self, slot: int, extents: Sequence[int]) -> SlotViews:
        """The views of a slot's output for results of these extents; it is large enough."""
        return self.slots.output(slot, self._specs_of_results(tuple(extents)))

    def _place_on_device(self, job: Job, tensors: list[torch.Tensor]) -> None:
        ledger, leaves = self.ledger, self.ledger.outputs.leaves
        ledger.is_touched = True
        extents = [tensor.shape[leaf.dim] for leaf, tensor in zip(leaves, tensors, strict=True)]
        for assembly, leaf, tensor, extent in zip(ledger.assemblies, leaves, tensors, extents, strict=True):
            target, row = assembly.target(job.chunk.index, extent)
            with torch.no_grad():  # `data` keeps the version: an input that is `out` may be written, but not change
                target.data.narrow(leaf.dim, row, extent).copy_(tensor)
        nbytes = sum(spec.nbytes for spec in result_specs(leaves, extents))
        job.result = SlotViews([], [], nbytes)  # without extents, so nothing is copied out

    def _grow_output(self, flight: Flight[Job], nbytes: int, tensors: list[torch.Tensor]) -> None:
        ledger, budget = self.ledger, self.ledger.limits.memory_budget
        if self.slots.grow_output(flight.slot, nbytes) and budget is not None:
            output = sum(charged(t.numel() * t.element_size()) for t in tensors)
            if (needed := self.slots.nbytes + output) > budget:
                raise ValueError(f"{ledger.op}: memory_budget must be at least {needed} for the result of "
                                 f"{ledger.name(flight.item.chunk)}, got {budget}")  # fmt: skip

    def store(self, flight: Flight[Job]) -> None:
        """Issues the copies of a chunk's result to the host."""
        job = flight.item
        assert job.result is not None
        self.ledger.is_touched = True
        copies = self._result_copies(job, job.result)
        self._count_stored(job.chunk.index, 1, job.chunk.rows, job.result.nbytes)
        self.pipe.store(flight, copies)

    def _count_stored(self, first: int, count: int, rows: int, result_bytes: int) -> None:
        """Counts chunks with that many rows, as they are being stored."""
        if rows not in self._bytes_of_rows:
            self._bytes_of_rows[rows] = sum(source.nbytes(rows) for source in self.sources)
        each, before = self._bytes_of_rows[rows] + result_bytes, self._bytes_after[-1]
        self._bytes_after += [before + each * (i + 1) for i in range(count)]
        self.order_of_chunks += range(first, first + count)

    # --- a loop of equal chunks in C++ ----------------------------------------------------------------------------
    @property
    def has_block(self) -> bool:
        """Whether the next chunks are a block that a loop issues."""
        return len(self.block) > 1 and self._has_loops

    @property
    def has_local_inputs(self) -> bool:
        """Whether some inputs are on the device."""
        return bool(self._local)

    def leave_to_python(self, fetched: int) -> None:
        """The loop issues nothing: `take` returns the chunks of blocks, except the chunks that are fetched ahead."""
        self.block, self._has_loops = self.block[fetched:], False

    def take_over(self, fetched: int) -> None:
        """Forgets chunks that are fetched ahead: the loop stores them."""
        self.ledger.is_touched = True
        self.fetched_ahead = self.fetched_ahead[fetched:]

    def advance(self, first: int, fetched: int, stored: int, result_bytes: int) -> None:
        """Counts `stored` chunks from index `first` on that the loop has issued, after `fetched` more copies in."""
        self.pipe.advance(fetched, stored)
        self._count_stored(first, stored, self.ledger.chunks[0].rows, result_bytes)
        self.engine.update()

    def _result_copies(self, job: Job, result: SlotViews) -> list[list[int]]:
        ledger, index = self.ledger, job.chunk.index
        copies: list[list[int]] = []
        for i, extent in enumerate(job.extents):
            tensor, row = ledger.assemblies[i].target(index, extent)
            if result.tensors[i].numel():
                copies.append(self.target(i, tensor, extent).copy(row, extent, result.pointers[i]))
        return copies

    def target(self, index: int, tensor: torch.Tensor, extent: int) -> Endpoint:
        """The caller's end of the copies of a result's tensor."""
        while len(self._targets) <= index:
            i = len(self._targets)
            whole = self.ledger.assemblies[i].capacity()
            leaf = self.ledger.outputs.leaves[i]
            name = "out" if self.ledger.arguments.out is not None else "the result"
            self._targets.append(self._routes.of(whole, leaf.dim, leaf.sizes[leaf.dim], self.device, name))
        known = self._targets[index]
        if tensor is known.tensor:
            return known
        # Separate memory for one chunk, with the slot's order of dimensions.
        single = self._routes.of(tensor, known.dim, extent, self.device, "the result")
        object.__setattr__(single, "order", known.order)
        return single

    # --- the end --------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Waits until all results have landed."""
        self.pipe.settle()
        if self._to_device:
            self.engine.join()  # the caller's stream waits too

    def has_landed(self) -> bool:
        """Whether all results have landed; never waits."""
        return self.engine.landed() >= self.pipe.stored or self.engine.error() != ""

    def landed_bytes(self) -> int:
        """Bytes of landed chunks, both directions."""
        return self._bytes_after[min(self.engine.landed(), len(self._bytes_after) - 1)]

    def abandon(self) -> None:
        """After a failure, waits for everything in flight and releases what this run allocated."""
        self.order_of_chunks.clear()
        self.pipe.drain()
        self.lent.take_back()
