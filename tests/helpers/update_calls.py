"""A call of causal_conv1d_update that is right."""

from __future__ import annotations

from typing import Any

import torch

OP = "causal_conv1d_update"


def good_call(device: str) -> dict[str, Any]:
    shapes = {"x": (2, 6, 3), "conv_state": (2, 6, 4), "weight": (6, 4), "bias": (6,)}
    return {name: torch.randn(shape, device=device) for name, shape in shapes.items()}


def index(*shape: int, dtype: torch.dtype = torch.int32, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)
