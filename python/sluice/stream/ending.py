"""How a call ends: wholly, whatever interrupts it, and whoever comes next finds everything in its place.

Ctrl-C raises `KeyboardInterrupt` between any two steps of the main thread, those that clean up included. Three rules
hold against it. What is taken is on record from the moment it is taken (`Turn`). What gives it back may be called
again, and is called twice (`Ending`): an interrupt within the first call is made good by the second. And what copies
read or write is kept by the engine until they are over (`EngineDevice.kept`): an interrupt can delay the end of a call,
but it cannot free memory under a copy.

Locks of `threading` that Python code takes in several steps (Event, Condition, Queue) are not safe here: an interrupt
within `wait` can leave them locked for those that would `set`.
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
    """A moment that has come or not: an Event whose waiters may be interrupted."""

    __slots__ = ("_has_come", "_wake")

    def __init__(self) -> None:
        self._has_come = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def set(self) -> None:
        """It has come."""
        self._has_come = True
        with contextlib.suppress(RuntimeError):  # it is awake already
            self._wake.release()

    def wait(self, seconds: float | None) -> bool:
        """Whether it has come, after waiting for at most so long."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._has_come:
            left = _LOOK_UP_SECONDS if deadline is None else min(_LOOK_UP_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return False
            if self._wake.acquire(timeout=left):
                self.set()  # for the others that wait
        return True


class Channel(Generic[Item]):
    """A queue whose readers may be interrupted.

    Not `queue.SimpleQueue`: with several readers its `get(timeout=)` may wait for ever on Python 3.11.
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
        with contextlib.suppress(RuntimeError):  # somebody is about to wake already
            self._wake.release()

    def get(self, seconds: float | None) -> Item:
        """The oldest item, after waiting for at most so long.

        Raises:
            IndexError: there is none in time.
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
        """Drops what nobody has taken."""
        self._items.clear()


class Hold:
    """Whoever has a turn, or will."""

    __slots__ = ("over", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.over = Latch()


class Turn:
    """One at a time; a thread that comes twice is told so instead of waiting for itself.

    No lock: one that is interrupted between taking it and noting so stays locked. `dict.setdefault` is both at once.
    """

    def __init__(self) -> None:
        self._holder: dict[str, Hold] = {}

    def has(self, hold: Hold) -> bool:
        """Whether `hold` has the turn."""
        return self._holder.get("turn") is hold

    def is_here(self) -> bool:
        """Whether the calling thread has the turn."""
        holder = self._holder.get("turn")
        return holder is not None and holder.thread == threading.get_ident()

    def try_take(self, hold: Hold) -> bool:
        """Whether `hold` has the turn now; never waits."""
        return self._holder.setdefault("turn", hold) is hold

    def take(self, hold: Hold, rule: str, seconds: float | None = None) -> bool:
        """Waits for the turn, but no longer than so many seconds; whether `hold` has it.

        Raises:
            RuntimeError: this thread has it already; `rule` is the text.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while (holder := self._holder.setdefault("turn", hold)) is not hold:
            if holder.thread == hold.thread:
                raise RuntimeError(rule)
            if not holder.over.wait(None if deadline is None else deadline - time.monotonic()):
                return False
        return True

    def give_back(self, hold: Hold) -> None:
        """Lets the next one go; nothing where `hold` has not got the turn."""
        if self.has(hold):
            del self._holder["turn"]
        hold.over.set()


class Ending:
    """Calls `end(error)` when a block is left. To be entered twice: `with Ending(end), Ending(end):`.

    Args:
        end: gets what was raised, or None. Must be safe to call again, after it was interrupted and after it was not.
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
            except KeyboardInterrupt as interrupt:  # memory that copies are still writing must not be given back
                interrupted = interrupt
        if interrupted is None or isinstance(error, KeyboardInterrupt):
            return
        try:
            raise interrupted
        finally:
            del interrupted  # whose traceback has this frame


class Workers:
    """Threads, each for one job, that are over before their owner lets go of what they use.

    Not `Thread.join`: it cannot be asked of a thread whose start was interrupted.

    Args:
        jobs: what each thread calls; must not raise.
    """

    def __init__(self, jobs: Sequence[Callable[[], None]]) -> None:
        self._jobs = jobs
        self._begins: dict[int, bool] = {}  # or, where it is False, never will
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
        """Whether all are over, after waiting for at most so long for one that is not."""
        return all(over.wait(seconds) for over in self._over)

    def join(self) -> None:
        """Waits until those that have begun are over; those that have not never will.

        Raises:
            NotInTime: at the interpreter's exit, where one takes too long.
        """
        for i, over in enumerate(self._over):
            if self._begins.setdefault(i, False) and not over.wait(process.seconds_left()):
                raise process.NotInTime
