"""What belongs to one process, and ends with it.

A child of `fork` has none of its parent's threads, and what they had locked stays locked in it. So whatever has threads
behind it remembers who made it: in a child it refuses to work, and to end it there takes nothing. At the interpreter's
exit nobody is waited for longer than `EXIT_SECONDS`.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable

# Work that is cancelled ends with the chunks that are on their way: milliseconds, unless fn itself takes longer.
EXIT_SECONDS = 5.0

_forks = 0  # between the first process and this one: a number of a process may come again, this one does not
_exit_began: float | None = None


class Owner:
    """The process that makes this."""

    __slots__ = ("_forks", "_pid")

    def __init__(self) -> None:
        self._pid, self._forks = os.getpid(), _forks

    def is_here(self) -> bool:
        """Whether this is that process, and no child of it."""
        return self._pid == os.getpid() and self._forks == _forks

    def check(self, op: str, what: str) -> None:
        """Raises `RuntimeError` in a child."""
        if not self.is_here():
            raise RuntimeError(f"{op}: the {what} must be used by the process that made it, got a fork of it")


def after_fork(renew: Callable[[], None]) -> None:
    """Calls `renew` in each child before anything else of this package runs there."""
    os.register_at_fork(after_in_child=renew)


def _count_fork() -> None:
    global _forks, _exit_began
    _forks += 1
    _exit_began = None


after_fork(_count_fork)


def begin_exit() -> None:
    """From now on waits are limited."""
    global _exit_began
    _exit_began = time.monotonic()


def end_exit() -> None:
    """What is still called, by handlers that run later, waits as ever."""
    global _exit_began
    _exit_began = None


def seconds_left() -> float | None:
    """How long anything may be waited for; None: as long as it takes."""
    return None if _exit_began is None else max(0.0, _exit_began + EXIT_SECONDS - time.monotonic())


class NotInTime(SystemExit):
    """At the interpreter's exit something does not end. A `SystemExit`, because it ends a thread without a word."""


def keep_for_ever(thing: object) -> None:
    """Nothing frees it any more, the interpreter's end included: something that cannot be stopped still uses it.

    It is on the stack of a thread that waits for ever; the interpreter leaves such threads as they are.
    """
    _thread.start_new_thread(_wait_for_ever, (thing,))


def _wait_for_ever(thing: object) -> None:
    never = _thread.allocate_lock()
    never.acquire()
    never.acquire()
    del thing
