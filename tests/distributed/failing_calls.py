"""Calls that fail on one rank, and what the others get."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

import sluice
import sluice.distributed


def outcome(name: str, *arguments: Any, **options: Any) -> tuple[str, str]:
    """The type and the text of a function's error; empty if there is none."""
    try:
        getattr(sluice.distributed, name)(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def ends_on_one_rank(name: str, loser: int) -> tuple[str, str]:
    """A process that ends instead of calling."""
    dist.barrier()  # all are connected
    if dist.get_rank() == loser:
        os._exit(1)
    x, weight = torch.ones(1, 2, 5), torch.ones(2, 1, 3) if name == "conv1d" else torch.ones(2, 3)
    options = {"groups": 2} if name == "conv1d" else {}
    return outcome(name, x, weight, lengths=[5] * dist.get_world_size(), **options)


def raises_on_one_rank(loser: int, seconds: float) -> tuple[str, str, float]:
    """A rank that gives a wrong weight, in a group with a timeout; also how long the call took."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=seconds))
    dist.barrier(group)
    channels = 3 if dist.get_rank() == loser else 2
    began = time.monotonic()
    found = outcome(
        "causal_conv1d", torch.ones(1, 2, 5), torch.ones(channels, 3), group=group, lengths=[5] * dist.get_world_size()
    )
    return *found, time.monotonic() - began


def of_a_group_without(rank: int) -> tuple[str, str]:
    """A call of a rank that is not in the group."""
    group = dist.new_group([one for one in range(dist.get_world_size()) if one != rank])
    if dist.get_rank() != rank:
        return "", ""
    return outcome("conv1d", torch.ones(1, 2, 5), torch.ones(2, 2, 3), group=group)


def with_own(name: str, values: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """A call whose arguments differ between ranks: shapes of tensors and other arguments by name."""
    given = dict(values[dist.get_rank()])
    tensors = {key: torch.zeros(given.pop(key)) for key in ("x_local", "weight")}
    return outcome(name, **tensors, **given)
