"""What a Streamer lends its runs, and what runs leave there for those that come after them."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable, Hashable

from .engine import EngineDevice
from .slots import Slots


class Settled:
    """The chunk size that fitted the last problem of a device: a callable, and what else decides.

    The callable is known again by itself and not by its `id`, which goes to another one when it is gone. It is not kept
    alive: a function, a module, an object by a weak reference, a bound method by one to its object. What Python has no
    such reference to, as a method of a builtin type, is held until another one comes.
    """

    def __init__(self) -> None:
        self._callable: Callable[[], object] = lambda: None
        self._problem: Hashable = None
        self._rows = 0

    def keep(self, fn: Callable[..., object], problem: Hashable, rows: int) -> None:
        """So many rows fitted."""
        if not self._is_for(fn):
            try:
                self._callable = weakref.WeakMethod(fn) if isinstance(fn, types.MethodType) else weakref.ref(fn)
            except TypeError:
                self._callable = lambda: fn
        self._problem, self._rows = problem, rows

    def rows_for(self, fn: Callable[..., object], problem: Hashable) -> int | None:
        """What fitted an identical problem; None where the last one was another."""
        return self._rows if self._is_for(fn) and self._problem == problem else None

    def let_go(self) -> None:
        """Forgets a callable that is held."""
        if not isinstance(self._callable, weakref.ref):
            self._callable = lambda: None

    def _is_for(self, fn: Callable[..., object]) -> bool:
        known = self._callable()
        # Each access makes another bound method, equal where object and function are the same.
        return known is fn or (isinstance(fn, types.MethodType) and isinstance(known, types.MethodType) and known == fn)


@dataclasses.dataclass
class Lent:
    """What a Streamer lends a run for one device."""

    engine: EngineDevice
    slots: Slots
    settled: Settled = dataclasses.field(default_factory=Settled)
    nbytes: int = 0  # of the slots, when they were lent last

    def take_back(self) -> None:
        """Gives back what the run has allocated that borrowed the slots; nothing may be in flight."""
        if self.slots.nbytes != self.nbytes:
            self.slots.release()


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a Streamer allows its runs."""

    depth: int
    window: int
    memory_budget: int | None
    pinned_budget: int
    ring_bytes: int
