"""Streamers in the workers of Ray Data, on real Ray: `pip install "torch-sluice[ray]"`."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sluice
from common import ROOT

pytestmark = pytest.mark.no_gpu

SCRIPT = ROOT / "examples" / "ray_batches.py"
NEEDS_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason='needs Ray, half a gigabyte: pip install "torch-sluice[ray]"'
)
PATH = [str(pathlib.Path(sluice.__file__).parent.parent), str(ROOT / "tests" / "helpers")]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs a program that starts Ray, without a GPU or a network, in a folder of its own."""
    # Under /tmp, because Ray makes sockets there, whose paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([*PATH, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        environment.pop("RAY_ADDRESS", None)

        def call(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)

        yield call


def assert_complete(ran: subprocess.CompletedProcess[str], rows: int, workers: int) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 workers on the CPU" in ran.stdout
    told = re.search(rf"^{rows} rows from (\d) processes in [\d.]+ s$", ran.stdout, re.MULTILINE)
    assert told, ran.stdout
    assert 1 <= int(told[1]) <= workers
    assert ran.stdout.splitlines()[-1] == "by batches: every row once, the same as at once"


@NEEDS_RAY
def test_two_workers_and_rays_progress(run: Run) -> None:
    ran = run(str(SCRIPT), "--rows", "6001", "--batch-size", "500")
    assert_complete(ran, 6001, 2)
    # Ray logs its progress where there is no terminal for a bar.
    assert re.search(r"MapBatches\(Compander\): \d+/\d+", ran.stderr), ran.stderr


@NEEDS_RAY
def test_a_worker_that_dies_is_replaced(run: Run, tmp_path: pathlib.Path) -> None:
    script = ROOT / "tests" / "helpers" / "ray_worker_dies.py"
    ran = run(str(script), str(tmp_path), "--rows", "6001", "--batch-size", "500")
    assert_complete(ran, 6001, 3)
    names = [path.name for path in tmp_path.iterdir()]
    assert "died" in names
    assert len(names) >= 1 + 3  # two workers, and the worker that Ray started instead


def test_help_needs_no_ray(run: Run) -> None:
    ran = run(str(SCRIPT), "--help")
    assert ran.returncode == 0, ran.stderr
    assert "--workers" in ran.stdout


# --- what the example does without Ray --------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_a_batch_of_an_object_store(example: dict[str, Any]) -> None:
    """Ray's arrays cannot be written."""
    batch = example["signals"]({"id": np.arange(100)})
    for array in batch.values():
        array.setflags(write=False)
    result = example["Compander"](1 << 20)(batch)
    assert example["check"]([result], 100) == ""
    assert set(result["process"]) == {os.getpid()}


def test_rows_that_are_lost_doubled_or_wrong_are_seen(example: dict[str, Any]) -> None:
    result = example["Compander"](1 << 20)(example["signals"]({"id": np.arange(10)}))
    part = lambda low, high: {name: array[low:high] for name, array in result.items()}  # noqa: E731
    check = example["check"]
    assert check([part(4, 10), part(0, 4)], 10) == ""
    assert check([part(0, 4), part(5, 10)], 10) == "10 rows became 9, 9 of them different"
    assert check([part(0, 5), part(4, 10)], 10) == "10 rows became 11, 10 of them different"
    assert check([part(0, 9), part(8, 9)], 10) == "10 rows became 10, 9 of them different"
    assert check([{**result, "y": result["y"] + 1e-3}], 10) == "values differ from the chain's"


@pytest.mark.parametrize(
    ("gpus", "workers", "share"), [(0, 2, 0), (1, 2, 0.5), (2, 2, 1), (8, 2, 1), (2, 3, 0.5), (4, 9, 1 / 3)]
)
def test_each_worker_has_its_part_of_a_gpu(example: dict[str, Any], gpus: int, workers: int, share: float) -> None:
    assert example["share_of_a_gpu"](gpus, workers) == share
