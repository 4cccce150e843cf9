"""The first chunk, from which a call learns how large chunks may be and what `fn` returns for one."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable

import torch

from .. import faults
from ..device.layout import charged
from ..device.lent import Settled
from ..device.pipeline import Flight
from ..device.slots import bytes_of, result_specs
from ..structure import flatten
from .chunks import Chunks
from .outputs import Allocate, total_extent
from .work import DeviceWork, Job

# With a memory_budget, fn first runs on 1 / this of a chunk, to learn how large its results are.
_PROBED_PART = 32
# Chunks that are fetched before fn has run for the first time.
_UNSETTLED_AHEAD = 2


class Learner:
    """Learns on one device, before the other chunks run, what all of them need.

    Args:
        work: of the device.
        settled: the chunk size of an identical earlier call.
        allocate: makes memory for results.
    """

    def __init__(self, work: DeviceWork, settled: Settled, allocate: Allocate) -> None:
        self._work, self._ledger, self._slots = work, work.ledger, work.slots
        self._settled, self._allocate = settled, allocate

    def _slots_for(self, chunks: Chunks) -> int:
        return min(self._ledger.limits.depth, len(chunks))

    def _inside(self, chunks: Chunks) -> int:
        """Bytes of a slot's input."""
        return bytes_of(source.spec(chunks.widest) for source in self._work.sources)

    def _outside(self) -> int:
        """Bytes of a slot's output, for results like the first chunk's; none if they stay on the device."""
        leaves = self._ledger.outputs.leaves
        if self._ledger.arguments.to_device:
            return 0
        return bytes_of(result_specs(leaves, [leaf.sizes[leaf.dim] for leaf in leaves]))

    def _whole(self, chunks: Chunks) -> int:
        """Bytes of a whole result that the call allocates on the device, for results like the first chunk's."""
        arguments = self._ledger.arguments
        if not arguments.to_device or arguments.outs is not None:
            return 0
        leaves = self._ledger.outputs.leaves
        extents = [total_extent(leaf.sizes[leaf.dim], chunks) for leaf in leaves]
        return sum(charged(spec.nbytes) for spec in result_specs(leaves, extents))

    def _needed(self, chunks: Chunks, slot_output: int, output: int, whole: int) -> int:
        """Bytes of all slots, one output of `fn` and a whole result, as torch's allocator counts them."""
        each = charged(self._inside(chunks)) + charged(slot_output)
        return self._slots_for(chunks) * each + charged(output) + charged(whole)

    def learn(self) -> None:
        """Computes the first chunk alone; smaller first chunks until memory and budget suffice."""
        work, ledger, rows = self._work, self._ledger, self._work.first_rows
        arguments, budget = ledger.arguments, ledger.limits.memory_budget
        problem = (rows, arguments.halo, budget, tuple((s.dtype, s.shape) for s in arguments.inputs))
        known = self._settled.rows_for(work.fn, problem)
        is_settled = known is not None  # learned by an identical call; this call only checks it
        if known is not None:
            rows = known
        elif budget is not None:
            rows = self._fitting_rows(rows, budget, lambda _, inside: inside, 0)
            if rows > 1:
                rows = self._probe(rows, budget)
        while True:
            ledger.chunks = chunks = Chunks(arguments.extent, rows, arguments.halo)
            try:
                flight, tensors, needed = self._run_first(chunks, budget, is_settled)
            except BaseException as error:
                if rows <= 1 or not faults.is_out_of_memory(error):
                    raise
                error.__traceback__ = None  # it holds what fn had allocated
                is_settled = False
                work.start_over()
                ledger.tries.append(f"{rows} rows: out of memory")
                rows = -(-rows // 2)
                continue
            if budget is None or needed <= budget:
                break
            del tensors
            if rows == 1:
                rule = f"be at least {needed} for chunks of one row at depth {ledger.limits.depth}"
                raise ValueError(f"{ledger.op}: memory_budget must {rule}, got {budget}")
            work.start_over()
            ledger.tries.append(f"{rows} rows: {needed} bytes exceed the memory_budget of {budget}")
            rows = max(1, min(rows - 1, rows * budget // needed))
        self._settled.keep(work.fn, problem, rows)
        ledger.settle_on(chunks, self._allocate)
        work.place_result(flight, tensors)
        del tensors
        work.pipe.commit(flight)
        work.store(flight)
        work.engine.flush()  # without waiting until other chunks are fetched

    def prepare(self) -> None:
        """Allocates this device's slots for the chunks that another device has learned."""
        chunks, budgeted = self._ledger.chunks, self._ledger.limits.memory_budget is not None
        count, inside = self._slots_for(chunks), self._inside(chunks)
        if budgeted and not self._slots.fits_exactly(inside, count):
            self._slots.release()
        self._slots.reserve_inputs(inside, count)
        self._work.reserve_outputs(self._outside(), count, exactly=budgeted)

    def _probe(self, rows: int, budget: int) -> int:
        """The rows that fit, from the results of `fn` for a few: the budget must hold for results of any size."""
        work, arguments = self._work, self._ledger.arguments
        chunks = Chunks(arguments.extent, max(1, rows // _PROBED_PART), arguments.halo)
        try:
            _, tensors, _ = self._run_first(chunks, budget, False)
        except BaseException as error:
            if not faults.is_out_of_memory(error):
                raise
            work.start_over()
            self._ledger.tries.append(f"{chunks.size} rows: out of memory")
            return max(1, chunks.size // 2)
        share = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / max(chunks[0].rows, 1)
        whole = self._whole(chunks)
        del tensors
        work.start_over()
        return self._fitting_rows(rows, budget, lambda size, _: math.ceil(share * size), whole)

    def _fitting_rows(self, rows: int, budget: int, output: Callable[[int, int], int], whole: int) -> int:
        """The most rows, up to `rows`, that fit if their results take `output(rows, bytes of the input)`."""
        arguments = self._ledger.arguments

        def needed(size: int) -> int:
            chunks = Chunks(arguments.extent, size, arguments.halo)
            outside = output(size, self._inside(chunks))
            return self._needed(chunks, 0 if arguments.to_device else outside, outside, whole)

        if needed(rows) <= budget:
            return rows
        return max(1, bisect.bisect_right(range(1, rows), budget, key=needed))

    def _ahead(self, is_settled: bool) -> int:
        """Chunks to fetch while the first is computed: few where they may be too large, or `fn` may raise."""
        ledger = self._ledger
        if ledger.arguments.order != "depth_first" or not (is_settled or ledger.limits.memory_budget is None):
            return 0
        if len(ledger.arguments.devices) > 1:  # the others are to compute some of few chunks
            return 1
        return ledger.limits.depth if is_settled else 0 if ledger.tries else _UNSETTLED_AHEAD

    def _run_first(
        self, chunks: Chunks, budget: int | None, is_settled: bool
    ) -> tuple[Flight[Job], list[torch.Tensor], int]:
        work, ledger, count = self._work, self._ledger, self._slots_for(chunks)
        inside = self._inside(chunks)
        # Before anything runs: copies must not write memory that the compute stream has just released.
        if budget is not None and not self._slots.fits_exactly(inside, count):
            self._slots.release()
        self._slots.reserve_inputs(inside, count)
        flight = work.fetch(chunks[0])
        work.fetch_ahead(min(self._ahead(is_settled), count - 1))
        work.pipe.acquire(flight)
        ledger.current = chunks[0]
        value = work.call(flight)
        taken = flatten(value)
        # The widest chunk's output, from the first chunk's output: with a halo, fn keeps the extent.
        wide, extent = max(chunks.widest, 1), max(chunks[0].extent, 1)
        output = sum(charged(-(-t.numel() * t.element_size() * wide // extent)) for t in taken[0]) if taken else 0
        ledger.outputs.structure = None
        tensors = ledger.outputs.take(value, chunks[0], work.device)
        slot_output = self._outside()
        needed = self._needed(chunks, slot_output, output, self._whole(chunks))
        if budget is None or needed <= budget:
            work.reserve_outputs(slot_output, count, exactly=budget is not None)
        return flight, tensors, needed
