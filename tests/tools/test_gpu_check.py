"""The GPU check: which tests its parts run, and which sources make which part stale."""

from __future__ import annotations

import fnmatch
import importlib
import types

import pytest

from common import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("gpu_check")


@pytest.fixture
def part_sources(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("part_sources")


def test_every_source_makes_some_part_stale(part_sources: types.ModuleType) -> None:
    everything = set(part_sources._sources())
    assert set(part_sources.sources_of("others")) == everything


@pytest.mark.parametrize(
    ("source", "stale", "fresh"),
    [
        (
            "kernels/operators/conv1d/dense/finish.cuh",
            {"convolutions", "memcheck_dense"},
            {"stencils", "streams", "pointwise"},
        ),
        ("kernels/operators/filter2d/launch.cu", {"stencils", "memcheck"}, {"convolutions", "life", "racecheck_dense"}),
        (
            "kernels/transfer/copy_worker.cpp",
            {"streams", "life", "initcheck"},
            {"stencils", "convolutions", "pointwise"},
        ),
        # In no folder of LEFT_OUT: the sources that include it decide.
        ("kernels/shared/common/vector.cuh", {"convolutions", "stencils", "pointwise", "streams"}, set()),
        (
            "kernels/shared/common/store_span.cuh",
            {"convolutions", "synccheck_dense"},
            {"stencils", "pointwise", "streams"},
        ),
        # Included only by sources that CMake writes.
        ("kernels/operators/transform/direct.cuh", {"pointwise", "convolutions"}, set()),
        ("CMakeLists.txt", {"pointwise", "convolutions", "stencils", "streams", "life"}, set()),
    ],
)
def test_parts_depend_on_what_they_run(
    part_sources: types.ModuleType, source: str, stale: set[str], fresh: set[str]
) -> None:
    for part in stale | {"others", "alone", "large"}:
        assert source in part_sources.sources_of(part), part
    for part in fresh:
        assert source not in part_sources.sources_of(part), part


def test_the_hash_is_of_those_sources(part_sources: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {part: part_sources.part_hash(part) for part in ("stencils", "convolutions")}
    sources = dict(part_sources._sources())
    sources["kernels/operators/filter2d/launch.cu"] += b"int other;\n"
    monkeypatch.setattr(part_sources, "_sources", lambda: sources)
    assert part_sources.part_hash("stencils") != before["stencils"]
    assert part_sources.part_hash("convolutions") == before["convolutions"]


def test_folders_that_parts_leave_out_are_there(part_sources: types.ModuleType) -> None:
    names = list(part_sources._sources())
    assert set(part_sources.LEFT_OUT) <= set(importlib.import_module("gpu_check").PARTS)
    for folders in part_sources.LEFT_OUT.values():
        for folder in folders:
            assert any(name.startswith(folder) for name in names), folder


def test_every_test_file_has_its_part_of_the_gpu_check(gpu_check: types.ModuleType) -> None:
    patterns = [pattern for patterns in gpu_check.TESTS.values() for pattern in patterns]
    assert len({*patterns, *gpu_check.WITHOUT_GPU}) == len(patterns) + len(gpu_check.WITHOUT_GPU)
    for path in FILES:
        folder = path.relative_to(ROOT / "tests").parts[0]
        assert (gpu_check.row_of(path, gpu_check.TESTS) == "") == (folder in gpu_check.WITHOUT_GPU), path
    run = [part for parts in (*gpu_check.LANES, gpu_check.BY_THEMSELVES) for part in parts]
    assert sorted(run) == sorted(gpu_check.PARTS)


def test_every_folder_and_pattern_of_the_gpu_check_has_tests(gpu_check: types.ModuleType) -> None:
    names = {path.relative_to(ROOT / "tests").as_posix() for path in FILES}
    names |= {name.partition("/")[0] for name in names}
    for table in (gpu_check.TESTS, gpu_check.FAMILIES, {"": gpu_check.WITHOUT_GPU}):
        for pattern in (pattern for patterns in table.values() for pattern in patterns):
            assert fnmatch.filter(names, pattern), pattern


def test_parts_run_what_a_gpu_shows(gpu_check: types.ModuleType) -> None:
    run = [name for part in gpu_check.TESTS for name in gpu_check.PARTS[part] if name.startswith("tests/")]
    assert len(set(run)) == len(run)
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        is_left_out = gpu_check.needs_no_gpu(path) or name.split("/")[1] in gpu_check.WITHOUT_GPU
        assert (name in run) != is_left_out, name


def test_every_sanitized_test_is_of_one_family(gpu_check: types.ModuleType) -> None:
    run = [name for family in gpu_check.FAMILIES for name in gpu_check.PARTS[f"memcheck{family}"]]
    sanitized = [path for path in FILES if "\n@pytest.mark.sanitize\n" in path.read_text()]
    assert sorted(name for name in run if name.startswith("tests/")) == sorted(gpu_check.arguments(sanitized))


def test_lanes_begin_with_different_gpus(gpu_check: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_check, "DEVICES", 4)
    assert [gpu_check.visible_devices("streams", lane) for lane in (0, 1, 7)] == ["0,1,2,3", "1,2,3,0", "3,0,1,2"]
    assert gpu_check.visible_devices("memcheck", 6) == "2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert [gpu_check.visible_devices("others", lane) for lane in (0, 1)] == ["5,3", "3,5"]
    assert gpu_check.visible_devices("racecheck_dense", 3) == "3"


def test_a_failure_names_its_causes(gpu_check: types.ModuleType) -> None:
    frame = '  File "/work/tests/a/test_a.py", line 7 in test_a'
    log = ["....", "========= Barrier error detected.", "=========", "=========     at kernel+0x50 in a.cu:3",
           "E   AssertionError: 1", "Fatal Python error: Aborted", frame, '  File "/x/_pytest/a.py", line 1 in b',
           "========= ERROR SUMMARY: 2 errors"]  # fmt: skip
    assert gpu_check.causes(log) == [log[4], log[1], log[3], log[8], log[5], frame]
