"""Objects that belong to one process, and its exit.

A child of `fork` has none of its parent's threads, and their locks stay locked in it. Objects that use threads
therefore record the process that made them: in a child they refuse to work, and ending them there does nothing. At the
interpreter's exit no wait takes longer than `EXIT_SECONDS`. Other threads stay in their calls: one that frees a tensor
while the interpreter ends gives the GIL away, cannot take it again, and torch then ends the process by `abort`.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable

# Cancelled work ends when its chunks in flight have landed: milliseconds, unless fn itself takes longer.
EXIT_SECONDS = 5.0

_forks = 0  # forks between the first process and this process: a process id may recur, this count does not
_exit_began: float | None = None
_exit_thread: int | None = None  # runs the exit handlers
_held_until = 0.0


class Owner:
    """The process that constructs this."""

    __slots__ = ("_forks", "_pid")

    def __init__(self) -> None:
        self._pid, self._forks = os.getpid(), _forks

    def is_here(self) -> bool:
        """Whether this is that process and not a child of it."""
        return self._pid == os.getpid() and self._forks == _forks

    def check(self, op: str, what: str) -> None:
        """Raises `RuntimeError` in a child."""
        if not self.is_here():
            raise RuntimeError(f"{op}: the {what} must be used by the process that made it, got a fork of it")


def after_fork(renew: Callable[[], None]) -> None:
    """Calls `renew` in each child before any other code of this package runs there."""
    os.register_at_fork(after_in_child=renew)


def _count_fork() -> None:
    global _forks, _exit_began, _exit_thread
    _forks += 1
    _exit_began = _exit_thread = None


after_fork(_count_fork)


def begin_exit() -> None:
    """Limits waits from now on."""
    global _exit_began, _exit_thread, _held_until
    _exit_began, _exit_thread = time.monotonic(), threading.get_ident()
    _held_until = _exit_began + 2 * EXIT_SECONDS


def end_exit() -> None:
    """Ends the limit, for exit handlers that run later."""
    global _exit_began
    _exit_began = None


def seconds_left() -> float | None:
    """The longest wait that is still allowed; None: no limit."""
    return None if _exit_began is None else max(0.0, _exit_began + EXIT_SECONDS - time.monotonic())


def hold_at_exit() -> None:
    """Keeps a thread that the interpreter's end cuts off, or returns in time if the interpreter does not end.

    To be called where the thread holds nothing that the exit waits for.
    """
    if _exit_thread is not None and _exit_thread != threading.get_ident():
        time.sleep(max(0.0, _held_until - time.monotonic()))


class NotInTime(SystemExit):
    """Something does not end at the interpreter's exit. A `SystemExit`, because that ends a thread silently."""


def keep_for_ever(thing: object) -> None:
    """Keeps an object that work which cannot be stopped still uses, even past the interpreter's end.

    It is on the stack of a thread that waits forever; the interpreter does not touch such threads.
    """
    _thread.start_new_thread(_wait_for_ever, (thing,))


def _wait_for_ever(thing: object) -> None:
    never = _thread.allocate_lock()
    never.acquire()
    never.acquire()
    del thing
