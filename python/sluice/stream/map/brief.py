"""A call of `map` whose bytes are few: one chunk, by the calling thread.

Nothing overlaps in such a call, so its time is Python's. Arguments that have their usual values are not parsed, and a
result that is one tensor passes a few checks. A call with any other argument goes one of the longer ways, before `fn`
is called; any other result passes the checks of those ways.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from .. import faults
from ..arguments import MAX_RANK, has_memory, identity
from ..calling import call_fn
from ..cancelling import CancellableRun
from ..device import memory
from ..device.engine import COMPUTE, COMPUTED, FETCHED, EngineDevice, StreamSwitch
from ..device.layout import DIRECT, RING, SHARED, TensorSpec, same_elements
from ..device.lender import Lender
from ..device.lent import Lent, Limits
from ..device.pipeline import ORDERS, POLL_MILLISECONDS, drain
from ..device.routes import Allocator
from ..device.slots import Slots, bytes_of
from ..faults import TransferError
from ..known import is_known
from ..process import Owner
from ..report.stats import InlineNumbers, Once, Record, StreamStats, record_of, stats_of
from . import inline
from .arguments import MapArguments
from .chunks import Chunks
from .ledger import Ledger
from .outputs import chunk_name, raise_versions

# The most bytes of inputs. Pageable inputs are a chunk on any usual host link; threads copy larger memory. Pinned
# inputs are copied in less time than Python takes for a longer way.
_MOST_BYTES, _MOST_PINNED_BYTES = 256 << 10, 2 << 20

# For tests: whether there are such calls.
enabled = True


def _is_plain(tensor: object) -> bool:
    """Whether a tensor is on the host, dense, and without subclass, laziness and gradient."""
    return (
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and 0 < tensor.dim() <= MAX_RANK
        and has_memory(tensor)
    )


def _may_write(out: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether `out` may be written: it is an input, or has no byte of one."""
    if out.is_inference() and not torch.is_inference_mode_enabled():
        return False
    begin, nbytes = out.data_ptr(), out.nbytes
    for x in inputs:
        other = x.data_ptr()
        if begin < other + x.nbytes and other < begin + nbytes and not same_elements(out, x):
            return False
    return True


def _is_usual_here() -> bool:
    """Whether no mode or transform is active that calls must know about."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    if forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def are_usual(halo: Any, order: Any, staging: Any, non_blocking: Any, progress: Any, result: Any) -> bool:
    """Whether these arguments are valid and mean nothing to one chunk."""
    return (
        type(halo) is int
        and halo == 0
        and non_blocking is False
        and (progress is None or progress is False)
        and type(staging) is type(order) is str
        and staging == "auto"
        and order in ORDERS
        and (result is None or (type(result) is str and result == "host"))
    )


def can_run(
    fn: Any,
    inputs: tuple[Any, ...],
    dim: Any,
    out: Any,
    chunk_size: Any,
    devices: Sequence[torch.device],
    lender: Lender,
) -> bool:
    """Whether a call is such a call, if `are_usual` of its other arguments."""
    if not enabled or len(devices) != 1 or not inputs or type(dim) is not int:
        return False
    limits = lender.limits(1)
    if limits.memory_budget is not None or limits.ring_bytes == 0 or lender.registered.is_used:
        return False
    if (fn is not None and not callable(fn)) or not _is_usual_here():
        return False
    extent, nbytes = -1, 0
    for x in inputs:
        if not _is_plain(x) or not -x.dim() <= dim < x.dim():
            return False
        if extent not in (-1, x.shape[dim]):
            return False
        extent = x.shape[dim]
        nbytes += x.nbytes
        if x.nbytes == 0 or nbytes > _MOST_PINNED_BYTES:
            return False
    if nbytes > _MOST_BYTES and not (devices[0].type == "cuda" and all(x.is_pinned() for x in inputs)):
        return False
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < extent):
        return False
    return out is None or (_is_plain(out) and _may_write(out, inputs))


class BriefRun(CancellableRun):
    """A call that is one small chunk.

    Args:
        op: for messages.
        fn: called with the chunk.
        inputs: plain and not empty.
        dim: as given.
        out: plain, or None.
        lender: of engine, slots and budgets.
        order: of the steps, for the numbers.
        parse: the checked arguments, for a result of another kind.
        device: that computes.
        keeps_slots: whether the next call may use the same memory on the device.
    """

    def __init__(
        self,
        op: str,
        fn: Any,
        inputs: tuple[torch.Tensor, ...],
        dim: int,
        out: torch.Tensor | None,
        lender: Lender,
        order: str,
        parse: Callable[[], MapArguments],
        device: torch.device,
        keeps_slots: bool,
    ) -> None:
        super().__init__(op, "there is no result")
        self._inputs, self._dim, self._out, self._device = inputs, dim, out, device
        self._fn = identity if fn is None else fn
        self._order, self._parse, self._keeps_slots = order, parse, keeps_slots
        self._limits: Limits = lender.limits(1)
        self._lent: Lent | None = None
        self._pinned = 0  # bytes for results
        if device.type != "cpu" or not inline.enabled:
            self._lent = lender.lend((device,))[device]
            if device.type == "cuda":
                self._pinned = self._limits.pinned_budget - self._limits.ring_bytes - lender.registered.charged
        self._switch: StreamSwitch | None = None
        self._numbers, self._owner = InlineNumbers(), Owner()
        self._versions = [faults.version_of(x) for x in inputs]
        self._result: Any = None
        self._sent: Sequence[torch.Tensor] = ()  # that copies write or read
        self._is_running = self._is_touched = self._has_landed = False
        self._record: Callable[[], StreamStats] | None = None

    # --- the call -------------------------------------------------------------------------------------------------
    def issue(self) -> None:
        """Runs it."""
        if self._lent is None:
            self._compute_here()
        else:
            self._compute_on(self._lent)
        self.checkpoint()
        for i, x in enumerate(self._inputs):
            faults.check_version(self.op, f"inputs[{i}]", x, self._versions[i])

    def settle(self) -> Any:
        """The result."""
        if self._out is not None:
            raise_versions((self._out,))
        return self._result

    def is_too_large(self, error: BaseException) -> bool:
        """Whether smaller chunks may succeed, after an error."""
        return faults.is_out_of_memory(error) and self._inputs[0].shape[self._dim] > 1 and not self._is_touched

    def _compute_here(self) -> None:
        numbers, now = self._numbers, time.perf_counter_ns
        begin = now()
        chunks = []
        for x in self._inputs:
            numbers.bytes_in += x.nbytes
            chunks.append(torch.empty_like(x))
            memory.copy_in(x, chunks[-1], is_guarded=True)
        copied = now()
        value = self._value_of(chunks)
        computed = now()
        target = self._target(value)
        if target is None:
            self._place_any(value)
        else:
            self._write(target, value)
        numbers.add(0, begin, copied, computed)

    def _write(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """Copies a result within the host's memory; the caller's `out` may be a file."""
        self._is_touched = True
        self._numbers.bytes_out += target.nbytes
        if target is self._out:
            if not torch.ops.sluice._transfer_copy(target, _packed(value), False):
                raise TransferError("a file ended while it was written")
        elif target is not value:
            target.copy_(value.detach())

    def _value_of(self, chunks: list[torch.Tensor]) -> Any:
        self._is_running = True
        return call_fn(self.op, self._fn, chunks, self._name, self._owner)

    def _name(self) -> str:
        return f"{chunk_name(self._chunks()[0], self._dim)} (1 chunks)"

    def _chunks(self) -> Chunks:
        extent = self._inputs[0].shape[self._dim]
        return Chunks(extent, extent)

    # --- results --------------------------------------------------------------------------------------------------
    def _target(self, value: Any) -> torch.Tensor | None:
        """Where the usual result goes: to `out`, or to new memory; None for another result."""
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.device != self._device:
            return None
        if value.numel() == 0 or not -value.dim() <= self._dim < value.dim() or not has_memory(value):
            return None
        out = self._out
        if out is None:
            is_own = self._lent is None and self._fn is not identity and is_known(self._fn)
            made = value if is_own else Allocator(self._pinned)(value.shape, value.dtype)
            self._result = made
            return made
        if out.dtype != value.dtype or out.shape != value.shape:
            return None
        self._result = out
        return out

    def _place_any(self, value: Any) -> None:
        """Checks and places a result as the longer ways do."""
        arguments, chunks = self._parse(), self._chunks()
        ledger = Ledger(arguments, self._limits, None)
        tensors = ledger.outputs.take(value, chunks[0], self._device)
        ledger.settle_on(chunks, Allocator(self._pinned))
        extents = [tensor.shape[leaf.dim] for tensor, leaf in zip(tensors, ledger.outputs.leaves, strict=True)]
        targets = [a.target(0, extent)[0] for a, extent in zip(ledger.assemblies, extents, strict=True)]
        if self._lent is None:
            for target, tensor in zip(targets, tensors, strict=True):
                self._write(target, tensor)
        else:
            self._store(self._lent.engine, targets, tensors)
        results = [assembly.finish() for assembly in ledger.assemblies]
        structure = ledger.outputs.structure
        assert structure is not None
        self._result = structure.rebuild(results) if self._out is None else self._out

    # --- on a device ----------------------------------------------------------------------------------------------
    def _compute_on(self, lent: Lent) -> None:
        engine = lent.engine
        engine.kept = self
        engine.begin()
        if (stream := engine.stream(COMPUTE)) is not None:
            self._switch = StreamSwitch(stream)
            self._switch.enter()
        chunks = self._in_slot(lent.slots) if self._keeps_slots else self._new_on(self._device)
        self._sent = tuple(chunks)
        copies = [_copy(engine, x, chunk.data_ptr()) for x, chunk in zip(self._inputs, chunks, strict=True)]
        engine.fetch(0, (), copies)
        while not engine.acquire(0, _FETCHED, POLL_MILLISECONDS):
            self.checkpoint()
        if engine.has_failed:
            raise TransferError(engine.error())
        value = self._value_of(chunks)
        target = self._target(value)
        if target is None:
            self._place_any(value)
        else:
            self._store(engine, (target,), (value,))

    def _in_slot(self, slots: Slots) -> list[torch.Tensor]:
        """Views of a slot for the chunk."""
        specs = tuple([TensorSpec(x.dtype, tuple(x.shape), tuple(range(x.dim()))) for x in self._inputs])
        slots.grow_input(0, bytes_of(specs))
        return [view.detach() for view in slots.input(0, specs).tensors]  # fn may change their shape

    def _new_on(self, device: torch.device) -> list[torch.Tensor]:
        """Memory for the chunk, on the compute stream, which has done all work of earlier calls."""
        return [torch.empty(x.shape, dtype=x.dtype, device=device) for x in self._inputs]

    def _store(self, engine: EngineDevice, targets: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
        """Copies results to the host and waits for them."""
        packed = [_packed(tensor) for tensor in tensors]
        self._sent = (*packed, *targets)
        copies = [_copy(engine, to, t.data_ptr()) for to, t in zip(targets, packed, strict=True) if t.numel()]
        self._is_touched = True
        engine.commit(0)
        engine.store(0, _COMPUTED, copies)
        while not engine.wait(1, POLL_MILLISECONDS):
            self.checkpoint()
        if engine.has_failed:
            raise TransferError(engine.error())
        self._has_landed = True

    # --- the end --------------------------------------------------------------------------------------------------
    def told(self, error: BaseException) -> BaseException:
        """The error for the caller: the right type, with notes."""
        told = super().told(error)
        if isinstance(told, KeyboardInterrupt) and self._is_running:
            faults.add_note(told, f"{self.op}: interrupted at {self._name()}")
        if self._out is not None and self._is_touched:
            raise_versions((self._out,))
            faults.add_note(told, f"{self.op}: out may be partly written")
        return told

    def end(self, has_failed: bool) -> None:
        """Releases what the run holds; may be called again. After a failure it waits for everything in flight."""
        if self._switch is not None:
            self._switch.leave()
        if (lent := self._lent) is not None:
            if has_failed:
                drain(lent.engine)
                lent.take_back()
            lent.engine.kept = None
        if has_failed:  # a traceback may keep the run
            self._sent, self._result = (), None

    def record(self) -> Callable[[], StreamStats]:
        """Takes the raw numbers of this finished run."""
        if self._record is None:
            seconds = 1e-9 * (time.perf_counter_ns() - self._numbers.began)
            self._record = Once(
                functools.partial(
                    stats_of,
                    [self._raw()],
                    chunk_size=self._inputs[0].shape[self._dim],
                    depth=self._limits.depth,
                    order=self._order,
                    seconds=seconds,
                )
            )
        return self._record

    def _raw(self) -> Record:
        lent = self._lent
        if lent is None:
            return self._numbers.record(self._device)
        return record_of(lent.engine, [0] if self._has_landed else [], lent.slots.nbytes)


_FETCHED, _COMPUTED = (FETCHED,), (COMPUTED,)  # events of set 0


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it without gaps and laziness."""
    if tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def _copy(engine: EngineDevice, host: torch.Tensor, device_pointer: int) -> list[int]:
    """The engine's command for all bytes of a tensor without gaps."""
    route = SHARED
    if engine.is_cuda:
        route = DIRECT if host.is_pinned() else RING
    return [host.data_ptr(), device_pointer, route, 0, 1, 1, host.nbytes, 1]
