"""Checks of a folded forward at each call against its trace: attributes, submodules, and hooks."""

from __future__ import annotations

import copy
import inspect
import itertools
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook

from .._library import innermost_transform, loses_gradient
from .classes import has_other_hooks, lasting_class
from .observe import Observed, Refused, is_plain

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType, type)
_MISSING = object()
_OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__)
_DEPTH = 4


class _Tensor:
    """A tensor; its values do not matter."""


Path = tuple[str, ...]


class Guards:
    """Immutable: copies of a module share it.

    Args:
        root: the module whose forward was traced.
        observed: what its code may have read.
        called: names of the submodules that the trace calls.
    """

    def __init__(self, root: torch.nn.Module, observed: Observed, called: set[str]) -> None:
        self._values: list[tuple[Path, str, Any]] = []
        self._classes: list[tuple[Path, type]] = []
        self._lengths: list[tuple[Path, tuple[str, ...]]] = []
        self._globals = list(observed.globals.values())
        self._attributes(root, (), observed, _DEPTH)
        for name in sorted(observed.asked - set(root.__dict__)):
            if not hasattr(root, name):
                self._values.append(((), name, _MISSING))
        for path in _modules_of(root, observed.names, called):
            module = at(root, path)
            self._classes.append((path, lasting_class(module)))
            if isinstance(module, _CONTAINERS):
                self._lengths.append((path, tuple(module._modules)))
            if path:
                self._attributes(module, path, observed, _DEPTH)
        if isinstance(root, _CONTAINERS):
            self._lengths.append(((), tuple(root._modules)))

    def hold(self, root: torch.nn.Module) -> bool:
        """Whether nothing has changed."""
        for path, name, then in self._values:
            now = getattr(at(root, path), name, _MISSING)
            if now is not then and not _is_same(now, then):
                return False
        for variables, name, then in self._globals:
            now = variables.get(name, _MISSING)
            if now is not then and not _is_same(now, then):
                return False
        for path, kind in self._classes:
            if lasting_class(submodule(root, path)) is not kind:
                return False
        return all(tuple(submodule(root, path)._modules) == keys for path, keys in self._lengths)

    def _attributes(self, owner: Any, path: Path, observed: Observed, depth: int) -> None:
        """Notes the attributes that may have been read, and those of the objects among them."""
        own = set(getattr(owner, "__dict__", ())) - _OF_EVERY_MODULE if observed.asks else set()
        for name in sorted(observed.names | own):
            if name.startswith("__") or not _is_attribute(owner, name, observed):
                continue
            value = getattr(owner, name)
            if isinstance(value, torch.nn.Module):
                continue
            if isinstance(value, torch.Tensor):
                self._values.append((path, name, _Tensor))
            elif is_plain(value):
                self._values.append((path, name, copy.deepcopy(value)))
            elif isinstance(value, _FUNCTIONS):
                if name in getattr(owner, "__dict__", {}):
                    self._values.append((path, name, value))
            elif isinstance(value, (list, tuple, dict, set)) or not depth:
                raise Refused(f"attribute {name} holds objects, whose changes would not be seen")
            else:
                self._values.append((path, name, _Kind(type(value))))
                self._attributes(value, (*path, name), observed, depth - 1)


class _Kind:
    """An object of that class."""

    def __init__(self, kind: type) -> None:
        self.kind = kind


def _is_attribute(owner: Any, name: str, observed: Observed) -> bool:
    """Whether the owner has data of that name: its own, its class's, or of a property that has run."""
    if name in getattr(owner, "__dict__", ()):
        return True
    is_module = isinstance(owner, torch.nn.Module)
    if is_module and any(name in group for group in (owner._parameters, owner._buffers, owner._modules)):
        return True
    static = inspect.getattr_static(type(owner), name, _MISSING)
    if static is _MISSING:
        return not is_module and hasattr(owner, name)
    if isinstance(static, property):
        return id(getattr(static.fget, "__code__", None)) in observed.codes
    return not is_module or not hasattr(torch.nn.Module, name)


def _is_same(now: Any, then: Any) -> bool:
    if then is _Tensor:
        return isinstance(now, torch.Tensor)
    if isinstance(then, _Kind):
        return type(now) is then.kind
    return type(now) is type(then) and now is not _MISSING and bool(now == then)


def _modules_of(root: torch.nn.Module, names: set[str], called: set[str]) -> list[Path]:
    """Submodules that the forward may look at: those it calls, the containers on the way, and those it names."""
    paths: dict[Path, None] = {}
    for name in sorted(called):
        path = tuple(name.split("."))
        for end in range(1, len(path) + 1):
            paths[path[:end]] = None
    _add_named(root, (), names, paths)
    return list(paths)


def _add_named(module: torch.nn.Module, path: Path, names: set[str], paths: dict[Path, None]) -> None:
    """Submodules by names that the forward has, and the parts of lists of them."""
    for name, part in module._modules.items():
        if part is not None and (name in names or isinstance(module, _CONTAINERS)):
            if isinstance(part, (torch.nn.ParameterList, torch.nn.ParameterDict)):
                raise Refused(f"{name} is a list of parameters, whose changes would not be seen")
            paths[(*path, name)] = None
            _add_named(part, (*path, name), names, paths)


def is_eager(module: torch.nn.Module, values: Iterable[torch.Tensor]) -> bool:
    """Whether the call is one of plain tensors that wants no gradient.

    Under autocast torch chooses the dtype of each function, so that forward runs itself.
    """
    if torch.compiler.is_compiling() or torch._C._is_any_autocast_enabled() or _has_any_global_hook():
        return False
    if innermost_transform() is not None or torch._C._get_tracing_state() is not None:
        return False
    return not loses_gradient(itertools.chain(values, module.parameters()))


def holds(guards: Guards, watched: list[tuple[tuple[str, ...], bool]], module: torch.nn.Module) -> bool:
    """Whether the module is as it was traced, and nothing sees the parts of it that are watched."""
    try:
        if not guards.hold(module):
            return False
        for path, has_parts in watched:
            part = submodule(module, path)
            if has_other_hooks(part) or (has_parts and any(map(has_other_hooks, part.modules()))):
                return False
    except (AttributeError, KeyError):
        return False
    return True


def submodule(root: torch.nn.Module, path: Path) -> torch.nn.Module:
    """The submodule at the end of the path.

    Raises:
        KeyError, AttributeError: there is none.
    """
    for name in path:
        root = root._modules[name]  # type: ignore[assignment]
    return root


def at(root: Any, path: Path) -> Any:
    """The attribute at the end of the path."""
    for name in path:
        root = getattr(root, name)
    return root
