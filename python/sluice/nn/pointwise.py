"""`Transform`: a chain as a module."""

from __future__ import annotations

import torch

from ..chain import Chain
from ..transform import transform
from .chained import Chained


class Transform(Chained):
    """A chain as a module: `sluice.transform(x, chain)` in one pass.

    If grad mode is on and x or a tensor of the chain requires grad, torch's code runs.

    Args:
        chain: a chain, the text of one without tensors, or a module that `sluice.stages.from_module` knows, for
            example a `Sequential` of pointwise ones.

    Shape:
        x: any; the result: the same.

    Raises:
        TypeError: `chain` is none of those, or x is of a dtype that sluice does not compute with.

    Example:
        >>> import torch, sluice
        >>> sluice.nn.Transform(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Hardtanh(0, 1)))(torch.zeros(2))
        tensor([0., 0.])
    """

    chain_names = ("stages",)
    stages: Chain | torch.nn.Module | None

    def __init__(self, chain: Chain | str | torch.nn.Module) -> None:
        super().__init__()
        self.set_chain("stages", chain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The chain of x."""
        if self.is_torchs(x):
            return self.with_gradients("stages", x)
        return transform(x, self.chain("stages") or Chain())
