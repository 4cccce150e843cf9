"""Launches with much shared memory: two threads in one kernel, plans to the last byte, and no error remains."""

from __future__ import annotations

import concurrent.futures
import pathlib
import subprocess

import pytest
import torch

import sluice
from common import FIXED_DEPTH, SCHEDULES, assert_close
from marks import ON_GPU
from nvcc_program import nvcc_program
from sluice import stages

pytestmark = ON_GPU


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    sources = ["tests/gpu/launch.cu", "kernels/shared/common/device.cpp", "kernels/shared/common/launch.cpp"]
    return nvcc_program(tmp_path_factory.mktemp("launches") / "launches", sources, '-DSLUICE_CUDA_ARCHS="one"')


@pytest.mark.parametrize("mode", ["threads", "unsafe", "refused", "default"])
def test_launches(launches: pathlib.Path, mode: str) -> None:
    result = subprocess.run([str(launches), mode], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


def depthwise(x: torch.Tensor, w: torch.Tensor, schedule: str) -> torch.Tensor:
    return sluice.conv1d(x, w, groups=x.shape[1], post=stages.scale(0.5), schedule=schedule)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("schedule", ["direct", "single_stage"])
def test_two_threads_launch_one_kernel_with_two_sizes_of_shared_memory(schedule: str) -> None:
    def work(taps: int) -> int:
        x, w = torch.randn(1, 2, taps + 200, device="cuda"), torch.randn(2, 1, taps, device="cuda")
        wanted = depthwise(x, w, schedule)
        return sum(not torch.equal(depthwise(x, w, schedule), wanted) for _ in range(500))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (8_000, 20_000))) == [0, 0]


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_plan_runs_or_is_refused_up_to_the_last_byte(schedule: str) -> None:
    room = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    # Few rows in a block: direct keeps the taps of two, a stage has one row's and a tile of 1024 results with its halo.
    depth = FIXED_DEPTH.get(schedule, 1)
    edge = room // 8 if schedule == "direct" else (room // depth - 16 * 3 - 1024 * 4) // 8
    ran, refusals = 0, []
    for taps in range(edge - 120, edge + 41, 20):
        x, w = torch.randn(1, 2, taps + 100, device="cuda"), torch.randn(2, 1, taps, device="cuda")
        try:
            result = depthwise(x, w, schedule)
        except ValueError as error:
            refusals.append(str(error))
            assert int(torch.ones(3, device="cuda").sum()) == 3  # no error remains for torch to report
            continue
        wanted = 0.5 * torch.nn.functional.conv1d(x.double(), w.double(), groups=2)
        assert_close(result, wanted, factor=50)  # some 30,000 terms, summed one after another
        ran += 1
    assert ran > 0
    assert refusals
    assert all("shared memory" in text for text in refusals)
