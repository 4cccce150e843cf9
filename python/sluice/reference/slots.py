"""Slots of a cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def slot_of(indices: torch.Tensor | None, n: int, slots: int, skipped: Sequence[int | None]) -> int | None:
    """The last valid index of sequence n, if there is one."""
    if indices is None:
        return n
    valid = [i for i in indices[n].reshape(-1).tolist() if i not in skipped and 0 <= i < slots]
    return valid[-1] if valid else None
