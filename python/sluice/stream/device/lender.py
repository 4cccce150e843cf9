"""The engines, slots and pinned memory of one Streamer, which its runs borrow one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import memory
from .engine import EngineDevice
from .lent import Lent, Limits
from .registered import Registered
from .slots import Slots


class Lender:
    """Makes engines and slots at their first use and keeps them for the next run.

    Args:
        devices: their number.
        depth: slots per device.
        memory_budget: bytes per device for slots and one output of `fn`, or None.
        pinned_budget: bytes of pinned memory, or None.
        threads: copy pageable memory.
    """

    def __init__(
        self, devices: int, depth: int, memory_budget: int | None, pinned_budget: int | None, threads: int
    ) -> None:
        self._depth, self._memory_budget, self._threads = depth, memory_budget, threads
        is_given = pinned_budget is not None
        self._pinned_budget = memory.default_pinned_budget() if pinned_budget is None else pinned_budget
        self._ring = memory.ring_shape(self._pinned_budget, devices)
        self._limits: dict[int, Limits] = {}  # by the number of devices
        self.lent: dict[torch.device, Lent] = {}
        left = self._pinned_budget - self.limits(devices).ring_bytes
        self.registered = Registered(left if is_given else memory.default_registered_budget(), shared=is_given)

    def limits(self, count: int) -> Limits:
        """The limits of a run on `count` devices."""
        known = self._limits.get(count)
        if known is None:
            ring_bytes = 2 * self._ring[0] * self._ring[1] * count
            known = Limits(self._depth, 2 * self._depth, self._memory_budget, self._pinned_budget, ring_bytes)
            self._limits[count] = known
        return known

    def make_engine(self, device: torch.device) -> EngineDevice:
        """The engine of a device."""
        buffers, size = self._ring if all(self._ring) else (1, 4096)  # never used: Routes refuses
        return EngineDevice(device, 2 * self._depth, self._threads, (buffers, size))

    def lend(self, devices: Sequence[torch.device]) -> dict[torch.device, Lent]:
        """Engines and slots for a run on these devices."""
        for device in devices:
            if device not in self.lent:
                self.lent[device] = Lent(self.make_engine(device), Slots(device, self._depth))
            self.lent[device].nbytes = self.lent[device].slots.nbytes
        return {device: self.lent[device] for device in devices}

    def let_go(self) -> None:
        """Frees slots and unpins registered memory. Nothing may be in flight."""
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
