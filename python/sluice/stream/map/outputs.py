"""Results of `fn` for chunks: checked against the first chunk's result, and written to the whole result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..arguments import check_memory
from ..structure import Leaf, Structure, describe, flatten
from .arguments import MapArguments
from .chunks import Chunk, Chunks

# Makes memory for a result: sizes, dtype.
Allocate = Callable[[Sequence[int], torch.dtype], torch.Tensor]


def chunk_name(chunk: Chunk, dim: int) -> str:
    """A chunk's name in messages."""
    return f"chunk {chunk.index}, rows {chunk.begin} to {chunk.end} of dimension {dim}"


def raise_versions(outs: Iterable[torch.Tensor]) -> None:
    """Tells autograd that these were written, which torch does not see."""
    for out in outs:
        if not out.is_inference():
            torch.autograd.graph.increment_version(out)


class Outputs:
    """Checks results of `fn` and removes the halo.

    Args:
        arguments: of the call.
    """

    def __init__(self, arguments: MapArguments) -> None:
        self._arguments = arguments
        self._has_halo = any(arguments.halo)
        self.structure: Structure | None = None
        self.leaves: list[Leaf] = []

    def take(self, value: Any, chunk: Chunk, device: torch.device) -> list[torch.Tensor]:
        """The tensors of one result, without the halo's rows; others must match the first call's.

        Raises:
            TypeError: `fn` returned anything but tensors.
            ValueError: a tensor is on another device, or differs from the first chunk's in more than its extent.
        """
        if self._is_like_the_first(value, device):
            return [value.detach() if value.requires_grad else value]
        op = self._arguments.op
        taken = flatten(value, self.structure)
        if taken is None:
            rule = "return a tensor or a pytree of tensors"
            raise TypeError(f"{op}: fn must {rule}, got {describe(value)}")
        tensors, structure = taken
        trimmed = [self._trim(t, name, chunk, device) for name, t in zip(structure.names, tensors, strict=True)]
        if self.structure is None:
            self.leaves = [Leaf(t.dtype, tuple(t.shape), self._dim(t)) for t in trimmed]
            self.structure = structure
            return trimmed
        where = chunk_name(chunk, self._arguments.dim)
        arranged = self.structure.arrange(trimmed, structure)
        if arranged is None:
            rule = "return the structure of the first chunk for each chunk"
            raise ValueError(f"{op}: fn must {rule}, got other keys or tensors for {where}")
        for name, tensor, leaf in zip(self.structure.names, arranged, self.leaves, strict=True):
            name = f"the result{name}"
            if tensor.dtype != leaf.dtype:
                rule = f"have the dtype {leaf.dtype} of the first chunk"
                raise ValueError(f"{op}: {name} must {rule}, got {tensor.dtype} for {where}")
            if tensor.dim() != len(leaf.sizes) or leaf.with_extent(tensor.shape[leaf.dim]) != list(tensor.shape):
                rule = f"have the shape {leaf.sizes} of the first chunk except in dimension {leaf.dim}"
                raise ValueError(f"{op}: {name} must {rule}, got {tuple(tensor.shape)} for {where}")
        return arranged

    def expect(self, tensor: torch.Tensor) -> None:
        """Settles on one tensor like this for the first chunk."""
        self.structure = Structure()
        self.leaves = [Leaf(tensor.dtype, tuple(tensor.shape), self._dim(tensor))]

    def _is_like_the_first(self, value: Any, device: torch.device) -> bool:
        """Whether no check is needed: one tensor of the first one's shape, no halo."""
        if type(value) is not torch.Tensor or self._has_halo:
            return False
        if self.structure is None or self.structure.spec is not None:
            return False
        leaf = self.leaves[0]
        same = value.shape == leaf.sizes and value.dtype == leaf.dtype and value.layout == torch.strided
        return same and value.device == device

    def _dim(self, tensor: torch.Tensor) -> int:
        return self._arguments.dim % tensor.dim()

    def _trim(self, tensor: torch.Tensor, name: str, chunk: Chunk, device: torch.device) -> torch.Tensor:
        op, dim = self._arguments.op, self._arguments.dim
        where = chunk_name(chunk, dim)
        is_there = tensor.device == device or (device.type == "cpu" and tensor.device.type == "cpu")
        if tensor.layout != torch.strided or not is_there:
            raise ValueError(f"{op}: the result{name} must be a strided tensor on {device}, got one on {tensor.device} "
                             f"for {where}")  # fmt: skip
        check_memory(op, f"the result{name}", tensor, f" for {where}")
        if not -tensor.dim() <= dim < tensor.dim():
            raise ValueError(f"{op}: the result{name} must have a dimension {dim}, got shape {tuple(tensor.shape)} "
                             f"for {where}")  # fmt: skip
        tensor = tensor.detach()
        if chunk.extent == chunk.rows and not self._has_halo:
            return tensor
        if tensor.shape[dim] != chunk.extent:
            rule = f"keep the extent {chunk.extent} of its chunk, because there is a halo"
            raise ValueError(f"{op}: the result{name} must {rule}, got {tensor.shape[dim]} for {where}")
        return tensor.narrow(dim, chunk.begin - chunk.low, chunk.rows)


def total_extent(first: int, chunks: Chunks) -> int:
    """The extent of the whole result if all are proportional to the first chunk's."""
    end, rows = len(chunks) - 1, chunks[0].rows
    last = chunks[end].rows
    return first * end + (first if last == rows else -(-first * last // max(rows, 1)))


class Assembly:
    """One tensor of the result, assembled from the results of chunks.

    Extents are usually proportional to the chunks' rows; then each chunk's result is written to its range of the
    result, in any order. A result of another extent gets memory of its own, and all are concatenated at the end.

    Args:
        arguments: of the call.
        leaf: the first chunk's tensor.
        name: of this tensor in messages.
        chunks: all of them.
        out: the caller's tensor, or None.
        allocate: makes memory for results.
    """

    def __init__(
        self,
        arguments: MapArguments,
        leaf: Leaf,
        name: str,
        chunks: Chunks,
        out: torch.Tensor | None,
        allocate: Allocate,
    ) -> None:
        self._op, self._leaf, self._chunks, self._out, self._allocate = arguments.op, leaf, chunks, out, allocate
        self._name = f"out{name}"
        first, rows = leaf.sizes[leaf.dim], chunks[0].rows
        self._full = first
        self._end = len(chunks) - 1  # the index of the last chunk
        self._last = total_extent(first, chunks) - first * self._end
        self._lock = threading.Lock()
        self._chunk_results: dict[int, torch.Tensor] = {}
        total = first * self._end + self._last
        self._direct = True
        if out is None:
            self._result = allocate(leaf.with_extent(total), leaf.dtype)
            return
        self._check_out(out, None)
        keeps = first == rows
        if keeps:
            self._check_out(out, total)
        overwrites = arguments.is_in_place and (any(arguments.halo) or not keeps)
        # A copy is needed if out is an input whose other rows are still to be read, if it is lazily negated or
        # conjugated, or if only the last chunk shows the total extent.
        copied = overwrites or out.is_neg() or out.is_conj()
        self._direct = out.shape[leaf.dim] == total and not copied
        self._result = out
        if copied and out.shape[leaf.dim] == total:
            self._result = allocate(leaf.with_extent(total), leaf.dtype)
            self._direct = True

    def _check_out(self, out: torch.Tensor, total: int | None) -> None:
        leaf = self._leaf
        if out.dtype != leaf.dtype:
            raise TypeError(f"{self._op}: {self._name} must have dtype {leaf.dtype}, got {out.dtype}")
        fits = out.dim() == len(leaf.sizes) and leaf.with_extent(out.shape[leaf.dim]) == list(out.shape)
        if not fits or (total is not None and out.shape[leaf.dim] != total):
            wanted = (
                tuple(leaf.with_extent(total)) if total is not None else f"{leaf.sizes} except in dimension {leaf.dim}"
            )
            raise ValueError(f"{self._op}: {self._name} must have shape {wanted}, got {tuple(out.shape)}")

    def _extent(self, index: int) -> int:
        return self._last if index == self._end else self._full

    def target(self, index: int, extent: int) -> tuple[torch.Tensor, int]:
        """The tensor that a chunk's result is written to, and its first row there."""
        if self._direct and extent == self._extent(index):
            return self._result, index * self._full
        result = self._allocate(self._leaf.with_extent(extent), self._leaf.dtype)
        with self._lock:
            self._chunk_results[index] = result
        return result, 0

    def capacity(self) -> torch.Tensor:
        """The tensor that most chunks are written to; it determines their route."""
        return self._result

    @property
    def is_direct(self) -> bool:
        """Whether each chunk's result is written to its range of `capacity()`."""
        return self._direct and not self._chunk_results

    def finish(self) -> torch.Tensor:
        """The complete result."""
        leaf, out = self._leaf, self._out
        if not self._chunk_results:
            if out is not None and self._result is not out:
                out.copy_(self._result)
                return out
            return self._result
        results = [
            self._chunk_results[i]
            if i in self._chunk_results
            else self._result.narrow(leaf.dim, i * self._full, self._extent(i))
            for i in range(len(self._chunks))
        ]
        if out is None:
            return torch.cat(results, leaf.dim)
        total = sum(result.shape[leaf.dim] for result in results)
        if total != out.shape[leaf.dim]:
            raise ValueError(f"{self._op}: {self._name} must have shape {tuple(leaf.with_extent(total))}, "
                             f"got {tuple(out.shape)}")  # fmt: skip
        return out.copy_(torch.cat(results, leaf.dim))
