"""Slots: the device memory of chunks and results in flight, and the views of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import torch

from ..structure import Leaf
from .layout import TensorSpec, aligned, charged, keep, packed_strides, view_of

_INPUT, _OUTPUT = range(2)


@dataclasses.dataclass(slots=True)
class SlotViews:
    """Consecutive tensors in a slot, their addresses, and the bytes of their elements."""

    tensors: list[torch.Tensor]
    pointers: list[int]
    nbytes: int


def buffer_on(device: torch.device, nbytes: int) -> torch.Tensor:
    """A buffer on a device, allocated by torch on its current stream."""
    if torch.is_inference_mode_enabled():  # buffers outlive the caller's mode
        with torch.inference_mode(False):
            return buffer_on(device, nbytes)
    return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=device)


def _holds(buffer: torch.Tensor | None, nbytes: int) -> bool:
    return buffer is not None and buffer.nbytes >= nbytes


class Slots:
    """`depth` pairs of an input and an output buffer, one per chunk in flight.

    Args:
        device: the device.
        depth: pairs.
    """

    def __init__(self, device: torch.device, depth: int) -> None:
        self._device, self._depth = device, depth
        self._inputs: list[torch.Tensor | None] = [None] * depth
        self._outputs: list[torch.Tensor | None] = [None] * depth
        self._scratch: torch.Tensor | None = None
        # Cached, because chunks and calls repeat; they keep the buffers alive, so they are cleared with them.
        self._views: dict[tuple[int, int, tuple[TensorSpec, ...]], SlotViews] = {}
        self._nbytes: int | None = 0  # None: to be counted

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, as torch's allocator counts them."""
        if self._nbytes is None:
            self._nbytes = sum(charged(b.nbytes) for b in (*self._inputs, *self._outputs) if b is not None)
        return self._nbytes

    def release(self) -> None:
        """Gives all buffers back; nothing may be in flight."""
        self._views.clear()
        self._nbytes = None
        self._scratch = None
        self._inputs = [None] * self._depth
        self._outputs = [None] * self._depth

    def reserve_inputs(self, nbytes: int, count: int) -> None:
        """Makes the first `count` slots' inputs large enough; nothing may be in flight."""
        for slot in range(count):
            self.grow_input(slot, nbytes)

    def has_input(self, slot: int, nbytes: int) -> bool:
        """Whether one slot's input is large enough."""
        return _holds(self._inputs[slot], nbytes)

    def grow_input(self, slot: int, nbytes: int) -> bool:
        """Makes one slot's input large enough; True if it was allocated."""
        return self._grow(self._inputs, slot, nbytes)

    def grow_output(self, slot: int, nbytes: int) -> bool:
        """Makes one slot's output large enough. The compute stream must have waited for the slot."""
        return self._grow(self._outputs, slot, nbytes)

    def scratch(self, nbytes: int) -> torch.Tensor:
        """Memory that the compute stream alone uses, kept for the next call."""
        if not _holds(self._scratch, nbytes):
            self._scratch = None  # frees the old one first
            self._scratch = buffer_on(self._device, nbytes)
        assert self._scratch is not None
        return self._scratch

    def fits_exactly(self, nbytes: int, count: int) -> bool:
        """Whether the first `count` inputs have exactly that size and there are no others."""
        sizes = [buffer.nbytes if buffer is not None else 0 for buffer in self._inputs]
        return sizes == [max(nbytes, 1)] * count + [0] * (self._depth - count)

    def release_other_outputs(self, nbytes: int) -> None:
        """Gives back outputs of another size; nothing may be in flight in them."""
        if any(buffer is not None and buffer.nbytes != nbytes for buffer in self._outputs):
            self._views.clear()
            self._nbytes = None
            self._outputs = [None] * self._depth

    def _grow(self, buffers: list[torch.Tensor | None], slot: int, nbytes: int) -> bool:
        if _holds(buffers[slot], nbytes):
            return False
        self._views.clear()
        self._nbytes = None
        buffers[slot] = None  # frees the old one first: both need not exist at once
        buffers[slot] = buffer_on(self._device, nbytes)
        return True

    def input(self, slot: int, specs: tuple[TensorSpec, ...]) -> SlotViews:
        """Views of a slot's input for a chunk, packed in the sources' orders of dimensions."""
        key = (_INPUT, slot, specs)
        return self._views.get(key) or self._make(self._inputs[slot], key)

    def output(self, slot: int, specs: tuple[TensorSpec, ...]) -> SlotViews:
        """Views of a slot's output for a chunk's results, packed in their targets' orders of dimensions."""
        return self.known_output(slot, specs) or self._make(self._outputs[slot], (_OUTPUT, slot, specs))

    def known_output(self, slot: int, specs: tuple[TensorSpec, ...]) -> SlotViews | None:
        """The same if it is cached, so that the slot's output is large enough; else None."""
        return self._views.get((_OUTPUT, slot, specs))

    def _make(self, buffer: torch.Tensor | None, key: tuple[int, int, tuple[TensorSpec, ...]]) -> SlotViews:
        assert buffer is not None
        made, begin, offset = SlotViews([], [], 0), buffer.data_ptr(), 0
        for spec in key[2]:
            strides = packed_strides(spec.sizes, spec.order)
            made.tensors.append(view_of(buffer, offset, spec.dtype, spec.sizes, strides))
            made.pointers.append(begin + offset)
            made.nbytes += spec.nbytes
            offset += aligned(spec.nbytes)
        return keep(self._views, key, made)


def bytes_of(specs: Iterable[TensorSpec]) -> int:
    """Bytes that they take in a slot."""
    return sum(aligned(spec.nbytes) for spec in specs)


def result_specs(
    leaves: Sequence[Leaf], extents: Sequence[int], orders: Iterable[tuple[int, ...]] | None = None
) -> tuple[TensorSpec, ...]:
    """The specs of results with these extents; `orders` do not affect their bytes."""
    given = itertools.repeat(()) if orders is None else orders
    return tuple(
        TensorSpec(leaf.dtype, tuple(leaf.with_extent(extent)), order)
        for leaf, extent, order in zip(leaves, extents, given, strict=False)
    )
