"""The activation argument that all of these packages share."""

from __future__ import annotations

from typing import Any

from ..causal_conv1d import ACTIVATIONS


def check_activation(op: str, activation: Any) -> None:
    """Raises `NotImplementedError` for an activation that sluice does not have."""
    if activation not in ACTIVATIONS:
        raise NotImplementedError(f"{op}: activation must be None, identity, silu or swish, got {activation!r}")
