"""The programs that measure facts of asynchronous copies: every variant is right and has a time."""

from __future__ import annotations

import collections
import json
import pathlib
import subprocess

import pytest
import torch

from nvcc_program import nvcc_program

pytestmark = pytest.mark.gpu

VARIANTS = {"warp_entanglement": 12, "syncwarp": 4, "cache_operator": 6, "alignment": 15}


@pytest.fixture(scope="module")
def pipeline_facts(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("bulk copies need compute capability 9.0")
    folder = tmp_path_factory.mktemp("pipeline_facts")
    return nvcc_program(folder / "pipeline_facts", ["benchmarks/pipeline_facts.cu"], "-O3")


def test_every_variant_is_right_and_has_a_time(pipeline_facts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "facts.json"
    command = [str(pipeline_facts), "once", "--json", str(path)]
    ran = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads(path.read_text())
    assert document["program"] == "pipeline_facts"
    assert document["bytes"] == 256 << 20
    assert document["gpu"]
    assert document["cuda"]
    rows = document["rows"]
    assert collections.Counter(row["fact"] for row in rows) == VARIANTS
    assert len({(row["fact"], row["variant"]) for row in rows}) == len(rows)
    assert all(row["time_us"] > 0 and row["copy_us"] > 0 for row in rows)


def test_both_layouts_of_shared_memory_are_right(tmp_path: pathlib.Path) -> None:
    program = nvcc_program(tmp_path / "shared_layouts", ["benchmarks/shared_layouts.cu"], "-O3")
    subprocess.run([str(program), "--json", str(tmp_path / "layouts.json")], timeout=300, check=True)
    rows = json.loads((tmp_path / "layouts.json").read_text())["rows"]
    assert [(row["bytes"], row["stages"]) for row in rows] == [(b, s) for b in (4, 8, 16) for s in range(1, 9)]
    assert all(row["stage_major_us"] > 0 and row["interleaved_us"] > 0 for row in rows)
    assert subprocess.run([str(program), "--jason"], timeout=60).returncode == 2


def test_an_unknown_argument_is_refused(pipeline_facts: pathlib.Path) -> None:
    ran = subprocess.run([str(pipeline_facts), "--jason"], timeout=60, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "got --jason" in ran.stderr
