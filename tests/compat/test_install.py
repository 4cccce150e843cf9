"""compat.causal_conv1d: install() and uninstall(), and imports of the package's name."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from common import ROOT
from compat_references import functions
from sluice.compat import causal_conv1d as compat
from sluice.compat.causal_conv1d import causal_conv1d_fn

MODULES = [
    "causal_conv1d",
    "causal_conv1d.causal_conv1d_interface",
    "causal_conv1d.causal_conv1d_varlen",
    "causal_conv1d.cpp_functions",
]


@pytest.fixture
def clean() -> Iterator[None]:
    """No package of that name, and neither transformers nor a module that has bound something; all come back."""

    def is_ours(name: str) -> bool:
        return name.partition(".")[0] in ("causal_conv1d", "transformers", "made_up")

    before = {name: module for name, module in sys.modules.items() if is_ours(name)}
    compat.uninstall()
    for name in before:
        del sys.modules[name]
    sys.modules["transformers"] = types.ModuleType("transformers")  # no package: nothing below it is found
    try:
        yield
    finally:
        compat.uninstall()
        for name in [name for name in sys.modules if is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def fake_package() -> dict[str, types.ModuleType]:
    made = {name: types.ModuleType(name) for name in MODULES}
    for name, module in made.items():
        module.__spec__ = importlib.util.spec_from_loader(name, None, origin="/nowhere/__init__.py")
    return made


def fake_transformers(mapping: dict[str, Any] | None) -> types.ModuleType:
    hub = types.ModuleType("transformers.integrations.hub_kernels")
    if mapping is not None:
        hub._KERNEL_MODULE_MAPPING = mapping  # type: ignore[attr-defined]
    sys.modules[hub.__name__] = hub
    return hub


def quietly() -> compat.Report:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compat.install()


@pytest.mark.usefixtures("clean")
def test_install_makes_modules_with_specs() -> None:
    assert importlib.util.find_spec("causal_conv1d") is None
    report = quietly()
    assert report.modules == tuple(MODULES)
    assert (report.others, report.hidden, report.mapping, report.unchanged) == ((), None, False, ())
    for name in MODULES:
        module, spec = importlib.import_module(name), importlib.util.find_spec(name)
        assert type(module) is types.ModuleType
        assert module is sys.modules[name]
        assert spec is not None
        assert spec is module.__spec__
        assert (spec.name, module.__name__, module.__file__) == (name, name, spec.origin)
        assert spec.has_location
    package = importlib.import_module("causal_conv1d")
    assert package.__version__ == compat.__version__ == "1.7.0"
    assert package.__path__ == []
    assert not hasattr(package, "install")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("causal_conv1d.missing")
    assert "causal_conv1d" in repr(package)
    assert package.cpp_functions is sys.modules["causal_conv1d.cpp_functions"]
    assert "causal_conv1d.cpp_functions" in str(report)


IMPORTS = """
import causal_conv1d
import causal_conv1d.causal_conv1d_varlen as varlen
from causal_conv1d import causal_conv1d_fn, causal_conv1d_interface, causal_conv1d_update, cpp_functions
from causal_conv1d.causal_conv1d_interface import causal_conv1d_fn, causal_conv1d_ref
from causal_conv1d.causal_conv1d_interface import causal_conv1d_update, causal_conv1d_update_ref
from causal_conv1d.causal_conv1d_varlen import causal_conv1d_varlen_states, causal_conv1d_varlen_states_ref
from causal_conv1d.cpp_functions import causal_conv1d_fwd_function, causal_conv1d_bwd_function
from causal_conv1d.cpp_functions import causal_conv1d_update_function
"""
STARS = "\n".join(f"from {name} import *" for name in MODULES)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("source", [IMPORTS, STARS], ids=["names", "stars"])
def test_imports_find_our_functions(source: str) -> None:
    quietly()
    names: dict[str, Any] = {}
    exec(source, names)
    for name, function in functions().items():
        assert names[name] is function
    assert names["causal_conv1d_fn"] is compat.causal_conv1d_fn
    compat.uninstall()
    with pytest.raises(ModuleNotFoundError):
        exec(source, {})


@pytest.mark.usefixtures("clean")
def test_a_second_install_changes_nothing() -> None:
    mapping: dict[str, Any] = {"causal-conv1d": None}
    fake_transformers(mapping)
    first = quietly()
    assert first.mapping
    found = {name: sys.modules[name] for name in MODULES}
    again = quietly()
    assert (again.modules, again.mapping, again.hidden) == ((), False, None)
    assert str(again) == "causal_conv1d: sluice stood in already"
    assert all(sys.modules[name] is module for name, module in found.items())
    compat.uninstall()
    assert mapping == {"causal-conv1d": None}
    assert not any(name in sys.modules for name in MODULES)
    assert str(compat.uninstall()) == "causal_conv1d: sluice did not stand in"
    assert quietly().modules == tuple(MODULES)


@pytest.mark.usefixtures("clean")
def test_a_package_that_is_imported_comes_back() -> None:
    package = fake_package()
    del package["causal_conv1d.cpp_functions"]  # which it has not imported
    sys.modules.update(package)
    report = quietly()
    assert report.others == tuple(package)
    assert report.hidden == "/nowhere/__init__.py"
    for text in ("set aside: causal_conv1d, ", "hidden until uninstall(): /nowhere"):
        assert text in str(report)
    assert sys.modules["causal_conv1d"].causal_conv1d_fn is causal_conv1d_fn
    quietly()
    undone = compat.uninstall()
    assert undone.others == tuple(package)
    assert "restored: causal_conv1d, " in str(undone)
    assert all(sys.modules[name] is module for name, module in package.items())
    assert "causal_conv1d.cpp_functions" not in sys.modules


@pytest.mark.usefixtures("clean")
def test_a_package_that_is_installed_is_hidden_and_found_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "causal_conv1d").mkdir()
    (tmp_path / "causal_conv1d" / "__init__.py").write_text("__version__ = '0.1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert quietly().hidden == str(tmp_path / "causal_conv1d" / "__init__.py")
    assert importlib.import_module("causal_conv1d").__version__ == "1.7.0"
    compat.uninstall()
    assert importlib.import_module("causal_conv1d").__version__ == "0.1"


@pytest.mark.usefixtures("clean")
def test_what_somebody_else_has_put_there_since_stays() -> None:
    mapping: dict[str, Any] = {}
    fake_transformers(mapping)
    quietly()
    other = types.ModuleType("causal_conv1d.cpp_functions")
    sys.modules["causal_conv1d.cpp_functions"] = mapping["causal-conv1d"] = other
    undone = compat.uninstall()
    assert undone.modules == tuple(MODULES[:3])
    assert not undone.mapping
    assert sys.modules["causal_conv1d.cpp_functions"] is mapping["causal-conv1d"] is other
    quietly()
    del sys.modules["causal_conv1d"]
    assert quietly().modules == ("causal_conv1d",)  # which was gone


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("blocked", [None, types.ModuleType("causal_conv1d")], ids=["None", "no spec"])
def test_what_has_no_spec_is_restored_too(blocked: Any) -> None:
    sys.modules["causal_conv1d"] = blocked
    if blocked is not None:
        blocked.__spec__ = None
    assert quietly().hidden is None
    assert importlib.import_module("causal_conv1d").causal_conv1d_fn is causal_conv1d_fn
    compat.uninstall()
    assert sys.modules["causal_conv1d"] is blocked


@pytest.mark.usefixtures("clean")
def test_transformers_mapping_of_kernels() -> None:
    for before in ({}, {"causal-conv1d": None}, {"causal-conv1d": types.ModuleType("kernel"), "other": None}):
        mapping: dict[str, Any] = dict(before)
        fake_transformers(mapping)
        report = quietly()
        assert report.mapping
        assert "transformers' mapping of kernels" in str(report)
        assert mapping["causal-conv1d"] is sys.modules["causal_conv1d"]
        assert compat.uninstall().mapping
        assert mapping == before
    for strange in (None, "text"):
        fake_transformers(strange)  # type: ignore[arg-type]
        assert not quietly().mapping
        assert not compat.uninstall().mapping


@pytest.mark.usefixtures("clean")
def test_transformers_forgets_that_there_was_no_package() -> None:
    utilities = types.ModuleType("transformers.utils.import_utils")
    find = functools.cache(lambda: importlib.util.find_spec("causal_conv1d") is not None)
    utilities.is_causal_conv1d_available = find  # type: ignore[attr-defined]
    sys.modules[utilities.__name__] = utilities
    assert not find()
    quietly()
    assert find()
    compat.uninstall()
    assert not find()


def chooses(name: str, torch_function: Any) -> Any:
    """A decorated function as models of transformers have it."""
    try:
        implementation = getattr(importlib.import_module("causal_conv1d"), name)
    except ImportError:
        implementation = torch_function

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return torch_function if implementation is None else implementation(*args, **kwargs)

    return wrapped


def made_up(name: str, **names: Any) -> str:
    module = types.ModuleType(f"made_up.{name}")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    return module.__name__


@pytest.mark.usefixtures("clean")
def test_modules_that_were_imported_too_early_are_named() -> None:
    class Module(torch.nn.Module):
        """A function as Hugging Face's kernels wrap it."""

    slow = chooses("causal_conv1d_update", lambda: None)
    Module.forward = lambda self, *args: slow(*args)  # type: ignore[method-assign]
    early = [
        made_up("absent", causal_conv1d_fn=None, causal_conv1d_update=None),
        made_up("chosen", causal_conv1d_update=chooses("causal_conv1d_update", lambda: None)),
        made_up("wrapped", causal_conv1d_update=Module()),
    ]
    package = fake_package()
    sys.modules.update(package)
    exec("def causal_conv1d_fn(): ...", vars(package["causal_conv1d"]))
    real = package["causal_conv1d"].causal_conv1d_fn
    early.append(made_up("of_the_package", causal_conv1d_fn=real))
    made_up("of_another", causal_conv1d_fn=fake_package, causal_conv1d_update=3)
    made_up("without", other=None)
    with pytest.warns(UserWarning, match="install\\(\\) must run before") as warned:
        report = compat.install()
    assert report.unchanged == tuple(sorted(early))
    assert all(name in str(warned[0].message) and name in str(report) for name in early)
    assert warned[0].filename == __file__
    for name in early:
        del sys.modules[name]
    late = made_up("late", causal_conv1d_fn=chooses("causal_conv1d_fn", lambda: None))
    assert quietly().unchanged == ()
    undone = compat.uninstall()
    assert undone.unchanged == (late,)
    assert f"still with sluice, imported before: {late}" in str(undone)


@pytest.mark.usefixtures("clean")
def test_threads_install_once() -> None:
    barrier, reports, lock = threading.Barrier(8), [], threading.Lock()

    def work() -> None:
        barrier.wait()
        report = compat.install()
        module = importlib.import_module("causal_conv1d.cpp_functions")
        with lock:
            reports.append((report, module))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(report.modules) for report, _ in reports) == [0] * 7 + [4]
    assert len({id(module) for _, module in reports}) == 1
    compat.uninstall()
    assert not any(name in sys.modules for name in MODULES)


def test_a_fresh_process_needs_one_import_and_one_call() -> None:
    source = (
        "import sys; sys.modules['transformers'] = None\n"
        "import sluice.compat\n"
        "print(sluice.compat.causal_conv1d.install())\n"
        f"{IMPORTS}\n"
        "import torch\n"
        "assert causal_conv1d_fn(torch.ones(1, 1, 2), torch.ones(1, 2)).tolist() == [[[1, 2]]]\n"
        "assert causal_conv1d.causal_conv1d_fn is sluice.compat.causal_conv1d.causal_conv1d_fn\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("causal_conv1d: sluice stands in: causal_conv1d, causal_conv1d.causal_conv1d_inter")
