"""Plans of the portable dense kernel for GPUs that are not there, in processes with and without SLUICE_DENSE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from dense_problems import Problem

# Compute capability: SMs, threads of an SM, and bytes of shared memory of an SM and of a block.
DEVICES = {
    80: (108, 2048, 167936, 166912),
    86: (84, 1536, 102400, 101376),
    89: (128, 1536, 102400, 101376),
    90: (132, 2048, 233472, 232448),
    100: (148, 2048, 233472, 232448),
    120: (170, 1536, 102400, 101376),
}
PROBLEMS = [
    Problem((4, 256, 6896), 256, 3, 1, 1),
    Problem((8, 256, 6888), 256, 11, 1, 25, 5),
    Problem((4, 32, 220672), 32, 11, 1, 25, 5),
    Problem((8, 1280, 3000), 1280, 3, 2, 1),
    Problem((1, 1064, 1720), 24, 9, 1, 4),
    Problem((8, 768, 1499), 768, 128, 1, 64, groups=16),
]
SCRIPT = """
import json, sys, torch, sluice
from sluice.plan import Device
plans = []
for capability, numbers, problem, last, dtype in json.loads(sys.stdin.read()):
    batch, inputs, length, outputs, taps, *convolution = problem
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    dtype = getattr(torch, "float32" if dtype == "tf32" else dtype)
    x = torch.empty(batch, length, inputs, dtype=dtype, device="meta").transpose(1, 2)
    w = x.new_empty(outputs, inputs // convolution[-1], taps)
    x = x if last else x.contiguous()
    plan = sluice.plan("conv1d", x, w, None, *convolution, device=Device(capability, *numbers))
    plans.append({"kernel": plan.kernel, "schedule": plan.schedule, "depth": plan.depth, "grid": plan.grid,
                  "shared_memory": plan.shared_memory, "resident_blocks": plan.resident_blocks, "reason": plan.reason,
                  "detail": plan.detail})
print(json.dumps(plans))
"""


def plans_of(calls: list[tuple[Any, ...]], dense: str = "portable") -> list[dict[str, Any]]:
    environment = {**os.environ, "SLUICE_DENSE": dense}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps(calls), env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def call(capability: int, problem: Problem, last: bool, dtype: str) -> tuple[Any, ...]:
    numbers = [*problem.shape, problem.outputs, problem.taps, *problem.numbers]
    return capability, DEVICES.get(capability, DEVICES[80]), numbers, last, dtype


def test_every_device_has_plans_that_fit() -> None:
    calls = [
        call(capability, problem, last, dtype)
        for capability in DEVICES
        for problem in PROBLEMS
        for last in (False, True)
        for dtype in ("float16", "tf32", "float32")
    ]
    for asked, found in zip(calls, plans_of(calls), strict=True):
        sms, _, of_sm, of_block = asked[1]
        assert found["kernel"].startswith("portable"), (asked, found)
        assert found["schedule"] == "producer_consumer"
        assert found["depth"] >= 2
        assert found["shared_memory"] <= of_block
        blocks = found["resident_blocks"]
        assert blocks * (found["shared_memory"] + 1024) <= of_sm, (asked, found)
        assert 1 <= found["grid"] <= blocks * sms


@pytest.mark.parametrize("capability", [86, 89, 120])
def test_plans_have_as_much_shared_memory_as_the_device(capability: int) -> None:
    long = Problem((8, 256, 8192), 256, 11, 1, 25, 5)
    wide, narrow = plans_of([call(80, long, True, "float16"), call(capability, long, True, "float16")])
    assert wide["shared_memory"] > DEVICES[capability][3] >= narrow["shared_memory"]


def test_taps_further_than_the_kernel_counts_stay_torchs() -> None:
    far = Problem((1, 16, 1_000_000_000), 16, 3, 1, 1_050_000_000, 1_545_000_000)
    (found,) = plans_of([call(80, far, True, "float16")])
    assert found["kernel"] == "convolution"


def test_older_devices_stay_torchs() -> None:
    (found,) = plans_of([call(75, PROBLEMS[0], True, "float16")])
    assert found["kernel"] == "convolution"
    assert "8.0" in found["reason"]


def test_it_is_the_default_where_mma_sync_is_the_fastest_instruction() -> None:
    calls = [call(capability, problem, True, "float16") for capability in DEVICES for problem in PROBLEMS]
    for (capability, *_), found in zip(calls, plans_of(calls, dense=""), strict=True):
        if capability == 100:
            assert found["kernel"] == "convolution"
            assert "8.x, 9.0 and 12.x" in found["reason"]
        elif capability != 90:  # the library may have no code for 90a
            assert found["kernel"].startswith("portable"), (capability, found)


@pytest.mark.parametrize("capability", [80, 86, 89, 120])
def test_torchs_faster_shapes_are_left_to_it_unless_it_is_forced(capability: int) -> None:
    calls = [
        call(capability, Problem((8, 512, 4000), 512, 1, 1), False, "float16"),
        call(capability, Problem((8, 512, 4000), 512, 3, 1, 1), True, "tf32"),
        call(capability, Problem((8, 512, 4000), 512, 3, 1, 1), False, "tf32"),
    ]
    *refused, taken = plans_of(calls, dense="")
    reasons = ("one tap makes it a matrix product", "cuDNN is faster in TF32")
    for reason, found in zip(reasons, refused, strict=True):
        assert found["kernel"] == "convolution"
        assert reason in found["reason"]
    assert taken["kernel"].startswith("portable")
    for found in plans_of(calls):
        assert found["kernel"].startswith("portable")


def test_full_float32_is_torchs_where_fma_units_are_faster() -> None:
    few = Problem((8, 256, 8192), 256, 11, 1, 25, 5)
    on_80, on_86, on_89, on_120 = plans_of([call(c, few, False, "float32") for c in (80, 86, 89, 120)], dense="")
    assert on_80["kernel"].startswith("portable")
    for found in (on_86, on_89, on_120):
        assert "cuDNN is faster in full float32" in found["reason"]


def test_it_can_be_left_to_torch() -> None:
    for capability in DEVICES:
        (found,) = plans_of([call(capability, PROBLEMS[0], True, "float16")], dense="torch")
        assert found["kernel"] == "convolution"
        assert "SLUICE_DENSE=torch" in found["reason"]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SLUICE_DENSE", "fast", "SLUICE_DENSE must be portable or torch, got 'fast'"),
        ("SLUICE_SHARED_MEMORY", "99k", "SLUICE_SHARED_MEMORY must be a number of bytes, 49152 at least, got '99k'"),
        ("SLUICE_SHARED_MEMORY", "100", "49152 at least, got '100'"),
    ],
)
def test_unknown_settings_are_errors(variable: str, value: str, message: str) -> None:
    environment = {**os.environ, variable: value}
    run = subprocess.run([sys.executable, "-c", "import sluice"], env=environment, capture_output=True, text=True)
    assert run.returncode != 0
    assert message in run.stderr


def test_empty_settings_are_none() -> None:
    environment = {**os.environ, "SLUICE_DENSE": "", "SLUICE_SHARED_MEMORY": ""}
    run = subprocess.run([sys.executable, "-c", "import sluice"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
