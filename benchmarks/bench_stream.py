"""Suite `stream`: host tensors through the GPU, beside what users write: a naive call, one stream, two streams by hand.

The floor of a row is what the link, measured in the same process, could do at best with these bytes and this compute:
max(compute, in / up, out / down) and the fill and the drain of the pipeline; for pageable memory also what the host can
copy. `time_us` is wall time of the whole call.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import sluice
from sluice.bench import DTYPES, Case, HostClock, Suite, Workload
from sluice.plan import Plan

_COLUMNS = 1 << 16
_ROWS = 4096  # 1 GiB of float32
_ROWS_BY_HAND = 64  # 16 MiB a chunk, the best that was measured for the loops by hand
_DEPTH = 3


def _sin(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x + 1


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


def _box(x: torch.Tensor) -> torch.Tensor:
    """The mean of three neighbouring rows, zeros outside: needs a halo of one row."""
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1))
    return (padded[:-2] + padded[1:-1] + padded[2:]) / 3


def _busy(ratio: float, rows: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Keeps the compute stream busy for `ratio` times a chunk's copy in."""
    cycles = _cycles_per_second(device) * rows * _COLUMNS * 4 / (sluice.link_limits(device).h2d * 1e9)

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(int(ratio * cycles * x.shape[0] / rows))
        return x

    return fn


@functools.cache
def _cycles_per_second(device: torch.device) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        begin.record()
        torch.cuda._sleep(50_000_000)
        end.record()
        torch.cuda.synchronize(device)
    return 50_000_000 / (begin.elapsed_time(end) * 1e-3)


# --- sources ------------------------------------------------------------------------------------------------------
def _pinned(x: torch.Tensor) -> torch.Tensor:
    return x.pin_memory()


def _mapped(x: torch.Tensor) -> torch.Tensor:
    with tempfile.NamedTemporaryFile() as file:  # the mapping outlives the name
        made = torch.from_file(file.name, shared=True, size=x.numel(), dtype=x.dtype)
        made.copy_(x.flatten())
    return made.view(x.shape)


def _strided(x: torch.Tensor) -> torch.Tensor:
    wide = x.new_empty(x.shape[0], x.shape[1] + 64)
    view = wide[:, 3 : 3 + x.shape[1]]
    return view.copy_(x)


SOURCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pinned": _pinned,
    "pageable": lambda x: x,
    "mapped file": _mapped,
    "strided pageable": _strided,
}


# --- what users write ---------------------------------------------------------------------------------------------
def _naive(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return fn(x.to(device)).cpu()


def _sequential(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, out: torch.Tensor) -> None:
    for source, target in zip(x.split(_ROWS_BY_HAND), out.split(_ROWS_BY_HAND), strict=True):
        target.copy_(fn(source.to("cuda", non_blocking=True)), non_blocking=True)
    torch.cuda.synchronize()


def _by_hand(
    fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, out: torch.Tensor, streams: list[torch.cuda.Stream]
) -> None:
    """Depth first over two streams, chunks in turns: the loop of every tutorial."""
    chunks = zip(x.split(_ROWS_BY_HAND), out.split(_ROWS_BY_HAND), strict=True)
    for i, (source, target) in enumerate(chunks):
        with torch.cuda.stream(streams[i % len(streams)]):
            target.copy_(fn(source.to("cuda", non_blocking=True)), non_blocking=True)
    torch.cuda.synchronize()


def _floor_seconds(nbytes: int, pinned: bool, ratio: float, devices: int, device: torch.device) -> float:
    limits = sluice.link_limits(device)
    chunks = max(nbytes // (16 << 20), 1)
    one_way = nbytes / (limits.duplex / 2 * 1e9)
    compute = ratio * nbytes / (limits.h2d * 1e9)
    ends = 2 * nbytes / (limits.h2d * 1e9) / chunks
    link = (max(one_way, compute) + ends) / devices
    # Each byte is copied twice by the host, once in and once out, at the rate of all its threads together.
    return link if pinned else max(link, 2 * nbytes / (limits.host_memcpy * 1e9))


def _make(
    op: str, source: str, order: str, dtype: str, rows: int, devices: int, ratio: float, chunk: int | None,
    device: torch.device,
) -> Workload:  # fmt: skip
    if devices > torch.cuda.device_count():
        raise RuntimeError(f"needs {devices} GPUs")
    x = SOURCES[source](torch.randn(rows, _COLUMNS, dtype=DTYPES[dtype]))
    pinned = source == "pinned"
    out = torch.empty(x.shape, dtype=x.dtype, pin_memory=pinned)
    fn: Callable[[torch.Tensor], torch.Tensor] = {"identity": _identity, "sin(x) * x + 1": _sin, "box of 3": _box}.get(
        op
    ) or _busy(ratio, chunk or _ROWS_BY_HAND, device)
    halo = 1 if op == "box of 3" else 0
    places = list(range(devices))
    streamer = sluice.Streamer(places, depth=_DEPTH)
    options: dict[str, Any] = {"order": order, "halo": halo, "chunk_size": chunk}
    peers: dict[str, Callable[[], object] | None] = {}
    if order == "depth_first" and not halo and devices == 1 and chunk is None:
        streams = [torch.cuda.Stream() for _ in range(2)]
        peers["copy_"] = lambda: _naive(fn, x, device)
        peers["sequential"] = (lambda: _sequential(fn, x, out)) if pinned else None
        peers["hand_written"] = (lambda: _by_hand(fn, x, out, streams)) if pinned else None
    expected = _identity if op.startswith(("identity", "busy")) else {"sin(x) * x + 1": _sin, "box of 3": _box}[op]
    return Workload(
        ours=lambda: streamer.map(fn, x, out=out, **options),
        write=lambda target: streamer.map(fn, x, out=target, **options),
        reference=lambda: expected(x.double()),
        plan=Plan(schedule=order, depth=_DEPTH, tile=chunk or 0, threads=0, shared_memory=0, grid=0, reason="streamed"),
        traffic=2 * x.nbytes,
        peers=peers,
        linked=False,
        link_seconds=_floor_seconds(x.nbytes, pinned, ratio, devices, device),
    )


def stream_case(
    op: str, source: str = "pinned", order: str = "depth_first", *, dtype: str = "fp32", rows: int = _ROWS,
    devices: int = 1, ratio: float = 0.0, chunk: int | None = None,
) -> Case:  # fmt: skip
    """`op` over `rows` rows of 64 Ki numbers. `ratio` is the compute's time over that of its copy in."""
    size = rows * _COLUMNS * DTYPES[dtype].itemsize
    name = f"{op}, {size >> 20} MiB {dtype} {source}"
    if order != "depth_first":
        name += f", {order}"
    if chunk is not None:
        name += f", chunks of {(chunk * size // rows) / 2**20:g} MiB"
    if devices > 1:
        name += f", {devices} GPUs"
    params = {
        "n": rows * _COLUMNS,
        "dtype": dtype,
        "op": op,
        "source": source,
        "order": order,
        "fn": "Streamer.map",
        "devices": devices,
    }
    make = functools.partial(_make, op, source, order, dtype, rows, devices, ratio, chunk)
    return Case(name=name, params=params, make=make, auto=chunk is None)


_RATIOS = (0.25, 0.5, 1.0, 1.2, 2.0, 4.0)

SUITE = Suite(
    "stream",
    [
        stream_case("identity"),
        stream_case("identity", rows=4 * _ROWS),
        stream_case("sin(x) * x + 1"),
        stream_case("sin(x) * x + 1", order="breadth_first"),
        stream_case("sin(x) * x + 1", order="sequential"),
        stream_case("sin(x) * x + 1", dtype="bf16"),
        stream_case("box of 3"),
        *(stream_case("sin(x) * x + 1", source) for source in SOURCES if source != "pinned"),
        stream_case("identity", "pageable"),
        *(stream_case(f"busy for {ratio:g} copies", ratio=ratio, chunk=_ROWS_BY_HAND) for ratio in _RATIOS),
        *(stream_case("identity", chunk=math.ceil(4 * 2**power)) for power in range(0, 9, 2)),
    ],
    clock=functools.partial(HostClock, calls=1),
)
