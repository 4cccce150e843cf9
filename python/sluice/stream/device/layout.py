"""The caller's tensors as the engine sees them, bytes with strides, and the packed layout of their chunks in slots."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch

# The order of Route in kernels/transfer/command.h.
DIRECT, RING, SHARED, PAGEABLE = range(4)
LOCAL = 4  # on the device: the compute stream copies, not the engine
ROUTES = ("direct", "ring", "shared", "pageable")

# Rows below this many bytes cost the copy engine more than copying them through the pinned ring.
_SHORTEST_ROW = 1024
# CUDA copies rows that are fewer bytes apart: kMaxPitch of kernels/transfer/copy_worker.cpp.
MOST_PITCH = 2**31
# Alignment of slots and of the tensors within them, as of torch's allocations.
ALIGNMENT = 512
# Most entries of a cache keyed by a chunk's extent: a run has few extents, unless fn makes more.
_MOST_KEPT = 256

Key = TypeVar("Key")
Value = TypeVar("Value")


def keep(cache: dict[Key, Value], key: Key, value: Value) -> Value:
    """Puts a value into a cache, which is emptied first if it is full."""
    if len(cache) >= _MOST_KEPT:
        cache.clear()
    cache[key] = value
    return value


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dimensions from the slowest in memory to the fastest; expanded dimensions count as slowest."""
    if tensor.is_contiguous():
        return tuple(range(tensor.dim()))
    return tuple(sorted(range(tensor.dim()), key=lambda d: (-(tensor.stride(d) or math.inf), d)))


def packed_strides(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """Strides without gaps for dimensions that are `order` in memory, slowest first."""
    strides, step = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(sizes[d], 1)
    return strides


def rows_in_memory(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int, int]:
    """Bytes of a contiguous span, the number of loops around it, and the innermost loop's stride in bytes.

    `sizes` and `strides` are in memory order.
    """
    span, inner = itemsize, len(sizes)
    while inner > 0 and (sizes[inner - 1] == 1 or strides[inner - 1] * itemsize == span):
        inner -= 1
        span *= sizes[inner]
    loops, outer = 0, 0
    for size, stride in zip(sizes[:inner], strides[:inner], strict=True):
        if size == 1:
            continue
        if not (loops and outer == stride * size):
            loops += 1
        outer = stride
    return span, loops, outer * itemsize


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first byte to its last, gaps included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors share a byte of memory."""
    begin, other = a.data_ptr(), b.data_ptr()
    if not (begin < other + span_bytes(b) and other < begin + span_bytes(a)):
        return False
    return bool(torch.ops.sluice._overlap(a, b))


def same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same elements of the same memory."""
    return (
        a.data_ptr() == b.data_ptr()
        and a.dtype == b.dtype
        and a.shape == b.shape
        and all(s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True) if n > 1)
    )


class TensorSpec(NamedTuple):
    """A tensor in a slot, without gaps; `order` are its dimensions in memory, slowest first."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return math.prod(self.sizes) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """The caller's end of a copy: its tensor, how the bytes travel, and what memory it is.

    Attributes:
        tensor: any strides.
        dim: the dimension that chunks divide.
        route: DIRECT, RING, SHARED, PAGEABLE or LOCAL.
        mapping: the engine's Mapping: 0 memory, 1 a file, 2 a private copy of one.
    """

    tensor: torch.Tensor
    dim: int
    route: int
    mapping: int = 0
    order: tuple[int, ...] = dataclasses.field(init=False)
    # The first byte, and the bytes from row to row.
    _begin: tuple[int, int] = dataclasses.field(init=False, repr=False, compare=False)
    # The constant end of `copy`'s command by extent and device pointer: all but the first byte on the host.
    _tails: dict[tuple[int, int], list[int]] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", memory_order(self.tensor))
        step = self.tensor.stride(self.dim) * self.tensor.element_size()
        object.__setattr__(self, "_begin", (self.tensor.data_ptr(), step))
        object.__setattr__(self, "_tails", {})

    def sizes(self, extent: int) -> list[int]:
        """The shape of a chunk with that many rows."""
        sizes = list(self.tensor.shape)
        sizes[self.dim] = extent
        return sizes

    def spec(self, extent: int) -> TensorSpec:
        """The spec of a chunk of that many rows on a device."""
        return TensorSpec(self.tensor.dtype, tuple(self.sizes(extent)), self.order)

    def nbytes(self, extent: int) -> int:
        """The bytes of a chunk with that many rows."""
        return math.prod(self.sizes(extent)) * self.tensor.element_size()

    def copy(self, low: int, extent: int, device_pointer: int) -> list[int]:
        """The engine's command for rows [low, low + extent), to or from packed memory on the device."""
        tail = self._tails.get((extent, device_pointer))
        if tail is None:
            tensor, itemsize, sizes = self.tensor, self.tensor.element_size(), self.sizes(extent)
            tail = [device_pointer, self.route, self.mapping, itemsize, len(sizes)]
            tail += [sizes[d] for d in self.order]
            tail += [tensor.stride(d) * itemsize for d in self.order]
            keep(self._tails, (extent, device_pointer), tail)
        first, step = self._begin
        return [first + low * step, *tail]

    def is_direct(self, extent: int) -> bool:
        """Whether a copy engine copies a chunk at full speed."""
        sizes = self.sizes(extent)
        strides = [self.tensor.stride(d) for d in self.order]
        span, loops, pitch = rows_in_memory([sizes[d] for d in self.order], strides, self.tensor.element_size())
        return loops == 0 or (loops == 1 and span >= _SHORTEST_ROW and span <= pitch < MOST_PITCH)


def aligned(nbytes: int) -> int:
    """`nbytes`, rounded up to the alignment of tensors in a slot."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def charged(nbytes: int) -> int:
    """Upper bound of what torch's allocator counts: up to a MiB of a larger block may not be split off."""
    return aligned(nbytes) if nbytes <= 1 << 20 else -(-nbytes // (2 << 20)) * (2 << 20)


def view_of(
    memory: torch.Tensor, offset: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """A tensor of any dtype within a buffer of bytes; `offset` is in bytes."""
    if torch.is_inference_mode_enabled():  # an inference tensor could not be changed in place outside
        with torch.inference_mode(False):
            return view_of(memory, offset, dtype, sizes, strides)
    made = torch.empty(0, dtype=dtype, device=memory.device)
    return made.set_(memory.untyped_storage(), offset // dtype.itemsize, tuple(sizes), tuple(strides))  # type: ignore[call-overload,no-any-return]


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as its bytes are stored: without torch's lazy conjugation and negation."""
    tensor = tensor.detach()
    if tensor.is_conj():
        tensor = tensor.conj()
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def as_given(chunk: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A chunk of `resolved(like)` as a chunk of `like`."""
    if like.is_neg():
        chunk = torch._neg_view(chunk)
    return chunk.conj() if like.is_conj() else chunk
