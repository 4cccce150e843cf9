"""Real engines with a delay before each issued step, and with planted bugs, for the CPU and the GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import sluice
from sluice.stream.device.engine import EngineDevice


class DelayedEngine(EngineDevice):
    """Delays half of the steps, from Python and of loops in C++."""

    seed = 0
    most_microseconds = 500

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.seed:
            self.op("disturb")(self.handle, self.seed, self.most_microseconds)


class SlotReusedEarly(DelayedEngine):
    def fetch(self, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        super().fetch(event_set, [], copies)


class WrongStream(DelayedEngine):
    def compute(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()  # whatever the caller's stream is


class MissingWait(DelayedEngine):
    def acquire(self, event_set: int, waits: Sequence[int], milliseconds: int) -> bool:
        return super().acquire(event_set, waits[1:], milliseconds)


class EarlyRead(DelayedEngine):
    def wait(self, count: int, milliseconds: int) -> bool:
        return super().wait(count - 1, milliseconds)


class WrongEvent(DelayedEngine):
    def store(self, event_set: int, waits: Sequence[int], copies: Sequence[Sequence[int]]) -> None:
        super().store(event_set, [event - 1 for event in waits], copies)


BUGS: list[type[DelayedEngine]] = [SlotReusedEarly, WrongStream, MissingWait, EarlyRead, WrongEvent]
# Bugs that are possible on the host, whose compute stream is the caller.
BUGS_ON_THE_HOST: list[type[DelayedEngine]] = [MissingWait, EarlyRead]


@contextlib.contextmanager
def streamer_on(engine: type[DelayedEngine], seed: int, device: str, depth: int) -> Iterator[sluice.Streamer]:
    """A Streamer whose engine is of that class."""

    class Seeded(engine):  # type: ignore[misc, valid-type]
        pass

    Seeded.seed = seed

    with sluice.Streamer(device, depth=depth, staging_threads=2) as streamer:
        lender = streamer._lender
        lender.make_engine = lambda device: Seeded(device, 2 * depth, 2, (3, 8192))  # type: ignore[method-assign]
        yield streamer
        for lent in lender.lent.values():  # a missing edge leaves copies in flight, and slots are freed before engines
            while not lent.engine.drain(100):
                pass
