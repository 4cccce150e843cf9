"""Causal convolutions of transformers whose forward torch.fx cannot follow, and what they pad."""

from __future__ import annotations

from typing import Any

import torch

from ..replace.padding import NAMES as PADDED
from .values import NoStreamError


def is_wrapper(module: torch.nn.Module) -> bool:
    """Whether the module is a convolution with a padding of its own, also after `sluice.replace`."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in PADDED for kind in type(module).__mro__)


def convolution_of(module: Any) -> tuple[torch.nn.Conv1d, int, str]:
    """A wrapper's convolution, how much it pads on the left, and by what.

    Raises:
        NoStreamError: it is not causal, or pads values that a stream does not have.
    """
    conv = module.conv
    if not getattr(module, "causal", True):
        raise NoStreamError("is not causal: it pads on both sides")
    if hasattr(module, "norm") and getattr(module, "norm_type", "") == "time_group_norm":
        raise NoStreamError("normalises over time")
    mode = getattr(module, "pad_mode", "constant")
    total = int(module.padding_total if hasattr(module, "padding_total") else module.padding)
    if mode not in ("constant", "zero", "replicate", "reflect") and total > 0:
        raise NoStreamError(f"pads by {mode!r}, which takes the last inputs")
    return conv, total, mode if mode in ("replicate", "reflect") else "zeros"
