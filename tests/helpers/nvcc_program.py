"""Programs that GPU tests compile for the device that they run on."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
import torch

from common import ROOT


def nvcc_program(binary: pathlib.Path, sources: list[str], *options: str) -> pathlib.Path:
    """Compiles `sources`, named from the project's root; skips the test without a GPU or nvcc."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}" + ("a" if major == 9 else "")
    code = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    command = [nvcc, "-std=c++20", *options, code, f"-I{ROOT}", *sources, "-o", str(binary)]
    subprocess.run(command, cwd=ROOT, check=True)
    return binary
