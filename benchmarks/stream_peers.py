"""Peers of the suite `stream`: what users write instead of `Streamer.map`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

Function = Callable[..., torch.Tensor]  # a function of one tensor; a chain also takes `out`
Call = Callable[[], object]


def identity(x: torch.Tensor) -> torch.Tensor:
    """The function of rows that only copy."""
    return x


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

    def send(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Queues one chunk on the current stream, with no more copies than the two sides need."""
        if self.fn is identity and source.device != target.device:
            target.copy_(source, non_blocking=True)
        elif target.is_cuda:
            self.fn(source.to(self.device, non_blocking=True), out=target)
        else:
            target.copy_(self.fn(source.to(self.device, non_blocking=True)), non_blocking=True)


_SAMPLE_STREAMS = 4
_CUPY_STREAMS = 3


@functools.cache
def _streams() -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream() for _ in range(_SAMPLE_STREAMS)]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _naive(loop: Loop) -> object:
    return loop.fn(loop.x.to(loop.device)).cpu()


def _naive_into(loop: Loop) -> object:
    return loop.out.copy_(loop.fn(loop.x.to(loop.device)))


def copy_async(loop: Loop) -> None:
    """The whole tensor on the current stream, which is then waited for."""
    loop.send(loop.x, loop.out)
    if loop.device.type == "cuda":
        torch.cuda.current_stream(loop.device).synchronize()


def _sequential(loop: Loop) -> None:
    """One stream. With pageable memory each `copy_` is a plain copy."""
    for source, target in loop.chunks():
        loop.send(source, target)
    _synchronize(loop.device)


def _by_hand(loop: Loop) -> None:
    """Depth first over two streams, chunks round robin: the loop of every tutorial."""
    for i, (source, target) in enumerate(loop.chunks()):
        with torch.cuda.stream(_streams()[i % 2]):
            loop.send(source, target)
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


@functools.cache
def _cupy_streams(device: torch.device) -> list[tuple[Any, torch.cuda.Stream]]:
    """CuPy's streams, each also as torch's, which `fn` needs."""
    made = [importlib.import_module("cupy").cuda.Stream(non_blocking=True) for _ in range(_CUPY_STREAMS)]
    return [(stream, torch.cuda.ExternalStream(stream.ptr, device)) for stream in made]


def _cupy(loop: Loop) -> None:
    """Chunks round robin on CuPy's streams, each with a device buffer of its own; pinned memory on both sides."""
    runtime = importlib.import_module("cupy").cuda.runtime
    inward, outward = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
    streams = _cupy_streams(loop.device)
    buffers = [loop.x.new_empty((loop.rows, *loop.x.shape[1:]), device=loop.device) for _ in streams]
    for i, (source, target) in enumerate(loop.chunks()):
        stream, of_torch = streams[i % len(streams)]
        result = buffers[i % len(streams)][: len(source)]
        runtime.memcpyAsync(result.data_ptr(), source.data_ptr(), source.nbytes, inward, stream.ptr)
        if loop.fn is not identity:
            with torch.cuda.stream(of_torch):
                result = loop.fn(result)
        runtime.memcpyAsync(target.data_ptr(), result.data_ptr(), target.nbytes, outward, stream.ptr)
    for stream, _ in streams:
        stream.synchronize()


_PEERS: dict[str, Callable[[Loop], object]] = {
    "copy_": _naive,  # allocates its result with fresh pages each time
    "copy_out": _naive_into,  # into an existing result, like sluice's call here
    "copy_async": copy_async,
    "sequential": _sequential,
    "hand_written": _by_hand,
    "prefetch": _prefetch,
    "sample_depth_first": functools.partial(_sample, wave=1),
    "sample_breadth_first": functools.partial(_sample, wave=_SAMPLE_STREAMS),
    "cupy": _cupy,
}
NAIVE = ("copy_", "copy_out")
LOOPS = ("sequential", "hand_written", "prefetch")
SAMPLE = ("sample_depth_first", "sample_breadth_first")
_ANYWHERE = (*NAIVE, "copy_async", "sequential")  # the CPU has no streams


def peers(names: Sequence[str], loop: Loop) -> dict[str, Call | None]:
    """The named peers on these tensors; None for peers that need streams or a package that is not there."""
    usable = {name for name in names if loop.device.type == "cuda" or name in _ANYWHERE}
    if importlib.util.find_spec("cupy") is None:
        usable.discard("cupy")
    return {name: functools.partial(_PEERS[name], loop) if name in usable else None for name in names}
