"""One call of `map` on the CPU, by the calling thread: chunk by chunk, without slots, events and threads.

`fn` gets a copy of its chunk that lies in the caches, because it may change it; a known function gets the chunk itself,
and writes the result in place. Memory that may be a mapped file is copied under a guard, because the file may be cut
short meanwhile; large files go through the engine, which releases their pages.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...chain import Chain
from .. import faults
from ..arguments import identity
from ..calling import call_fn
from ..device import memory
from ..device.layout import as_given, resolved
from ..device.lent import Limits
from ..device.routes import Allocator
from ..faults import TransferError
from ..known import is_known
from ..process import Owner
from ..report.stats import InlineNumbers, Record
from .arguments import MapArguments
from .base import MapRun
from .chunks import Chunk, Chunks
from .ledger import Ledger

# Bytes of a chunk's inputs: for a copy, so that it and the result stay in the caches; for a known function, so that a
# cancelled call ends soon.
_COPIED_CHUNK = 2 << 20
_MOVED_CHUNK = 32 << 20
_VIEWED_CHUNK = 128 << 20

# For tests: whether calls may be run by the calling thread.
enabled = True


def is_inline(functions: dict[torch.device, Callable[..., Any]], limits: Limits) -> bool:
    """Whether the calling thread calls `fn`: on the CPU, without a budget, which limits the engine's slots."""
    (device, *others) = functions
    return enabled and not others and device.type == "cpu" and limits.memory_budget is None


def can_run(arguments: MapArguments, functions: dict[torch.device, Callable[..., Any]], limits: Limits) -> bool:
    """Whether the calling thread can run this call."""
    if arguments.staging != "auto" or not is_inline(functions, limits):
        return False
    tensors = arguments.inputs if arguments.outs is None else (*arguments.inputs, *arguments.outs)
    return not any(memory.is_large_file(tensor) for tensor in tensors)


class _Source:
    """An input: its chunks, and copies of them."""

    def __init__(self, tensor: torch.Tensor, dim: int) -> None:
        self.tensor, self.dim = tensor, dim
        self._bytes = resolved(tensor)
        self._is_lazy = tensor.is_conj() or tensor.is_neg()
        self._is_guarded = memory.is_small(tensor)  # a large file is not run here
        self._copies: dict[int, torch.Tensor] = {}  # by extent: nearly all chunks have the same

    def chunk(self, chunk: Chunk, as_view: bool) -> torch.Tensor:
        """The chunk: itself, if that is allowed and it is surely no file, or a copy."""
        if as_view and not self._is_guarded:
            return self.tensor.narrow(self.dim, chunk.low, chunk.extent)
        return self._copy(chunk)

    def _copy(self, chunk: Chunk) -> torch.Tensor:
        """The chunk in memory that it shares with other chunks."""
        extent, source = chunk.extent, self._bytes
        if extent != source.shape[self.dim]:
            source = source.narrow(self.dim, chunk.low, extent)
        packed = self._copies.get(extent)
        if packed is None:
            packed = self._copies[extent] = memory.packed_like(source)
        memory.copy_in(source, packed, self._is_guarded)
        packed = packed.detach()  # fn may change its shape
        return as_given(packed, self.tensor) if self._is_lazy else packed

    def forget(self) -> None:
        """Releases the memory of copies."""
        self._copies.clear()


class InlineRun(MapRun):
    """A call that the calling thread runs.

    Args:
        arguments: checked; `can_run` them.
        fn: called with the chunks.
        device: the CPU.
        limits: depth and budgets.
    """

    def __init__(self, arguments: MapArguments, fn: Callable[..., Any], device: torch.device, limits: Limits) -> None:
        super().__init__(Ledger(arguments, limits, None), limits)
        self._owner = Owner()
        self._fn, self._device, self._allocate = fn, device, Allocator(0)
        self._sources = [_Source(x, dim) for x, dim in zip(arguments.inputs, arguments.dims, strict=True)]
        self._is_viewed = is_known(fn) and not arguments.is_in_place
        outs = arguments.outs or []
        self._is_out_guarded = any(memory.is_small(out) for out in outs)
        # An inference tensor is written by its bytes, or in inference mode.
        is_out_writable = torch.is_inference_mode_enabled() or not any(out.is_inference() for out in outs)
        may_write = is_out_writable and not self._is_out_guarded and not any(arguments.halo)
        self._writes_itself = self._is_viewed and fn is not identity and may_write
        self._made: torch.Tensor | None = None  # a result before its first chunk
        self._whole: list[torch.Tensor] | None = None  # the result of the only chunk
        self._numbers = InlineNumbers()
        self._watch = faults.Watch(self.op, {f"inputs[{i}]": x for i, x in enumerate(arguments.inputs)})

    def _rows(self) -> int:
        """Rows of a chunk."""
        arguments = self.arguments
        if any(tensor.numel() == 0 for tensor in arguments.inputs):
            return max(arguments.extent, 1)
        if arguments.chunk_size is not None:
            return arguments.chunk_size
        row = sum(tensor.nbytes for tensor in arguments.inputs) // max(arguments.extent, 1)
        wanted = _COPIED_CHUNK
        if self._is_viewed:
            wanted = _MOVED_CHUNK if self._fn is identity else _VIEWED_CHUNK
        return max(1, min(wanted // max(row, 1), arguments.extent))

    def issue(self) -> None:
        """Runs all chunks."""
        ledger, arguments = self.ledger, self.arguments
        rows = self._rows()
        while True:
            ledger.chunks = chunks = Chunks(arguments.extent, rows, arguments.halo)
            try:
                self._run(chunks[0])
                break
            except BaseException as error:
                if rows <= 1 or not faults.is_out_of_memory(error):
                    raise
                error.__traceback__ = None  # it holds what fn had allocated
                for source in self._sources:
                    source.forget()
                ledger.outputs.structure, ledger.assemblies = None, []  # they describe a result that had no memory
                ledger.tries.append(f"{rows} rows: out of memory")
                rows = -(-rows // 2)
        for index in range(1, len(chunks)):
            self._run(chunks[index])
        ledger.checkpoint()
        self._watch.check()

    def _run(self, chunk: Chunk) -> None:
        ledger, numbers, now = self.ledger, self._numbers, time.perf_counter_ns
        ledger.checkpoint()
        ledger.current = chunk
        begin = now()
        chunks = [source.chunk(chunk, self._is_viewed) for source in self._sources]
        copied = now()
        for x in chunks:
            numbers.bytes_in += x.nbytes
        has_run = chunk.index == 0 and self._run_first(chunk, chunks)
        target = self._target(chunk)
        value = None if has_run else self._call(chunks, chunk, target)
        computed = now()
        if target is None:
            self._place(ledger.outputs.take(value, chunk, self._device), chunk)
        else:
            numbers.bytes_out += target.nbytes
        numbers.add(chunk.index, begin, copied, computed)
        self.reporter.poll()

    def _expected(self, chunk: Chunk) -> torch.Tensor | None:
        """The part of `out` that the first chunk's result fills, if it has the inputs' dtype and extent.

        Without an `out`, the part of a new result: a chain's has the shape and dtype of its input.
        """
        arguments, outs, dim = self.arguments, self.arguments.outs, self.arguments.dim
        if arguments.extent == 0 or not self._writes_itself:
            return None
        if outs is None:
            if not isinstance(self._fn, Chain) or arguments.inputs[0].nbytes < memory.HUGE_FROM:
                return None
            if self._made is None:
                self._made = self._allocate(arguments.inputs[0].shape, arguments.inputs[0].dtype)
            return self._made.narrow(dim, 0, chunk.rows)
        if len(outs) != 1:
            return None
        (out,) = outs
        is_like = out.dim() == arguments.inputs[0].dim() and out.shape[dim] == arguments.extent
        is_plain = not out.is_conj() and not out.is_neg() and all(x.dtype == out.dtype for x in arguments.inputs)
        return out.narrow(dim, 0, chunk.rows) if is_like and is_plain else None

    def _run_first(self, chunk: Chunk, chunks: list[torch.Tensor]) -> bool:
        """Whether a known function has written the first chunk's result to its place in `out`."""
        target = self._expected(chunk)
        if target is None:
            return False
        ledger, made = self.ledger, self._made
        ledger.is_touched = True
        try:
            self._fn(*chunks, out=target)
        except Exception:  # the usual call tells what is wrong
            ledger.is_touched = False  # an op checks all before it writes
            return False
        ledger.outputs.expect(target)
        ledger.settle_on(ledger.chunks, self._allocate if made is None else lambda *_: made)
        return True

    def _target(self, chunk: Chunk) -> torch.Tensor | None:
        """Where a known function writes a chunk's result itself; None where it cannot, or before the first result."""
        ledger = self.ledger
        outputs = ledger.outputs
        if not self._writes_itself or outputs.structure is None or outputs.structure.spec is not None:
            return None
        if chunk.rows != ledger.chunks[0].rows:
            return None
        (assembly,) = ledger.assemblies
        if not assembly.is_direct:
            return None
        leaf = outputs.leaves[0]
        extent = leaf.sizes[leaf.dim]
        ledger.is_touched = True
        whole, row = assembly.target(chunk.index, extent)
        return whole.narrow(leaf.dim, row, extent)

    def _call(self, chunks: list[torch.Tensor], chunk: Chunk, target: torch.Tensor | None) -> Any:
        fn = self._fn if target is None else functools.partial(self._fn, out=target)
        return call_fn(self.op, fn, chunks, lambda: self.ledger.name(chunk), self._owner)

    def _place(self, tensors: list[torch.Tensor], chunk: Chunk) -> None:
        """Copies the result of `fn` to its place."""
        ledger = self.ledger
        if ledger.chunks.count == 1 and self.arguments.outs is None:
            self._whole = [self._owned(tensor) for tensor in tensors]
            self._numbers.bytes_out += sum(tensor.nbytes for tensor in self._whole)
            return
        if not ledger.assemblies and (tensors or self.arguments.outs):
            ledger.settle_on(ledger.chunks, self._allocate)
        ledger.is_touched = True
        for assembly, leaf, tensor in zip(ledger.assemblies, ledger.outputs.leaves, tensors, strict=True):
            extent = tensor.shape[leaf.dim]
            whole, row = assembly.target(chunk.index, extent)
            target = whole if extent == whole.shape[leaf.dim] else whole.narrow(leaf.dim, row, extent)
            self._write(target, tensor)
            self._numbers.bytes_out += tensor.nbytes

    def _owned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A result that nobody else holds: a known function's is, another function's may be any tensor."""
        if self._is_viewed and self._fn is not identity:
            return tensor
        made = self._allocate(tensor.shape, tensor.dtype)
        with torch.no_grad():
            made.copy_(tensor)
        return made  # the subclass of a result is not its result's

    def _write(self, target: torch.Tensor, tensor: torch.Tensor) -> None:
        if not self._is_out_guarded or target.numel() == 0:
            # Inference mode may write both kinds of tensors.
            mode = torch.inference_mode() if target.is_inference() else torch.no_grad()
            with mode:
                target.copy_(tensor)
            return
        packed = memory.packed_like(target)
        packed.copy_(tensor)
        if not torch.ops.sluice._transfer_copy(target, packed, False):
            raise TransferError("a file ended while it was written")

    # --- the end --------------------------------------------------------------------------------------------------
    def settle(self) -> Any:
        """The result."""
        if self._whole is None:
            return self._result()
        structure = self.ledger.outputs.structure
        assert structure is not None
        self.reporter.finish()
        return structure.rebuild(self._whole)

    def has_landed(self) -> bool:
        """Always."""
        return True

    def wait(self, milliseconds: int) -> None:
        """Does not wait."""

    def end(self, has_failed: bool) -> None:
        """Releases the copies of chunks."""
        if has_failed:
            self.reporter.close()
        for source in self._sources:
            source.forget()

    def _moved(self) -> int:
        return self._numbers.bytes_in + self._numbers.bytes_out

    def landed_bytes(self) -> tuple[int, int]:
        """Bytes moved in both directions, and their total."""
        return super().landed_bytes() if self._whole is None else (self._moved(), self._moved())

    def _records(self) -> Sequence[Record]:
        return [self._numbers.record(self._device)]

    def _forget(self) -> None:
        self._sources = []
