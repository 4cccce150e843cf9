"""Which convolutions are worth folding: it depends on who runs the rest of the graph."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.fx import Node

from .convolution import Convolution
from .images import is_long
from .nodes import fake_value, source_of
from .stage import GraphStage


class Policy(Protocol):
    """The part of the pass that depends on the runner.

    Attributes:
        is_final: whether the graph runs as the pass leaves it.
        has_guard: whether the graph is compiled again when torch's TF32 setting changes.
    """

    is_final: bool
    has_guard: bool

    def why_left(self, convolution: Convolution, stages: list[GraphStage]) -> str | None:
        """Why torch's convolution stays, given the stages that would be folded; None if it does not."""


class ForInductor:
    """Inductor fuses the ops around a convolution of torch at least as well.

    Args:
        has_guard: as the policy's.
    """

    is_final = False

    def __init__(self, has_guard: bool = False) -> None:
        self.has_guard = has_guard

    def why_left(self, convolution: Convolution, stages: list[GraphStage]) -> str | None:
        """Where torch's kernel computes the sums anyway."""
        x = fake_value(convolution.x)
        assert x is not None
        # Without a guard torch's convolution of float32 follows a changed TF32 setting, and sluice's would not.
        is_settled = self.has_guard or convolution.is_sluices or x.dtype != torch.float32
        is_ours = convolution.is_depthwise or (convolution.is_on_tensor_cores and is_settled)
        if x.device.type == "cuda" and not is_ours:
            return f"on a GPU torch computes convolutions of {x.dtype} that are not depthwise"
        is_torchs = not convolution.is_sluices and not convolution.is_depthwise
        if x.device.type == "cpu" and is_torchs and is_long(x):
            return "torch's own kernel computes it"
        return None


class AsItIs:
    """Torch's ops run one by one.

    Args:
        weights: the inputs of the graph whose convolutions may be folded; None for all.
    """

    is_final = has_guard = True

    def __init__(self, weights: set[Node] | None = None) -> None:
        self.weights = weights

    def why_left(self, convolution: Convolution, stages: list[GraphStage]) -> str | None:
        """Where sluice's op would be no faster."""
        if self.weights is not None and source_of(convolution.weight) not in self.weights:
            return "`only` leaves it"
        if convolution.is_sluices or convolution.is_depthwise or convolution.is_on_tensor_cores:
            return None
        return "torch's own kernel computes it"
