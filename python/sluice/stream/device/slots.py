"""Slots: the memory of a device that chunks and results stay in while they are on their way, and all views of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import torch

from ..structure import Leaf
from .layout import Room, aligned, charged, dense_strides, keep, view_of

_INPUT, _OUTPUT = range(2)


@dataclasses.dataclass(slots=True)
class Place:
    """Tensors in a slot, one behind the other, their addresses, and the bytes of all."""

    tensors: list[torch.Tensor]
    pointers: list[int]
    nbytes: int


def buffer_on(place: torch.device, nbytes: int) -> torch.Tensor:
    """Bytes on a device, allocated by torch on its current stream."""
    with torch.inference_mode(False):
        return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=place)


class Slots:
    """`depth` pairs of an input and an output buffer, each for one chunk.

    Args:
        place: the device.
        depth: pairs.
    """

    def __init__(self, place: torch.device, depth: int) -> None:
        self._place, self._depth = place, depth
        self._inputs: list[torch.Tensor | None] = [None] * depth
        self._outputs: list[torch.Tensor | None] = [None] * depth
        # Found once, as chunks and calls are often alike; they hold the buffers, and go with them.
        self._places: dict[tuple[int, int, tuple[Room, ...]], Place] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, as torch's allocator counts them."""
        return sum(charged(b.nbytes) for b in (*self._inputs, *self._outputs) if b is not None)

    def release(self) -> None:
        """Gives all buffers back; nothing may be in flight."""
        self._places.clear()
        self._inputs = [None] * self._depth
        self._outputs = [None] * self._depth

    def reserve_inputs(self, nbytes: int, count: int) -> None:
        """Makes the first `count` slots' inputs large enough; nothing may be in flight."""
        for slot in range(count):
            self.grow_input(slot, nbytes)

    def grow_input(self, slot: int, nbytes: int) -> bool:
        """Makes one slot's input large enough; whether it had to be allocated."""
        return self._grow(self._inputs, slot, nbytes)

    def grow_output(self, slot: int, nbytes: int) -> bool:
        """Makes one slot's output large enough. The compute stream must have waited for the slot."""
        return self._grow(self._outputs, slot, nbytes)

    def fits_exactly(self, nbytes: int, count: int) -> bool:
        """Whether the first `count` inputs have just that size and there are no others, as a budget asks."""
        sizes = [buffer.nbytes if buffer is not None else 0 for buffer in self._inputs]
        return sizes == [max(nbytes, 1)] * count + [0] * (self._depth - count)

    def release_other_outputs(self, nbytes: int) -> None:
        """Gives back outputs of another size; nothing may be in flight in them."""
        if any(buffer is not None and buffer.nbytes != nbytes for buffer in self._outputs):
            self._places.clear()
            self._outputs = [None] * self._depth

    def _grow(self, buffers: list[torch.Tensor | None], slot: int, nbytes: int) -> bool:
        buffer = buffers[slot]
        if buffer is not None and buffer.nbytes >= nbytes:
            return False
        self._places.clear()
        buffers[slot] = buffer = None  # the old one first: both need not exist at once
        buffers[slot] = buffer_on(self._place, nbytes)
        return True

    def input(self, slot: int, rooms: tuple[Room, ...]) -> Place:
        """Where a chunk of sources lies in a slot, dense in their orders of dimensions."""
        key = (_INPUT, slot, rooms)
        return self._places.get(key) or self._make(self._inputs[slot], key)

    def output(self, slot: int, rooms: tuple[Room, ...]) -> Place:
        """Where a chunk's results lie in a slot, dense in the orders of dimensions of where they are going."""
        return self.known_output(slot, rooms) or self._make(self._outputs[slot], (_OUTPUT, slot, rooms))

    def known_output(self, slot: int, rooms: tuple[Room, ...]) -> Place | None:
        """The same where there was one before: the slot's output is large enough then."""
        return self._places.get((_OUTPUT, slot, rooms))

    def _make(self, buffer: torch.Tensor | None, key: tuple[int, int, tuple[Room, ...]]) -> Place:
        assert buffer is not None
        made, begin = Place([], [], 0), buffer.data_ptr()
        for room in key[2]:
            strides = dense_strides(room.sizes, room.order)
            made.tensors.append(view_of(buffer, made.nbytes, room.dtype, room.sizes, strides))
            made.pointers.append(begin + made.nbytes)
            made.nbytes += aligned(room.nbytes)
        return keep(self._places, key, made)


def bytes_of(rooms: Iterable[Room]) -> int:
    """What they take in a slot, one behind the other."""
    return sum(aligned(room.nbytes) for room in rooms)


def result_rooms(
    leaves: Sequence[Leaf], extents: Sequence[int], orders: Iterable[tuple[int, ...]] | None = None
) -> tuple[Room, ...]:
    """The rooms of results with these extents; the orders of their dimensions decide nothing about bytes."""
    given = itertools.repeat(()) if orders is None else orders
    return tuple(
        Room(leaf.dtype, tuple(leaf.with_extent(extent)), order)
        for leaf, extent, order in zip(leaves, extents, given, strict=False)
    )
