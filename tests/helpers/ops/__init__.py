"""The registry of ops: what is true of all of them is tested with its rows."""

from __future__ import annotations

from typing import Any

from .causal_conv1d import CAUSAL_CONV1D
from .causal_conv1d_update import CAUSAL_CONV1D_UPDATE
from .causal_conv_transpose1d import CAUSAL_CONV_TRANSPOSE1D
from .conv1d import CONV1D
from .conv_transpose1d import CONV_TRANSPOSE1D
from .filter2d import FILTER2D
from .row import Call, Row, run
from .transform import TRANSFORM

__all__ = ["OPS", "VARIANTS", "Call", "Row", "every", "run"]

OPS: dict[str, Row] = {
    row.op: row
    for row in (
        TRANSFORM,
        CONV1D,
        CONV_TRANSPOSE1D,
        CAUSAL_CONV1D,
        CAUSAL_CONV1D_UPDATE,
        CAUSAL_CONV_TRANSPOSE1D,
        FILTER2D,
    )
}
VARIANTS = {name: variant for row in OPS.values() for name, variant in row.variants.items()}


def every(calls: str, device: str) -> dict[str, Any]:
    """Those calls of all ops, by their names."""
    return {name: call for row in OPS.values() for name, call in getattr(row, calls)(device).items()}
