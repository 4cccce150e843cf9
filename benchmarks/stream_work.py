"""Shared by the rows of the suite `stream`: the floor, and the timed calls."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

import sluice
from sluice.bench import Workload
from sluice.plan import Plan
from stream_peers import Call, Function

DEPTH = 3
_CHUNK_BYTES = 16 << 20
_LEAST_CHUNKS = 64


def size_text(nbytes: int) -> str:
    """A size for names, as "16 MiB"."""
    unit = next(power for power in (30, 20, 10, 0) if nbytes >> power)
    return f"{nbytes / 2**unit:g} {({30: 'GiB', 20: 'MiB', 10: 'KiB', 0: 'B'})[unit]}"


@functools.cache
def cycles_per_second(device: torch.device) -> float:
    """The clock that `torch.cuda._sleep` counts."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        begin.record()
        torch.cuda._sleep(50_000_000)
        end.record()
        torch.cuda.synchronize(device)
    return 50_000_000 / (begin.elapsed_time(end) * 1e-3)


def compute_seconds(fn: Function, chunk: torch.Tensor, calls: int = 10) -> float:
    """The time of `fn` for a chunk on the device; 0 on the CPU."""
    if chunk.device.type == "cpu":
        return 0.0
    for _ in range(3):
        fn(chunk)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        fn(chunk)
    end.record()
    torch.cuda.synchronize(chunk.device)
    return begin.elapsed_time(end) * 1e-3 / calls


def floor_seconds(
    inside: int, outside: int, device: torch.device, *, pinned: bool, compute: float = 0.0, devices: int = 1
) -> float:
    """Lower bound of the time for these bytes and this compute.

    The first chunk's copy in, its compute and the last chunk's copy out overlap with nothing; between them both
    directions, or the compute, are the limit:

        in   |--|--|--|--|
        fn      |--|--|--|--|
        out        |--|--|--|--|

    Chunks are 16 MiB, or 1/64 of the bytes if that is less. A side on the device has 0 bytes: then only one direction
    is used, at its own rate. The host also copies each byte of pageable memory, in and out, at the combined rate of all
    its threads.
    """
    limits = sluice.link_limits(device)
    chunks = max(max(inside, outside) // _CHUNK_BYTES, _LEAST_CHUNKS)
    up, down = inside / (limits.h2d * 1e9), outside / (limits.d2h * 1e9)
    both = max(up, down)
    if inside and outside:
        both = max(both, (inside + outside) / (limits.duplex * 1e9))
    link = (max(compute, both) * (chunks - 1) + up + compute + down) / chunks / devices
    return link if pinned else max(link, (inside + outside) / (limits.host_memcpy * 1e9))


def _quietly(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*staging=.pageable.*")
        return call()


def stream_plan(order: str = "depth_first", depth: int = DEPTH, chunk: int = 0) -> Plan:
    """What the results say of a streamed call; chunk 0 is an automatic one."""
    return Plan(schedule=order, depth=depth, tile=chunk, threads=0, shared_memory=0, grid=0, reason="streamed")


def streamed(
    streamer: sluice.Streamer,
    fn: Function | None,
    x: torch.Tensor,
    out: torch.Tensor,
    reference: Callable[[], torch.Tensor | Iterable[torch.Tensor]],
    *,
    floor: float,
    peers: Mapping[str, Call | None],
    linked: bool | None = False,
    depth: int = DEPTH,
    **options: Any,
) -> Workload:
    """`streamer.map(fn, x)` into `out`; `depth` is the streamer's, `options` are the options of `map`."""

    def write(target: torch.Tensor) -> torch.Tensor:
        return _quietly(lambda: streamer.map(fn, x, out=target, **options))

    return Workload(
        ours=lambda: write(out),
        write=write,
        reference=reference,
        plan=stream_plan(options.get("order", "depth_first"), depth, options.get("chunk_size") or 0),
        traffic=x.nbytes + out.nbytes,
        peers=peers,
        linked=linked,
        link_seconds=floor,
    )
