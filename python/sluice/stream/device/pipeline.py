"""The scheduler of one device: which slot, which events, who waits for whom.

    chunk s runs in slot s % depth, with the events of set s % window

    fetch(s)     h2d stream       waits COMPUTED(s - depth)     the slot's input is read
    compute(s)   compute stream   waits FETCHED(s)              its own bytes are there
                                        STORED(s - depth)       the slot's output is copied
    store(s)     d2h stream       waits COMPUTED(s)             the result is written
    enter(s)     host             waits until s - window has landed: its events are used again
    wait_read(s) host             waits FETCHED(s) (staged: until then): the source may fill its memory anew

What `fn` returns is copied into the slot's output before COMPUTED, so it may be anything: its input, a view, the same
storage each time. It need not be kept, and the allocator sees all of it on one stream. Nothing here knows what a chunk
is made of; tests run this file against a simulated device.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from .. import process
from ..faults import TransferError
from .engine import COMPUTED, FETCHED, MARKS, STORED, Device

# The host looks up this often while it waits: for Ctrl-C, cancel() and progress.
_POLL_MILLISECONDS = 20

Item = TypeVar("Item")


@dataclasses.dataclass(slots=True)
class Flight(Generic[Item]):
    """A chunk or an iterable's item on its way: its number on this device, its slot and its set of events."""

    item: Item
    sequence: int
    slot: int
    event_set: int


class Pipeline(Generic[Item]):
    """Slots and events of one device.

    Args:
        device: what copies and computes.
        depth: slots.
        window: sets of events the device has.
        limit: chunks that may be issued and not landed; at most `window`.
        checkpoint: called while the host waits; raises to stop the run.
    """

    def __init__(
        self, device: Device, depth: int, window: int, limit: int, checkpoint: Callable[[], None] = lambda: None
    ) -> None:
        self.device, self.depth, self.window, self.limit = device, depth, window, min(limit, window)
        self._checkpoint = checkpoint
        self._entered = 0
        self.stored = 0

    def _unless_landed(self, sequence: int, mark: int) -> list[int]:
        """What there is to wait for of a chunk that came before, if there was one."""
        return [sequence % self.window * MARKS + mark] if sequence >= self.device.known_landed else []

    def enter(self, item: Item) -> Flight[Item]:
        """Gives an item its slot and its events."""
        sequence = self._entered
        self.wait_landed(sequence - self.limit + 1)
        self._entered += 1
        return Flight(item, sequence, sequence % self.depth, sequence % self.window)

    def fetch(self, flight: Flight[Item], copies: Sequence[Sequence[int]]) -> None:
        """Issues the copies to the device."""
        waits = self._unless_landed(flight.sequence - self.depth, COMPUTED)
        self.device.fetch(flight.event_set, waits, copies)

    def acquire(self, flight: Flight[Item]) -> None:
        """Makes the compute stream wait for the chunk's bytes and for its slot."""
        event_set = flight.event_set
        waits = [event_set * MARKS + FETCHED, *self._unless_landed(flight.sequence - self.depth, STORED)]
        while not self.device.acquire(event_set, waits, _POLL_MILLISECONDS):
            self._checkpoint()
        if self.device.has_failed:
            self._raise_error()

    def commit(self, flight: Flight[Item]) -> None:
        """Everything that belongs to the chunk is issued on the compute stream."""
        self.device.commit(flight.event_set)

    def store(self, flight: Flight[Item], copies: Sequence[Sequence[int]]) -> None:
        """Issues the copies to the host."""
        self.device.store(flight.event_set, [flight.event_set * MARKS + COMPUTED], copies)
        self.stored += 1

    def wait_landed(self, count: int) -> None:
        """Waits until so many chunks have landed."""
        while count > self.device.known_landed and not self.device.wait(count, _POLL_MILLISECONDS):
            self._checkpoint()
            self._raise_error()

    def wait_read(self, flight: Flight[Item], directly: bool) -> None:
        """Waits until a chunk's copies in have read the host's memory, some of it `directly`."""
        while not self.device.wait_read(flight.event_set, directly, _POLL_MILLISECONDS):
            self._checkpoint()
            self._raise_error()

    def settle(self) -> None:
        """Waits until every chunk that was stored has landed."""
        self.wait_landed(self.stored)
        self._raise_error()

    def drain(self) -> None:
        """Waits for everything that is in flight, whatever became of it, and begins to count anew.

        Raises:
            NotInTime: at the interpreter's exit, where that takes too long.
        """
        while not self.device.drain(100):
            if process.seconds_left() == 0:
                raise process.NotInTime
        self._entered = self.stored = 0

    def _raise_error(self) -> None:
        if text := self.device.error():
            raise TransferError(text)


class Work(Protocol):
    """What an order arranges."""

    def ahead(self) -> list[Flight[Any]]:
        """Chunks that are fetched already, once."""

    def take(self) -> Any:
        """The next chunk; None where there is no more."""

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
    work.settle()  # the first chunk, which a call learns from, is on its way out
    while (chunk := work.take()) is not None:
        flight = work.fetch(chunk)
        work.compute(flight)
        work.store(flight)
        work.settle()


ORDERS = {"depth_first": depth_first, "breadth_first": breadth_first, "sequential": sequential}
