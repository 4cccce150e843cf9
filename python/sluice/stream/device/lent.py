"""What a Streamer lends its runs."""

from __future__ import annotations

import dataclasses

from .engine import EngineDevice
from .slots import Slots


@dataclasses.dataclass
class Lent:
    """What a Streamer lends a run for one device."""

    engine: EngineDevice
    slots: Slots


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a Streamer allows its runs."""

    depth: int
    window: int
    memory_budget: int | None
    pinned_budget: int
    ring_bytes: int
