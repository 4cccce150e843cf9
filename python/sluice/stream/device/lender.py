"""The engines, slots and page-locked memory of one Streamer, which its runs borrow one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import memory
from .engine import EngineDevice
from .lent import Lent, Limits
from .registered import Registered
from .slots import Slots


class Lender:
    """Makes what runs ask for, at the first time, and keeps it for the next one.

    Args:
        devices: how many there are.
        depth: slots a device.
        memory_budget: bytes a device for slots and one output of `fn`, or None.
        pinned_budget: bytes of page-locked memory, or None.
        threads: that stage pageable memory.
    """

    def __init__(
        self, devices: int, depth: int, memory_budget: int | None, pinned_budget: int | None, threads: int
    ) -> None:
        self._depth, self._memory_budget, self._threads = depth, memory_budget, threads
        is_given = pinned_budget is not None
        self._pinned_budget = memory.default_pinned_budget() if pinned_budget is None else pinned_budget
        self._ring = memory.ring_shape(self._pinned_budget, devices)
        self.lent: dict[torch.device, Lent] = {}
        room = self._pinned_budget - self.limits(devices).ring_bytes
        self.registered = Registered(room if is_given else memory.default_registered_budget(), shared=is_given)

    def limits(self, devices: int) -> Limits:
        """What a run on so many devices may take."""
        ring_bytes = 2 * self._ring[0] * self._ring[1] * devices
        return Limits(self._depth, 2 * self._depth, self._memory_budget, self._pinned_budget, ring_bytes)

    def make_engine(self, place: torch.device) -> EngineDevice:
        """The engine of a device."""
        buffers, size = self._ring if all(self._ring) else (1, 4096)  # never used then: Routes refuses
        return EngineDevice(place, 2 * self._depth, self._threads, (buffers, size))

    def lend(self, places: Sequence[torch.device]) -> dict[torch.device, Lent]:
        """What a run on these devices uses."""
        for place in places:
            if place not in self.lent:
                self.lent[place] = Lent(self.make_engine(place), Slots(place, self._depth))
            self.lent[place].nbytes = self.lent[place].slots.nbytes
        return {place: self.lent[place] for place in places}

    def let_go(self) -> None:
        """Gives back what is large: slots, and memory that was page-locked in place. Nothing may be in flight."""
        for lent in self.lent.values():
            lent.slots.release()
            lent.settled.let_go()
        self.registered.release()

    def close(self) -> None:
        """Frees everything; may be called again."""
        self.let_go()
        for lent in self.lent.values():
            lent.engine.close()
        self.lent.clear()
