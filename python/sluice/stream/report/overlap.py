"""`overlap_report`: how much of a run overlapped, and how close it came to the bound of the host link."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..device.limits import link_limits
from .stats import ChunkTimes, StreamStats

Interval = tuple[float, float]
ROWS = ("h2d", "compute", "d2h")


@dataclasses.dataclass(frozen=True)
class OverlapReport:
    """How much of a run overlapped. Fractions are of `seconds`.

    Attributes:
        seconds: from the first begin to the last end of a copy or a kernel.
        busy: for "h2d", "compute" and "d2h", the fraction in which that row was busy.
        overlap: the fraction in which at least two rows were busy.
        all_three: the fraction in which all three were busy.
        duplex: the fraction in which both directions of the host link were busy.
        link_utilisation: bytes moved, over what the host link could have moved in that time in the directions used;
            None on the CPU, which has no host link, and for a trace, which has no byte counts.
        bound_seconds: lower bound of the time for these bytes and this compute, with the pipeline's fill and drain;
            None for a trace.
        efficiency: bound_seconds / seconds; None for a trace.
        pageable_bytes: copied without pinned memory in between.
        pageable_copies: copies that a profiler's trace calls pageable; 0 for stats.

    Example:
        >>> import torch, sluice
        >>> with sluice.Streamer("cpu") as streamer:
        ...     y = streamer.map(torch.exp, torch.rand(10000, 32), chunk_size=1000)
        ...     report = sluice.overlap_report(streamer.stats())
        >>> 0 <= report.overlap <= 1 and report.pageable_bytes == 0
        True
    """

    seconds: float
    busy: dict[str, float]
    overlap: float
    all_three: float
    duplex: float
    link_utilisation: float | None
    bound_seconds: float | None
    efficiency: float | None
    pageable_bytes: int
    pageable_copies: int = 0


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals, as disjoint intervals."""
    union: list[Interval] = []
    for begin, end in sorted(intervals):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union


def covered(rows: Sequence[Iterable[Interval]], least: int) -> float:
    """For how long at least `least` of the rows were busy."""
    steps: list[tuple[float, int]] = []
    for row in rows:
        for begin, end in merged(row):
            steps += [(begin, 1), (end, -1)]
    total, running, since = 0.0, 0, 0.0
    for at, change in sorted(steps):
        if running >= least:
            total += at - since
        running, since = running + change, at
    return total


def overlap_report(stats_or_trace: StreamStats | Mapping[str, Any] | str | os.PathLike[str]) -> OverlapReport:
    """How much of a run overlapped, and how close it came to the bound of the host link.

    Args:
        stats_or_trace: the `StreamStats` of a run (`Streamer.stats()`), or a chrome trace as a dict or the path of a
            JSON file: one that `Streamer.trace` wrote, or torch.profiler's.

    Returns:
        An `OverlapReport`.

    Raises:
        TypeError: another type.
        ValueError: a run or a trace without copies and kernels.

    Example:
        >>> import sluice
        >>> copies = [("Memcpy HtoD (Pinned -> Device)", 0, 10), ("Memcpy DtoH (Device -> Pinned)", 5, 10)]
        >>> events = [{"ph": "X", "cat": "gpu_memcpy", "name": n, "ts": t, "dur": d} for n, t, d in copies]
        >>> round(sluice.overlap_report({"traceEvents": events}).duplex, 3)
        0.333
    """
    if isinstance(stats_or_trace, StreamStats):
        return _of_stats(stats_or_trace)
    if isinstance(stats_or_trace, (str, os.PathLike)):
        with open(stats_or_trace, encoding="utf-8") as file:
            stats_or_trace = json.load(file)
    if not isinstance(stats_or_trace, Mapping) or "traceEvents" not in stats_or_trace:
        got = type(stats_or_trace).__name__
        raise TypeError(f"overlap_report: stats_or_trace must be StreamStats or a chrome trace, got {got}")
    rows, pageable = _rows_of_trace(stats_or_trace["traceEvents"])
    return _report(rows, pageable_copies=pageable)


def _of_stats(stats: StreamStats) -> OverlapReport:
    rows = {row: [getattr(times, row) for times in stats.timeline] for row in ROWS}
    report = _report(rows)
    inside, outside = sum(stats.bytes_in.values()), sum(stats.bytes_out.values())
    bound = _bound(stats, inside, outside)
    on_cpu = any(device.startswith("cpu") for device in stats.devices)
    return dataclasses.replace(
        report,
        link_utilisation=None if on_cpu else _link_utilisation(stats, inside, outside, report.seconds),
        bound_seconds=bound,
        efficiency=bound / report.seconds,
        pageable_bytes=stats.bytes_in.get("pageable", 0) + stats.bytes_out.get("pageable", 0),
    )


def _link_utilisation(stats: StreamStats, inside: int, outside: int, seconds: float) -> float:
    limits = [link_limits(device) for device in stats.devices]
    both = inside > 0 and outside > 0
    rate = sum(x.duplex if both else x.h2d if inside else x.d2h for x in limits)
    return (inside + outside) / 1e9 / rate / seconds


def _bound(stats: StreamStats, inside: int, outside: int) -> float:
    """max(K, in / up, out / down), divided among devices, plus one chunk's fill and drain."""
    devices, chunks = max(len(stats.devices), 1), max(stats.chunks, 1)
    limits = [link_limits(device) for device in stats.devices]
    both = inside > 0 and outside > 0
    up = sum(min(x.h2d, x.duplex / 2) if both else x.h2d for x in limits) * 1e9
    down = sum(min(x.d2h, x.duplex / 2) if both else x.d2h for x in limits) * 1e9
    compute = sum(end - begin for begin, end in merged_by_device(stats.timeline)) / devices
    steady = max(compute, inside / up, outside / down)
    ends = (inside / sum(x.h2d for x in limits) + outside / sum(x.d2h for x in limits)) / 1e9 * devices / chunks
    return steady + ends


def merged_by_device(timeline: Sequence[ChunkTimes]) -> list[Interval]:
    """The compute intervals, merged for each device."""
    union: list[Interval] = []
    for device in sorted({times.device for times in timeline}):
        union += merged(times.compute for times in timeline if times.device == device)
    return union


def _rows_of_trace(events: Iterable[Mapping[str, Any]]) -> tuple[dict[str, list[Interval]], int]:
    rows: dict[str, list[Interval]] = {row: [] for row in ROWS}
    pageable = 0
    for event in events:
        if event.get("ph") != "X":
            continue
        name, kind = str(event.get("name", "")), str(event.get("cat", ""))
        if kind in ROWS:
            row = kind
        elif "HtoD" in name and kind == "gpu_memcpy":
            row = "h2d"
        elif "DtoH" in name and kind == "gpu_memcpy":
            row = "d2h"
        elif kind in ("kernel", "gpu_memset") or (kind == "gpu_memcpy" and "DtoD" in name):
            row = "compute"
        else:
            continue
        pageable += "Pageable" in name
        begin = float(event["ts"]) * 1e-6
        rows[row].append((begin, begin + float(event["dur"]) * 1e-6))
    return rows, pageable


def _report(rows: Mapping[str, Sequence[Interval]], pageable_copies: int = 0) -> OverlapReport:
    every = [interval for row in rows.values() for interval in row]
    if not every:
        raise ValueError("overlap_report: stats_or_trace must hold a run, got none")
    seconds = max(max(end for _, end in every) - min(begin for begin, _ in every), 1e-12)
    inside = [rows[row] for row in ROWS]
    return OverlapReport(
        seconds=seconds,
        busy={row: covered([rows[row]], 1) / seconds for row in ROWS},
        overlap=covered(inside, 2) / seconds,
        all_three=covered(inside, 3) / seconds,
        duplex=covered([rows["h2d"], rows["d2h"]], 2) / seconds,
        link_utilisation=None,
        bound_seconds=None,
        efficiency=None,
        pageable_bytes=0,
        pageable_copies=pageable_copies,
    )
