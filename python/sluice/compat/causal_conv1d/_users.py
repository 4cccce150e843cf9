"""Users of the package: transformers, and modules that are already imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from ._modules import FUNCTIONS, PACKAGE

_HUB_KERNELS = "transformers.integrations.hub_kernels"
_DEPTH = 3  # decorators to look through: Hugging Face's kernels wrap the decorator that chooses


def kernel_mapping() -> dict[str, Any] | None:
    """The modules that transformers looks up before it loads a kernel; None without transformers."""
    try:
        mapping = getattr(importlib.import_module(_HUB_KERNELS), "_KERNEL_MODULE_MAPPING", None)
    except Exception:  # not installed, or broken: no model uses the mapping
        return None
    return mapping if isinstance(mapping, dict) else None


def forget_availability() -> None:
    """Clears transformers' cached answer to whether the package is available."""
    utilities = sys.modules.get("transformers.utils.import_utils")
    forget = getattr(getattr(utilities, "is_causal_conv1d_available", None), "cache_clear", None)
    if forget is not None:
        forget()


def modules_with(is_meant: Callable[[Any], bool]) -> tuple[str, ...]:
    """The imported modules in which a name of `FUNCTIONS` has such an implementation; None means torch code."""
    found = []
    for name, module in sys.modules.copy().items():
        if isinstance(module, ModuleType) and name.partition(".")[0] not in ("sluice", PACKAGE):
            bound = [vars(module)[function] for function in FUNCTIONS if function in vars(module)]
            if any(is_meant(_implementation(each)) for each in bound):
                found.append(name)
    return tuple(sorted(found))


def comes_from_elsewhere(implementation: Any) -> bool:
    """Whether it is torch code or the package's own function. Other functions with these names are ignored."""
    if implementation is None:
        return True
    return str(getattr(implementation, "__module__", "")).partition(".")[0] == PACKAGE


def is_one_of(functions: Iterable[Any]) -> Callable[[Any], bool]:
    """A predicate: whether an implementation is one of these functions."""
    wanted = list(functions)
    return lambda implementation: any(implementation is each for each in wanted)


def _implementation(bound: Any) -> Any:
    """The function behind transformers' decorators; None if they chose transformers' own torch code.

    `use_kernel_func_from_hub_with_fallback` has both in its closure: the `torch_function` that it decorates, and the
    `implementation` that it chose when the model's module was imported.
    """
    for variables in _closures(bound, _DEPTH):
        if "implementation" in variables and "torch_function" in variables:
            chosen = variables["implementation"]
            return None if chosen is variables["torch_function"] else chosen
    return bound


def _closures(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The variables that a function or a module's `forward` closes over, then the variables of functions among them."""
    function = value if isinstance(value, FunctionType) else getattr(type(value), "forward", None)
    if depth == 0 or not isinstance(function, FunctionType):
        return
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    yield variables
    for inner in variables.values():
        yield from _closures(inner, depth - 1)
