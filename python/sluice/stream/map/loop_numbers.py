"""The loop over equal chunks as numbers for C++: where the bytes of each chunk are, and which copies move them.

    chunk of an input     slot's input      scratch           slot's output     result
    on the host           ------------> fn  |left|***|right|  ------->  |***|   ------->  host
    on the device         ------------> fn  |left|***|right|  -------------------------->  device

A function writes the slot's output itself where there is no halo. `fn=None` needs no scratch, because its result is the
slot's input; where that is all that is sent, it is not copied within the device at all.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ..arguments import identity
from ..device.engine import COMPUTED, STORED
from ..device.layout import DIRECT, LOCAL, MOST_PITCH, Endpoint, TensorSpec, memory_order, packed_strides, view_of
from ..device.slots import buffer_on, result_specs

if TYPE_CHECKING:
    from .work import DeviceWork

# Chunks of 4 MiB reach 0.95 of the host link, so groups need not be larger.
_GROUP_BYTES = 4 << 20
# Instead of a mark: copies in overwrite nothing.
_NEVER = -1


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Memory on the device without gaps, as `planes` of rows along the dimension that chunks divide.

    Attributes:
        planes: elements of the dimensions that are slower in memory.
        inner: bytes of a row in one plane.
        extent: rows of a plane.
        addresses: of the first byte, for each slot.
        step: rows from chunk to chunk; 0 for memory that chunks share.
    """

    planes: int
    inner: int
    extent: int
    addresses: Sequence[int]
    step: int = 0

    @classmethod
    def of(cls, spec: TensorSpec, dim: int, addresses: Sequence[int] = (), step: int = 0) -> _Rows:
        """Memory with the layout of `spec`."""
        at = spec.order.index(dim)
        planes = math.prod(spec.sizes[d] for d in spec.order[:at])
        inner = math.prod(spec.sizes[d] for d in spec.order[at + 1 :]) * spec.dtype.itemsize
        return cls(planes, inner, spec.sizes[dim], addresses, step)

    @property
    def is_one_copy(self) -> bool:
        """Whether one copy takes rows from, or to, all planes."""
        return self.planes == 1 or self.extent * self.inner < MOST_PITCH

    def at(self, row: int) -> list[int]:
        """The numbers of a place: of the chunk whose first row is `row`."""
        return [self.step * self.inner, *(address + row * self.inner for address in self.addresses)]


def _spec_of(tensor: torch.Tensor, sizes: Sequence[int]) -> TensorSpec:
    return TensorSpec(tensor.dtype, tuple(sizes), memory_order(tensor))


def has_places(tensor: torch.Tensor, dim: int) -> bool:
    """Whether one copy within the device reads, or writes, a chunk of this tensor on the device."""
    spec = _spec_of(tensor, tensor.shape)
    packed = packed_strides(spec.sizes, spec.order)
    is_dense = all(n == 1 or s == p for n, s, p in zip(tensor.shape, tensor.stride(), packed, strict=True))
    return is_dense and _Rows.of(spec, dim).is_one_copy


def fits_slots(tensor: torch.Tensor, dim: int, extent: int) -> bool:
    """The same of a chunk of that many rows in a slot, or in scratch memory."""
    sizes = list(tensor.shape)
    sizes[dim] = extent
    return _Rows.of(_spec_of(tensor, sizes), dim).is_one_copy


def layout(tensor: torch.Tensor, dim: int) -> list[int]:
    """The dimensions that determine how its chunks are packed, slowest first."""
    return [d for d in memory_order(tensor) if d == dim or tensor.shape[d] > 1]


def is_straight(work: DeviceWork) -> bool:
    """Whether chunks are copied from the host into their ranges of results on the device."""
    arguments = work.ledger.arguments
    if work.fn is not identity or not arguments.to_device or any(arguments.halo) or work.has_local_inputs:
        return False
    return all(layout(source.tensor, source.dim)[0] == source.dim for source in work.sources)


def _move(target: _Rows, to: int, source: _Rows, row: int, extent: int) -> list[int]:
    """A copy of `extent` rows within the device, from `row` of one memory to row `to` of another."""
    pitches = [target.extent * target.inner, source.extent * source.inner]
    return [*target.at(to), *source.at(row), extent * source.inner, source.planes, *pitches]


def _end(endpoint: Endpoint, row: int, extent: int, step: int, place: list[int]) -> list[int]:
    """Copies of `extent` rows from, or to, the host; chunks are `step` rows apart."""
    copy = endpoint.copy(row, extent, 0)
    return [endpoint.copy(row + step, extent, 0)[0] - copy[0], *place, *copy]


@dataclasses.dataclass(frozen=True)
class Description:
    """A loop for any block of a device's equal chunks.

    Attributes:
        numbers: as `take_loop` of ops/transfer.cpp reads them after the block's numbers.
        inputs: of `fn`, the tensors of each slot.
        results: that `fn` writes, for each slot; none for `fn=None`.
        result_bytes: of a chunk.
        is_through: chunks are copied out of the slots that they were copied into.
    """

    numbers: list[int]
    inputs: list[list[torch.Tensor]]
    results: list[torch.Tensor]
    result_bytes: int
    is_through: bool


def describe(work: DeviceWork) -> Description:
    """The loop of a device over the ledger's equal chunks."""
    return _Describer(work).description()


class _Describer:
    def __init__(self, work: DeviceWork) -> None:
        ledger = work.ledger
        self._work, self._leaves, self._depth = work, ledger.outputs.leaves, work.pipe.depth
        self._chunk = ledger.chunks[ledger.equal.start]
        self._left = self._chunk.begin - self._chunk.low
        used = min(self._depth, len(ledger.chunks))
        self._slots = [slot if slot < used else 0 for slot in range(self._depth)]  # others do not exist
        self._wholes = [assembly.capacity() for assembly in ledger.assemblies]
        self._extents = [leaf.sizes[leaf.dim] for leaf in self._leaves]
        self._is_identity, self._to_device = work.fn is identity, ledger.arguments.to_device
        self._has_halo = any(ledger.arguments.halo)
        self._views = [work.input_views(slot, self._chunk.extent) for slot in self._slots]
        self._inputs = [
            _Rows.of(source.spec(self._chunk.extent), source.dim, [views.pointers[i] for views in self._views])
            for i, source in enumerate(work.sources)
        ]

    def description(self) -> Description:
        """All of it."""
        targets, results = self._on_device() if self._to_device else self._in_slots()
        ends = [] if self._to_device else self._ends()
        is_straight_in, is_through = is_straight(self._work), self._is_through(ends)
        before: list[list[int]] = []
        after: list[list[int]] = []
        if not self._is_identity:
            before = self._local_inputs()
            if self._to_device or self._has_halo:
                scratch, result = self._scratch()
                results = [result] * self._depth
                after = [_move(*targets[0], scratch, self._left, self._extents[0])]
        elif not (is_straight_in or is_through):
            after = self._identical(targets)
        arrives = targets if is_straight_in else [(inputs, 0) for inputs in self._inputs]
        leaves = [(inputs, 0) for inputs in self._inputs] if is_through else targets
        parts = (self._fetches(arrives), self._stores(ends, leaves), before, after)
        freed = STORED if is_through else _NEVER if is_straight_in else COMPUTED
        group = self._group(ends)
        numbers = [self._depth, self._work.pipe.event_sets, self._work.pipe.limit, group, freed, *map(len, parts)]
        for part in parts:
            numbers += itertools.chain.from_iterable(part)
        nbytes = sum(spec.nbytes for spec in result_specs(self._leaves, self._extents))
        return Description(numbers, [views.tensors for views in self._views], results, nbytes, is_through)

    # --- memory on the device, each with the row of the first equal chunk ---------------------------------------------
    def _on_device(self) -> tuple[list[tuple[_Rows, int]], list[torch.Tensor]]:
        """The whole results."""
        triples = zip(self._wholes, self._leaves, self._extents, strict=True)
        first = self._chunk.index
        return [(self._whole(whole, leaf.dim, extent), first * extent) for whole, leaf, extent in triples], []

    def _in_slots(self) -> tuple[list[tuple[_Rows, int]], list[torch.Tensor]]:
        """Chunks of the results in slots, and the tensors of the first result."""
        outside = [self._work.output_views(slot, self._extents) for slot in self._slots]
        targets = [
            (_Rows.of(_spec_of(whole, leaf.sizes), leaf.dim, [views.pointers[i] for views in outside]), 0)
            for i, (whole, leaf) in enumerate(zip(self._wholes, self._leaves, strict=True))
        ]
        return targets, [] if self._is_identity else [views.tensors[0] for views in outside]

    def _scratch(self) -> tuple[_Rows, torch.Tensor]:
        """One result with its halo. The compute stream alone uses it, so chunks share it."""
        (leaf,), (whole,) = self._leaves, self._wholes
        extent = self._chunk.extent if self._has_halo else self._extents[0]
        spec = _spec_of(whole, leaf.with_extent(extent))
        has_budget = self._work.ledger.limits.memory_budget is not None  # for one output of fn, which others need too
        memory = buffer_on(self._work.device, spec.nbytes) if has_budget else self._work.slots.scratch(spec.nbytes)
        strides = packed_strides(spec.sizes, spec.order)
        made = view_of(memory, 0, spec.dtype, spec.sizes, strides)
        return _Rows.of(spec, leaf.dim, [made.data_ptr()] * self._depth), made

    def _whole(self, tensor: torch.Tensor, dim: int, step: int) -> _Rows:
        return _Rows.of(_spec_of(tensor, tensor.shape), dim, [tensor.data_ptr()] * self._depth, step)

    def _given(self, i: int) -> _Rows:
        """An input that is on the device."""
        source = self._work.sources[i]
        return self._whole(source.tensor, source.dim, self._chunk.rows)

    # --- copies -------------------------------------------------------------------------------------------------------
    def _fetches(self, targets: Sequence[tuple[_Rows, int]]) -> list[list[int]]:
        chunk = self._chunk
        return [
            _end(source, chunk.low, chunk.extent, chunk.rows, target.at(row))
            for source, (target, row) in zip(self._work.sources, targets, strict=True)
            if source.route != LOCAL
        ]

    def _stores(self, ends: Sequence[Endpoint], sources: Sequence[tuple[_Rows, int]]) -> list[list[int]]:
        first = self._chunk.index
        return [
            _end(end, first * extent, extent, extent, source.at(row))
            for end, extent, (source, row) in zip(ends, self._extents, sources, strict=False)  # without ends: none
        ]

    def _local_inputs(self) -> list[list[int]]:
        low, extent = self._chunk.low, self._chunk.extent
        sources = enumerate(self._work.sources)
        return [_move(self._inputs[i], 0, self._given(i), low, extent) for i, s in sources if s.route == LOCAL]

    def _identical(self, targets: Sequence[tuple[_Rows, int]]) -> list[list[int]]:
        """The results of `fn=None`, from the slots or from inputs on the device."""
        moves = []
        for i, ((target, to), extent) in enumerate(zip(targets, self._extents, strict=True)):
            if self._work.sources[i].route != LOCAL:
                moves.append(_move(target, to, self._inputs[i], self._left, extent))
            elif (given := self._given(i)).addresses != target.addresses:  # else it is `out`
                moves.append(_move(target, to, given, self._chunk.begin, extent))
        return moves

    def _ends(self) -> list[Endpoint]:
        pairs = zip(self._wholes, self._extents, strict=True)
        return [self._work.target(i, whole, extent) for i, (whole, extent) in enumerate(pairs)]

    def _group(self, ends: Sequence[Endpoint]) -> int:
        """Chunks between two events: few bytes, and half of the slots at most."""
        copied = [source for source in self._work.sources if source.route != LOCAL]
        if any(end.route != DIRECT for end in (*copied, *ends)):
            return 1
        inside = sum(source.nbytes(self._chunk.extent) for source in copied)
        outside = sum(end.nbytes(extent) for end, extent in zip(ends, self._extents, strict=False))
        most = min(_GROUP_BYTES // max(inside, outside, 1), self._depth // 2)
        return max((n for n in range(1, most + 1) if self._depth % n == 0), default=1)

    def _is_through(self, ends: Sequence[Endpoint]) -> bool:
        if not self._is_identity or self._to_device or self._has_halo or self._work.has_local_inputs:
            return False
        return all(end.route == DIRECT for end in ends)
