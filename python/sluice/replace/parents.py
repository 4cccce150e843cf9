"""The modules whose calls are traced: those around convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .classes import is_convolution
from .entry import entry_of, may_have_entry

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)
_FUNCTIONS = frozenset(("conv1d", "conv_transpose1d"))
# The share of convolutions among modules with parameters: to trace the others takes time and gains little.
_LEAST_SHARE = 0.5


def parents(model: torch.nn.Module, with_functions: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that call convolutions, and those around them that consist mostly of convolutions.

    Args:
        model: any module.
        with_functions: whether calls of torch.nn.functional's convolutions count.
    """
    for name, module in model.named_modules():
        if isinstance(module, _CONTAINERS) or is_convolution(module):
            continue
        if not may_have_entry(module) and entry_of(module) is None:
            continue
        if _calls_convolutions(module) or (with_functions and _calls_functions(module)) or _is_mostly_those(module):
            yield name, module


def _calls_convolutions(module: torch.nn.Module) -> bool:
    """Whether convolutions are among the children, or in lists of them."""
    return any(
        is_convolution(child) or (isinstance(child, _CONTAINERS) and _calls_convolutions(child))
        for child in module._modules.values()
        if child is not None
    )


def _calls_functions(module: torch.nn.Module) -> bool:
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    return code is not None and not _FUNCTIONS.isdisjoint(code.co_names)


def _is_mostly_those(module: torch.nn.Module) -> bool:
    parts = [part for part in module.modules() if part._parameters or is_convolution(part)]
    count = sum(map(is_convolution, parts))
    return count > 0 and count >= _LEAST_SHARE * len(parts)
