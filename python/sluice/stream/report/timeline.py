"""Timelines: a run drawn with a row per stream and a box per chunk, or as a chrome trace."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from .overlap import ROWS, overlap_report
from .stats import StreamStats

_COLORS = {"h2d": "#4c78a8", "compute": "#f58518", "d2h": "#54a24b"}
_LABELS = {"h2d": "copy in", "compute": "compute", "d2h": "copy out"}


def chrome_trace(stats: StreamStats) -> dict[str, Any]:
    """The run for chrome://tracing and Perfetto: microseconds, a process per device, a thread per stream."""
    devices = {name: number for number, name in enumerate(stats.devices)}
    events: list[dict[str, Any]] = []
    for name, number in devices.items():
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
        for thread, row in enumerate(ROWS):
            labels = {"name": _LABELS[row]}
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": thread, "args": labels})
    for times in stats.timeline:
        for thread, row in enumerate(ROWS):
            begin, end = getattr(times, row)
            events.append(
                {
                    "ph": "X",
                    "name": f"chunk {times.chunk}",
                    "cat": row,
                    "pid": devices[times.device],
                    "tid": thread,
                    "ts": begin * 1e6,
                    "dur": (end - begin) * 1e6,
                    "args": {"chunk": times.chunk},
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def describe(stats: StreamStats) -> str:
    """One line: order, chunks, time, overlap, and the use of the host link if there is one."""
    report = overlap_report(stats)
    moved = (sum(stats.bytes_in.values()) + sum(stats.bytes_out.values())) / 1e9
    link = "" if report.link_utilisation is None else f", link {100 * report.link_utilisation:.0f} %"
    return (
        f"{stats.order}, {stats.chunks} chunks, depth {stats.depth}: {1e3 * report.seconds:.2f} ms, "
        f"{moved / report.seconds:.1f} GB/s, overlap {100 * report.overlap:.0f} %{link}"
    )


def write_trace(stats: StreamStats, path: str | os.PathLike[str]) -> str:
    """Writes one run as a picture (*.png) or as a chrome trace (*.json), and returns the path."""
    if not stats.timeline:
        raise RuntimeError("Streamer.trace: there must be a run to draw, got none")
    ending = pathlib.Path(path).suffix
    if ending == ".json":
        pathlib.Path(path).write_text(json.dumps(chrome_trace(stats)), encoding="utf-8")
    elif ending == ".png":
        draw([stats], path)
    else:
        raise ValueError(f"Streamer.trace: path must end in .png or .json, got {os.fspath(path)!r}")
    return os.fspath(path)


def draw(runs: Sequence[StreamStats], path: str | os.PathLike[str]) -> None:
    """Draws runs one below the other on a common time scale.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "Streamer.trace: a picture needs matplotlib; install torch-sluice[plot], or write *.json"
        ) from None
    rows = [3 * max(len(stats.devices), 1) for stats in runs]
    figure = Figure(figsize=(12, 0.7 + sum(0.36 * n + 0.75 for n in rows)), layout="constrained")
    FigureCanvasAgg(figure)
    plots = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    for axes, stats in zip(plots, runs, strict=True):
        _draw_run(axes, stats)
    plots[-1].set_xlabel("milliseconds")
    figure.savefig(path, dpi=110)


def _draw_run(axes: Any, stats: StreamStats) -> None:
    start = min(begin for times in stats.timeline for begin, _ in (times.h2d, times.compute, times.d2h))
    labels = [(device, row) for device in stats.devices for row in ROWS]
    end = max(times.d2h[1] for times in stats.timeline)
    for times in stats.timeline:
        for row in ROWS:
            begin, until = getattr(times, row)
            y = labels.index((times.device, row))
            axes.broken_barh(
                [(1e3 * (begin - start), 1e3 * (until - begin))],
                (y - 0.4, 0.8),
                facecolors=_COLORS[row],
                edgecolors="white",
                linewidth=0.6,
            )
            if until - begin > 0.018 * (end - start):
                middle = 1e3 * ((begin + until) / 2 - start)
                axes.text(middle, y, str(times.chunk), ha="center", va="center", fontsize=7, color="white")
    several = len(stats.devices) > 1
    axes.set_yticks(range(len(labels)), [f"{d} {_LABELS[r]}" if several else _LABELS[r] for d, r in labels], fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_title(describe(stats), fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
