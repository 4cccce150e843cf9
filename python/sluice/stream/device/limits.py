"""`link_limits`: what the link between host and device can do at most, measured."""

from __future__ import annotations

import dataclasses
import os
import statistics

import torch

from .. import process
from ..arguments import parse_devices
from ..ending import Ending, Hold, Turn
from .engine import D2H, H2D, EngineDevice

_BYTES = 64 << 20
_COPIES = 6
_SAMPLES = 5
_ASSUMED_RATE = 20.0  # of a PCIe 4 link

_measuring = [Turn()]
_known: dict[torch.device, LinkLimits] = {}


def _measure_anew() -> None:
    _measuring[0] = Turn()


process.after_fork(_measure_anew)


@dataclasses.dataclass(frozen=True)
class LinkLimits:
    """Rates in GB/s (10^9 bytes a second).

    On the CPU there is no link: all four are rates of copies in the host's memory.

    Attributes:
        h2d: host to device, from page-locked memory, alone.
        d2h: device to host, alone.
        duplex: both at once, together.
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


def default_threads() -> int:
    """Staging threads: the cores of this process, less those that issue copies, up to where more stop helping."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores - 2 if cores > 4 else cores, 16))


def link_limits(device: torch.device | str | int | None = None) -> LinkLimits:
    """The rates of the link to a device, measured at the first call in a process and kept.

    Args:
        device: a GPU or the CPU; None is the current GPU, or the CPU where there is none.

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
    (place,) = parse_devices("link_limits", device)
    if place not in _known:
        turn, hold = _measuring[0], Hold()  # one at a time: two would measure each other

        def end(_: BaseException | None) -> None:
            turn.give_back(hold)

        with Ending(end), Ending(end):
            # A collection of garbage within a measurement may run anything, another measurement too.
            if not turn.is_here():
                turn.take(hold, "")
            if place not in _known:
                _known[place] = _measure(place)
    return _known[place]


def one_way_rate(place: torch.device, memory_budget: int | None) -> float:
    """GB/s each way when both are busy; not measured where that would take more memory than the budget."""
    known = _known.get(place)
    if known is None and memory_budget is not None and memory_budget < 2 * _BYTES:
        return _ASSUMED_RATE
    return (known or link_limits(place)).duplex / 2


def _measure(place: torch.device) -> LinkLimits:
    engine = EngineDevice(place, 1, default_threads(), (2, 1 << 20))

    def end(_: BaseException | None) -> None:
        engine.close()

    with Ending(end), Ending(end), torch.inference_mode(False):
        memcpy = _host_memcpy(engine)
        return LinkLimits(*_link(engine), memcpy) if engine.is_cuda else LinkLimits(memcpy, memcpy, memcpy, memcpy)


def _host_memcpy(engine: EngineDevice) -> float:
    source, target = (torch.zeros(_BYTES, dtype=torch.uint8, device="cpu") for _ in range(2))
    return _BYTES / statistics.median(engine.memcpy_seconds(target, source) for _ in range(_SAMPLES)) / 1e9


def _link(engine: EngineDevice) -> tuple[float, float, float]:
    up, down = (torch.empty(_BYTES, dtype=torch.uint8, device="cpu", pin_memory=True) for _ in range(2))
    there, back = (torch.zeros(_BYTES, dtype=torch.uint8, device=engine.place) for _ in range(2))
    torch.cuda.synchronize(engine.place)
    pairs = {H2D: (there, up), D2H: (down, back)}

    def rate(directions: list[int]) -> float:
        samples = []
        for _ in range(_SAMPLES + 1):
            torch.cuda.synchronize(engine.place)
            begins, ends = [], []
            for direction in directions:
                stream = engine.stream(direction)
                assert stream is not None
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(1_000_000)  # all copies are queued before the first one begins
                    begins.append(_event(stream))
            for stream in map(engine.stream, directions):
                assert stream is not None
                for begin in begins:
                    stream.wait_event(begin)
            for _ in range(_COPIES):
                for direction in directions:
                    with torch.cuda.stream(engine.stream(direction)):
                        pairs[direction][0].copy_(pairs[direction][1], non_blocking=True)
            for direction in directions:
                stream = engine.stream(direction)
                assert stream is not None
                ends.append(_event(stream))
            torch.cuda.synchronize(engine.place)
            last = min(begins, key=lambda begin: begin.elapsed_time(ends[0]))
            samples.append(float(max(last.elapsed_time(end) for end in ends)) * 1e-3)
        moved = len(directions) * _COPIES * _BYTES
        return moved / statistics.median(samples[1:]) / 1e9

    return rate([H2D]), rate([D2H]), rate([H2D, D2H])


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event
