"""A stream for each host thread, and several callables on as many streams."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import faults, process
from .arguments import parse_devices
from .device.engine import on_stream

_threads = threading.local()


class _Owner:
    """Lives as long as its thread; then another thread may get the stream."""


def _take_stream(device: torch.device) -> torch.cuda.Stream:
    pointer = int(torch.ops.sluice._transfer_cuda_take_stream(device.index))
    return torch.cuda.ExternalStream(pointer, device=device)  # type: ignore[no-untyped-call]


def _give_back(owner: process.Owner, index: int, pointer: int) -> None:
    if owner.is_here():  # a child of fork cannot use the stream
        torch.ops.sluice._transfer_cuda_give_stream_back(index, pointer)


def thread_stream(device: torch.device | str | int | None = None) -> Any:
    """The calling thread's own CUDA stream on a device: the same one each time, and no other thread's.

    Work of several threads on the legacy default stream runs one after another; on these streams it runs concurrently.
    They are non-blocking streams, so the legacy default stream does not order them. After its thread has ended, a
    stream may serve another thread.

    Args:
        device: None is the current GPU, else the CPU.

    Returns:
        A `torch.cuda.Stream`, which is a context manager; for the CPU a null context, so that the same code runs there.

    Raises:
        ValueError: there is no such device.

    Example:
        >>> import torch, sluice
        >>> with sluice.thread_stream():
        ...     y = torch.ones(3) * 2
        >>> sluice.thread_stream() is sluice.thread_stream()
        True
    """
    (device,) = parse_devices("thread_stream", device)
    if not hasattr(_threads, "streams"):
        _threads.streams, _threads.owner = {}, _Owner()
    streams: dict[torch.device, Any] = _threads.streams
    if device not in streams:
        if device.type == "cpu":
            streams[device] = contextlib.nullcontext()
        else:
            stream = streams[device] = _take_stream(device)
            returned = weakref.finalize(_threads.owner, _give_back, process.Owner(), device.index, stream.cuda_stream)
            returned.atexit = False  # type: ignore[misc]
    return streams[device]


@dataclasses.dataclass
class _Pool:
    """Idle streams."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    idle: dict[torch.device, list[torch.cuda.Stream]] = dataclasses.field(default_factory=dict)

    def take(self, device: torch.device, count: int) -> list[torch.cuda.Stream]:
        with self.lock:
            idle = self.idle.setdefault(device, [])
            taken = [idle.pop() for _ in range(min(count, len(idle)))]
        return taken + [_take_stream(device) for _ in range(count - len(taken))]

    def give_back(self, device: torch.device, streams: Sequence[torch.cuda.Stream]) -> None:
        with self.lock:
            self.idle[device] += streams


_pool = _Pool()


def _reset() -> None:
    global _pool, _threads
    _pool, _threads = _Pool(), threading.local()


process.after_fork(_reset)


def run_concurrent(fns: Sequence[Callable[[], Any]], *, device: torch.device | str | int | None = None) -> list[Any]:
    """Calls n functions on n streams, so that their GPU work runs concurrently.

    They are called one after another on the calling thread; only the launched work overlaps. The streams wait for the
    work queued on the caller's current stream, and that stream then waits for them, so it can use the results as if
    they had been computed there. On the CPU the functions are only called.

    Args:
        fns: callables without arguments.
        device: None is the current GPU, else the CPU.

    Returns:
        The results of the functions.

    Raises:
        TypeError: `fns` is not a sequence of callables.
        ValueError: there is no such device.
        BaseException: raised by a function, with its number as a note, after the streams are joined.

    Example:
        >>> import torch, sluice
        >>> x = torch.arange(3.0)
        >>> sluice.run_concurrent([lambda: x + 1, lambda: x * 2])
        [tensor([1., 2., 3.]), tensor([0., 2., 4.])]
    """
    op = "run_concurrent"
    (device,) = parse_devices(op, device)
    functions = list(fns) if isinstance(fns, (list, tuple)) else None
    if functions is None or not all(callable(function) for function in functions):
        raise TypeError(f"{op}: fns must be a list of callables, got {type(fns).__name__}")
    if device.type == "cpu":
        return [_call(op, i, function) for i, function in enumerate(functions)]
    streams = _pool.take(device, len(functions))
    caller = torch.cuda.current_stream(device)
    results: list[Any] = []
    try:
        for i, (function, stream) in enumerate(zip(functions, streams, strict=True)):
            stream.wait_stream(caller)
            with on_stream(stream):
                results.append(_call(op, i, function))
    finally:
        for stream in streams:
            caller.wait_stream(stream)
        _pool.give_back(device, streams)
    for tensor in pytree.tree_leaves(results):
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            tensor.record_stream(caller)  # its memory belongs to the function's stream
    return results


def _call(op: str, index: int, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except BaseException as error:
        faults.add_note(error, f"{op}: raised by fns[{index}]")
        raise
