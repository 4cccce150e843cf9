"""Calls and iterators of a Streamer, one after the other, each from its turn to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .device.lender import Lender
from .ending import Hold, Turn
from .iter.iterate import IterRun
from .map.future import StreamFuture
from .map.run import MapRun
from .process import Owner
from .report.stats import StreamStats

_ONE_AT_A_TIME = (
    "a Streamer must do one thing at a time, got a call from within its own run or iterator; use another Streamer"
)


class Tenancy:
    """Who has what a Streamer lends, and what the last one who had it left.

    Args:
        lender: of what is handed from one to the next.
    """

    def __init__(self, lender: Lender) -> None:
        self.lender = lender
        self.owner, self.turn = Owner(), Turn()
        self.running: MapRun | IterRun | None = None
        self.outstanding: StreamFuture | None = None  # its calls of fn are issued, and its chunks on their way
        self.stats: Callable[[], StreamStats] = StreamStats  # of the last run that is complete
        self.is_closed = self.is_closed_at_exit = False

    def check_open(self, op: str) -> None:
        """Raises where nothing can begin any more."""
        self.owner.check(op, "Streamer")
        if self.is_closed_at_exit:
            raise SystemExit  # ends a thread that runs while the interpreter exits, without a word
        if self.is_closed:
            raise RuntimeError(f"{op}: the Streamer must be open, got a closed one")

    def take(self, op: str, hold: Hold) -> None:
        """Waits for the turn."""
        self.turn.take(hold, f"{op}: {_ONE_AT_A_TIME}")

    def complete_outstanding(self) -> None:
        """Waits for a future that nobody has asked for; the turn is held."""
        if (future := self.outstanding) is not None:
            future.settle()  # what went wrong is for whoever asks for its result
            self.outstanding = None

    def free(self) -> None:
        """Ends what is in flight and frees everything; the turn is held."""
        self.complete_outstanding()
        self.lender.close()


class Call:
    """One call or iterator, and what it has taken: to be ended whatever became of it, and maybe twice.

    Args:
        op: for messages.
        tenancy: whose turn it takes.
        streamer: what must be there for as long as the call.
        finished: called once, when the Streamer is free again.
    """

    def __init__(self, op: str, tenancy: Tenancy, streamer: object, finished: Callable[[], None]) -> None:
        self._op, self._tenancy, self._streamer = op, tenancy, streamer
        self._finished = [finished]
        self._hold = Hold()
        self._run: MapRun | IterRun | None = None
        self._future: StreamFuture | None = None

    def begin(self, make_run: Callable[[], MapRun | IterRun]) -> None:
        """Waits for the turn and makes the run."""
        tenancy = self._tenancy
        tenancy.check_open(self._op)
        tenancy.take(self._op, self._hold)
        tenancy.check_open(self._op)
        tenancy.complete_outstanding()
        self._run = tenancy.running = make_run()

    # No `try` stands where `Ending` guards: CPython's table of handlers leaves its first step out.
    def perform(self, non_blocking: bool) -> Any:
        """The result of a map, or its future, which ends the run where this call itself ends well."""
        run = self._run
        assert isinstance(run, MapRun)
        try:
            run.issue()
            if not non_blocking:
                return run.settle()
            self._future = StreamFuture(run, self._complete)
            return self._future
        except BaseException as error:
            told = run.told(error)
            if told is error:
                raise
            raise told from None

    def results(self) -> Iterator[Any]:
        """The results of an iterator."""
        run = self._run
        assert isinstance(run, IterRun)
        try:
            yield from run.results()
        except BaseException as error:
            told = run.told(error)
            if told is error:
                raise
            raise told from None

    def end(self, error: BaseException | None) -> None:
        """Ends the run, and gives back all that the call has taken."""
        tenancy = self._tenancy
        if not tenancy.owner.is_here():
            return  # a child that was forked meanwhile: nothing of it is the child's
        is_promised = self._future is not None and error is None
        if tenancy.turn.has(self._hold):  # until it is given back, engines and slots are this call's
            if is_promised:
                tenancy.outstanding = self._future
            elif self._run is not None:
                self._run.end(has_failed=error is not None)
                tenancy.stats = self._run.record()
            tenancy.running = None
            if tenancy.is_closed:
                tenancy.free()
        tenancy.turn.give_back(self._hold)
        if not is_promised:
            self._finish()

    def _complete(self, stats: Callable[[], StreamStats]) -> None:
        self._tenancy.stats = stats
        if self._tenancy.outstanding is self._future:
            self._tenancy.outstanding = None
        self._future = None  # which has this: no circle keeps the run's tensors
        self._finish()

    def _finish(self) -> None:
        with contextlib.suppress(IndexError):
            self._finished.pop()()  # taken before it is called: never twice
