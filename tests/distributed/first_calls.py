"""A first call with DTensors in a process that has not loaded sluice.distributed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import sluice

MODULE = sluice.nn.Conv1d(4, 4, 3, groups=4, bias=False, post="silu")
CALLS: dict[str, Callable[..., Any]] = {
    "conv1d": lambda x, w: sluice.conv1d(x, w, groups=4, post="silu"),
    "transform": lambda x, w: sluice.transform(x, sluice.stages.silu()),
    "causal_conv1d": lambda x, w: sluice.causal_conv1d(x, w[:, 0], return_final_states=True)[0],
    "module": lambda x, w: torch.func.functional_call(MODULE, {"weight": w}, x),
}


def first_call(name: str, how: str) -> tuple[bool, bool, str]:
    """Whether the package is loaded before and after the call, and where its result is."""
    mesh, call = init_device_mesh("cpu", (1,)), CALLS[name]
    plain = torch.randn(2, 4, 9), torch.randn(4, 1, 3)
    x, w = distribute_tensor(plain[0], mesh, [Shard(1)]), distribute_tensor(plain[1], mesh, [Shard(0)])
    MODULE.weight = torch.nn.Parameter(w, requires_grad=False)
    before = "sluice.distributed" in sys.modules
    y = (torch.compile(call, backend="aot_eager") if how == "compiled" else call)(x, w)
    after = "sluice.distributed" in sys.modules
    torch.testing.assert_close(y.full_tensor(), call(*plain))
    return before, after, str(y.placements)
