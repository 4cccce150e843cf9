"""The scheduler of one device: which slot, which events, who waits for whom.

    chunk s runs in slot s % depth, with the events of set s % event_sets

    fetch(s)     h2d stream       waits COMPUTED(s - depth)     the slot's input has been read
    compute(s)   compute stream   waits FETCHED(s)              its own bytes have arrived
                                        STORED(s - depth)       the slot's output has been copied
    store(s)     d2h stream       waits COMPUTED(s)             the result is written
    enter(s)     host             waits until s - event_sets has landed: its events are reused
    wait_read(s) host             waits FETCHED(s) (ring: until copied there): the source may refill its memory

The result of `fn` is copied into the slot's output before COMPUTED, so it may be its input, a view, or the same storage
each time. It need not be kept, and the allocator sees all of it on one stream. Nothing here depends on the contents of
a chunk; tests run this file against a simulated engine.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from .. import process
from ..faults import TransferError
from .engine import COMPUTED, FETCHED, MARKS, STORED, Engine

# A waiting host checks this often for Ctrl-C, cancel() and progress.
POLL_MILLISECONDS = 20

Item = TypeVar("Item")


@dataclasses.dataclass(slots=True)
class Flight(Generic[Item]):
    """A chunk or an item in flight: its number on this device, its slot and its event set."""

    item: Item
    sequence: int
    slot: int
    event_set: int


class Pipeline(Generic[Item]):
    """Slots and events of one device.

    Args:
        engine: copies and computes.
        depth: slots.
        event_sets: event sets of the engine.
        limit: chunks that may be issued and not landed; at most `event_sets`.
        checkpoint: called while the host waits; raises to stop the run.
    """

    def __init__(
        self, engine: Engine, depth: int, event_sets: int, limit: int, checkpoint: Callable[[], None] = lambda: None
    ) -> None:
        self.engine, self.depth, self.event_sets, self.limit = engine, depth, event_sets, min(limit, event_sets)
        self._checkpoint = checkpoint
        self.entered = 0
        self.stored = 0
        self._input_is_free = COMPUTED

    def _unless_landed(self, sequence: int, mark: int) -> list[int]:
        """The event to wait for of an earlier chunk, unless it has landed or does not exist."""
        return [sequence % self.event_sets * MARKS + mark] if sequence >= self.engine.known_landed else []

    def enter(self, item: Item) -> Flight[Item]:
        """Assigns an item its slot and its event set."""
        sequence = self.entered
        self.wait_landed(sequence - self.limit + 1)
        self.entered += 1
        return Flight(item, sequence, sequence % self.depth, sequence % self.event_sets)

    def fetch(self, flight: Flight[Item], copies: Sequence[Sequence[int]]) -> None:
        """Issues the copies to the device."""
        waits = self._unless_landed(flight.sequence - self.depth, self._input_is_free)
        self.engine.fetch(flight.event_set, waits, copies)

    def acquire(self, flight: Flight[Item]) -> None:
        """Makes the compute stream wait for the chunk's bytes and its slot."""
        event_set = flight.event_set
        waits = [event_set * MARKS + FETCHED, *self._unless_landed(flight.sequence - self.depth, STORED)]
        while not self.engine.acquire(event_set, waits, POLL_MILLISECONDS):
            self._checkpoint()
        if self.engine.has_failed:
            self.raise_error()

    def advance(self, fetched: int, stored: int) -> None:
        """Counts chunks that a loop in C++ has issued."""
        self.entered += fetched
        self.stored += stored

    def keep_inputs_until_stored(self) -> None:
        """Earlier chunks are copied out of the slots that they were copied into."""
        self._input_is_free = STORED

    def commit(self, flight: Flight[Item]) -> None:
        """Records that all work of the chunk is issued on the compute stream."""
        self.engine.commit(flight.event_set)

    def store(self, flight: Flight[Item], copies: Sequence[Sequence[int]]) -> None:
        """Issues the copies to the host."""
        self.engine.store(flight.event_set, [flight.event_set * MARKS + COMPUTED], copies)
        self.stored += 1

    def wait_landed(self, count: int) -> None:
        """Waits until `count` chunks have landed."""
        while count > self.engine.known_landed and not self.engine.wait(count, POLL_MILLISECONDS):
            self._checkpoint()
            self.raise_error()

    def wait_read(self, flight: Flight[Item], directly: bool) -> None:
        """Waits until a chunk's copies in have read the host's memory, some of it `directly`."""
        while not self.engine.wait_read(flight.event_set, directly, POLL_MILLISECONDS):
            self._checkpoint()
            self.raise_error()

    def settle(self) -> None:
        """Waits until every chunk that was stored has landed."""
        self.wait_landed(self.stored)
        self.raise_error()

    def drain(self) -> None:
        """Waits for everything in flight, failed or not, and resets the counts.

        Raises:
            NotInTime: that takes too long at the interpreter's exit.
        """
        drain(self.engine)
        self.entered = self.stored = 0
        self._input_is_free = COMPUTED

    def raise_error(self) -> None:
        """Raises if a copy has failed."""
        if text := self.engine.error():
            raise TransferError(text)


def drain(engine: Engine) -> None:
    """Waits for everything in flight, failed or not.

    Raises:
        NotInTime: that takes too long at the interpreter's exit.
    """
    while not engine.drain(100):
        if process.seconds_left() == 0:
            raise process.NotInTime


class Work(Protocol):
    """The steps that an order arranges."""

    def ahead(self) -> list[Flight[Any]]:
        """Chunks that are already fetched; returned once."""

    def take(self) -> Any:
        """The next chunk; None at the end."""

    def fetch(self, chunk: Any) -> Flight[Any]:
        """Issues its copy in."""

    def compute(self, flight: Flight[Any]) -> None:
        """Issues its call of `fn`."""

    def store(self, flight: Flight[Any]) -> None:
        """Issues its copy out."""

    def settle(self) -> None:
        """Waits for all copies out."""


def depth_first(work: Work, depth: int) -> None:
    """Copy, compute, copy for each chunk; copies in are issued up to `depth` chunks ahead."""
    fetched = collections.deque(work.ahead())
    while True:
        while len(fetched) < depth and (chunk := work.take()) is not None:
            fetched.append(work.fetch(chunk))
        if not fetched:
            return
        flight = fetched.popleft()
        work.compute(flight)
        work.store(flight)


def breadth_first(work: Work, depth: int) -> None:
    """In waves of `depth` chunks: all copies in, all calls, all copies out."""
    while True:
        wave: list[Flight[Any]] = []
        while len(wave) < depth and (chunk := work.take()) is not None:
            wave.append(work.fetch(chunk))
        if not wave:
            return
        for flight in wave:
            work.compute(flight)
        for flight in wave:
            work.store(flight)


def sequential(work: Work, depth: int) -> None:
    """One chunk after the other: nothing overlaps."""
    del depth
    work.settle()  # the first chunk, which a call learns from, is being copied out
    while (chunk := work.take()) is not None:
        flight = work.fetch(chunk)
        work.compute(flight)
        work.store(flight)
        work.settle()


ORDERS = {"depth_first": depth_first, "breadth_first": breadth_first, "sequential": sequential}
