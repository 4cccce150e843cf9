"""The examples run. (test_demo.py runs examples/speech_features.py, test_vocoder.py examples/vocoder.py.)"""

from __future__ import annotations

import os
import pathlib
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

import sluice
from common import ROOT
from forked import run_forked

CODEC = ROOT / "examples/streaming_codec.py"
SMALL_CODEC = ("--seconds", "0.8", "--filters", "4")
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


def test_streaming_codec(device: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    picture = tmp_path / "picture.png"
    where = {"HF_HUB_OFFLINE": "1"} if device == "cuda" else {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    ran = run_forked(CODEC, *SMALL_CODEC, "--output", str(picture), **where)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    model, *callers, times, latency, same, drawn = ran.stdout.splitlines()
    assert model.startswith("Mimi's convolutions, 4 filters, ")
    assert [line.rpartition(" ")[2] for line in callers] == ["0", "1", "2", "0"]  # slots
    assert times.startswith("10 steps of 80 ms: ")
    assert latency == "latency: 80 ms of a chunk, and 0 samples that the layers wait for"
    assert same.endswith(": the same as at once")
    if drawn == f"picture: {picture}":
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert drawn.startswith("no picture: it needs matplotlib")


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Callable[[], int]:
    """The example's main, on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [str(CODEC), *SMALL_CODEC, "--output", str(tmp_path / "picture.png")])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    main: Callable[[], int] = runpy.run_path(str(CODEC))["main"]
    return main


@pytest.mark.no_gpu
def test_a_slot_that_is_not_reset_is_seen(
    codec: Callable[[], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(sluice.Streaming, "reset", lambda *_: None)
    assert codec() == 1
    assert ": DIFFERENT\n" in capsys.readouterr().out


@pytest.mark.no_gpu
def test_the_codec_says_that_it_needs_transformers(codec: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SystemExit, match="streaming_codec.py needs transformers, .*: pip install transformers"):
        codec()


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
