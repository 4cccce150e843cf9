"""What was linked, on disk, and many processes."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("linked_always")]


PROGRAM = """
import json, sys, time, torch, sluice
from sluice import stages
x = torch.arange(40_000, device="cuda", dtype=torch.float32) / 1e4
torch.cuda.synchronize()
start = time.perf_counter()
y = (stages.scale(1.5) | stages.tanh() | stages.cpp("x * x + %s"))(x)
torch.cuda.synchronize()
seconds = time.perf_counter() - start
print(json.dumps({**sluice.info()["linking"], "sum": y.double().sum().item(), "seconds": seconds}))
"""


def start_process(directory: pathlib.Path, salt: float = 0.5, **environment: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "SLUICE_CACHE_DIR": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM % salt],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **paths, **environment},
    )


def result_of(process: subprocess.Popen[str]) -> dict:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1])


def test_a_second_process_reads_what_the_first_compiled(tmp_path: pathlib.Path) -> None:
    first, second = result_of(start_process(tmp_path)), result_of(start_process(tmp_path))
    assert (first["compiled"], first["read_from_disk"]) == (1, 0)
    assert (second["compiled"], second["read_from_disk"]) == (0, 1)
    assert first["sum"] == second["sum"]
    for damage in (lambda data: data[: len(data) // 2], lambda data: data[:-100] + b"x" * 100, lambda _: b""):
        for entry in tmp_path.iterdir():
            entry.write_bytes(damage(entry.read_bytes()))
        third = result_of(start_process(tmp_path))
        assert (third["compiled"], third["read_from_disk"], third["sum"]) == (1, 0, first["sum"])


def test_processes_share_a_cache(tmp_path: pathlib.Path) -> None:
    results = [result_of(p) for p in [start_process(tmp_path) for _ in range(4)]]
    assert len({r["sum"] for r in results}) == 1
    assert result_of(start_process(tmp_path))["read_from_disk"] == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]  # no file that was being written is left


def test_a_cache_that_cannot_be_used_costs_nothing_else(tmp_path: pathlib.Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    assert result_of(start_process(blocked))["compiled"] == 1
    assert result_of(start_process(pathlib.Path("/proc/nowhere")))["compiled"] == 1
    assert result_of(start_process(pathlib.Path("")))["compiled"] == 1
    full = pathlib.Path("/dev/full")
    assert result_of(start_process(full))["compiled"] == 1
    wanted = result_of(start_process(tmp_path / "new"))["sum"]
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    assert result_of(start_process(locked))["sum"] == wanted
