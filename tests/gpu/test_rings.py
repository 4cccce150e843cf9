"""The pipes by themselves, and without their waits: a negative control."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from common import SCHEDULES
from nvcc_program import nvcc_program

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("rings")
    return nvcc_program(folder / "rings", ["tests/gpu/rings.cu"], "-O3", "--expt-relaxed-constexpr")


def status(rings: pathlib.Path, *arguments: str) -> int:
    return subprocess.run([str(rings), *arguments], timeout=60, check=False).returncode


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_a_pipe_is_right_and_wrong_without_its_wait(rings: pathlib.Path, schedule: str) -> None:
    assert status(rings, schedule) == 0
    assert status(rings, schedule, "unwaited") == 1
    assert status(rings, schedule, "interpreted") == 0
