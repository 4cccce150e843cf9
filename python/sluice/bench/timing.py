"""Clocks, and how their samples become one number."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch

Call = Callable[[], object]

_MIB = 2**20


class Clock(Protocol):
    """Times a call. Tests pass one of their own."""

    def measure(self, call: Call, samples: int) -> list[float]:
        """`samples` times of `call`, in microseconds."""
        ...


class _EventClock:
    """Time on the GPU between two events around a call.

    The GPU is held until the host has queued all samples, so that no time of the host is between two events. Samples
    that take the host longer than `_LONG_US` count as they are: their call waits for the GPU, or is measured in
    milliseconds.
    """

    _HOLD_US = 1000.0
    _LONG_US = 20_000.0
    _CYCLES_A_US = 2000  # cycles of the fastest clock; a slower clock holds the GPU for longer

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def measure(self, call: Call, samples: int) -> list[float]:
        """The time between two events around `call`, once for each sample."""
        events = [(_event(), _event()) for _ in range(samples)]
        hold_us = self._HOLD_US
        while True:
            begin = time.perf_counter_ns()
            self._queue(call, events, hold_us)
            queued_us = (time.perf_counter_ns() - begin) / 1000
            ahead = not events[0][0].query()
            torch.cuda.synchronize(self._device)
            if ahead or queued_us > self._LONG_US:
                return [1000 * start.elapsed_time(end) for start, end in events]
            hold_us = 2 * max(hold_us, queued_us)

    def _queue(self, call: Call, events: Sequence[tuple[torch.cuda.Event, torch.cuda.Event]], hold_us: float) -> None:
        torch.cuda._sleep(int(hold_us * self._CYCLES_A_US))
        for start, end in events:
            self._prepare_l2()
            start.record()
            call()
            end.record()

    def _prepare_l2(self) -> None:
        """Queues the work that each sample waits for."""


def _larger_than_l2(device: torch.device) -> torch.Tensor:
    """Writing more than fits evicts everything from L2."""
    size = max(256 * _MIB, 4 * torch.cuda.get_device_properties(device).L2_cache_size)
    return torch.empty(size, dtype=torch.uint8, device=device)


class ColdClock(_EventClock):
    """Time on the GPU, by CUDA events, each launch with an L2 that holds nothing of its tensors."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._larger_than_l2 = _larger_than_l2(device)

    def _prepare_l2(self) -> None:
        self._larger_than_l2.zero_()


class GraphClock(_EventClock):
    """Time on the GPU of a call in a CUDA graph that repeats it, warm: what a step of decoding pays.

    A call is captured when it is first measured, `calls` times one after another on one stream. A sample is a replay,
    by CUDA events, over `calls`. Nothing is evicted: L2 holds what the call before has left there. Python, the
    allocator and the launch of the graph take no part; the gap between two kernels that wait for each other does.
    """

    _WARM_UP = 4  # calls ahead of the capture, in which nothing can be compiled, linked or loaded

    def __init__(self, device: torch.device, calls: int = 100) -> None:
        """`calls` a graph: as many as make its launch, some microseconds, small beside the fastest call."""
        super().__init__(device)
        self._calls = calls
        # A graph goes with its call, and gives its memory back before the next case.
        self._graphs: weakref.WeakKeyDictionary[Call, torch.cuda.CUDAGraph] = weakref.WeakKeyDictionary()

    def measure(self, call: Call, samples: int) -> list[float]:
        """Each sample is the mean over the calls of one replay."""
        graph = self._graphs.get(call)
        if graph is None:
            graph = self._graphs[call] = self._captured(call)
        return [us / self._calls for us in super().measure(graph.replay, samples)]

    def _captured(self, call: Call) -> torch.cuda.CUDAGraph:
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(self._WARM_UP):
                    call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(self._calls):
                    call()
        return graph


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Python's garbage collector waits until the samples are taken."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class CallClock:
    """Time on the host from a call until its result is there, one call after another: what a user waits for.

    The host's part counts, and so do the launches and the wait for the GPU. A call begins with an idle GPU, whose L2
    holds nothing of its tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._larger_than_l2 = _larger_than_l2(device) if device.type == "cuda" else None

    def _synchronize(self) -> None:
        if self._larger_than_l2 is not None:
            torch.cuda.synchronize(self._device)

    def measure(self, call: Call, samples: int) -> list[float]:
        """Each sample is one call."""
        times = []
        with _no_collections():
            for _ in range(samples):
                if self._larger_than_l2 is not None:
                    self._larger_than_l2.zero_()
                self._synchronize()
                begin = time.perf_counter_ns()
                call()
                self._synchronize()
                times.append((time.perf_counter_ns() - begin) / 1000)
        return times


class HostClock:
    """Time on the host that a call takes to return, warm: what a user pays when tensors are tiny.

    The driver queues about a thousand launches and then makes the host wait. A block of 250 calls of up to three
    kernels fits, so the time is the host's even where a kernel runs longer than its call.
    """

    _BLOCK_US = 200

    def __init__(self, device: torch.device, calls: int | None = 250) -> None:
        """`calls` a block; None: as many as take a fifth of a millisecond, once at least."""
        self._device = device
        self._calls = calls

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def measure(self, call: Call, samples: int) -> list[float]:
        """Each sample is the mean over a block of calls that begins with an empty queue."""
        times = []
        with _no_collections():
            calls = self._calls or self._block_of(call)
            for _ in range(samples):
                self._synchronize()
                begin = time.perf_counter_ns()
                for _ in itertools.repeat(None, calls):
                    call()
                times.append((time.perf_counter_ns() - begin) / 1000 / calls)
            self._synchronize()
        return times

    def _block_of(self, call: Call) -> int:
        begin = time.perf_counter_ns()
        call()
        return max(1, int(1000 * self._BLOCK_US / (time.perf_counter_ns() - begin)))


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: passes over all callables; ratios are medians over these.
        samples: of one callable in one round.
        warm_up: samples of each callable that are thrown away first.
        slow_peers: whether peers that compile (seconds a case) are measured.
    """

    rounds: int = 5
    samples: int = 6
    warm_up: int = 4
    slow_peers: bool = True


FULL = Effort()  # 30 samples: a median of at least 25, and ratios as a median of 5
SLOW_US = 20_000
VERY_SLOW_US = 200_000
_FEW_ROUNDS = 3
QUICK = Effort(rounds=1, samples=5, warm_up=1, slow_peers=False)


@dataclasses.dataclass(frozen=True)
class Timing:
    """The times of one callable, in microseconds.

    Attributes:
        median_us: over all samples.
        minimum_us: over all samples.
        maximum_us: over all samples.
        ratio: this callable's time over the first callable's, the median over the rounds.
    """

    median_us: float
    minimum_us: float
    maximum_us: float
    ratio: float


def interleave(clock: Clock, calls: Mapping[str, Call], effort: Effort = FULL) -> dict[str, Timing]:
    """Times the callables interleaved, so that a drift of the clocks or of the temperature affects all of them.

    A callable that takes longer than `SLOW_US` is timed twice a round: a launch is nothing beside it. A callable
    that takes longer than `VERY_SLOW_US` is timed once a round, in three rounds.

    Args:
        clock: what takes a sample.
        calls: by name; ratios refer to the first call.
        effort: rounds and samples.

    Returns:
        A `Timing` for each name.
    """
    names = list(calls)
    samples, turns = {}, {}
    for name in names:
        [us] = clock.measure(calls[name], 1)
        if us > SLOW_US:  # not only because it was the first
            us = min(us, *clock.measure(calls[name], 1))
        samples[name], turns[name] = _share(us, effort)
        if us <= SLOW_US:
            clock.measure(calls[name], effort.warm_up)
    rounds: list[dict[str, list[float]]] = []
    for number in range(effort.rounds):
        first = number % len(names)  # who runs after whom changes from round to round
        order = [name for name in names[first:] + names[:first] if number < turns[name]]
        rounds.append({name: clock.measure(calls[name], samples[name]) for name in order})
    return {name: _summary(name, names[0], rounds) for name in names}


def _share(us: float, effort: Effort) -> tuple[int, int]:
    """Samples a round, and rounds, of a callable that takes so long."""
    if us > VERY_SLOW_US:
        return min(1, effort.samples), min(_FEW_ROUNDS, effort.rounds)
    if us > SLOW_US:
        return min(2, effort.samples), effort.rounds
    return effort.samples, effort.rounds


def _summary(name: str, ours: str, rounds: list[dict[str, list[float]]]) -> Timing:
    samples = [sample for times in rounds for sample in times.get(name, ())]
    both = [times for times in rounds if name in times and ours in times]
    ratios = [statistics.median(times[name]) / statistics.median(times[ours]) for times in both]
    return Timing(statistics.median(samples), min(samples), max(samples), statistics.median(ratios))
