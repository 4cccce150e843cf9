"""The modules whose calls are traced: at least half of their parts are convolutions, or `forward` calls one."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .classes import is_convolution
from .entry import entry_of, may_have_entry

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)
_FUNCTIONS = frozenset(("conv1d", "conv_transpose1d"))
# The share of convolutions among modules with matrices: to trace the others takes time and gains little.
_LEAST_SHARE = 0.5


def parents(model: torch.nn.Module, with_functions: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules with convolutions, which are at least half of what they consist of.

    Args:
        model: any module.
        with_functions: whether calls of torch.nn.functional's convolutions count.
    """
    for name, module in model.named_modules():
        if isinstance(module, _CONTAINERS) or is_convolution(module):
            continue
        if not may_have_entry(module) and entry_of(module) is None:
            continue
        if (with_functions and _calls_functions(module)) or _share_of_convolutions(module) >= _LEAST_SHARE:
            yield name, module


def _calls_functions(module: torch.nn.Module) -> bool:
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    return code is not None and not _FUNCTIONS.isdisjoint(code.co_names)


def _share_of_convolutions(module: torch.nn.Module) -> float:
    """The share among the modules that do more than pointwise work, this one included."""
    parts = [part for part in module.modules() if is_convolution(part) or _has_matrix(part)]
    return sum(map(is_convolution, parts)) / max(len(parts), 1)


def _has_matrix(module: torch.nn.Module) -> bool:
    return any(one is not None and sum(size > 1 for size in one.shape) > 1 for one in module._parameters.values())
