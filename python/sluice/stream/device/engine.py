"""The engine of one device; tests replace it by another implementation of the protocol `Engine`."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from ..ending import Ending
from ..process import Owner
from .layout import ROUTES

# The order of Stream and of Mark in kernels/transfer.
H2D, COMPUTE, D2H = range(3)
FETCH_BEGIN, FETCHED, COMPUTE_BEGIN, COMPUTED, STORE_BEGIN, STORED = range(6)
MARKS = 6
COUNTERS = 2 * len(ROUTES) + 1
# From ops/transfer.cpp: kinds of command, and what `acquire` and `wait` return instead of a number of landed chunks.
_FETCH, _STORE, _COMMIT = range(3)
_NOT_IN_TIME, _FAILED = -1, -2
# Engines have handles chosen here, so that an engine is recorded before it exists.
_handles = itertools.count(1)


class Engine(Protocol):
    """Three streams, events, and copies that follow them.

    An event is `set * MARKS + mark`. `fetch` and `store` wait for events, move bytes and record FETCHED and STORED of
    their set; `acquire` makes the compute stream wait, `commit` records COMPUTED on it. Commands are issued in the
    order of the calls, but `fetch`, `store` and `commit` may be deferred until another call or `flush`.
    """

    device: torch.device

    def begin(self) -> None:
        """Starts a run: all streams wait for the work queued on the caller's stream."""

    def fetch(self, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        """A chunk to the device."""

    def store(self, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        """A chunk's result to the host."""

    def flush(self) -> None:
        """Issues what has not been issued yet."""

    def acquire(self, event_set: int, waits: Sequence[int], milliseconds: int) -> bool:
        """Makes the compute stream wait for the events; False if a copy was not issued in time."""

    def commit(self, event_set: int) -> None:
        """Records that the chunk's work is issued on the compute stream."""

    def wait(self, count: int, milliseconds: int) -> bool:
        """Whether `count` chunks have landed, after waiting at most `milliseconds`."""

    def wait_read(self, event_set: int, directly: bool, milliseconds: int) -> bool:
        """Whether copies in have read the host's memory, some `directly`, after waiting at most `milliseconds`."""

    @property
    def known_landed(self) -> int:
        """Chunks since `begin` that had landed at the last `acquire`."""

    def drain(self, milliseconds: int) -> bool:
        """Whether everything issued is complete. Drops commands that have not been issued."""

    @property
    def has_failed(self) -> bool:
        """Whether a copy had failed at the last `acquire` or `wait`; `error` is up to date."""

    def error(self) -> str:
        """The error of a copy; empty if none failed."""

    def compute(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the compute stream the current one."""


class EngineDevice:
    """A device of the C++ engine: a GPU, or the CPU, whose streams are threads.

    Args:
        device: cuda:i, or the CPU.
        event_sets: most chunks that are issued and not landed.
        threads: copy pageable memory to and from the pinned ring.
        ring: number and bytes of the pinned buffers of each direction.
    """

    def __init__(self, device: torch.device, event_sets: int, threads: int, ring: tuple[int, int]) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        self._prefix = "_transfer_cuda_" if self.is_cuda else "_transfer_"
        self._owner = Owner()
        # Keeps memory that issued copies read and write until they are complete.
        self.kept: object = None
        self._streams: list[torch.cuda.Stream] = []
        self._close = self.op("close")
        if self.is_cuda:
            torch.cuda.init()  # a child of fork gets torch's own error
        self._handle = next(_handles)
        self.op("open")(self._handle, device.index or 0, event_sets, threads, *ring)
        if self.is_cuda:
            pointers = [int(self.op("stream")(self._handle, which)) for which in range(3)]
            self._streams = [torch.cuda.ExternalStream(pointer, device=device) for pointer in pointers]  # type: ignore[no-untyped-call]
        for name in ("begin", "submit", "acquire", "wait", "wait_read", "landed", "drain", "error", "numbers"):
            setattr(self, f"_{name}", functools.partial(self.op(name), self._handle))
        self._commands: list[int] = []  # not submitted yet: a call into C++ costs more than a command
        # Updated by `acquire` and `wait`. Attributes, because each chunk reads them several times.
        self.known_landed = 0
        self.has_failed = False

    def op(self, name: str) -> Any:
        """The raw op of this kind of device."""
        return getattr(torch.ops.sluice, self._prefix + name).default

    def caller_stream(self) -> int:
        """The caller's current stream on this device, as a number."""
        return int(torch._C._cuda_getCurrentRawStream(self.device.index)) if self.is_cuda else 0

    def begin(self) -> None:
        """Starts a run."""
        self._commands, self.known_landed, self.has_failed = [], 0, False
        self._begin(self.caller_stream())  # type: ignore[attr-defined]

    def _put(self, kind: int, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        # Built first and appended in one step: an interrupt leaves all of the command or none.
        command = [kind, event_set, len(waits), len(copies), *waits]
        for copy in copies:
            command += copy
        self._commands.extend(command)

    def _take_commands(self) -> list[int]:
        commands, self._commands = self._commands, []
        return commands

    def fetch(self, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        """A chunk to the device."""
        self._put(_FETCH, event_set, waits, copies)

    def store(self, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        """A chunk's result to the host."""
        self._put(_STORE, event_set, waits, copies)

    def commit(self, event_set: int) -> None:
        """Records that the chunk's work is issued on the compute stream."""
        self._put(_COMMIT, event_set, (), ())

    def flush(self) -> None:
        """Issues what has not been issued yet."""
        if self._commands:
            self._submit(self._take_commands())  # type: ignore[attr-defined]

    def acquire(self, event_set: int, waits: Sequence[int], milliseconds: int) -> bool:
        """Makes the compute stream wait for the events; False if a copy was not issued in time."""
        status = self._acquire(self._take_commands(), event_set, waits, milliseconds)  # type: ignore[attr-defined]
        self.known_landed = max(self.known_landed, status)
        self.has_failed = status == _FAILED
        return bool(status != _NOT_IN_TIME)

    def wait(self, count: int, milliseconds: int) -> bool:
        """Whether `count` chunks have landed, after waiting at most `milliseconds`."""
        status = self._wait(self._take_commands(), count, milliseconds)  # type: ignore[attr-defined]
        self.known_landed = max(self.known_landed, status)
        self.has_failed = status == _FAILED
        return bool(status != _NOT_IN_TIME)

    def wait_issued(self, count: int, milliseconds: int) -> bool:
        """Like `wait`, without `flush`: pending commands may belong to another thread's run."""
        return bool(self._wait([], count, milliseconds) != _NOT_IN_TIME)  # type: ignore[attr-defined]

    def wait_read(self, event_set: int, directly: bool, milliseconds: int) -> bool:
        """Whether the copies in have read the host's memory."""
        self.flush()
        return bool(self._wait_read(event_set, directly, milliseconds))  # type: ignore[attr-defined]

    @property
    def handle(self) -> int:
        """Its number for the raw ops."""
        return self._handle

    def landed(self) -> int:
        """Chunks whose results are complete on the host, since `begin`."""
        return int(self._landed())  # type: ignore[attr-defined]

    def update(self) -> None:
        """Brings `known_landed` up to date after a loop in C++."""
        self.known_landed = self.landed()

    def drain(self, milliseconds: int) -> bool:
        """Whether everything issued is complete. Drops commands that have not been issued."""
        self._commands = []
        return not self.is_open() or bool(self._drain(milliseconds))  # type: ignore[attr-defined]

    def is_open(self) -> bool:
        """Whether it is usable: neither closed nor another process's."""
        return self._handle != 0 and self._owner.is_here()

    def error(self) -> str:
        """The error of a copy; empty if none failed."""
        return str(self._error())  # type: ignore[attr-defined]

    def numbers(self) -> tuple[list[int], list[int]]:
        """Counters and times of the run.

        Counters: bytes in by route, bytes out by route, bytes of the pinned rings. Times: six in nanoseconds since
        `begin` per landed chunk, in the order of landing; each is returned once.
        """
        numbers = list(self._numbers())  # type: ignore[attr-defined]
        return numbers[:COUNTERS], numbers[COUNTERS:]

    def join(self) -> None:
        """The caller's stream waits for the compute stream."""
        self.flush()
        self.op("join")(self._handle, self.caller_stream())

    def barrier(self) -> None:
        """Later copies in wait for the compute stream, which may still use the memory that they write."""
        if self.is_cuda:
            self.flush()
            self._streams[H2D].wait_event(self._streams[COMPUTE].record_event())

    def follow(self, event: torch.cuda.Event) -> None:
        """Work that `fn` launches from now on waits for an event of the caller's."""
        if self.is_cuda:
            self.flush()
            self._streams[COMPUTE].wait_event(event)

    def delay(self, stream: int, microseconds: int) -> None:
        """The stream does nothing for that long; for tests."""
        self.flush()
        self.op("delay")(self._handle, stream, microseconds)

    def memcpy_seconds(self, target: torch.Tensor, source: torch.Tensor) -> float:
        """Seconds of a contiguous host copy by the staging threads."""
        nanoseconds = self.op("memcpy")(self._handle, target.data_ptr(), source.data_ptr(), source.nbytes)
        return float(nanoseconds) * 1e-9

    def stream(self, which: int) -> torch.cuda.Stream | None:
        """One of the three streams; None on the CPU."""
        return self._streams[which] if self._streams else None

    def compute(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the compute stream, and the device, the current one."""
        if not self.is_cuda:
            return contextlib.nullcontext()
        return on_stream(self._streams[COMPUTE])

    def close(self) -> None:
        """Ends the threads and frees the rings; waits for what is in flight. A second call does nothing."""
        if self.is_open():
            self._close(self._handle)
        self._handle = 0
        self.kept = None

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Makes a stream and its device current; restores the caller's, even after an interrupt.

    Unlike `torch.cuda.stream` it does not make a context on the caller's device, if that has none.
    """
    switch, owner = StreamSwitch(stream), Owner()

    def restore(_: BaseException | None) -> None:
        if owner.is_here():  # fn may have forked, and a child has no CUDA
            switch.leave()

    with Ending(restore), Ending(restore):
        switch.enter()
        yield


class StreamSwitch:
    """Makes a stream and its device current, and then the caller's again, without torch's checks of each step."""

    __slots__ = ("_device", "_from", "_to")

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._to = (stream.stream_id, stream.device_index, stream.device_type)
        self._device = torch._C._cuda_getDevice()
        self._from = torch._C._cuda_getCurrentStream(stream.device_index)

    def enter(self) -> None:
        """Makes the stream current."""
        _set_stream(self._to)

    def leave(self) -> None:
        """Makes the caller's stream and device current; may be called again."""
        _set_stream(self._from)
        torch.cuda._maybe_exchange_device(self._device)


def _set_stream(stream: tuple[int, int, int]) -> None:
    torch._C._cuda_setStream(stream_id=stream[0], device_index=stream[1], device_type=stream[2])
