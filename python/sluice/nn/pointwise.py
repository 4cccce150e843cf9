"""`Transform`: a chain as a module."""

from __future__ import annotations

import torch

from ..chain import Chain
from ..transform import transform
from .chained import Chained, chains_of, is_torchs, set_chain, with_gradients
from .state import State


class Transform(Chained):
    """A chain as a module: `sluice.transform(x, chain)` in one pass.

    If grad mode is on and x or a tensor of the chain requires grad, or if a module of the chain has no stage in its
    current state, as a Dropout in training, torch's code runs.

    Args:
        chain: a chain, the text of a chain without tensors, or a module that `sluice.stages.from_module` knows, for
            example a `Sequential` of pointwise modules.

    Shape:
        x: any; the result: the same.

    Raises:
        TypeError: `chain` is no chain, text or known module, or x is of a dtype that sluice does not compute with.

    Example:
        >>> import torch, sluice
        >>> sluice.nn.Transform(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Hardtanh(0, 1)))(torch.zeros(2))
        tensor([0., 0.])
    """

    def __init__(self, chain: Chain | str | torch.nn.Module) -> None:
        super().__init__()
        self._sluice = State(("stages",))
        set_chain(self, "stages", chain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The chain of x."""
        if is_torchs(self, x) or (chains := chains_of(self)) is None:
            return with_gradients(self, "stages", x)
        return transform(x, chains["stages"] or Chain())
