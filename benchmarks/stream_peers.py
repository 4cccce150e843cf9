"""Peers of the suite `stream`: what users write instead of `Streamer.map`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import torch

Function = Callable[[torch.Tensor], torch.Tensor]
Call = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Loop:
    """`fn` over the chunks of `x`, results into `out`; `rows` per chunk."""

    fn: Function
    x: torch.Tensor
    out: torch.Tensor
    rows: int
    device: torch.device

    def chunks(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(self.x.split(self.rows), self.out.split(self.rows), strict=True))


_SAMPLE_STREAMS = 4


@functools.cache
def _streams() -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream() for _ in range(_SAMPLE_STREAMS)]


def _naive(loop: Loop) -> object:
    return loop.fn(loop.x.to(loop.device)).cpu()


def _naive_into(loop: Loop) -> object:
    return loop.out.copy_(loop.fn(loop.x.to(loop.device)))


def _sequential(loop: Loop) -> None:
    """One stream. With pageable memory each `copy_` is a plain one."""
    for source, target in loop.chunks():
        target.copy_(loop.fn(source.to(loop.device, non_blocking=True)), non_blocking=True)
    torch.cuda.synchronize()


def _by_hand(loop: Loop) -> None:
    """Depth first over two streams, chunks round robin: the loop of every tutorial."""
    for i, (source, target) in enumerate(loop.chunks()):
        with torch.cuda.stream(_streams()[i % 2]):
            target.copy_(loop.fn(source.to(loop.device, non_blocking=True)), non_blocking=True)
    torch.cuda.synchronize()


def _prefetch(loop: Loop) -> None:
    """The next chunk is copied in on a side stream; the copy out waits on the compute stream."""
    side, compute = _streams()[0], torch.cuda.current_stream()

    def fetch(source: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(side):
            return source.to(loop.device, non_blocking=True)

    chunks = loop.chunks()
    ahead = fetch(chunks[0][0])
    for i, (_, target) in enumerate(chunks):
        compute.wait_stream(side)
        chunk = ahead
        chunk.record_stream(compute)
        if i + 1 < len(chunks):
            ahead = fetch(chunks[i + 1][0])
        target.copy_(loop.fn(chunk), non_blocking=True)
    torch.cuda.synchronize()


def _sample(loop: Loop, wave: int) -> None:
    """CUDA's sample: chunks round robin on four streams, in waves of `wave` through copy in, `fn` and copy out."""
    chunks = list(zip(itertools.cycle(_streams()), loop.chunks(), strict=False))
    for first in range(0, len(chunks), wave):
        moved: list[torch.Tensor] = []
        for stream, (source, _) in chunks[first : first + wave]:
            with torch.cuda.stream(stream):
                moved.append(source.to(loop.device, non_blocking=True))
        for i, (stream, _) in enumerate(chunks[first : first + wave]):
            with torch.cuda.stream(stream):
                moved[i] = loop.fn(moved[i])
        for result, (stream, (_, target)) in zip(moved, chunks[first : first + wave], strict=True):
            with torch.cuda.stream(stream):
                target.copy_(result, non_blocking=True)
    torch.cuda.synchronize()


_PEERS: dict[str, Callable[[Loop], object]] = {
    "copy_": _naive,  # allocates its result with fresh pages each time
    "copy_out": _naive_into,  # into an existing result, like sluice's call here
    "sequential": _sequential,
    "hand_written": _by_hand,
    "prefetch": _prefetch,
    "sample_depth_first": functools.partial(_sample, wave=1),
    "sample_breadth_first": functools.partial(_sample, wave=_SAMPLE_STREAMS),
}
NAIVE = ("copy_", "copy_out")
LOOPS = ("sequential", "hand_written", "prefetch")
SAMPLE = ("sample_depth_first", "sample_breadth_first")


def peers(names: Sequence[str], loop: Loop) -> dict[str, Call | None]:
    """The named peers on these tensors; on the CPU, which has no streams, only the naive calls."""
    usable = {name for name in names if loop.device.type == "cuda" or name in NAIVE}
    return {name: functools.partial(_PEERS[name], loop) if name in usable else None for name in names}
