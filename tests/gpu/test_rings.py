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
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
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
    out = subprocess.run([str(binary)], capture_output=True, text=True, timeout=120, check=True).stdout
    return {name: (right, broken) for name, right, broken in (line.split() for line in out.splitlines())}


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_a_pipe_is_right_and_wrong_without_its_wait(report: dict[str, tuple[str, str]], schedule: str) -> None:
    assert report[schedule] == ("right", "noticed")
