"""Slots: the memory of a device that chunks and results stay in while they are on their way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..structure import Leaf
from .layout import HostTensor, aligned, charged, dense_strides, keep, view_of


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
        self.generation = 0  # changes when a buffer does
        self._views: dict[object, torch.Tensor] = {}  # of the buffers: calls are often alike
        self.settled: tuple[object, int] | None = None  # the last problem, and the chunk size that fitted it

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, as torch's allocator counts them."""
        return sum(charged(b.nbytes) for b in (*self._inputs, *self._outputs) if b is not None)

    def release(self) -> None:
        """Gives all buffers back; nothing may be in flight."""
        self._forget_views()
        self._inputs = [None] * self._depth
        self._outputs = [None] * self._depth

    def _forget_views(self) -> None:
        self.generation += 1
        self._views.clear()

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
            self._forget_views()
            self._outputs = [None] * self._depth

    def input_pointer(self, slot: int) -> int:
        """Where a slot's input begins."""
        buffer = self._inputs[slot]
        assert buffer is not None
        return buffer.data_ptr()

    def output_pointer(self, slot: int) -> int:
        """Where a slot's output begins."""
        buffer = self._outputs[slot]
        assert buffer is not None
        return buffer.data_ptr()

    def _grow(self, buffers: list[torch.Tensor | None], slot: int, nbytes: int) -> bool:
        buffer = buffers[slot]
        if buffer is not None and buffer.nbytes >= nbytes:
            return False
        self._forget_views()
        buffers[slot] = buffer = None  # the old one first: both need not exist at once
        buffers[slot] = buffer_on(self._place, nbytes)
        return True

    def input(self, slot: int, source: HostTensor, extent: int, offset: int) -> torch.Tensor:
        """A tensor for `fn`: rows of a source in its slot, dense in the source's order of dimensions."""
        return self._view(self._inputs[slot], offset, source.tensor.dtype, source.sizes(extent), source.order)

    def output(self, slot: int, leaf: Leaf, extent: int, order: Sequence[int], offset: int) -> torch.Tensor:
        """The place of a result in its slot, dense in the order of dimensions of where it is going."""
        return self._view(self._outputs[slot], offset, leaf.dtype, leaf.with_extent(extent), tuple(order))

    def _view(
        self, buffer: torch.Tensor | None, offset: int, dtype: torch.dtype, sizes: list[int], order: tuple[int, ...]
    ) -> torch.Tensor:
        assert buffer is not None
        key = (id(buffer), offset, dtype, *sizes, order)
        found = self._views.get(key)
        if found is None:
            found = keep(self._views, key, view_of(buffer, offset, dtype, sizes, dense_strides(sizes, order)))
        return found.detach()  # whose shape the caller may change


def input_offsets(sources: Sequence[HostTensor], extent: int) -> tuple[list[int], int]:
    """Where each source's rows begin in a slot, and how large it is."""
    offsets, at = [], 0
    for source in sources:
        offsets.append(at)
        at += aligned(source.nbytes(extent))
    return offsets, at


def output_offsets(leaves: Sequence[Leaf], extents: Sequence[int]) -> tuple[list[int], int]:
    """Where each result begins in a slot, and how large it is."""
    offsets, at = [], 0
    for leaf, extent in zip(leaves, extents, strict=True):
        offsets.append(at)
        at += aligned(math.prod(leaf.with_extent(extent)) * leaf.dtype.itemsize)
    return offsets, at
