"""The chunks of one device: their tensors, their calls of `fn`, and the first one, from which the rest is learned."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import faults
from ..device.layout import HostTensor, as_given, charged, memory_order
from ..device.lent import Lent
from ..device.limits import one_way_rate
from ..device.pipeline import Flight, Pipeline
from ..device.places import Place, Places
from ..device.slots import input_offsets, output_offsets
from ..modes import mark_step
from ..structure import flatten
from .chunks import Chunk, Chunks, automatic_size

if TYPE_CHECKING:
    from .run import MapRun

# With a memory_budget, fn first shows on this part of a chunk how large its results are.
_PROBED_PART = 32


@dataclasses.dataclass(slots=True)
class Job:
    """A chunk on its way, and what came out of it."""

    chunk: Chunk
    result: Place | None = None


class DeviceWork:
    """What an order arranges on one device (`pipeline.Work`), whose compute stream is the current one."""

    def __init__(self, run: MapRun, fn: Callable[..., Any], lent: Lent, limit: int) -> None:
        self.run, self.fn = run, fn
        self.engine, self.slots = lent.engine, lent.slots
        self.place = lent.engine.place
        self.pipe: Pipeline[Job] = Pipeline(
            lent.engine, run.limits.depth, run.limits.window, limit, checkpoint=run.checkpoint
        )
        self.order_of_chunks: list[int] = []  # as they were stored
        self._bytes_after: list[int] = []  # moved when so many chunks have landed
        self._slot_bytes = self.slots.nbytes
        self._first_rows = self._wanted_rows()
        self.sources = run.sources(self.place, min(self._first_rows, run.arguments.extent))
        self._targets: list[HostTensor] = []
        self._ahead: list[Flight[Job]] = []  # fetched while the first chunk is learned from
        self._is_lazy = any(t.is_conj() or t.is_neg() for t in run.arguments.inputs)
        self._places = Places(self.slots, self.sources)
        self._orders: list[tuple[int, ...]] = []  # of dimensions, in the results' memory
        self._bytes_of_rows: dict[int, int] = {}

    # --- how large a chunk is -------------------------------------------------------------------------------------
    def _wanted_rows(self) -> int:
        arguments = self.run.arguments
        extent = arguments.extent
        if extent == 0 or any(tensor.numel() == 0 for tensor in arguments.inputs):
            return max(extent, 1)
        if arguments.chunk_size is not None:
            return arguments.chunk_size
        row = sum(tensor.nbytes for tensor in arguments.inputs) / extent
        rate = one_way_rate(self.place, self.run.limits.memory_budget)
        return automatic_size(extent, row, rate)

    def _slots_for(self, chunks: Chunks) -> int:
        return min(self.run.limits.depth, len(chunks))

    def _needed(self, chunks: Chunks, slot_output: int, output: int) -> int:
        """Bytes of all slots and one output of `fn`, as torch's allocator counts them."""
        _, inside = input_offsets(self.sources, chunks.widest)
        return self._slots_for(chunks) * (charged(inside) + charged(slot_output)) + charged(output)

    # --- the first chunk ------------------------------------------------------------------------------------------
    def learn(self) -> None:
        """Runs the first chunk alone: smaller and smaller ones, where memory or the budget ask for it."""
        run, rows = self.run, self._first_rows
        budget = run.limits.memory_budget
        halo, extent = run.arguments.halo, run.arguments.extent
        problem = (id(self.fn), rows, halo, budget, tuple((s.dtype, s.shape) for s in run.arguments.inputs))
        known, known_rows = self.slots.settled or (None, 0)
        is_settled = known == problem  # an identical call found out; this one only checks it
        if is_settled:
            rows = known_rows
        elif budget is not None:
            rows = self._fitting_rows(rows, budget, lambda _, inside: inside)
            if rows > 1:
                rows = self._probe(rows, budget)
        while True:
            chunks = Chunks(extent, rows, halo)
            run.chunks = chunks
            try:
                flight, tensors, needed = self._run_first(chunks, budget, is_settled)
            except BaseException as error:
                if rows <= 1 or not faults.is_out_of_memory(error):
                    raise
                error.__traceback__ = None  # it holds what fn had allocated
                is_settled = False
                self._start_over()
                run.tries.append(f"{rows} rows: out of memory")
                rows = -(-rows // 2)
                continue
            if budget is None or needed <= budget:
                break
            del tensors
            if rows == 1:
                rule = f"be at least {needed} for chunks of one row at depth {run.limits.depth}"
                raise ValueError(f"{run.op}: memory_budget must {rule}, got {budget}")
            self._start_over()
            run.tries.append(f"{rows} rows: {needed} bytes are over the memory_budget of {budget}")
            rows = max(1, min(rows - 1, rows * budget // needed))
        self.slots.settled = (problem, rows)
        run.learned(chunks)
        self._place(flight, tensors)
        del tensors
        self.pipe.commit(flight)
        self.store(flight)
        self.engine.flush()  # it need not wait until other chunks are fetched

    def prepare(self) -> None:
        """Allocates this device's slots for what another one has learned."""
        run = self.run
        count, leaves = self._slots_for(run.chunks), run.outputs.leaves
        _, inside = input_offsets(self.sources, run.chunks.widest)
        _, outside = output_offsets(leaves, [leaf.sizes[leaf.dim] for leaf in leaves])
        budgeted = run.limits.memory_budget is not None
        if budgeted and not self.slots.fits_exactly(inside, count):
            self.slots.release()
        self.slots.reserve_inputs(inside, count)
        self._reserve_outputs(outside, count, exactly=budgeted)

    def _probe(self, rows: int, budget: int) -> int:
        """How many rows fit, from what `fn` makes of a few: the budget must hold for results of any size."""
        chunks = Chunks(self.run.arguments.extent, max(1, rows // _PROBED_PART), self.run.arguments.halo)
        try:
            _, tensors, _ = self._run_first(chunks, budget, False)
        except BaseException as error:
            if not faults.is_out_of_memory(error):
                raise
            self._start_over()
            self.run.tries.append(f"{chunks.size} rows: out of memory")
            return max(1, chunks.size // 2)
        share = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / max(chunks[0].rows, 1)
        del tensors
        self._start_over()
        return self._fitting_rows(rows, budget, lambda size, _: math.ceil(share * size))

    def _fitting_rows(self, rows: int, budget: int, output: Callable[[int, int], int]) -> int:
        """The most rows, up to `rows`, that fit if `output(rows, bytes of the input)` is what comes out of them."""

        def needed(size: int) -> int:
            chunks = Chunks(self.run.arguments.extent, size, self.run.arguments.halo)
            _, inside = input_offsets(self.sources, chunks.widest)
            outside = output(size, inside)
            return self._needed(chunks, outside, outside)

        if needed(rows) <= budget:
            return rows
        return max(1, bisect.bisect_right(range(1, rows), budget, key=needed))

    def _run_first(
        self, chunks: Chunks, budget: int | None, is_settled: bool
    ) -> tuple[Flight[Job], list[torch.Tensor], int]:
        run, count = self.run, self._slots_for(chunks)
        _, inside = input_offsets(self.sources, chunks.widest)
        # Before anything runs: memory that the compute stream has just given up is not safe to copy into.
        if budget is not None and not self.slots.fits_exactly(inside, count):
            self.slots.release()
        self.slots.reserve_inputs(inside, count)
        flight = self.fetch(chunks[0])
        if is_settled and run.arguments.order == "depth_first":
            self.engine.flush()  # the first copy need not wait until the next one is known
            if count > 1 and (chunk := self.take()) is not None:
                self._ahead = [self.fetch(chunk)]
        self.pipe.acquire(flight)
        value = self._call(flight)
        taken = flatten(value)
        output = sum(charged(t.numel() * t.element_size()) for t in taken[0]) if taken else 0
        run.outputs.structure = None
        tensors = run.outputs.take(value, chunks[0], self.place)
        leaves = run.outputs.leaves
        _, slot_output = output_offsets(leaves, [leaf.sizes[leaf.dim] for leaf in leaves])
        needed = self._needed(chunks, slot_output, output)
        if budget is None or needed <= budget:
            self._reserve_outputs(slot_output, count, exactly=budget is not None)
        return flight, tensors, needed

    def _reserve_outputs(self, nbytes: int, count: int, exactly: bool) -> None:
        if exactly:
            self.slots.release_other_outputs(nbytes)
        for slot in range(count):
            self.slots.grow_output(slot, nbytes)

    def ahead(self) -> list[Flight[Job]]:
        """Chunks whose copies in are issued already, once."""
        ahead, self._ahead = self._ahead, []
        return ahead

    def _start_over(self) -> None:
        self.pipe.drain()
        self.pipe.reset()
        self._ahead = []
        self.run.start_over()
        self.slots.release()
        self._orders = []

    # --- every chunk ----------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Starts the engine's run: everything waits for what the caller's stream has in its queue."""
        self.engine.kept = self.run
        self.engine.begin()

    def take(self) -> Chunk | None:
        """The next chunk of the run."""
        return self.run.take()

    def fetch(self, chunk: Chunk) -> Flight[Job]:
        """Issues the copies of a chunk's rows into a slot."""
        flight = self.pipe.enter(Job(chunk))
        self.pipe.fetch(flight, self._source_copies(flight))
        return flight

    def _source_copies(self, flight: Flight[Job]) -> list[list[int]]:
        chunk, sources = flight.item.chunk, self.sources
        if not any(source.tensor.numel() for source in sources):
            return []
        extent = chunk.high - chunk.low
        pointers = self._places.inputs(flight.slot, extent).pointers
        return [s.copy(chunk.low, extent, pointer) for s, pointer in zip(sources, pointers, strict=True)]

    def compute(self, flight: Flight[Job]) -> None:
        """Calls `fn` on the compute stream and puts what it returns into the slot."""
        self.pipe.acquire(flight)
        self.run.current = flight.item.chunk
        self._place(flight, self.run.outputs.take(self._call(flight), flight.item.chunk, self.place))
        self.pipe.commit(flight)

    def _call(self, flight: Flight[Job]) -> Any:
        arguments = self._inputs(flight)
        if self._is_lazy:
            inputs = self.run.arguments.inputs
            arguments = [as_given(tensor, like) for tensor, like in zip(arguments, inputs, strict=True)]
        mark_step()
        try:
            return self.fn(*arguments)
        except BaseException as error:
            faults.add_note(error, f"{self.run.op}: raised by fn for {self.run.name(flight.item.chunk)}")
            raise
        finally:
            arguments.clear()  # a traceback that is kept must not keep them

    def _inputs(self, flight: Flight[Job]) -> list[torch.Tensor]:
        # New ones each time: fn may change their shape in place.
        return [t.detach() for t in self._places.inputs(flight.slot, flight.item.chunk.extent).tensors]

    def _place(self, flight: Flight[Job], tensors: list[torch.Tensor]) -> None:
        leaves, slot = self.run.outputs.leaves, flight.slot
        extents = [tensor.shape[leaf.dim] for leaf, tensor in zip(leaves, tensors, strict=True)]
        result = self._places.known_outputs(slot, extents)
        if result is None:
            if not self._orders:
                self._orders = [memory_order(assembly.capacity()) for assembly in self.run.assemblies]
            self._make_room(flight, output_offsets(leaves, extents)[1], tensors)
            result = self._places.outputs(slot, leaves, extents, self._orders)
        flight.item.result = result
        for place, tensor in zip(result.tensors, tensors, strict=True):
            place.copy_(tensor)

    def _make_room(self, flight: Flight[Job], nbytes: int, tensors: list[torch.Tensor]) -> None:
        run, budget = self.run, self.run.limits.memory_budget
        if self.slots.grow_output(flight.slot, nbytes) and budget is not None:
            output = sum(charged(t.numel() * t.element_size()) for t in tensors)
            if (needed := self.slots.nbytes + output) > budget:
                raise ValueError(f"{run.op}: memory_budget must be at least {needed} for the result of "
                                 f"{run.name(flight.item.chunk)}, got {budget}")  # fmt: skip

    def store(self, flight: Flight[Job]) -> None:
        """Issues the copies of a chunk's result to where it belongs."""
        run, job = self.run, flight.item
        assert job.result is not None
        run.is_touched = True
        copies = self._result_copies(flight, job.result)
        before = self._bytes_after[-1] if self._bytes_after else 0
        rows = job.chunk.rows
        if rows not in self._bytes_of_rows:
            self._bytes_of_rows[rows] = sum(source.nbytes(rows) for source in self.sources)
        self._bytes_after.append(before + self._bytes_of_rows[rows] + job.result.nbytes)
        self.order_of_chunks.append(job.chunk.index)
        self.pipe.store(flight, copies)

    def _result_copies(self, flight: Flight[Job], result: Place) -> list[list[int]]:
        leaves, index = self.run.outputs.leaves, flight.item.chunk.index
        copies: list[list[int]] = []
        for i, (leaf, extent, pointer) in enumerate(zip(leaves, result.extents, result.pointers, strict=True)):
            tensor, row = self.run.assemblies[i].target(index, extent)
            if result.tensors[i].numel():
                copies.append(self._target(i, tensor, leaf.dim, extent).copy(row, extent, pointer))
        return copies

    def _target(self, index: int, tensor: torch.Tensor, dim: int, extent: int) -> HostTensor:
        while len(self._targets) <= index:
            i = len(self._targets)
            whole = self.run.assemblies[i].capacity()
            leaf = self.run.outputs.leaves[i]
            name = "out" if self.run.arguments.out is not None else "the result"
            self._targets.append(self.run.routes.of(whole, leaf.dim, leaf.sizes[leaf.dim], self.place, name))
        known = self._targets[index]
        if tensor is known.tensor:
            return known
        # Memory of its own for one chunk: in the order of dimensions that the slot has.
        piece = self.run.routes.of(tensor, dim, extent, self.place, "the result")
        object.__setattr__(piece, "order", known.order)
        return piece

    # --- the end --------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Waits until all results have landed."""
        self.pipe.settle()

    def has_landed(self) -> bool:
        """Whether they have; never waits."""
        return self.engine.landed() >= self.pipe.stored or self.engine.error() != ""

    def landed_bytes(self) -> int:
        """Bytes of the chunks that have landed, both directions."""
        landed = min(self.engine.landed(), len(self._bytes_after))
        return self._bytes_after[landed - 1] if landed else 0

    def abandon(self) -> None:
        """Waits for what is in flight, after a fault, and gives back what this run allocated."""
        self.order_of_chunks.clear()
        self.pipe.drain()
        self.pipe.reset()
        if self.slots.nbytes != self._slot_bytes:
            self.slots.release()


class ResidentWork(DeviceWork):
    """Chunks of inputs that are on the device already, into a result on the device: the compute stream copies all."""

    def _source_copies(self, flight: Flight[Job]) -> list[list[int]]:
        return []

    def _inputs(self, flight: Flight[Job]) -> list[torch.Tensor]:
        chunk, tensors = flight.item.chunk, super()._inputs(flight)
        with torch.no_grad():
            for tensor, source in zip(tensors, self.sources, strict=True):
                tensor.copy_(source.tensor.narrow(source.dim, chunk.low, chunk.extent))
        return tensors

    def _reserve_outputs(self, nbytes: int, count: int, exactly: bool) -> None:
        pass

    def _place(self, flight: Flight[Job], tensors: list[torch.Tensor]) -> None:
        run, index, leaves = self.run, flight.item.chunk.index, self.run.outputs.leaves
        run.is_touched = True
        extents = [tensor.shape[leaf.dim] for leaf, tensor in zip(leaves, tensors, strict=True)]
        for assembly, leaf, tensor, extent in zip(run.assemblies, leaves, tensors, extents, strict=True):
            target, row = assembly.target(index, extent)
            with torch.no_grad():
                target.narrow(leaf.dim, row, extent).copy_(tensor)
        flight.item.result = Place([], extents, [], output_offsets(leaves, extents)[1])

    def _result_copies(self, flight: Flight[Job], result: Place) -> list[list[int]]:
        return []

    def settle(self) -> None:
        """Waits until the results are complete, and lets the caller's stream wait too."""
        super().settle()
        self.engine.join()
