"""A device whose streams advance in random order, one step at a time, and the bugs that its harness must catch.

Each stream is a queue of operations; any stream whose first operation is ready may take its next step. Slots have a few
cells, so a copy takes several steps and can be seen half done. Seeds cover the orders that the events allow: a schedule
with correct results under all seeds orders everything that must be ordered.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import torch

from sluice.stream.device.engine import COMPUTED, FETCHED, MARKS, STORED
from sluice.stream.device.pipeline import ORDERS, Flight, Pipeline

CELLS = 3
POISON = -1


class SimulatedDevice:
    """`sluice.stream.device.engine.Engine` in virtual time."""

    def __init__(self, seed: int, depth: int, event_sets: int, source: list[list[int]]) -> None:
        self.device = torch.device("cpu")
        self._random = random.Random(seed)
        self._source = source
        self.result = [[POISON] * CELLS for _ in source]
        self._in = [[POISON] * CELLS for _ in range(depth)]
        self._out = [[POISON] * CELLS for _ in range(depth)]
        self._recorded = [0] * (event_sets * MARKS)
        self._complete = [0] * (event_sets * MARKS)
        self._streams: dict[str, list[Iterator[bool]]] = {"h2d": [], "compute": [], "d2h": [], "other": []}
        self.landed = 0
        self.has_failed = False
        self.compute_stream = "compute"

    # --- streams: an operation is an iterator that yields whether it could step -----------------------------------
    def _record(self, stream: str, event: int) -> None:
        self._recorded[event] += 1
        number = self._recorded[event]

        def run() -> Iterator[bool]:
            self._complete[event] = max(self._complete[event], number)
            yield True

        self._streams[stream].append(run())

    def _wait(self, stream: str, event: int) -> None:
        number = self._recorded[event]

        def run() -> Iterator[bool]:
            while self._complete[event] < number:
                yield False
            yield True

        self._streams[stream].append(run())

    def _copy(self, stream: str, source: list[int], target: list[int], change: int = 0) -> None:
        def run() -> Iterator[bool]:
            for cell in range(CELLS):
                target[cell] = source[cell] + change
                yield True

        self._streams[stream].append(run())

    def _step(self) -> bool:
        """One step of one stream; False if none is ready."""
        names = [name for name, queue in self._streams.items() if queue]
        self._random.shuffle(names)
        for name in names:
            operation = self._streams[name][0]
            moved = next(operation, None)
            if moved is None:
                self._streams[name].pop(0)
                return True
            if moved:
                return True
        return False

    # --- what the pipeline calls --------------------------------------------------------------------------------------
    def begin(self) -> None: ...

    def fetch(self, event_set: int, waits: Sequence[int], copies: Sequence[int]) -> None:
        for event in waits:
            self._wait("h2d", event)
        chunk, slot = copies
        self._copy("h2d", self._source[chunk], self._in[slot])
        self._record("h2d", event_set * MARKS + FETCHED)

    def acquire(self, event_set: int, waits: Sequence[int], milliseconds: int) -> bool:
        for event in waits:
            self._wait("compute", event)
        return True

    def call(self, slot: int) -> None:
        """The work that `fn` launches."""
        self._copy(self.compute_stream, self._in[slot], self._out[slot], change=1000)

    def commit(self, event_set: int) -> None:
        self._record("compute", event_set * MARKS + COMPUTED)

    def store(self, event_set: int, waits: Sequence[int], copies: Sequence[int]) -> None:
        for event in waits:
            self._wait("d2h", event)
        chunk, slot = copies
        self._copy("d2h", self._out[slot], self.result[chunk])
        self._record("d2h", event_set * MARKS + STORED)

        def land() -> Iterator[bool]:
            self.landed += 1
            yield True

        self._streams["d2h"].append(land())

    def wait_read(self, event_set: int, directly: bool, milliseconds: int) -> bool:
        event = event_set * MARKS + FETCHED
        while self._complete[event] < self._recorded[event]:
            assert self._step(), "deadlock: no stream can go on"
        return True

    def wait(self, count: int, milliseconds: int) -> bool:
        while self.landed < count:
            if not self._step():
                raise AssertionError("deadlock: no stream can go on")
        return True

    def drain(self, milliseconds: int) -> bool:
        while self._step():
            pass
        return True

    def flush(self) -> None: ...

    @property
    def known_landed(self) -> int:
        return self.landed

    def error(self) -> str:
        return ""

    def compute(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class SimulatedWork:
    """`sluice.stream.device.pipeline.Work` over numbers."""

    def __init__(self, device: SimulatedDevice, pipe: Pipeline[int], chunks: int) -> None:
        self._device, self._pipe, self._chunks = device, pipe, iter(range(chunks))

    def ahead(self) -> list[Flight[int]]:
        return [self.fetch(chunk) for chunk in itertools.islice(self._chunks, self._pipe.depth // 2)]

    def take(self) -> int | None:
        return next(self._chunks, None)

    def fetch(self, chunk: int) -> Flight[int]:
        flight = self._pipe.enter(chunk)
        self._pipe.fetch(flight, [chunk, flight.slot])
        return flight

    def compute(self, flight: Flight[int]) -> None:
        self._pipe.acquire(flight)
        self._device.call(flight.slot)
        self._pipe.commit(flight)

    def store(self, flight: Flight[int]) -> None:
        self._pipe.store(flight, [flight.item, flight.slot])

    def settle(self) -> None:
        self._pipe.settle()


# --- bugs: each changes what one call of the device does --------------------------------------------------------
class SlotReusedEarly(SimulatedDevice):
    def fetch(self, event_set: int, waits: Sequence[int], copies: Sequence[int]) -> None:
        super().fetch(event_set, [], copies)


class WrongStream(SimulatedDevice):
    def call(self, slot: int) -> None:
        self.compute_stream = "other"
        super().call(slot)


class MissingWait(SimulatedDevice):
    def acquire(self, event_set: int, waits: Sequence[int], milliseconds: int) -> bool:
        return super().acquire(event_set, waits[1:], milliseconds)


class OutputOverwritten(SimulatedDevice):
    def acquire(self, event_set: int, waits: Sequence[int], milliseconds: int) -> bool:
        return super().acquire(event_set, waits[:1], milliseconds)


class EarlyRead(SimulatedDevice):
    def wait(self, count: int, milliseconds: int) -> bool:
        return super().wait(count - 1, milliseconds)


class WrongEvent(SimulatedDevice):
    def store(self, event_set: int, waits: Sequence[int], copies: Sequence[int]) -> None:
        super().store(event_set, [event - 1 for event in waits], copies)


class RefilledEarly(SimulatedDevice):
    """Detected by `simulate_refilled`."""

    def wait_read(self, event_set: int, directly: bool, milliseconds: int) -> bool:
        return True


BUGS: list[type[SimulatedDevice]] = [
    SlotReusedEarly,
    WrongStream,
    MissingWait,
    OutputOverwritten,
    EarlyRead,
    WrongEvent,
]


def simulate(
    seed: int,
    order: str,
    depth: int,
    chunks: int,
    make: Callable[..., SimulatedDevice] = SimulatedDevice,
    limit: int = 0,
) -> bool:
    """Whether a run gives the right result."""
    source = [[10 * chunk + cell for cell in range(CELLS)] for chunk in range(chunks)]
    event_sets = 2 * depth
    device = make(seed, depth, event_sets, source)
    pipe: Pipeline[int] = Pipeline(device, depth, event_sets, limit or event_sets)
    ORDERS[order](SimulatedWork(device, pipe, chunks), depth)
    pipe.settle()
    return device.result == [[value + 1000 for value in row] for row in source]


def simulate_refilled(
    seed: int, depth: int, items: int, make: Callable[..., SimulatedDevice] = SimulatedDevice
) -> bool:
    """Whether items from a source that refills one buffer give the right results."""
    values = [[10 * item + cell for cell in range(CELLS)] for item in range(items)]
    buffer = [POISON] * CELLS
    device = make(seed, depth, 2 * depth, [buffer] * items)
    pipe: Pipeline[int] = Pipeline(device, depth, 2 * depth, 2 * depth)
    flight: Flight[int] | None = None
    for item in range(items):
        if flight is not None:
            pipe.wait_read(flight, True)
        buffer[:] = values[item]
        flight = pipe.enter(item)
        pipe.fetch(flight, [item, flight.slot])
        pipe.acquire(flight)
        device.call(flight.slot)
        pipe.commit(flight)
        pipe.store(flight, [item, flight.slot])
    pipe.settle()
    return device.result == [[value + 1000 for value in row] for row in values]
