"""Stand-ins for the package's modules: its names, with their own specs."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

PACKAGE = "causal_conv1d"
_SUBMODULES = ("causal_conv1d_interface", "causal_conv1d_varlen", "cpp_functions")
FUNCTIONS = ("causal_conv1d_fn", "causal_conv1d_update")  # the names that models bind


class _Loader:
    """Fills a stand-in with the functions of its module in this folder."""

    def __init__(self, source: ModuleType) -> None:
        self.source = source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """None: the import system makes its usual module."""

    def exec_module(self, module: ModuleType) -> None:
        names = [name for name in self.source.__all__ if name.startswith(PACKAGE)]
        names = [name for name in names if not isinstance(getattr(self.source, name), ModuleType)]
        for name in names:
            setattr(module, name, getattr(self.source, name))
        module.__doc__ = f"sluice in place of {module.__name__}: see {self.source.__name__}."
        if hasattr(self.source, "__version__"):
            module.__version__ = self.source.__version__  # type: ignore[attr-defined]


def make_stand_ins() -> dict[str, ModuleType]:
    """New modules, by their names in `sys.modules`. Submodules are attributes of the package, as after an import."""
    package = _stand_in(PACKAGE, sys.modules[__package__], is_package=True)
    made = {PACKAGE: package}
    for name in _SUBMODULES:
        module = _stand_in(f"{PACKAGE}.{name}", sys.modules[f"{__package__}.{name}"], is_package=False)
        setattr(package, name, module)
        made[module.__name__] = module
    return made


def _stand_in(name: str, source: ModuleType, *, is_package: bool) -> ModuleType:
    loader: Any = _Loader(source)  # not an importlib.abc.Loader, which warns at each repr of the module in Python 3.11
    spec = importlib.machinery.ModuleSpec(name, loader, origin=source.__file__, is_package=is_package)
    spec.has_location = True  # without it the module has no __file__ and counts as a namespace package
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def installed_package() -> str | None:
    """The path of the package that `import causal_conv1d` finds, or None. A stand-in does not count."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):  # sys.modules has a module without a spec, or None
        return None
    if spec is None or isinstance(spec.loader, _Loader):
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)
