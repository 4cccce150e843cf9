"""Engines and slots that a Streamer lends its runs, and state that a run leaves for later runs."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable, Hashable

from .engine import EngineDevice
from .slots import Slots


class Settled:
    """The chunk size that fitted the last problem of a device: a callable, and everything else that determines it.

    The callable is compared by identity, not by `id`, which may be reused. It is not kept alive: there is a weak
    reference to it, or to the object of a bound method. A callable without weak references, such as a method of a
    builtin type, is held until the next `keep`, or until `let_go`.
    """

    def __init__(self) -> None:
        self._callable: Callable[[], object] = lambda: None
        self._problem: Hashable = None
        self._rows = 0

    def keep(self, fn: Callable[..., object], problem: Hashable, rows: int) -> None:
        """Records that `rows` fitted."""
        if not self._is_for(fn):
            try:
                self._callable = weakref.WeakMethod(fn) if isinstance(fn, types.MethodType) else weakref.ref(fn)
            except TypeError:
                self._callable = lambda: fn
        self._problem, self._rows = problem, rows

    def rows_for(self, fn: Callable[..., object], problem: Hashable) -> int | None:
        """The rows that fitted an identical problem; None if the last problem differed."""
        return self._rows if self._is_for(fn) and self._problem == problem else None

    def let_go(self) -> None:
        """Forgets a callable that is held."""
        if not isinstance(self._callable, weakref.ref):
            self._callable = lambda: None

    def _is_for(self, fn: Callable[..., object]) -> bool:
        known = self._callable()
        # Each access makes a new bound method; two are equal if object and function are the same.
        return known is fn or (isinstance(fn, types.MethodType) and isinstance(known, types.MethodType) and known == fn)


@dataclasses.dataclass
class Lent:
    """One device's engine and slots, lent to a run."""

    engine: EngineDevice
    slots: Slots
    settled: Settled = dataclasses.field(default_factory=Settled)
    nbytes: int = 0  # bytes of the slots when they were last lent

    def take_back(self) -> None:
        """Frees slots that the borrowing run has allocated; nothing may be in flight."""
        if self.slots.nbytes != self.nbytes:
            self.slots.release()


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a Streamer's runs."""

    depth: int
    event_sets: int
    memory_budget: int | None
    pinned_budget: int
    ring_bytes: int
