"""Registers `backend="sluice"` with torch.compile without loading torch._dynamo, which takes seconds.

An installed wheel has an entry point, which torch finds without importing sluice. This module does the same for a
checkout: it registers the backend now, or when torch's list of backends is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Sequence

_ENTRY = importlib.metadata.EntryPoint("sluice", "sluice.compile.backend:sluice", "torch_dynamo_backends")
_REGISTRY = "torch._dynamo.backends.registry"


def register() -> None:
    """Registers the backend, or waits for torch's list of backends to be imported."""
    registry = sys.modules.get(_REGISTRY)
    if registry is None:
        sys.meta_path.insert(0, _Finder())
    else:
        _add_to(registry)


def _add_to(registry: types.ModuleType) -> None:
    # torch puts entry points of a wheel's metadata into the same place, and loads the function at its first use.
    registry._BACKENDS.setdefault("sluice", _ENTRY)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for one import and then removes itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads the module by its own loader, then registers the backend in it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _add_to(module)
