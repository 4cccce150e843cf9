"""The structure of the tree: one-way includes, and every op in all files that list ops."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

import sluice
from common import ROOT
from import_graph import between_folders, circle, graph
from ops import OPS

SOURCES = (".py", ".cpp", ".cu", ".cuh", ".h", ".in", ".def")


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
    assert modules["sluice.chain"] == {"sluice._apply", "sluice._fake", "sluice._library"}  # and no op
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
    for place in (
        f"kernels/{OPS[op].kernels or op}",
        f"ops/{op}.cpp",
        f"python/sluice/{op}.py",
        f"tests/{op}/test_results.py",
        f"tests/helpers/ops/{op}.py",
        f"benchmarks/{OPS[op].benchmark}",
    ):
        assert (ROOT / place).exists(), place
    assert f"ops/{op}.cpp" in (ROOT / "CMakeLists.txt").read_text()
    assert f"from .{op} import {op}" in (ROOT / "python/sluice/__init__.py").read_text()
    assert f"def {op}(" in (ROOT / "python/sluice/reference.py").read_text()
    assert f"`{op}`" in (ROOT / "README.md").read_text()
    source = (ROOT / f"ops/{op}.cpp").read_text()
    assert re.search(rf'm\.def\(\s*"{op}\(', source)
    assert re.search(rf'm\.def\(\s*"{op}_out\(', source)
    python = (ROOT / f"python/sluice/{op}.py").read_text()
    assert f'register_fake("sluice::{op}")' in python
    assert f'register_fake("sluice::{op}_out")' in python


def test_the_registry_has_every_op() -> None:
    assert list(sluice._registry.OPS) == [op for op, row in OPS.items() if row.planned is not None]


def test_every_kernel_source_is_listed_and_exists() -> None:
    cmake = (ROOT / "CMakeLists.txt").read_text()
    listed = set(re.findall(r"(?:kernels|ops|tests/cpp)/[\w/]+\.(?:cpp|cu)\b(?!\.in)", cmake))
    present = {
        str(p.relative_to(ROOT))
        for folder in ("kernels", "ops")
        for p in sources(folder)
        if p.suffix in (".cpp", ".cu")
    } | {str(p.relative_to(ROOT)) for p in sources("tests") if p.suffix == ".cpp"}
    assert listed == present


def test_every_launcher_and_module_is_made() -> None:
    cmake = (ROOT / "CMakeLists.txt").read_text()
    launchers = re.findall(r"^  sluice_launcher\(([\w/]+) (\w+) ", cmake, re.MULTILINE)
    modules = re.findall(r"^  sluice_module\(([\w/]+) (\w+) ", cmake, re.MULTILINE)
    made = {f"{folder}/{launcher}.cuh" for folder, launcher in launchers}
    made |= {f"{folder}/linked_{module}.cu.in" for folder, module in modules}
    found = {path.relative_to(ROOT / "kernels").as_posix() for path in tracked() if (ROOT / "kernels") in path.parents}
    kinds = (r".+/launch_\w+\.cuh", r".+/linked_\w+\.cu\.in")
    shared = {"pipeline/launch_ring.cuh"}
    assert made == {name for name in found - shared if any(re.fullmatch(kind, name) for kind in kinds)}


def test_no_file_is_over_400_lines() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in tracked()
        if p.suffix in SOURCES and (n := len(p.read_text().splitlines())) > 400
    }
    assert not long


def test_schedules_are_named_alike_everywhere() -> None:
    from common import SCHEDULES

    rings = re.findall(r"^SLUICE_RING\((\w+),", (ROOT / "kernels/pipeline/rings.def").read_text(), re.MULTILINE)
    assert ["direct", *rings] == SCHEDULES
