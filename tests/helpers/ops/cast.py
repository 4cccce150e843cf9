"""What autocast makes of a raw op that writes its result."""

from __future__ import annotations

from collections.abc import Callable

import torch


def out_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype of a result under the autocast that there is."""
    device = x.device.type
    on = torch.is_autocast_enabled(device) and x.dtype != torch.float64
    return torch.get_autocast_dtype(device) if on else x.dtype


def written(op: Callable[..., None], x: torch.Tensor, *others: object) -> torch.Tensor:
    """The result of an out variant, with x's shape."""
    out = torch.empty(x.shape, device=x.device, dtype=out_dtype(x))
    op(x, *others, out=out)
    return out
