"""`python -m sluice trace`: a standard job in all orders, and eight kernels on eight streams and on one, drawn."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

import torch

from .arguments import has_cuda, integer, parse_device
from .concurrent import run_concurrent
from .device.pipeline import ORDERS
from .report.stats import StreamStats
from .report.timeline import chrome_trace, describe, draw
from .streamer import Streamer

_CHUNKS = 16
_KERNELS = 8
_COLUMNS = 4096


def _job(x: torch.Tensor) -> torch.Tensor:
    """Takes a GPU about as long as the host link takes for the bytes, and a CPU not too long."""
    for _ in range(24 if x.is_cuda else 1):
        x = torch.sin(x) * 0.5 + x
    return x


def record_orders(mebibytes: int, device: str) -> list[StreamStats]:
    """The standard job, pinned in and out, in each order; the second run of each is recorded."""
    rows = max(mebibytes * 2**20 // (4 * _COLUMNS), _CHUNKS)
    pinned = device != "cpu"
    x = torch.randn(rows, _COLUMNS)
    source, out = (x.pin_memory(), torch.empty_like(x).pin_memory()) if pinned else (x, torch.empty_like(x))
    recorded = []
    with Streamer(device) as streamer:
        for order in ORDERS:
            for _ in range(2):
                streamer.map(_job, source, out=out, chunk_size=max(rows // _CHUNKS, 1), order=order)
            recorded.append(streamer.stats())
    return recorded


@dataclasses.dataclass(frozen=True)
class Concurrency:
    """When each of several kernels ran, in seconds since the first began."""

    label: str
    spans: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        """From the first kernel's begin to the last kernel's end."""
        return max(end for _, end in self.spans) - min(begin for begin, _ in self.spans)


def record_concurrency(device: str) -> list[Concurrency]:
    """Eight small kernels from one thread: on the legacy default stream, and on eight streams of `run_concurrent`."""
    cuda = torch.device(device)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(_KERNELS)]  # type: ignore[no-untyped-call]
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def timed(pair: list[torch.cuda.Event]) -> Callable[[], None]:
        def run() -> None:
            pair[0].record()
            torch.cuda._sleep(2_000_000)  # one thread that counts cycles: all SMs but one stay free
            pair[1].record()

        return run

    def on_default_stream() -> None:
        with torch.cuda.stream(torch.cuda.default_stream(cuda)):
            for pair in events:
                timed(pair)()

    def on_eight_streams() -> None:
        run_concurrent([timed(pair) for pair in events], device=cuda)

    recorded = []
    for label, run in (("legacy default stream", on_default_stream), ("eight streams", on_eight_streams)):
        for _ in range(2):
            torch.cuda.synchronize(cuda)
            start.record()
            run()
            torch.cuda.synchronize(cuda)
        spans = [(1e-3 * start.elapsed_time(a), 1e-3 * start.elapsed_time(b)) for a, b in events]
        recorded.append(Concurrency(label, tuple(spans)))
    return recorded


def draw_concurrency(recorded: Sequence[Concurrency], path: str | pathlib.Path) -> None:
    """Draws when each kernel ran, a panel for each way of launching them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.6 * len(recorded)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(recorded), 1, sharex=True, squeeze=False)[:, 0]
    for axes, one in zip(panels, recorded, strict=True):
        first = min(begin for begin, _ in one.spans)
        for i, (begin, end) in enumerate(one.spans):
            axes.broken_barh([(1e3 * (begin - first), 1e3 * (end - begin))], (i - 0.4, 0.8), facecolors="#f58518")
        axes.set_yticks(range(len(one.spans)), [f"kernel {i}" for i in range(len(one.spans))], fontsize=8)
        axes.invert_yaxis()
        axes.set_title(f"{one.label}: {1e3 * one.seconds:.2f} ms", fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("milliseconds")
    figure.savefig(path, dpi=110)


def _mebibytes(text: str) -> int:
    try:
        return integer("trace", "--mebibytes", int(text), 1, 1 << 20)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 to {1 << 20}, got {text}") from None


def main(arguments: Sequence[str]) -> int:
    """Runs `python -m sluice trace` and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m sluice trace", description=__doc__)
    parser.add_argument("--mebibytes", type=_mebibytes, help="of the input; 512 on a GPU, 64 on the CPU")
    parser.add_argument("--device", help="cuda:0 where there is one, else cpu")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(), metavar="DIR", help="here by default")
    given = parser.parse_args(arguments)
    try:
        wanted = given.device or ("cuda:0" if has_cuda() else "cpu")
        device = str(parse_device("trace", wanted, name="--device"))
        given.output.mkdir(parents=True, exist_ok=True)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    recorded = record_orders(given.mebibytes or (64 if device == "cpu" else 512), device)
    for stats in recorded:
        path = given.output / f"trace_{stats.order}.json"
        path.write_text(json.dumps(chrome_trace(stats)), encoding="utf-8")
        print(f"{describe(stats)}  -> {path}")
    pictures = []
    try:
        draw(recorded, given.output / "trace.png")
        pictures.append(given.output / "trace.png")
    except ImportError as error:
        print(f"no picture: {error}")
    if device == "cpu":
        print("eight kernels on the default stream and on eight streams: needs a CUDA device")
    else:
        kernels = record_concurrency(device)
        for one in kernels:
            print(f"{_KERNELS} small kernels, {one.label}: {1e3 * one.seconds:.2f} ms")
        if pictures:
            draw_concurrency(kernels, given.output / "trace_streams.png")
            pictures.append(given.output / "trace_streams.png")
    print(f"{', '.join(map(str, pictures)) or 'no pictures'}; {time.monotonic() - begin:.0f} s")
    return 0
