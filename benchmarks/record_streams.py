"""Records when copies, kernels and host work ran, for the pictures of tools/draw_streams.py.

    python benchmarks/record_streams.py [--device cuda:0|cpu] [--mebibytes N] [--cases PROGRAM] [--output FILE]

Each timeline is a second run; the CPU has no pinned memory and no streams:

    lanes     `Streamer.map` in its three orders, from and to pinned and (also on the CPU) pageable memory
    sample    the same job by hand in torch, as in CUDA's sample: one stream, depth first, breadth first
    host      a host function after a blocking call, and before a non-blocking call's result (also on the CPU)
    kernels   eight small kernels on the legacy default stream and on eight streams, from one thread and from eight
    cases     eight kernels around CUDA's default streams, by PROGRAM, which is tests/gpu/stream_cases.cu compiled
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import itertools
import json
import subprocess
import threading
import time
import timeit
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import sluice
from sluice.bench import checkout_root, source_hash
from sluice.bench.results import gpu_slug
from sluice.stream.arguments import integer, parse_device
from sluice.stream.command import _CHUNKS, _COLUMNS, _KERNELS, Concurrency, _job, record_concurrency
from sluice.stream.device.memory import has_cuda
from sluice.stream.report.overlap import ROWS, covered

STEPS = ("copy in", "compute", "copy out")
ORDERS = ("sequential", "depth_first", "breadth_first")
_SAMPLE_STREAMS = 4
# The cases of tests/gpu/stream_cases.cu.
CASES = {
    "legacy_between_blocking": "blocking streams, empty kernels on the legacy default stream between",
    "legacy_between_non_blocking": "non-blocking streams, the same between",
    "per_thread": "blocking streams, empty kernels on the per-thread default stream between",
    "threads_on_legacy": "eight threads, legacy default stream",
    "threads_per_thread": "eight threads, per-thread default streams",
}
# Few enough kernels for CUDA's launch queue, so the call returns early; all chunks fit into 2 * depth event sets.
_HOST_CHUNKS = 8


class Span(NamedTuple):
    """When one item was in one row."""

    row: str
    item: int
    begin_ms: float
    end_ms: float


def timeline(what: str, label: str, spans: Sequence[Span], **extra: float) -> dict[str, Any]:
    """The timeline from its first begin; `overlap` is the share of its time with at least two rows busy."""
    first = min(span.begin_ms for span in spans)
    total = max(span.end_ms for span in spans) - first
    rows = {span.row: [(s.begin_ms, s.end_ms) for s in spans if s.row == span.row] for span in spans}
    known = {"total_ms": round(total, 4), "overlap": round(covered(list(rows.values()), 2) / total, 3)}
    moved = [Span(row, item, round(begin - first, 4), round(end - first, 4)) for row, item, begin, end in spans]
    return {"what": what, "label": label, **known, **extra, "rows": [span._asdict() for span in moved]}


@dataclasses.dataclass(frozen=True)
class Job:
    """The standard job of `python -m sluice trace`, in one kind of host memory, and its right result."""

    memory: str
    source: torch.Tensor
    out: torch.Tensor
    expected: torch.Tensor

    def twice(self, label: str, run: Callable[[], Any]) -> Any:
        """The value of the second run; both must write the bits of the job without chunks."""
        for _ in range(2):
            self.out.zero_()
            value = run()
            if not torch.equal(self.out, self.expected):
                raise RuntimeError(f"record_streams: {label} must give the job's result, got another one")
        return value


def make_jobs(mebibytes: int, device: torch.device) -> list[Job]:
    x = torch.randn(mebibytes * 2**20 // (4 * _COLUMNS), _COLUMNS)
    expected = _job(x.to(device)).cpu()
    jobs = [Job("pageable", x, torch.empty_like(x), expected)]
    if device.type == "cuda":
        jobs.insert(0, Job("pinned", x.pin_memory(), torch.empty_like(x).pin_memory(), expected))
    return jobs


def spans_of(stats: sluice.StreamStats) -> list[Span]:
    """The spans of a run, in milliseconds from its begin on the device."""
    named = list(zip(ROWS, STEPS, strict=True))
    return [Span(step, t.chunk, *(1e3 * at for at in getattr(t, row))) for t in stats.timeline for row, step in named]


def record_lanes(job: Job, device: torch.device) -> Iterator[dict[str, Any]]:
    with sluice.Streamer(device) as streamer:
        for order in ORDERS:
            options = {"out": job.out, "chunk_size": len(job.source) // _CHUNKS, "order": order}
            job.twice(order, functools.partial(streamer.map, _job, job.source, **options))
            yield timeline("lanes", f"{order}, {job.memory}", spans_of(streamer.stats()))


class EventClock:
    """Times steps by an event before and one after each, which costs the step's stream some microseconds."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, int, torch.cuda.Event, torch.cuda.Event]] = []
        self._start = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        self._start.record()

    @contextlib.contextmanager
    def timed(self, row: str, item: int) -> Iterator[None]:
        """Times the work that is launched inside, on the current stream."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self._marks.append((row, item, begin, end))

    def spans(self) -> list[Span]:
        torch.cuda.synchronize()
        since = self._start.elapsed_time
        return [Span(row, item, since(begin), since(end)) for row, item, begin, end in self._marks]


def launch(step: str, source: torch.Tensor, memory: torch.Tensor, target: torch.Tensor) -> None:
    """One step of a chunk on the current stream; the kernel works in place, in the chunk's memory on the device."""
    if step == "copy in":
        memory.copy_(source, non_blocking=True)
    elif step == "compute":
        memory.copy_(_job(memory))  # Streamer.map makes this copy on the device too
    else:
        target.copy_(memory, non_blocking=True)


def one_engine(spans: Sequence[Span]) -> list[Span]:
    """The same spans, but a copy begins no earlier than the end of the previous one in its direction.

    The event before a copy completes when the copy's stream is free. The copy may still wait for its direction's
    engine, which serves one stream after the other.
    """
    free, result = dict.fromkeys(STEPS, 0.0), []
    for span in sorted(spans, key=lambda span: span.end_ms):
        result.append(span._replace(begin_ms=max(span.begin_ms, free[span.row])))
        free[span.row] = 0.0 if span.row == "compute" else span.end_ms
    return sorted(result, key=lambda span: (span.item, STEPS.index(span.row)))


def record_sample(job: Job, streams: Sequence[torch.cuda.Stream], order: str, chunks: int) -> dict[str, Any]:
    """`order` over chunks round robin on the streams; breadth first in waves of one chunk per stream."""
    memory = torch.empty_like(job.source, device=streams[0].device)
    chunk_tensors = list(zip(*(x.split(len(x) // chunks) for x in (job.source, memory, job.out)), strict=True))
    plan = list(itertools.product(range(chunks), STEPS))
    if order == "breadth_first":
        plan.sort(key=lambda one: (one[0] // len(streams), STEPS.index(one[1])))

    def run() -> list[Span]:
        clock = EventClock()
        for item, step in plan:
            with torch.cuda.stream(streams[item % len(streams)]), clock.timed(step, item):
                launch(step, *chunk_tensors[item])
        return clock.spans()

    label = f"{order}, {job.memory}, {chunks} chunks"
    return timeline("sample", label, one_engine(job.twice(label, run)))


def record_samples(jobs: Sequence[Job], device: torch.device) -> Iterator[dict[str, Any]]:
    """With one chunk per stream, as in CUDA's sample, and with the number of chunks of `record_lanes`."""
    streams = [torch.cuda.Stream(device) for _ in range(_SAMPLE_STREAMS)]
    for job in jobs:
        yield record_sample(job, streams[:1], "sequential", _SAMPLE_STREAMS)
        for chunks, order in itertools.product((_SAMPLE_STREAMS, _CHUNKS), ORDERS[1:]):
            yield record_sample(job, streams, order, chunks)


def record_host(job: Job, device: torch.device) -> Iterator[dict[str, Any]]:
    """A host function and a run of the device on one clock, `time.perf_counter`.

    The run's times count from its begin, which the device reaches between the call's begin and its first call of `fn`.
    They are drawn as if it were the call's begin, so they are at most `error_ms` too early, and the hidden share is
    never too large.
    """
    calls: list[float] = []
    block = bytes(range(256)) * (1 << 12)

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(time.perf_counter())
        return _job(x)

    def checksum(blocks: int) -> int:
        return functools.reduce(lambda value, _: zlib.crc32(block, value), range(blocks), 0)

    with sluice.Streamer(device, depth=_HOST_CHUNKS // 2) as streamer:
        start = functools.partial(streamer.map, fn, job.source, out=job.out, chunk_size=len(job.source) // _HOST_CHUNKS)
        start()
        waited = timeit.timeit(start(non_blocking=True).result, number=1)  # the time that the host is idle
        each = min(timeit.repeat(lambda: checksum(8), number=1, repeat=5)) / 8
        count = max(int(waited / each), 1)

        def run(non_blocking: bool) -> tuple[Span, float]:
            calls.clear()
            zero = time.perf_counter()
            future = start(non_blocking=non_blocking)
            begin = time.perf_counter()
            checksum(count)
            end = time.perf_counter()
            if non_blocking:
                future.result()
            return Span("host", 0, 1e3 * (begin - zero), 1e3 * (end - zero)), 1e3 * (calls[0] - zero)

        for label, non_blocking in (("blocking call, then host work", False), ("host work before the result", True)):
            host, error = job.twice(label, functools.partial(run, non_blocking))
            device = spans_of(streamer.stats())
            busy = [(span.begin_ms, span.end_ms) for span in device]
            hidden = covered([[host[2:]], busy], 2) / (host.end_ms - host.begin_ms)
            yield timeline("host", label, [*device, host], hidden=round(hidden, 3), error_ms=round(error, 4))


def from_threads(label: str, stream: Callable[[], torch.cuda.Stream]) -> Concurrency:
    """A small kernel from each of eight host threads, on the stream that `stream` gives its thread."""
    together, alone = threading.Barrier(_KERNELS, timeout=60), threading.Lock()

    def work(clock: EventClock, item: int) -> None:
        with torch.cuda.stream(stream()):
            together.wait()
            # On one stream another thread's kernel could come between this kernel and its events.
            with alone, clock.timed("", item):
                torch.cuda._sleep(2_000_000)  # as in record_concurrency

    for _ in range(2):
        clock = EventClock()
        with concurrent.futures.ThreadPoolExecutor(_KERNELS) as pool:
            list(pool.map(functools.partial(work, clock), range(_KERNELS)))
        spans = sorted(clock.spans(), key=lambda span: span.item)
    return Concurrency(label, tuple((1e-3 * span.begin_ms, 1e-3 * span.end_ms) for span in spans))


def record_kernels(device: torch.device) -> Iterator[dict[str, Any]]:
    recorded = record_concurrency(str(device))
    recorded.append(from_threads("eight threads, legacy default stream", lambda: torch.cuda.default_stream(device)))
    recorded.append(from_threads("eight threads, thread_stream", lambda: sluice.thread_stream(device)))
    for one in recorded:
        rows = ["stream 0" if "legacy" in one.label else f"stream {i}" for i in range(_KERNELS)]
        spans = [Span(rows[i], i, 1e3 * begin, 1e3 * end) for i, (begin, end) in enumerate(one.spans)]
        yield timeline("kernels", one.label, spans)


def record_cases(program: Path) -> Iterator[dict[str, Any]]:
    """Each case in its own process, by the GPU's clock."""
    for case, label in CASES.items():
        ran = subprocess.run([str(program.resolve()), case], capture_output=True, text=True, check=True)
        rows = [f"thread {i}" if "threads" in case else f"stream {i}" for i in range(_KERNELS)]
        spans = zip(rows, json.loads(ran.stdout)["spans_us"], strict=True)
        yield timeline("cases", label, [Span(row, i, *(1e-3 * us for us in at)) for i, (row, at) in enumerate(spans)])


def record(device: torch.device, mebibytes: int) -> Iterator[dict[str, Any]]:
    jobs = make_jobs(mebibytes, device)
    for job in jobs:
        yield from record_lanes(job, device)
    if device.type == "cuda":
        yield from record_samples(jobs, device)
        yield from record_kernels(device)
    yield from record_host(jobs[0], device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if has_cuda() else "cpu", help="%(default)s")
    parser.add_argument("--mebibytes", type=int, help="of the input; 512 on a GPU, 64 on the CPU")
    parser.add_argument("--cases", type=Path, metavar="PROGRAM", help="tests/gpu/stream_cases.cu, compiled by nvcc")
    parser.add_argument("--output", type=Path, help="instead of benchmarks/recordings/<gpu>/streams.json")
    given = parser.parse_args()
    try:
        device = parse_device("record_streams", given.device, name="--device")
        size = {"cuda": 512, "cpu": 64}[device.type] if given.mebibytes is None else given.mebibytes
        integer("record_streams", "--mebibytes", size, 1)
    except (ValueError, RuntimeError) as error:
        parser.error(str(error))
    if device.type == "cuda":
        torch.cuda.set_device(device)
        gpu = torch.cuda.get_device_name(device)
    else:
        gpu = "cpu"
        print("left out, because they need a CUDA device: pinned memory, the sample's forms, eight kernels")
    head = {"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "gpu": gpu}
    head |= {"torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    head |= {"source_hash": source_hash(checkout_root()), "mebibytes": size}
    timelines = []
    for one in itertools.chain(record(device, size), record_cases(given.cases) if given.cases else ()):
        hidden = f", {100 * one['hidden']:.0f} % of the host's work hidden" if "hidden" in one else ""
        print(f"{one['what']}: {one['label']}: {one['total_ms']:.2f} ms, overlap {100 * one['overlap']:.0f} %{hidden}")
        timelines.append(json.dumps(one, allow_nan=False))
    path = given.output or checkout_root() / "benchmarks" / "recordings" / gpu_slug(gpu) / "streams.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n    ".join(timelines)
    path.write_text(json.dumps(head, indent=2).removesuffix("\n}") + f',\n  "timelines": [\n    {rows}\n  ]\n}}\n')
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
