"""`StreamFuture`: the result of a run whose last chunks are still on their way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .faults import CancelledError
from .run import MapRun
from .stats import StreamStats

_POLL_MILLISECONDS = 20


class StreamFuture:
    """What `stream_map(..., non_blocking=True)` returns: all calls of `fn` are issued, results are on their way.

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
        self._lock = threading.RLock()
        self._finished = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._stats: Callable[[], StreamStats] = StreamStats

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once. Never blocks."""
        if self._finished:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # another thread is about to finish it
        try:
            if not self._finished and self._run.has_landed():
                self._finish()
            return self._finished
        finally:
            self._lock.release()

    def result(self, timeout: float | None = None) -> Any:
        """The complete result; waits for it. May be called again and again, from any thread.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.

        Returns:
            What `stream_map` returns without `non_blocking`.

        Raises:
            TimeoutError: it is not there in time; it may be asked for again.
            concurrent.futures.CancelledError: it was cancelled.
            RuntimeError: a source was changed while the device could still read it, or a copy failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._run.op}: the result must land within {timeout} s, got no result yet")
            left = _POLL_MILLISECONDS if deadline is None else 1e3 * (deadline - time.monotonic())
            self._run.wait(int(min(max(left, 1), _POLL_MILLISECONDS)))
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> bool:
        """Gives the result up: `result` raises from then on. False where it was complete already."""
        if self.done():
            return False
        with self._lock:
            if self._finished:
                return False
            self._run.cancel()
            self._finish()
            return isinstance(self._error, CancelledError)

    def stats(self) -> StreamStats:
        """Numbers of the run; waits until it has landed."""
        self.settle()
        return self._stats()

    def settle(self) -> None:
        """Waits until the run is over, whatever became of it."""
        with self._lock:
            if not self._finished:
                self._finish()

    def _finish(self) -> None:  # the lock is held
        try:
            self._value = self._run.settle()
        except BaseException as error:
            self._error = error
        self._stats = self._run.record()
        self._finished = True
        self._release(self._stats)
        del self._run.works[:]  # engine and slots are another run's now
