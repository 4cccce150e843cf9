"""Suite `stream`: host tensors through the GPU, and its peers: naive calls, one stream, two streams by hand.

The floor of a row is the least time for these bytes and this compute over the host link, measured in the same process;
for pageable memory also for the host's copies. A small call's floor is the call by hand. `time_us` is wall time of the
whole call.

    stream_data.py    memory: pinned, pageable, a mapped file, strided    stream_peers.py     the peers
    stream_work.py    the floor, and the timed calls                      stream_real_ops.py  a convolution, a network
    stream_small.py   small calls: what a call costs
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import torch

import sluice
from sluice import stages
from sluice.bench import DTYPES, Case, HostClock, Suite, Workload
from stream_data import random_source, result_like
from stream_peers import LOOPS, NAIVE, SAMPLE, Function, Loop, identity, peers
from stream_real_ops import conv_case, has_torchvision, images_case
from stream_small import small_cases
from stream_work import DEPTH, cycles_per_second, floor_seconds, size_text, streamed

_COLUMNS = 1 << 16
_ROWS = 4096  # 1 GiB of float32
_ROWS_BY_HAND = 64  # 16 MiB per chunk, the fastest measured for the loops by hand; 4 MiB of 128 MiB
_SLICE = 1 << 24  # elements of the reference that are computed at a time
_MIB = 1 << 20


# --- ops ------------------------------------------------------------------------------------------------------------
def _sin(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x + 1


def _box(x: torch.Tensor) -> torch.Tensor:
    """The mean of three adjacent rows, zeros outside: needs a halo of one row."""
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1))
    return (padded[:-2] + padded[1:-1] + padded[2:]) / 3


def _busy(ratio: float, row_bytes: int, device: torch.device) -> Function:
    """Keeps the compute stream busy for `ratio` times a chunk's copy in."""
    cycles = ratio * row_bytes * cycles_per_second(device) / (sluice.link_limits(device).h2d * 1e9)

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(int(cycles * x.shape[0]))
        return x

    return fn


@dataclasses.dataclass(frozen=True)
class Op:
    """A function of a device tensor, or None as `map` takes it, and its float64 reference."""

    fn: Function | None
    expected: Function
    halo: int = 0


OPS = {
    "identity": Op(identity, identity),  # Python issues its chunks, as for any function that is not known
    "fn=None": Op(None, identity),
    "sin(x) * x + 1": Op(_sin, _sin),
    "box of 3": Op(_box, _box, halo=1),
    "silu(x) * 0.7": Op(stages.silu() | stages.scale(0.7), lambda x: torch.nn.functional.silu(x) * 0.7),
}


# --- rows -----------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Row:
    """`op` over `rows` rows of `columns` numbers.

    Attributes:
        op: a name in `OPS`; ignored if `ratio` is given.
        ratio: the compute's time over that of its copy in.
        chunk: rows per chunk, if forced; the peers' too.
        way: "both", "upload" (the result stays on the device) or "drain" (the input is there).
        memory_budget: bytes; `pinned_budget` is half of it.
        peers: timed for comparison.
    """

    op: str = "identity"
    source: str = "pinned"
    order: str = "depth_first"
    dtype: str = "fp32"
    rows: int = _ROWS
    columns: int = _COLUMNS
    devices: int = 1
    ratio: float = 0.0
    chunk: int | None = None
    depth: int = DEPTH
    way: str = "both"
    staging: str = "auto"
    memory_budget: int | None = None
    peers: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        return self.columns * DTYPES[self.dtype].itemsize

    @property
    def what(self) -> str:
        return f"busy for {self.ratio:g} copies" if self.ratio else self.op

    @property
    def name(self) -> str:
        parts = [self.what, f"{size_text(self.rows * self.row_bytes)} {self.dtype} {self.source}"]
        parts += [self.way] * (self.way != "both")
        parts += [self.order] * (self.order != "depth_first")
        parts += [f"staging {self.staging}"] * (self.staging != "auto")
        if self.chunk is not None:
            parts.append(f"chunks of {size_text(self.chunk * self.row_bytes)}")
        parts += [f"depth {self.depth}"] * (self.depth != DEPTH)
        if self.memory_budget is not None:
            parts.append(f"budget {size_text(self.memory_budget)}")
        return ", ".join(parts)


def _slices(x: torch.Tensor, expected: Function, device: torch.device) -> Iterator[torch.Tensor]:
    """16 GiB and their float64 would not fit into the host's memory together, and the device is faster."""
    for rows in x.split(max(1, _SLICE // x.shape[1])):
        yield expected(rows.to(device).double())


def _make(row: Row, device: torch.device) -> Workload:
    inside = "device" if row.way == "drain" else row.source
    outside = "device" if row.way == "upload" else row.source
    x = random_source(inside, (row.rows, row.columns), DTYPES[row.dtype], device)
    out = result_like(outside, x.shape, x.dtype, device if outside == "device" else "cpu")
    op = OPS[row.op]
    fn = _busy(row.ratio, row.row_bytes, device) if row.ratio else op.fn
    reference: Callable[[], torch.Tensor | Iterator[torch.Tensor]] = lambda: _slices(x, op.expected, device)  # noqa: E731
    if op.halo:
        reference = lambda: op.expected(x.to(device).double())  # noqa: E731
    budget = row.memory_budget
    streamer = sluice.Streamer(
        [device] if row.devices == 1 else list(range(row.devices)),
        depth=row.depth,
        memory_budget=budget,
        pinned_budget=None if budget is None else budget // 2,
    )
    floor = floor_seconds(
        0 if inside == "device" else x.nbytes,
        0 if outside == "device" else out.nbytes,
        device,
        pinned=row.source == "pinned" or row.staging == "register",
        compute=row.ratio * x.nbytes / (sluice.link_limits(device).h2d * 1e9),
        devices=row.devices,
    )
    return streamed(
        streamer,
        fn,
        x,
        out,
        reference,
        floor=floor,
        peers=peers(row.peers, Loop(fn or identity, x, out, row.chunk or _ROWS_BY_HAND, device)),
        linked=None if isinstance(fn, stages.Chain) else False,
        depth=row.depth,
        order=row.order,
        halo=op.halo,
        chunk_size=row.chunk,
        staging=row.staging,
    )


def stream_case(row: Row) -> Case:
    """The case of a row."""
    how = ["Streamer.map", *[row.way] * (row.way != "both"), *[f"staging {row.staging}"] * (row.staging != "auto")]
    params = {
        "n": row.rows * row.columns,
        "dtype": row.dtype,
        "op": row.what,
        "source": row.source,
        "order": row.order,
        "fn": ", ".join(how),
        "devices": row.devices,
    }
    return Case(name=row.name, params=params, make=functools.partial(_make, row), auto=row.chunk is None)


_SIN = "sin(x) * x + 1"
_KNOWN = ("fn=None", "silu(x) * 0.7")  # C++ issues their chunks
_SMALL = Row(rows=2048, columns=_COLUMNS // 4)  # rows of 64 KiB; 128 MiB, because 16384 chunks would take a second


def _pinned() -> Iterator[Row]:
    # The largest first: all others reuse its memory.
    yield Row(rows=16 * _ROWS)
    yield Row(rows=4 * _ROWS, peers=("hand_written",))
    yield Row(peers=LOOPS)
    yield Row("silu(x) * 0.7", rows=4 * _ROWS)
    yield Row(_SIN, peers=(*NAIVE, *LOOPS, *SAMPLE))
    yield Row(_SIN, order="breadth_first")
    yield Row(_SIN, order="sequential")
    yield Row(_SIN, dtype="bf16")
    yield Row("box of 3")
    for ratio in (0.25, 0.5, 1.0, 1.2, 2.0, 4.0):
        yield Row(ratio=ratio, chunk=_ROWS_BY_HAND, peers=LOOPS if ratio == 1 else ())
    yield _SMALL
    for chunk in (1, 4, 16):
        yield dataclasses.replace(_SMALL, chunk=chunk)
    for chunk in (4, 16, 64, 256, 1024):
        yield Row(chunk=chunk)


def _known() -> Iterator[Row]:
    beside = ("hand_written", "cupy")
    for op in _KNOWN:
        for chunk in (4, 16):
            for depth in (DEPTH, 8):
                yield Row(op, chunk=chunk, depth=depth, peers=beside)
        yield dataclasses.replace(_SMALL, op=op, peers=beside)


def _one_way() -> Iterator[Row]:
    for way in ("upload", "drain"):
        for op in _KNOWN:
            for chunk in (None, 4, 16, 64):
                yield Row(op, way=way, chunk=chunk, peers=("copy_async", "hand_written"))


def _pageable() -> Iterator[Row]:
    yield Row(source="pageable", peers=(*NAIVE, "sequential"))
    for staging in ("ring", "register", "pageable"):
        yield Row(source="pageable", staging=staging)
    yield Row(_SIN, "pageable", peers=(*NAIVE, *SAMPLE))
    yield Row(_SIN, "pageable", order="breadth_first")
    yield Row(_SIN, "pageable", order="sequential")
    yield Row(_SIN, "mapped file")
    yield Row(_SIN, "mapped file", rows=2 * _ROWS, memory_budget=256 * _MIB)
    yield Row(_SIN, "strided pageable")


SUITE = Suite(
    "stream",
    [
        *(stream_case(row) for rows in (_pinned, _known, _one_way, _pageable) for row in rows()),
        *(conv_case(16, 1 << 22, 31, chunk) for chunk in (None, 1 << 14)),
        *([images_case("resnet18", 4096, 224, 256)] if has_torchvision() else []),
        *small_cases(),
    ],
    clock=functools.partial(HostClock, calls=1),
)
