"""`install` and `uninstall`: sluice in place of the causal_conv1d package.

    import causal_conv1d, in transformers, mamba-ssm, FLA   ->  sys.modules: four stand-ins
    transformers' lazy_load_kernel("causal-conv1d")         ->  its mapping of kernels: the package's stand-in

The previous modules and names are kept, and `uninstall` restores them.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import warnings
from types import ModuleType
from typing import Any

from ._modules import FUNCTIONS, PACKAGE, installed_package, make_stand_ins
from ._users import comes_from_elsewhere, forget_availability, is_one_of, kernel_mapping, modules_with

__all__ = ["Report", "install", "uninstall"]

_KERNEL = "causal-conv1d"
_ABSENT: Any = object()


@dataclasses.dataclass(frozen=True)
class Report:
    """The changes that `install` or `uninstall` made. `print` shows them in words.

    Attributes:
        action: "install" or "uninstall".
        modules: names in `sys.modules` that have changed.
        others: the names among them that had another module before, or have it again.
        hidden: after `install`, the path of a causal_conv1d that imports no longer find, or None.
        mapping: whether transformers' mapping of kernels has changed.
        unchanged: modules imported before, which keep the functions that they bound: torch code or the package's
            own after `install`, sluice's after `uninstall`.

    Example:
        >>> from sluice.compat import causal_conv1d as stand_in
        >>> stand_in.uninstall().modules
        ()
    """

    action: str
    modules: tuple[str, ...]
    others: tuple[str, ...]
    hidden: str | None
    mapping: bool
    unchanged: tuple[str, ...]

    def __str__(self) -> str:
        installs = self.action == "install"
        places = [*self.modules, *(["transformers' mapping of kernels"] if self.mapping else [])]
        nothing = "sluice stood in already" if installs else "sluice did not stand in"
        did = f"sluice {'stands' if installs else 'no longer stands'} in: {', '.join(places)}"
        lines = [f"causal_conv1d: {did if places else nothing}"]
        if self.others:
            lines.append(f"{'set aside' if installs else 'restored'}: {', '.join(self.others)}")
        if self.hidden is not None:
            lines.append(f"hidden until uninstall(): {self.hidden}")
        if self.unchanged:
            kept = "without sluice" if installs else "still with sluice"
            lines.append(f"{kept}, imported before: {', '.join(self.unchanged)}")
        return "\n".join(lines)


@dataclasses.dataclass
class _State:
    """The modules in place and the modules to restore. Nothing is imported under the lock."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    modules: dict[str, ModuleType] = dataclasses.field(default_factory=dict)
    before: dict[str, Any] = dataclasses.field(default_factory=dict)
    mapping: dict[str, Any] | None = None
    kernel_before: Any = _ABSENT
    direct: set[str] = dataclasses.field(default_factory=set)  # modules that had sluice's functions before

    def put_modules(self) -> list[str]:
        """Puts all modules at once: an import in another thread must not find only some of them."""
        if not self.modules:
            self.modules = make_stand_ins()
            self.direct = set(modules_with(is_one_of(self.functions())))
        changed = {name: module for name, module in self.modules.items() if sys.modules.get(name) is not module}
        self.before |= {name: sys.modules.get(name, _ABSENT) for name in changed}
        sys.modules.update(changed)
        return sorted(changed)

    def put_kernel(self, mapping: dict[str, Any] | None) -> bool:
        if mapping is None or not self.modules or mapping.get(_KERNEL) is self.modules[PACKAGE]:
            return False
        self.mapping, self.kernel_before = mapping, mapping.get(_KERNEL, _ABSENT)
        mapping[_KERNEL] = self.modules[PACKAGE]
        return True

    def take_modules_back(self) -> list[str]:
        """Removes stand-ins that nobody has replaced. The package goes last, because it finds the submodules."""
        changed = [name for name, module in self.modules.items() if sys.modules.get(name) is module]
        for name in reversed(changed):
            _restore(sys.modules, name, self.before.get(name, _ABSENT))
        return sorted(changed)

    def take_kernel_back(self) -> bool:
        mapping, self.mapping = self.mapping, None
        if mapping is None or mapping.get(_KERNEL) is not self.modules.get(PACKAGE):
            return False
        _restore(mapping, _KERNEL, self.kernel_before)
        return True

    def others_among(self, names: list[str]) -> tuple[str, ...]:
        return tuple(name for name in names if isinstance(self.before.get(name), ModuleType))

    def functions(self) -> list[Any]:
        package = self.modules.get(PACKAGE)
        return [getattr(package, name) for name in FUNCTIONS] if package is not None else []


_state = _State()


def install() -> Report:
    """Puts sluice in place of the causal_conv1d package in this process, whether or not the package is installed.

    `import causal_conv1d`, its three submodules and `importlib.util.find_spec` find modules with sluice's functions.
    If transformers is installed, it is imported, and its mapping of kernels gets them too. Call it before models'
    modules are imported, because they choose their functions at import. Under transformers, Mamba, Falcon-H1, LFM2,
    Qwen3-Next and related models then use sluice for prefill and decoding, without other packages. sluice is
    forward-only, so models must run under `torch.no_grad()`, as `generate()` does.

    A second call changes nothing. `importlib.metadata` does not find the package: it lists only distributions.

    Returns:
        A report of the changes, for printing.

    Warns:
        UserWarning: modules imported before keep torch code or the package's own functions; the text names them.

    Example:
        >>> from sluice.compat import causal_conv1d as stand_in
        >>> done = stand_in.install()
        >>> import causal_conv1d
        >>> causal_conv1d.causal_conv1d_fn is stand_in.causal_conv1d_fn
        True
        >>> done = stand_in.uninstall()

    Source: the module look-ups of transformers 5.17 and 5.23 and of mamba-ssm 2.3.
    """
    hidden = installed_package()
    with _state.lock:
        modules = _state.put_modules()
        others = _state.others_among(modules)
    mapping = kernel_mapping()
    with _state.lock:
        has_mapping = _state.put_kernel(mapping)
    forget_availability()
    report = Report("install", tuple(modules), others, hidden, has_mapping, modules_with(comes_from_elsewhere))
    if report.unchanged:
        rule = "install() must run before models' modules are imported"
        found = f"{', '.join(report.unchanged)} with torch code or the package's own functions"
        warnings.warn(f"sluice.compat.causal_conv1d: {rule}, got {found}", stacklevel=2)
    return report


def uninstall() -> Report:
    """Undoes `install` and restores the previous modules.

    Modules imported in between keep sluice's functions; the report names them. A module that other code has put in
    place of a stand-in stays.

    Returns:
        A report of the changes, for printing.

    Example:
        >>> from sluice.compat import causal_conv1d as stand_in
        >>> print(stand_in.uninstall())
        causal_conv1d: sluice did not stand in

    Source: the same look-ups as `install`.
    """
    with _state.lock:
        modules, has_mapping = _state.take_modules_back(), _state.take_kernel_back()
        others, found, direct = _state.others_among(modules), modules_with(is_one_of(_state.functions())), _state.direct
        _state.modules, _state.before, _state.kernel_before = {}, {}, _ABSENT
    forget_availability()
    keep = tuple(name for name in found if name not in direct)
    return Report("uninstall", tuple(modules), others, None, has_mapping, keep)


def _restore(names: dict[str, Any], name: str, before: Any) -> None:
    if before is _ABSENT:
        names.pop(name, None)
    else:
        names[name] = before
