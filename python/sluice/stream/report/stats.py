"""Numbers of a run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..device.engine import COUNTERS, MARKS, EngineDevice
from ..device.layout import ROUTES, SHARED


@dataclasses.dataclass(frozen=True)
class ChunkTimes:
    """(begin, end) of a chunk's steps, in seconds since its run began on its device."""

    chunk: int
    device: str
    h2d: tuple[float, float]
    compute: tuple[float, float]
    d2h: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class StreamStats:
    """Numbers of a run of a Streamer.

    Attributes:
        chunks: their number; 0 for a Streamer that has not run.
        chunk_size: rows of each but the last; 0 for an iterator.
        depth: slots per device.
        order: of the steps.
        devices: the devices' names.
        chunks_by_device: chunks of each device.
        seconds: from the call to its complete result.
        bytes_in: from the host, by route: direct, ring, shared (the CPU's own memory), pageable.
        bytes_out: to the host, by route.
        slot_bytes: of the devices' slots.
        pinned_bytes: of the pinned rings.
        tries: a line for each chunk size that was too large, as "64 rows: out of memory".
        fallbacks: why a request was not met, such as memory that could not be pinned.
        timeline: a `ChunkTimes` for each chunk, the first 65536 of each device; small chunks that C++ issues as a
            group have an equal part each of the group's times.

    Example:
        >>> import torch, sluice
        >>> with sluice.Streamer("cpu") as streamer:
        ...     y = streamer.map(torch.square, torch.arange(6.0), chunk_size=4)
        ...     stats = streamer.stats()
        >>> stats.chunks, stats.chunk_size, sum(stats.bytes_in.values()), len(stats.timeline)
        (2, 4, 24, 2)
    """

    chunks: int = 0
    chunk_size: int = 0
    depth: int = 0
    order: str = "depth_first"
    devices: tuple[str, ...] = ()
    chunks_by_device: tuple[int, ...] = ()
    seconds: float = 0.0
    bytes_in: dict[str, int] = dataclasses.field(default_factory=dict)
    bytes_out: dict[str, int] = dataclasses.field(default_factory=dict)
    slot_bytes: int = 0
    pinned_bytes: int = 0
    tries: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    timeline: tuple[ChunkTimes, ...] = ()


@dataclasses.dataclass(frozen=True)
class Record:
    """Raw numbers of one device after a run, for `stats_of`.

    Attributes:
        device: its name.
        chunks: their indices, in the order of landing.
        counters: of the engine.
        times: of the engine.
        slot_bytes: of its slots.
    """

    device: str
    chunks: list[int]
    counters: list[int]
    times: list[int]
    slot_bytes: int


class Once:
    """The numbers of a run, computed when they are first asked for."""

    def __init__(self, compute: Callable[[], StreamStats]) -> None:
        self._compute: Callable[[], StreamStats] | None = compute
        self._stats = StreamStats()

    def __call__(self) -> StreamStats:
        """The numbers."""
        if self._compute is not None:
            self._stats, self._compute = self._compute(), None
        return self._stats


# Chunks or items of a device whose times are kept: kTimesKept of kernels/transfer/engine.cpp.
MOST_TIMES = 1 << 16


class InlineNumbers:
    """What the calling thread counts: chunks or items, their bytes, and the times of the first `MOST_TIMES` of them."""

    def __init__(self) -> None:
        self.began = time.perf_counter_ns()
        self.done: list[int] = []
        self.bytes_in = self.bytes_out = 0
        self._times: list[int] = []

    def add(self, index: int, begin: int, copied: int, computed: int) -> None:
        """Counts a chunk whose result is in its place now; the times are `perf_counter_ns`."""
        if len(self.done) < MOST_TIMES:
            ends = (begin, copied, copied, computed, computed, time.perf_counter_ns())
            self._times += [at - self.began for at in ends]
        self.done.append(index)

    def record(self, device: torch.device) -> Record:
        """The raw numbers, as of an engine that copies within the host's memory."""
        counters = [0] * COUNTERS
        counters[SHARED], counters[len(ROUTES) + SHARED] = self.bytes_in, self.bytes_out
        return Record(str(device), self.done, counters, self._times, 0)


def record_of(engine: EngineDevice, chunks: list[int], slot_bytes: int) -> Record:
    """Takes the raw numbers of a device's finished run."""
    return Record(str(engine.device), chunks, *engine.numbers(), slot_bytes)


def stats_of(records: Sequence[Record], **known: Any) -> StreamStats:
    """The numbers of a run on these devices; `known` are the fields of `StreamStats` that engines do not count."""
    return StreamStats(
        chunks=sum(len(record.chunks) for record in records),
        devices=tuple(record.device for record in records),
        chunks_by_device=tuple(len(record.chunks) for record in records),
        bytes_in=_by_route(records, 0),
        bytes_out=_by_route(records, 1),
        slot_bytes=sum(record.slot_bytes for record in records),
        pinned_bytes=sum(record.counters[-1] for record in records),
        timeline=tuple(times for record in records for times in _timeline_of(record)),
        **known,
    )


def _timeline_of(record: Record) -> list[ChunkTimes]:
    numbers = [1e-9 * number for number in record.times]
    rows = [numbers[at : at + MARKS] for at in range(0, len(numbers), MARKS)]
    return [
        ChunkTimes(chunk, record.device, (t[0], t[1]), (t[2], t[3]), (t[4], t[5]))
        for chunk, t in zip(record.chunks, rows, strict=False)
        if any(t)  # a run that failed has none
    ]


def _by_route(records: Sequence[Record], direction: int) -> dict[str, int]:
    """Bytes of one direction, summed over devices; unused routes are left out."""
    sums = [sum(record.counters[direction * len(ROUTES) + r] for record in records) for r in range(len(ROUTES))]
    return {name: total for name, total in zip(ROUTES, sums, strict=True) if total}
