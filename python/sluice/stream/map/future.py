"""`StreamFuture`: the result of a run whose last chunks are still in flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ..ending import Ending, Holder, InterruptibleLock
from ..faults import CancelledError, not_copied
from ..process import Owner, hold_at_exit, seconds_left
from ..report.stats import StreamStats
from .base import MapRun

_POLL_MILLISECONDS = 20
_NOT_WITHIN = "a StreamFuture must not be waited for by its own progress callback, got such a wait"


class StreamFuture:
    """The result of `stream_map(..., non_blocking=True)`: all calls of `fn` are issued, results are in flight.

    Ctrl-C ends a wait, not the run: the result may be requested again. In a child of `fork` every use raises a
    `RuntimeError`; only garbage collection is allowed. A pickle or a copy raises `TypeError`.

    Example:
        >>> import torch, sluice
        >>> future = sluice.stream_map(torch.neg, torch.arange(4.0), chunk_size=2, non_blocking=True)
        >>> future.result()  # meanwhile the caller computed something else
        tensor([-0., -1., -2., -3.])
        >>> future.done()
        True
    """

    def __init__(self, run: MapRun, release: Callable[[Callable[[], StreamStats]], None]) -> None:
        self._run, self._release = run, release
        self._owner, self._lock = Owner(), InterruptibleLock()
        self._finished = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._stats: Callable[[], StreamStats] = StreamStats
        self._moved: tuple[int, int] | None = None  # when it was finished
        self._waiting: dict[int, None] = {}  # threads within the engine's wait

    def __reduce__(self) -> NoReturn:
        raise not_copied("StreamFuture", "waits for a run of its process", "pass on its result()")

    def done(self) -> bool:
        """Whether `result` would return or raise immediately. Reports progress; never blocks."""
        self._owner.check(self._run.op, "StreamFuture")
        hold_at_exit()
        if self._finished:
            return True
        holder = Holder()

        def end(_: BaseException | None) -> None:
            self._lock.give_back(holder)

        with Ending(end), Ending(end):
            # If another thread has the lock, it is about to finish.
            if self._lock.try_take(holder) and not self._finished:
                self._report()
                if self._error is not None or self._run.has_landed():
                    self._finish()
        return self._finished

    def _report(self) -> None:
        """Reports progress; a callback that raises ends the run."""
        try:
            self._run.reporter.poll()
        except Exception as error:
            self._error = self._run.told(error)

    def progress(self) -> tuple[int, int]:
        """Bytes of landed chunks in both directions, and their total. Never blocks."""
        self._owner.check(self._run.op, "StreamFuture")
        if self._moved is None:
            try:
                moved = self._run.landed_bytes()
            except RuntimeError:  # another thread has finished this and closed the engine
                if self._moved is None:
                    raise
        return moved if self._moved is None else self._moved

    def result(self, timeout: float | None = None) -> Any:
        """The complete result; waits for it. May be called repeatedly, from any thread.

        Args:
            timeout: seconds to wait at most; None: no limit.

        Returns:
            The result that `stream_map` returns without `non_blocking`.

        Raises:
            TimeoutError: it is not complete in time; it may be requested again.
            concurrent.futures.CancelledError: it was cancelled.
            RuntimeError: a source was changed while the device could still read it, or a copy failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if self._lock.is_here():
                raise RuntimeError(f"{self._run.op}: {_NOT_WITHIN}")
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._run.op}: the result must be complete within {timeout} s, got no result yet")
            left = _POLL_MILLISECONDS if deadline is None else 1e3 * (deadline - time.monotonic())
            self._wait(int(min(max(left, 1), _POLL_MILLISECONDS)))
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> bool:
        """Gives up the result: `result` raises from then on. False if it was already complete."""
        if self.done():
            return False
        self._run.cancel()
        self.settle()
        return isinstance(self._error, CancelledError)

    def stats(self) -> StreamStats:
        """Numbers of the run; waits until it has landed."""
        self.settle()
        return self._stats()

    def settle(self) -> None:
        """Waits until the run is over, failed or not."""
        self._owner.check(self._run.op, "StreamFuture")
        hold_at_exit()
        holder = Holder()

        def end(_: BaseException | None) -> None:
            self._lock.give_back(holder)

        with Ending(end), Ending(end):
            self._lock.take(holder, f"{self._run.op}: {_NOT_WITHIN}")
            if not self._finished:
                self._finish()

    def end_at_exit(self) -> None:
        """Cancels it; other threads that wait for the result end silently."""
        holder = Holder()
        if not self._finished and self._lock.take(holder, "it is being finished here", seconds_left()):
            if not self._run.has_landed():
                self._error = SystemExit()
            self._finish()
            self._lock.give_back(holder)
        # A thread that returns from C++ after the interpreter has ended would end the whole process.
        while self._waiting.keys() - {threading.get_ident()} and seconds_left() != 0:
            time.sleep(0.001)

    def _wait(self, milliseconds: int) -> None:
        thread = threading.get_ident()
        self._waiting[thread] = None
        try:
            self._run.wait(milliseconds)
        except RuntimeError:  # another thread has finished this and closed the engine
            if not self._finished:
                raise
        finally:
            self._waiting.pop(thread, None)

    def _finish(self) -> None:
        """Takes the result; the lock is held. May be called again after an interrupt."""
        if self._error is None:
            try:
                self._value = self._run.settle()
            except Exception as error:
                self._error = self._run.told(error)
        if self._moved is None:
            self._moved = self._run.landed_bytes()
        self._run.end(has_failed=self._error is not None)
        self._stats = self._run.record()
        self._finished = True
        self._release(self._stats)
