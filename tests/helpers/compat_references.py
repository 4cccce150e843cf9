"""What the stand-ins of compat are compared with: a sequence in float64; and their functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from sluice.compat.causal_conv1d import (
    causal_conv1d_interface,
    causal_conv1d_varlen,
    cpp_functions,
)


def convolved(history: torch.Tensor, tokens: torch.Tensor, weight: torch.Tensor, bias: Any, activation: Any) -> Any:
    """(C, K-1) and (C, S) of one sequence: its result (C, S) in float64."""
    if tokens.numel() == 0:
        return tokens.double()
    columns, offset = torch.cat([history, tokens], dim=-1).double(), None if bias is None else bias.double()
    sums = F.conv1d(columns[None], weight.double()[:, None], offset, groups=len(weight))[0]
    return F.silu(sums) if activation in ("silu", "swish", True) else sums


def functions() -> dict[str, Callable[..., Any]]:
    found = {}
    for module in (causal_conv1d_interface, causal_conv1d_varlen, cpp_functions):
        found |= {name: getattr(module, name) for name in module.__all__}
    return found
