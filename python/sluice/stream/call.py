"""Calls and iterators of a Streamer, one after the other, each from taking the lock to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .device.lender import Lender
from .ending import Holder, InterruptibleLock
from .iter.inline import InlineIterRun
from .iter.iterate import IterRun
from .map.base import MapRun
from .map.brief import BriefRun
from .map.future import StreamFuture
from .process import Owner, hold_at_exit
from .report.stats import StreamStats

_ONE_AT_A_TIME = (
    "a Streamer must do one thing at a time, got a call from within its own run or iterator; use another Streamer"
)


Run = MapRun | BriefRun | IterRun | InlineIterRun


class Tenancy:
    """The call that uses a Streamer's engines and slots, and the state that the last one left.

    Args:
        lender: owns what is handed from one call to the next.
    """

    def __init__(self, lender: Lender) -> None:
        self.lender = lender
        self.owner, self.lock = Owner(), InterruptibleLock()
        self.running: Run | None = None
        self.outstanding: StreamFuture | None = None  # its calls of fn are issued, its chunks in flight
        self.stats: Callable[[], StreamStats] = StreamStats  # of the last complete run
        self.is_closed = self.is_closed_at_exit = False

    def check_open(self, op: str) -> None:
        """Raises if no call can begin any more."""
        self.owner.check(op, "Streamer")
        if self.is_closed_at_exit:
            raise SystemExit  # silently ends a thread that runs while the interpreter exits
        if self.is_closed:
            raise RuntimeError(f"{op}: the Streamer must be open, got a closed one")

    def take(self, op: str, holder: Holder) -> None:
        """Waits for the lock."""
        self.lock.take(holder, f"{op}: {_ONE_AT_A_TIME}")

    def complete_outstanding(self) -> None:
        """Waits for a future whose result was not requested; the lock is held."""
        if (future := self.outstanding) is not None:
            future.settle()  # an error is raised where its result is requested
            self.outstanding = None

    def free(self) -> None:
        """Ends what is in flight and frees everything; the lock is held."""
        self.complete_outstanding()
        self.lender.close()


def _raise_told(run: Run, error: BaseException) -> NoReturn:
    """Raises the error for the caller, which is being handled."""
    told = run.told(error)
    try:
        if told is error:
            raise
        raise told from None
    finally:
        del told, error  # a traceback keeps this frame


class Call:
    """One call or iterator and what it holds; `end` must follow in any case, and may be called twice.

    Args:
        op: for messages.
        tenancy: its lock is taken.
        streamer: kept alive as long as the call.
        finished: called once, when the Streamer is free again; None: nothing is.
    """

    def __init__(self, op: str, tenancy: Tenancy, streamer: object, finished: Callable[[], None] | None) -> None:
        self._op, self._tenancy, self._streamer = op, tenancy, streamer
        self._finished = [] if finished is None else [finished]
        self._is_over = False
        self._holder = Holder()
        self._run: Run | None = None
        self._future: StreamFuture | None = None

    def begin(self, make_run: Callable[[], Run]) -> None:
        """Waits for the lock and makes the run."""
        tenancy = self._tenancy
        hold_at_exit()
        tenancy.check_open(self._op)
        tenancy.take(self._op, self._holder)
        tenancy.check_open(self._op)
        tenancy.complete_outstanding()
        self._run = tenancy.running = make_run()

    # No `try` where `Ending` guards: CPython's exception table does not cover a `try`'s first instruction.
    def perform(self, non_blocking: bool, instead: Callable[[], Run] | None = None) -> Any:
        """The result of a map, or its future, which ends the run if this call succeeds.

        `instead` makes the run that replaces a `BriefRun` whose chunk is too large for the memory.
        """
        run = self._run
        assert isinstance(run, (MapRun, BriefRun))
        try:
            run.issue()
            if not non_blocking:
                return run.settle()
            assert isinstance(run, MapRun)
            self._future = StreamFuture(run, self._complete)
            return self._future
        except BaseException as error:
            if instead is None or not (isinstance(run, BriefRun) and run.is_too_large(error)):
                _raise_told(run, error)
            error.__traceback__ = None  # it holds what fn had allocated
        run.end(has_failed=True)
        self._run = self._tenancy.running = instead()
        return self.perform(non_blocking)

    def results(self) -> Iterator[Any]:
        """The results of an iterator."""
        run = self._run
        assert isinstance(run, (IterRun, InlineIterRun))
        try:
            yield from run.results()
        except BaseException as error:
            _raise_told(run, error)

    def end(self, error: BaseException | None) -> None:
        """Ends the run and gives back everything that the call holds."""
        tenancy = self._tenancy
        if self._is_over or not tenancy.owner.is_here():
            return  # a child that was forked meanwhile owns nothing of it
        is_promised = self._future is not None and error is None
        if tenancy.lock.has(self._holder):  # until it is given back, this call owns engines and slots
            if is_promised:
                tenancy.outstanding = self._future
            elif self._run is not None:
                self._run.end(has_failed=error is not None)
                tenancy.stats = self._run.record()
            tenancy.running = None
            if tenancy.is_closed:
                tenancy.free()
        tenancy.lock.give_back(self._holder)
        if not is_promised:
            self._finish()
            self._is_over = True
        hold_at_exit()  # after everything is given back: the exit waits for that

    def _complete(self, stats: Callable[[], StreamStats]) -> None:
        self._tenancy.stats = stats
        if self._tenancy.outstanding is self._future:
            self._tenancy.outstanding = None
        self._future = None  # breaks a reference cycle that would keep the run's tensors
        self._finish()

    def _finish(self) -> None:
        if self._finished:
            self._finished.pop()()  # taken before it is called: never twice
