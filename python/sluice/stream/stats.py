"""What a run did: numbers for people, tests and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .engine import MARKS, EngineDevice
from .layout import ROUTES


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


def timeline_of(engine: EngineDevice, landed: Sequence[int]) -> list[ChunkTimes]:
    """The times that an engine kept of chunks, which are numbered in the order of their landing."""
    numbers = [1e-9 * number for number in engine.times()]
    rows = [numbers[at : at + MARKS] for at in range(0, len(numbers), MARKS)]
    name = str(engine.place)
    return [
        ChunkTimes(chunk, name, (t[0], t[1]), (t[2], t[3]), (t[4], t[5]))
        for chunk, t in zip(landed, rows, strict=False)
        if any(t)  # a run that failed has none
    ]


def by_route(counters: Sequence[Sequence[int]], direction: int) -> dict[str, int]:
    """The bytes of one direction, summed over devices; routes that nothing took are left out."""
    sums = [sum(c[direction * len(ROUTES) + r] for c in counters) for r in range(len(ROUTES))]
    return {name: total for name, total in zip(ROUTES, sums, strict=True) if total}
