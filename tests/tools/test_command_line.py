"""`python -m sluice` and the environment: what each command is for, and no traceback for what a user can get wrong."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

from common import ROOT
from sluice.__main__ import main


def test_help_says_what_each_command_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, purpose in {
        "info": "print versions",
        "demo": "run the main job",
        "bench": "time the ops",
        "plan": "print how a call would run",
        "trace": "stream a standard job",
    }.items():
        assert f"{name} {purpose}" in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["transform", "--shape", "4096"], "auto: "),
        (["conv1d", "--shape", "8,512,2048", "--layout", "cl"], "direct"),
        (["conv1d", "--shape", "8,512,2048", "--channels-out", "64"], "auto: "),
        (["filter2d", "--shape", "64,1080,1920", "--taps", "11", "--schedule", "sync"], "a ring of tiles"),
    ],
)
def test_a_plan_is_printed(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 0
    assert text in capsys.readouterr().out


def test_a_plan_that_cannot_be_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "conv1d", "--shape", "8,512,2048", "--depth", "9"]) == 2
    assert "depth must be 1 to 8, got 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["info", "x"], "unrecognized arguments: x"),
        (["trace", "--mebibytes", "-5"], "--mebibytes: must be a whole number, 1 to 1048576, got -5"),
        (["trace", "--mebibytes", "many"], "--mebibytes: must be a whole number, 1 to 1048576, got many"),
    ],
)
def test_arguments_that_cannot_be_read(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_a_trace_that_cannot_begin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "file").write_text("no directory")
    for arguments, text in (
        (["--device", "cuda"], "error: trace: --device must exist, got cuda on a machine without CUDA devices"),
        (["--device", "gpu"], "error: trace: --device must be CUDA devices or the CPU, got 'gpu'"),
        (["--output", "file/here"], "error: [Errno 20] Not a directory: 'file/here'"),
    ):
        assert main(["trace", *arguments]) == 2
        assert capsys.readouterr().err.strip() == text


def test_a_trace_of_the_cpu_says_nothing_of_a_link(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    assert main(["trace", "--device", "cpu", "--mebibytes", "1", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(", overlap " in line for line in lines) == 3
    assert not any("link" in line.replace(str(tmp_path), "") for line in lines)


def test_the_demo_is_not_in_a_wheel(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    setuptools = pytest.importorskip("setuptools")
    options = (ROOT / "pyproject.toml").read_text()
    (excluded,) = re.findall(r'^exclude = \["(.*)"\]', options, re.MULTILINE)
    packages = setuptools.find_packages(str(ROOT / "python"), exclude=[excluded])
    assert "sluice.stream.map" in packages
    assert "sluice.demo" not in packages
    assert re.search("^include-package-data = false", options, re.MULTILINE)  # nor are its files data of sluice
    monkeypatch.setitem(sys.modules, "sluice.demo", None)  # an import fails
    assert main(["demo", "--quick"]) == 2
    assert capsys.readouterr() == ("", "error: demo: a wheel has no demo; `make demo` runs it in the source tree\n")


def test_the_list_of_benchmarks_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert any(line.startswith("transform ") and line.endswith(" cases") for line in lines)


def test_an_unknown_mode_of_linking_is_an_error() -> None:
    for mode, works in (("", True), ("always", True), ("Always", False)):
        done = subprocess.run(
            [sys.executable, "-c", "import sluice"],
            env={**os.environ, "SLUICE_LINK": mode},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) == works
        if not works:
            assert f"ValueError: sluice: SLUICE_LINK must be 0, 1 or always, got {mode!r}" in done.stderr


def test_an_instruction_set_that_the_machine_does_not_have_is_an_error() -> None:
    usable = str(torch.ops.sluice._instruction_sets()).split()
    assert usable[-1] == "baseline"
    for name in ("", usable[-1], "AVX2"):
        done = subprocess.run(
            [sys.executable, "-c", "import sluice; print(sluice.info()['cpu']['instruction_set'])"],
            env={**os.environ, "SLUICE_CPU": name},
            capture_output=True,
            text=True,
        )
        if name in ("", *usable):
            assert done.stdout.strip() == (name or usable[0]), done.stderr
        else:
            rule = f"SLUICE_CPU must be {' or '.join(usable)} on this machine, got {name!r}"
            assert f"ValueError: sluice: {rule}" in done.stderr
