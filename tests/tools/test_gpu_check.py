"""The receipt of the GPU check: which sources make which part stale."""

from __future__ import annotations

import importlib
import types

import pytest

from common import ROOT


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
        ("kernels/conv1d/dense/finish.cuh", {"convolutions", "memcheck_dense"}, {"stencils", "streams", "pointwise"}),
        ("kernels/filter2d/launch.cu", {"stencils", "memcheck"}, {"convolutions", "life", "racecheck_dense"}),
        (
            "kernels/transfer/copy_worker.cpp",
            {"streams", "life", "initcheck"},
            {"stencils", "convolutions", "pointwise"},
        ),
        # In no folder of LEFT_OUT: the sources that include it decide.
        ("kernels/common/vector.cuh", {"convolutions", "stencils", "pointwise", "streams"}, set()),
        ("kernels/common/store_span.cuh", {"convolutions", "synccheck_dense"}, {"stencils", "pointwise", "streams"}),
        # Included only by sources that CMake writes.
        ("kernels/transform/launch_direct.cuh", {"pointwise", "convolutions"}, set()),
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
    sources["kernels/filter2d/launch.cu"] += b"int other;\n"
    monkeypatch.setattr(part_sources, "_sources", lambda: sources)
    assert part_sources.part_hash("stencils") != before["stencils"]
    assert part_sources.part_hash("convolutions") == before["convolutions"]


def test_folders_that_parts_leave_out_are_there(part_sources: types.ModuleType) -> None:
    names = list(part_sources._sources())
    assert set(part_sources.LEFT_OUT) <= set(importlib.import_module("gpu_check").PARTS)
    for folders in part_sources.LEFT_OUT.values():
        for folder in folders:
            assert any(name.startswith(folder) for name in names), folder
