"""What the loops over equal chunks did in a call, and which chunks were left to Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.stream.device.pipeline import Flight
from sluice.stream.map import loop
from sluice.stream.map.work import DeviceWork, Job


@contextlib.contextmanager
def recorded_loops() -> Iterator[tuple[list[str], list[int]]]:
    """Lists of how far each call of a loop came, and of the chunks, but for the first, whose steps Python issued."""
    told: list[str] = []
    by_python: list[int] = []
    call, compute = loop._call, DeviceWork.compute

    def recorded(*arguments: Any) -> str:
        told.append(call(*arguments))
        return told[-1]

    def computed(self: DeviceWork, flight: Flight[Job]) -> None:
        by_python.append(flight.item.chunk.index)
        compute(self, flight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_call", recorded)
        patch.setattr(DeviceWork, "compute", computed)
        yield told, by_python
