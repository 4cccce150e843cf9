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
from forked import run_forked

CPP = ROOT / "examples/cpp"
TORCH = pathlib.Path(torch.__file__).parent
LIBRARY = pathlib.Path(sluice.__file__).parent / "_C.so"
LIBC = "libc.so.6"
TOOLS = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
# The package's own compilation, without optimisation and without processes that import torch.
FAST = {"AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def test_decoding() -> None:
    ran = run_forked(ROOT / "examples/decoding.py", CUDA_VISIBLE_DEVICES="")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[-1] == "step by step: the same as at once"
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"{n} tokens and 6 more" for n in (5, 1, 12)]


@pytest.fixture(scope="module")
def programs() -> pathlib.Path:
    """Where the LibTorch programs are built: in the checkout, so that ccache knows them again."""
    if shutil.which("cmake") is None:
        pytest.skip("needs CMake")
    folder = ROOT / "build" / "programs" / os.environ.get("PYTEST_XDIST_WORKER", "one")
    for command in (
        ["cmake", "-S", str(CPP), "-B", str(folder), f"-DTORCH_DIR={TORCH}"],
        ["cmake", "--build", str(folder)],
    ):
        built = subprocess.run(command, capture_output=True, text=True, env=TOOLS)
        assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_libtorch_program(programs: pathlib.Path) -> None:
    ran = subprocess.run([str(programs / "filter"), str(LIBRARY)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "largest difference to ATen" in ran.stdout


def test_a_package_in_a_libtorch_program(programs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.pt2"
    made = run_forked(CPP / "make_package.py", str(path), CUDA_VISIBLE_DEVICES="", **FAST)
    assert made.returncode == 0, made.stdout + made.stderr
    ran = subprocess.run([str(programs / "package"), str(path), str(LIBRARY)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("largest difference to ATen") == 2
    without = subprocess.run([str(programs / "package"), str(path), LIBC], capture_output=True, text=True)
    assert without.returncode != 0  # the package does have sluice's op
