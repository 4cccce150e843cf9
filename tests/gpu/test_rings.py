"""The pipes by themselves, and without their waits: a negative control."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
import torch

from common import ROOT, SCHEDULES

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}" + ("a" if major == 9 else "")
    binary: pathlib.Path = tmp_path_factory.mktemp("rings") / "rings"
    code = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", code, f"-I{ROOT}", "tests/gpu/rings.cu"]
    subprocess.run([*command, "-o", str(binary)], cwd=ROOT, check=True)
    return binary


def status(rings: pathlib.Path, *arguments: str) -> int:
    return subprocess.run([str(rings), *arguments], timeout=60, check=False).returncode


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_a_pipe_is_right_and_wrong_without_its_wait(rings: pathlib.Path, schedule: str) -> None:
    assert status(rings, schedule) == 0
    assert status(rings, schedule, "unwaited") == 1
