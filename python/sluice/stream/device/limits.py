"""`link_limits`: measured rates of the host link, which joins host and device."""

from __future__ import annotations

import dataclasses
import os
import statistics

import torch

from .. import process
from ..arguments import parse_devices
from ..ending import Ending, Holder, InterruptibleLock
from .engine import D2H, H2D, EngineDevice, on_stream

_BYTES = 64 << 20
_COPIES = 6
_SAMPLES = 5
_ASSUMED_RATE = 20.0  # GB/s each way, PCIe 4

_measuring = [InterruptibleLock()]
_known: dict[torch.device, LinkLimits] = {}


def _reset() -> None:
    _measuring[0] = InterruptibleLock()


process.after_fork(_reset)


@dataclasses.dataclass(frozen=True)
class LinkLimits:
    """Rates in GB/s (10^9 bytes a second).

    The CPU has no host link: all four are rates of copies in the host's memory.

    Attributes:
        h2d: host to device, from pinned memory, alone.
        d2h: device to host, alone.
        duplex: both directions at once, summed.
        host_memcpy: the host's own copy, by the staging threads.

    Example:
        >>> import sluice
        >>> sluice.LinkLimits(h2d=55.5, d2h=55.4, duplex=101.4, host_memcpy=43.0).duplex
        101.4
    """

    h2d: float
    d2h: float
    duplex: float
    host_memcpy: float


def default_threads(devices: int = 1) -> int:
    """Staging threads of each device: all share the cores of this process but two that issue copies.

    More than 16 do not help. Two devices of one NUMA node with all cores each were slower than one device.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min((cores - 2 if cores > 4 else cores) // devices, 16))


def link_limits(device: torch.device | str | int | None = None) -> LinkLimits:
    """The rates of the host link of a device, measured at the first call in a process and kept.

    Args:
        device: a GPU or the CPU; None is the current GPU, else the CPU.

    Returns:
        A `LinkLimits`, in GB/s.

    Raises:
        ValueError: there is no such device.

    Example:
        >>> import sluice
        >>> limits = sluice.link_limits("cpu")
        >>> limits.host_memcpy > 0 and limits is sluice.link_limits("cpu")
        True
    """
    (device,) = parse_devices("link_limits", device)
    if device not in _known:
        lock, holder = _measuring[0], Holder()  # one at a time: two would disturb each other

        def end(_: BaseException | None) -> None:
            lock.give_back(holder)

        with Ending(end), Ending(end):
            # Garbage collection within a measurement may run any code, even another measurement.
            if not lock.is_here():
                lock.take(holder, "")
            if device not in _known:
                _known[device] = _measure(device)
    return _known[device]


def one_way_rate(device: torch.device, memory_budget: int | None) -> float:
    """GB/s each way with both directions busy; assumed if measuring would exceed the budget."""
    known = _known.get(device)
    if known is None and memory_budget is not None and memory_budget < 2 * _BYTES:
        return _ASSUMED_RATE
    return (known or link_limits(device)).duplex / 2


def _measure(device: torch.device) -> LinkLimits:
    engine = EngineDevice(device, 1, default_threads(), (2, 1 << 20))

    def end(_: BaseException | None) -> None:
        engine.close()

    with Ending(end), Ending(end), torch.inference_mode(False):
        memcpy = _host_memcpy(engine)
        return LinkLimits(*_host_link(engine), memcpy) if engine.is_cuda else LinkLimits(memcpy, memcpy, memcpy, memcpy)


def _host_memcpy(engine: EngineDevice) -> float:
    source, target = (torch.zeros(_BYTES, dtype=torch.uint8, device="cpu") for _ in range(2))
    return _BYTES / statistics.median(engine.memcpy_seconds(target, source) for _ in range(_SAMPLES)) / 1e9


def _host_link(engine: EngineDevice) -> tuple[float, float, float]:
    up, down = (torch.empty(_BYTES, dtype=torch.uint8, device="cpu", pin_memory=True) for _ in range(2))
    there, back = (torch.zeros(_BYTES, dtype=torch.uint8, device=engine.device) for _ in range(2))
    torch.cuda.synchronize(engine.device)
    pairs = {H2D: (there, up), D2H: (down, back)}

    def rate(directions: list[int]) -> float:
        samples = []
        for _ in range(_SAMPLES + 1):
            torch.cuda.synchronize(engine.device)
            begins, ends = [], []
            for direction in directions:
                stream = engine.stream(direction)
                assert stream is not None
                with on_stream(stream):
                    torch.cuda._sleep(1_000_000)  # all copies are queued before the first one begins
                    begins.append(_event(stream))
            for stream in map(engine.stream, directions):
                assert stream is not None
                for begin in begins:
                    stream.wait_event(begin)
            for _ in range(_COPIES):
                for direction in directions:
                    stream = engine.stream(direction)
                    assert stream is not None
                    with on_stream(stream):
                        pairs[direction][0].copy_(pairs[direction][1], non_blocking=True)
            for direction in directions:
                stream = engine.stream(direction)
                assert stream is not None
                ends.append(_event(stream))
            torch.cuda.synchronize(engine.device)
            last = min(begins, key=lambda begin: begin.elapsed_time(ends[0]))
            samples.append(float(max(last.elapsed_time(end) for end in ends)) * 1e-3)
        moved = len(directions) * _COPIES * _BYTES
        return moved / statistics.median(samples[1:]) / 1e9

    return rate([H2D]), rate([D2H]), rate([H2D, D2H])


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event
