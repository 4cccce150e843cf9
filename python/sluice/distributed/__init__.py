"""Sequences that are split among ranks, and rules for DTensor.

`conv1d` and `causal_conv1d` take this rank's piece of a sequence. DTensors go to sluice's own functions: importing this
module registers how each of them is sharded.
"""

from __future__ import annotations

import torch.distributed

from .causal_conv1d import causal_conv1d
from .conv1d import conv1d
from .exchange import gather_lengths

__all__ = ["causal_conv1d", "conv1d", "gather_lengths"]

if torch.distributed.is_available():
    from .sharding import register

    register()
