"""Places of chunks in slots: nearly all chunks are alike, so what follows from slot and extents is found once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from ..structure import Leaf
from .layout import HostTensor, keep
from .slots import Slots, input_offsets, output_offsets


@dataclasses.dataclass(slots=True)
class Place:
    """Tensors in a slot, their extents along the dimension of the chunks, their addresses, and the bytes of all."""

    tensors: list[torch.Tensor]
    extents: list[int]
    pointers: list[int]
    nbytes: int


class Places:
    """The places of one run on one device.

    Args:
        slots: of the device.
        sources: what chunks are copied from.
    """

    def __init__(self, slots: Slots, sources: Sequence[HostTensor]) -> None:
        self._slots, self._sources = slots, sources
        self._generation = slots.generation
        self._inputs: dict[tuple[int, int], Place] = {}
        self._outputs: dict[tuple[int, ...], Place] = {}

    def _forget_old_buffers(self) -> None:
        if self._generation != self._slots.generation:
            self._generation = self._slots.generation
            self._inputs, self._outputs = {}, {}

    def inputs(self, slot: int, extent: int) -> Place:
        """Of chunks with that many rows."""
        self._forget_old_buffers()
        found = self._inputs.get((slot, extent))
        if found is None:
            offsets, nbytes = input_offsets(self._sources, extent)
            begin = self._slots.input_pointer(slot)
            tensors = [self._slots.input(slot, s, extent, o) for s, o in zip(self._sources, offsets, strict=True)]
            pointers = [begin + offset for offset in offsets]
            found = keep(self._inputs, (slot, extent), Place(tensors, [extent] * len(tensors), pointers, nbytes))
        return found

    def known_outputs(self, slot: int, extents: Sequence[int]) -> Place | None:
        """Of results with these extents, where there was one in this slot."""
        self._forget_old_buffers()
        return self._outputs.get((slot, *extents))

    def outputs(
        self, slot: int, leaves: Sequence[Leaf], extents: Sequence[int], orders: Sequence[tuple[int, ...]]
    ) -> Place:
        """Of results with these extents; the slot's output must be large enough."""
        found = self.known_outputs(slot, extents)
        if found is None:
            offsets, nbytes = output_offsets(leaves, extents)
            begin = self._slots.output_pointer(slot)
            tensors = [self._slots.output(slot, *of) for of in zip(leaves, extents, orders, offsets, strict=True)]
            pointers = [begin + offset for offset in offsets]
            found = keep(self._outputs, (slot, *extents), Place(tensors, list(extents), pointers, nbytes))
        return found
