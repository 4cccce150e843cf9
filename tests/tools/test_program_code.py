"""Programs that run only on a GPU: they compile."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from common import ROOT


@pytest.mark.parametrize("source", ["tests/gpu/traps.cu", "tests/gpu/stream_cases.cu"])
def test_a_program_compiles(source: str, tmp_path: pathlib.Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    options = ["-std=c++20", "-O3", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{ROOT}"]
    subprocess.run([nvcc, *options, "-cubin", source, "-o", str(tmp_path / "program.cubin")], cwd=ROOT, check=True)
