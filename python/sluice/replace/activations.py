"""Snakes that are folded into no convolution: torch computes one in eight passes, `sluice.transform` in one."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import parametrize

from ..nn.chained import is_plain
from ..transform import transform
from .classes import Derived, derived, has_other_hooks
from .guards import is_eager
from .known import chain_of_module


class OnePass(Derived):
    """A Snake that is one pass if no gradient is wanted, and otherwise its own forward."""

    @staticmethod
    def _sluice_computed(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """The result of one pass in a tuple, None if the module's own forward has to run."""
        result = _computed(module, *args) if len(args) == 1 and not kwargs else None
        return None if result is None else (result,)


def is_snake(module: torch.nn.Module) -> bool:
    """Whether it is one that may become a `OnePass`."""
    if isinstance(module, Derived) or has_other_hooks(module) or parametrize.is_parametrized(module):
        return False
    chain = chain_of_module(module)
    return chain is not None and [name for name, _ in chain.stages] == ["snake"]


def one_pass_class(module: torch.nn.Module) -> type:
    """The class of its `OnePass`."""
    return derived(OnePass, type(module))


def _computed(module: torch.nn.Module, x: Any) -> torch.Tensor | None:
    """The result; None if torch would give another dtype or shape, or a mode changes its functions."""
    if torch.compiler.is_compiling() or not is_plain(x) or x.dim() != 3 or not is_eager(module, (x,)):
        return None
    chain = chain_of_module(module)
    if chain is None or not chain.operands:
        return None
    for operand in chain.operands:
        fits = operand.numel() == 1 or operand.shape[-2:] == (x.shape[1], 1)
        if not is_plain(operand) or not fits or operand.dtype != x.dtype or operand.device != x.device:
            return None
    return transform(x, chain)
