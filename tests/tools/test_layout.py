"""The structure of the tree: one-way includes, and every op in all files that list ops."""

from __future__ import annotations

import inspect
import pathlib
import re
import runpy
import subprocess
from typing import Any

import pytest
import torch

import sluice
import sluice.bench.schema
from common import ROOT
from import_graph import between_folders, circle, graph
from ops import OPS
from python_process import python

SOURCES = (".py", ".cpp", ".cu", ".cuh", ".h", ".def")


def tracked() -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode == 0 and listed.stdout:
        return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]
    skipped = {".venv", "build", "dist", ".git"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.relative_to(ROOT).parts)]


def sources(folder: str) -> list[pathlib.Path]:
    return [p for p in tracked() if p.suffix in SOURCES and p.relative_to(ROOT).parts[0] == folder]


def includes(path: pathlib.Path) -> list[str]:
    return re.findall(r'^\s*#include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def test_kernels_know_nothing_of_torch_or_ops() -> None:
    assert sources("kernels")
    for path in sources("kernels"):
        for include in includes(path):
            assert not include.startswith(("torch", "ATen", "c10", "ops/", "Python")), f"{path}: {include}"


def test_host_sources_of_kernels_know_nothing_of_device_code() -> None:
    for path in sources("kernels"):
        if path.suffix in (".cpp", ".h"):
            assert not [i for i in includes(path) if i.endswith(".cuh")], path


def test_ops_see_only_plain_headers_and_the_stable_abi() -> None:
    allowed = ("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/")
    assert sources("ops")
    for path in sources("ops"):
        assert path.suffix in (".cpp", ".h"), path
        for include in includes(path):
            assert not include.endswith(".cuh"), f"{path}: {include}"
            if include.startswith(("torch/", "ATen", "c10")):
                assert include.startswith(allowed), f"{path}: {include}"


def test_python_reaches_cpp_only_through_torch_ops() -> None:
    for path in sources("python"):
        text = path.read_text()
        assert not re.search(r"^\s*(import|from)\s+(ctypes|cffi|pybind11)", text, re.MULTILINE), path


def test_no_python_module_imports_one_above_it() -> None:
    modules = graph(ROOT / "python/sluice")
    assert modules["sluice.chain"] == {"sluice._apply", "sluice._chain_text", "sluice._fake", "sluice._library"}
    assert modules["sluice._chain_text"] == {"sluice._errors", "sluice._fake", "sluice._library"}  # and no op
    assert circle(modules) == []
    streams = between_folders(modules, "sluice.stream")
    assert streams.keys() == {"device", "report", "map", "iter"}
    assert circle(streams) == []
    assert streams["map"].isdisjoint({"iter"})
    assert streams["iter"].isdisjoint({"map"})


LATE = "def call():\n    from .high import run\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .high import Run\n"


@pytest.mark.parametrize("source", [LATE, FOR_TYPES, "import package.high\n", "from . import high\n"])
def test_a_circle_is_seen_however_it_is_hidden(source: str, tmp_path: pathlib.Path) -> None:
    package = tmp_path / "package"
    (package / "folder").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "low": source,
        "high": "from .folder.middle import x\n",
        "folder/__init__": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    (package / "folder/middle.py").write_text("import json\n")
    assert circle(graph(package)) == []
    (package / "folder/middle.py").write_text("from ..low import x\n")
    assert set(circle(graph(package))) == {"package.low", "package.high", "package.folder.middle"}


@pytest.mark.parametrize("op", OPS)
def test_every_op_has_all_its_places(op: str) -> None:
    row, raw = OPS[op], OPS[op].raw_op
    for place in (
        f"kernels/operators/{row.kernels or op}",
        f"ops/{raw}.cpp",
        f"python/sluice/{op}.py",
        f"tests/{op}/{row.results}",
        f"tests/helpers/ops/{op}.py",
        f"benchmarks/{row.benchmark}",
    ):
        assert (ROOT / place).exists(), place
    assert f"from .{op} import {op}" in (ROOT / "python/sluice/__init__.py").read_text()
    definitions = (ROOT / "python/sluice/reference").glob("*.py")
    assert sum(f"def {op}(" in path.read_text() for path in definitions) == 1
    assert f"`{op}`" in (ROOT / "README.md").read_text()
    assert f"sluice.{op}`" in (ROOT / "CHANGELOG.md").read_text()
    picture = (ROOT / "docs/architecture.md").read_text().partition("Inside ops/ a file")[2].split("```")[1]
    assert re.search(rf"\b{op}\b", picture)
    assert f'    "{op}": ' in (ROOT / "tools/result_bits.py").read_text()
    assert hasattr(torch.ops.sluice, raw)
    assert hasattr(torch.ops.sluice, f"{raw}_out")
    python = (ROOT / f"python/sluice/{op}.py").read_text()
    assert f'register_fake("sluice::{raw}")' in python
    assert f'register_fake("sluice::{raw}_out")' in python


def test_the_registry_has_every_op() -> None:
    assert list(sluice._registry.OPS) == [op for op, row in OPS.items() if row.planned is not None]
    for function in (sluice.plan, sluice.prepare):
        for op in sluice._registry.OPS:
            assert f'"{op}"' in inspect.getdoc(function), function


def test_make_measures_every_suite_of_a_gpu() -> None:
    (named,) = re.findall(r"^SUITES \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named.split()) == sluice.bench.schema.SUITES - {"cpu"}


def test_importing_sluice_imports_no_program() -> None:
    """Neither the benchmarks nor the demo, nor what they draw with."""
    code = "import sys, sluice; print([name for name in sys.modules if name.startswith(('sluice.', 'matplotlib'))])"
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert "'sluice.conv1d'" in result.stdout
    assert not re.search(r"'(sluice\.(bench|demo|__main__)|matplotlib)\b", result.stdout), result.stdout


ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()


def test_a_call_goes_through_the_functions_that_the_architecture_names() -> None:
    section = ARCHITECTURE.partition("## The way of `conv1d` to its kernel\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \d+ \| \[[^]]+\]\(\.\./([^)]+)\) \| ([^|]+) \|", section, re.MULTILINE)
    named = [(file, function) for file, text in rows for function in re.findall(r"`(\w+)`", text)]
    assert 15 <= len(rows) <= 20
    assert 20 <= len(named) <= 30
    for file, function in named:
        assert re.search(rf"\b{function}(<\w+>)?\(", (ROOT / file).read_text()), f"{file}: {function}"


def test_the_architecture_is_read_in_one_sitting() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 200


def floors() -> dict[str, int]:
    """Room of kernels/ -> its floor, from the picture in the architecture's page; the highest floor is 0."""
    (picture,) = re.findall(r"^```\n(operators/.*?)```", ARCHITECTURE, re.DOTALL | re.MULTILINE)
    found, folder = {}, ""
    for floor, line in enumerate(picture.splitlines()):
        names = line[:53].split()  # a description follows
        if names[0].endswith("/"):
            folder = names[0] if len(line[:13].split()) == 1 and line[12] == " " else ""
            names = names[1:] if folder else [name.rstrip("/") for name in names]
        found |= {folder + name: floor for name in names}
    return found


def test_no_include_of_kernels_points_upward() -> None:
    rooms = floors()

    def room(path: str) -> str:
        (found,) = [name for name in rooms if path.startswith(f"kernels/{name}/")]
        return found

    for path in sources("kernels"):
        if path.suffix == ".py":
            continue
        own = room(path.relative_to(ROOT).as_posix())
        for include in includes(path):
            if include.startswith("kernels/") and (other := room(include)) != own:
                assert rooms[own] < rooms[other], f"{path} includes {include}, which is not on a lower floor"


def test_every_source_is_listed_by_its_folder() -> None:
    present = {path for folder in ("kernels", "ops") for path in sources(folder) if path.suffix in (".cpp", ".cu")}
    present |= {path for path in sources("tests") if path.parent.name == "cpp" and path.suffix == ".cpp"}
    listed = set()
    for lists in (path for path in tracked() if path.name == "CMakeLists.txt"):
        text = re.sub("#.*", "", lists.read_text())
        listed |= {lists.parent / name for name in re.findall(r"(?<![\w/}])([\w/]+\.(?:cpp|cu))\b", text)}
    assert listed == present


def test_every_folder_is_built() -> None:
    folders = {path.parent for path in tracked() if path.name == "CMakeLists.txt"} - {ROOT}
    for folder in folders - {ROOT / "examples/cpp"}:  # a project of its own
        above = next(parent for parent in folder.parents if (parent / "CMakeLists.txt").is_file())
        name = folder.relative_to(above).as_posix()
        added = re.sub("#.*", "", (above / "CMakeLists.txt").read_text())
        looped = " ".join(re.findall(r"foreach\(folder ([^)]*)\)", added)).split()
        assert name in [*looped, *re.findall(r"add_subdirectory\(([\w/]+)\)", added)], folder


def test_every_kernel_of_a_table_has_its_file() -> None:
    """With its device function, and with its interpreted form where its module has launchers."""
    for table in kernel_tables():
        launched = {launcher.module: f"{launcher.kernels}Kernel" for launcher in table.launchers}
        for kernel in table.kernels:
            file = ROOT / "kernels/operators" / table.folder / f"{kernel.file}.cuh"
            function = kernel.call.partition("<")[0]
            # The interleaving kernel is the dense one with other arguments.
            definers = [file, *(ROOT / "kernels").rglob(f"{function}.cuh")]
            assert any(re.search(rf"\b{function}\(const ", one.read_text()) for one in definers), kernel.name
            if kernel.module in launched:
                form = f"struct Interpreted<{launched[kernel.module]}::{kernel.name}, Element"
                assert form in file.read_text(), kernel.name


def kernel_tables() -> list[Any]:
    folder = ROOT / "kernels/operators"
    read_table = runpy.run_path(str(ROOT / "kernels/linking/kernel_sources.py"))["read_table"]
    return [read_table(folder, path) for path in sources("kernels") if path.name == "kernels.def"]


def test_no_file_is_over_400_lines() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in tracked()
        if p.suffix in SOURCES and (n := len(p.read_text().splitlines())) > 400
    }
    assert not long


def test_schedules_are_named_alike_everywhere() -> None:
    from common import SCHEDULES

    rings = re.findall(r"^SLUICE_RING\((\w+),", (ROOT / "kernels/shared/pipeline/rings.def").read_text(), re.MULTILINE)
    assert ["direct", *rings] == SCHEDULES
