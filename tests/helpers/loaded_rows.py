"""Data sets of a DataLoader's workers, which import this file when they are spawned."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

import sluice
from sluice import stages

ROWS, SAMPLES = 24, 300


class Rows(Dataset[torch.Tensor]):
    """Row i is full of i."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((SAMPLES,), float(i))


class StreamedRows(Rows):
    """The same through a chain, by the Streamer of the worker."""

    budget = 4096  # bytes
    streamer: sluice.Streamer | None = None

    def __getitem__(self, i: int) -> Any:
        assert self.streamer is not None
        y = self.streamer.map(stages.scale(2.0) | stages.shift(1.0), super().__getitem__(i))
        slot_bytes = self.streamer.stats().slot_bytes
        return {"y": y, "process": os.getpid(), "slot_bytes": slot_bytes}


def open_streamer(worker: int) -> None:
    """A worker's `worker_init_fn`."""
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.streamer = sluice.Streamer("cpu", memory_budget=info.dataset.budget)
