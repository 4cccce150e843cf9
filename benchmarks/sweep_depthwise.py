"""Depthwise convolution from 1 to 512 taps on a GPU against a copy: both layouts, three dtypes, round and odd sizes.

    python benchmarks/sweep_depthwise.py measure FILE   on a GPU
    python benchmarks/sweep_depthwise.py draw FILE PNG  anywhere, with matplotlib

Taps are every count up to 8, then steps of a fifth of an octave. Each point is the plan's choice.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import sluice
from sluice.bench import DTYPES, source_hash
from sluice.bench.ceilings import copy_of
from sluice.bench.source_hash import checkout_root
from sluice.bench.timing import Clock, ColdClock, Effort, interleave

SHAPES = {"round": (8, 768, 8192), "odd": (8, 767, 8191)}  # B, C, L
LAYOUTS = {"cf": "channels first", "cl": "channels last"}
COLORS = {"fp32": "#2f6fab", "fp16": "#c0572b", "bf16": "#3d8b54"}
_MOST_TAPS = 512
_OCTAVE = 5  # points per octave
_EFFORT = Effort(rounds=3, samples=4, warm_up=2)


@dataclasses.dataclass(frozen=True)
class Point:
    """The microseconds of a convolution, and of a copy of as many bytes."""

    taps: int
    dtype: str
    layout: str
    sizes: str
    method: str
    time_us: float
    copy_us: float


def all_taps() -> list[int]:
    steps = range(_OCTAVE * (_MOST_TAPS.bit_length() - 1) + 1)
    return sorted({*range(1, 9), *(round(2 ** (step / _OCTAVE)) for step in steps)})


def measure(clock: Clock, device: torch.device) -> Iterator[Point]:
    """Measures every point."""
    for sizes, (batch, channels, length) in SHAPES.items():
        for dtype in COLORS:
            options: dict[str, Any] = {"dtype": DTYPES[dtype], "device": device}
            for layout in LAYOUTS:
                if layout == "cf":
                    x = torch.randn(batch, channels, length, **options)
                else:
                    x = torch.randn(batch, length, channels, **options).transpose(1, 2)
                for taps in all_taps():
                    w = torch.randn(channels, 1, taps, **options) * taps**-0.5
                    arguments = (x, w, None, 1, taps // 2, 1, channels)
                    calls = {"ours": lambda a=arguments: sluice.conv1d(*a), "copy": copy_of(2 * x.nbytes, device)}
                    times = interleave(clock, calls, _EFFORT)
                    method = sluice.plan("conv1d", *arguments).method
                    ours, copy = times["ours"].median_us, times["copy"].median_us
                    yield Point(taps, dtype, layout, sizes, method, round(ours, 2), round(copy, 2))


def write(path: Path, points: list[Point], gpu: str) -> None:
    """Writes the points, the GPU and the hash of the measured sources."""
    head = {"gpu": gpu, "torch": torch.__version__, "source_hash": source_hash(checkout_root())}
    head["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    rows = ",\n  ".join(json.dumps(dataclasses.asdict(point)) for point in points)
    path.write_text(json.dumps(head)[:-1] + f', "points": [\n  {rows}\n]}}\n')


def draw(document: dict[str, Any], path: Path) -> None:
    """Draws a panel per layout and size: a copy's time over the convolution's, by taps, one line per dtype."""
    import matplotlib.pyplot as plt

    points = [Point(**point) for point in document["points"]]
    figure, grid = plt.subplots(2, 2, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
    for row, sizes in zip(grid, SHAPES, strict=True):
        for axes, layout in zip(row, LAYOUTS, strict=True):
            for dtype, color in COLORS.items():
                line = [p for p in points if (p.dtype, p.layout, p.sizes) == (dtype, layout, sizes)]
                shares = [p.copy_us / p.time_us for p in line]
                axes.plot([p.taps for p in line], shares, ".-", color=color, label=dtype, linewidth=1.4, markersize=5)
            extents = " x ".join(map(str, SHAPES[sizes]))
            axes.set_title(f"{LAYOUTS[layout]}, {extents}", fontsize=10, loc="left")
            axes.set_xscale("log", base=2)
            axes.set_xticks([2**i for i in range(10)], [str(2**i) for i in range(10)])
            axes.set_ylim(0, 1.05)
            axes.grid(color="#dddddd")
            axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[1]:
        axes.set_xlabel("taps")
    for axes in grid[:, 0]:
        axes.set_ylabel("time of a copy / time")
    grid[0][0].legend(frameon=False, loc="lower left")
    caption = f"{document['gpu']}, torch {document['torch']}, {document['date']}"
    figure.suptitle(f"Depthwise conv1d against a copy of as many bytes: {caption}", fontsize=11, x=0.01, ha="left")
    figure.savefig(path, dpi=110, facecolor="white")
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("measure").add_argument("file", type=Path)
    drawing = commands.add_parser("draw")
    drawing.add_argument("file", type=Path)
    drawing.add_argument("png", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        draw(json.loads(options.file.read_text()), options.png)
        return 0
    device = torch.device("cuda")
    with torch.inference_mode():
        points = list(measure(ColdClock(device), device))
    write(options.file, points, torch.cuda.get_device_name(device))
    for point in sorted(points, key=lambda point: point.copy_us / point.time_us)[:20]:
        print(f"{point.copy_us / point.time_us:5.2f} of a copy  {point}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
