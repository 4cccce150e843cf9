"""The examples run. (examples/speech_features.py is run by test_demo.py.)"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

import sluice
from common import ROOT

TORCH = pathlib.Path(torch.__file__).parent
TOOLS = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_decoding() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples/decoding.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[-1] == "step by step: the same as at once"
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"{n} tokens and 6 more" for n in (5, 1, 12)]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
def test_the_libtorch_program(tmp_path: pathlib.Path) -> None:
    for command in (
        ["cmake", "-S", str(ROOT / "examples/cpp"), "-B", str(tmp_path), f"-DTORCH_DIR={TORCH}"],
        ["cmake", "--build", str(tmp_path)],
    ):
        built = subprocess.run(command, capture_output=True, text=True, env=TOOLS)
        assert built.returncode == 0, built.stdout + built.stderr
    library = pathlib.Path(sluice.__file__).parent / "_C.so"
    ran = subprocess.run([str(tmp_path / "filter"), str(library)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "largest difference to ATen" in ran.stdout
