"""A call or an iterator of a Streamer, from its turn to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .ending import Hold
from .iter.iterate import IterRun
from .map.future import StreamFuture
from .map.run import MapRun
from .report.stats import StreamStats

if TYPE_CHECKING:
    from .streamer import Streamer

ONE_AT_A_TIME = (
    "a Streamer must do one thing at a time, got a call from within its own run or iterator; use another Streamer"
)


class Call:
    """One call or iterator of a Streamer, and what it has taken: to be ended whatever became of it, and maybe twice.

    Args:
        op: for messages.
        streamer: whose turn it takes.
        finished: called once, when the Streamer is free again.
    """

    def __init__(self, op: str, streamer: Streamer, finished: Callable[[], None]) -> None:
        self._op, self._streamer = op, streamer
        self._finished = [finished]
        self._hold = Hold()
        self._run: MapRun | IterRun | None = None
        self._future: StreamFuture | None = None

    def begin(self, make_run: Callable[[], MapRun | IterRun]) -> None:
        """Waits for the Streamer's turn and makes the run."""
        streamer = self._streamer
        streamer._check_open(self._op)
        streamer._turn.take(self._hold, f"{self._op}: {ONE_AT_A_TIME}")
        streamer._check_open(self._op)
        streamer._complete_outstanding()
        self._run = streamer._running = make_run()

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
        streamer = self._streamer
        if not streamer._owner.is_here():
            return  # a child that was forked meanwhile: nothing of it is the child's
        is_promised = self._future is not None and error is None
        if streamer._turn.has(self._hold):  # until it is given back, engines and slots are this call's
            if is_promised:
                streamer._outstanding = self._future
            elif self._run is not None:
                self._run.end(has_failed=error is not None)
                streamer._stats = self._run.record()
            streamer._running = None
            if streamer._closed:
                streamer._free()
        streamer._turn.give_back(self._hold)
        if not is_promised:
            self._finish()

    def _complete(self, stats: Callable[[], StreamStats]) -> None:
        self._streamer._stats = stats
        if self._streamer._outstanding is self._future:
            self._streamer._outstanding = None
        self._future = None  # which has this: no circle keeps the run's tensors
        self._finish()

    def _finish(self) -> None:
        with contextlib.suppress(IndexError):
            self._finished.pop()()  # taken before it is called: never twice
