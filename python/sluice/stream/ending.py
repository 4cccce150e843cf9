"""How a call ends: completely, even if it is interrupted, so that the next call finds a consistent state.

Ctrl-C raises `KeyboardInterrupt` between any two steps of the main thread, also during clean-up. Three rules make that
safe. Taking a lock records its holder in the same step (`InterruptibleLock`). Clean-up may be repeated, and is called
twice (`Ending`): the second call completes an interrupted first call. The engine keeps memory that copies read or
write until they are complete (`EngineDevice.kept`): an interrupt can delay the end of a call, but cannot free memory
under a copy.

Primitives of `threading` that Python code takes in several steps (Event, Condition, Queue) are not safe here: an
interrupt within `wait` can leave them locked, which blocks `set`.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, TypeVar

from . import process

_LOOK_UP_SECONDS = 0.1

Item = TypeVar("Item")


class Latch:
    """An Event whose waiters may be interrupted."""

    __slots__ = ("_has_come", "_wake")

    def __init__(self) -> None:
        self._has_come = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def set(self) -> None:
        """Wakes all waiters, now and later."""
        self._has_come = True
        try:  # noqa: SIM105 - `suppress` takes as long as all of this
            self._wake.release()
        except RuntimeError:  # already released
            pass

    def wait(self, seconds: float | None) -> bool:
        """Whether it is set, after waiting at most `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._has_come:
            left = _LOOK_UP_SECONDS if deadline is None else min(_LOOK_UP_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return False
            if self._wake.acquire(timeout=left):
                self.set()  # for the other waiters
        return True


class Channel(Generic[Item]):
    """A queue whose readers may be interrupted.

    Not `queue.SimpleQueue`: with several readers its `get(timeout=)` may wait forever on Python 3.11.
    """

    __slots__ = ("_items", "_wake")

    def __init__(self) -> None:
        self._items: collections.deque[Item] = collections.deque()
        self._wake = threading.Lock()

    def put(self, item: Item) -> None:
        """Adds an item; never waits."""
        self._items.append(item)
        self._wake_one()

    def _wake_one(self) -> None:
        with contextlib.suppress(RuntimeError):  # a reader is already being woken
            self._wake.release()

    def get(self, seconds: float | None) -> Item:
        """The oldest item, after waiting at most `seconds`.

        Raises:
            IndexError: there was none in time.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with contextlib.suppress(IndexError):
                item = self._items.popleft()
                if self._items:
                    self._wake_one()
                return item
            left = _LOOK_UP_SECONDS if deadline is None else min(_LOOK_UP_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise IndexError("nothing came in time")
            self._wake.acquire(timeout=left)

    def clear(self) -> None:
        """Drops all items."""
        self._items.clear()


class Holder:
    """A call that has, or waits for, an `InterruptibleLock`."""

    __slots__ = ("over", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.over = Latch()


class InterruptibleLock:
    """A lock that raises if its own thread takes it again, instead of waiting for itself.

    Not a `threading.Lock`: an interrupt between taking it and recording that would leave it locked. `dict.setdefault`
    does both in one step.
    """

    def __init__(self) -> None:
        self._holder: dict[str, Holder] = {}

    def has(self, holder: Holder) -> bool:
        """Whether `holder` has the lock."""
        return self._holder.get("lock") is holder

    def is_here(self) -> bool:
        """Whether the calling thread has the lock."""
        current = self._holder.get("lock")
        return current is not None and current.thread == threading.get_ident()

    def try_take(self, holder: Holder) -> bool:
        """Takes the lock if it is free; whether `holder` has it. Never waits."""
        return self._holder.setdefault("lock", holder) is holder

    def take(self, holder: Holder, rule: str, seconds: float | None = None) -> bool:
        """Waits for the lock, at most `seconds`; whether `holder` has it.

        Raises:
            RuntimeError: this thread already has it; `rule` is the text.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while (current := self._holder.setdefault("lock", holder)) is not holder:
            if current.thread == holder.thread:
                raise RuntimeError(rule)
            if not current.over.wait(None if deadline is None else deadline - time.monotonic()):
                return False
        return True

    def give_back(self, holder: Holder) -> None:
        """Releases the lock if `holder` has it, and wakes the threads that wait for `holder`."""
        if self.has(holder):
            del self._holder["lock"]
        holder.over.set()


class Ending:
    """Calls `end(error)` when a block is left. To be entered twice: `with Ending(end), Ending(end):`.

    Args:
        end: gets the exception, or None. Must be safe to call again, after an interrupt and after success.
    """

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[BaseException | None], None]) -> None:
        self._end = end

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted: BaseException | None = None
        while True:
            try:
                self._end(error or interrupted)
                break
            except KeyboardInterrupt as interrupt:  # memory that copies still write must not be given back
                interrupted = interrupt
        if interrupted is None or isinstance(error, KeyboardInterrupt):
            return
        try:
            raise interrupted
        finally:
            del interrupted  # its traceback holds this frame


class Workers:
    """Threads, one per job, that end before their owner releases what they use.

    Not `Thread.join`: it does not work for a thread whose start was interrupted.

    Args:
        jobs: called by the threads; must not raise.
    """

    def __init__(self, jobs: Sequence[Callable[[], None]]) -> None:
        self._jobs = jobs
        self._begins: dict[int, bool] = {}  # by job; False: it never will
        self._over = [Latch() for _ in jobs]

    def start(self) -> None:
        """Starts them all."""
        for i in range(len(self._jobs)):
            threading.Thread(target=self._run, args=(i,), daemon=True).start()

    def _run(self, i: int) -> None:
        if self._begins.setdefault(i, True):
            try:
                self._jobs[i]()
            finally:
                self._over[i].set()

    def wait(self, seconds: float) -> bool:
        """Whether all have ended, after waiting at most `seconds` for the first that has not."""
        return all(over.wait(seconds) for over in self._over)

    def join(self) -> None:
        """Waits until the jobs that have begun end; the others never begin.

        Raises:
            NotInTime: one takes too long at the interpreter's exit.
        """
        for i, over in enumerate(self._over):
            if self._begins.setdefault(i, False) and not over.wait(process.seconds_left()):
                raise process.NotInTime
