"""What a run did: numbers for people, tests and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..device.engine import MARKS, EngineDevice
from ..device.layout import ROUTES


@dataclasses.dataclass(frozen=True)
class ChunkTimes:
    """When a chunk was where, in seconds since its run began on its device: (begin, end) pairs."""

    chunk: int
    device: str
    h2d: tuple[float, float]
    compute: tuple[float, float]
    d2h: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class StreamStats:
    """What a run of a Streamer did.

    Attributes:
        chunks: how many there were; 0 for a Streamer that has not run.
        chunk_size: rows of each but the last; 0 for an iterator.
        depth: slots a device.
        order: of the steps.
        devices: the devices' names.
        chunks_by_device: how many each one got.
        seconds: from the call to its complete result.
        bytes_in: from the host, by route: direct, ring, shared (the CPU's own memory), pageable.
        bytes_out: to the host, by route.
        slot_bytes: of the devices' slots.
        pinned_bytes: of page-locked rings.
        tries: a line for each chunk size that was too large, as "64 rows: out of memory".
        fallbacks: why something that was asked for was not done, as memory that could not be page-locked.
        timeline: a `ChunkTimes` for each chunk, the first 65536 of each device.

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
    """What one device did in a run, as the engine told it when the run was over; `stats_of` makes sense of it.

    Attributes:
        device: its name.
        chunks: their numbers, in the order of landing.
        counters: of the engine.
        times: of the engine.
        slot_bytes: of its slots.
    """

    device: str
    chunks: list[int]
    counters: list[int]
    times: list[int]
    slot_bytes: int


def record_of(engine: EngineDevice, chunks: list[int], slot_bytes: int) -> Record:
    """Takes what there is to know of a device's run, which is over."""
    return Record(str(engine.place), chunks, engine.counters(), engine.times(), slot_bytes)


def stats_of(records: Sequence[Record], **known: Any) -> StreamStats:
    """The numbers of a run on these devices; `known` are the fields of `StreamStats` that no engine knows."""
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
    """The bytes of one direction, summed over devices; routes that nothing took are left out."""
    sums = [sum(record.counters[direction * len(ROUTES) + r] for record in records) for r in range(len(ROUTES))]
    return {name: total for name, total in zip(ROUTES, sums, strict=True) if total}
