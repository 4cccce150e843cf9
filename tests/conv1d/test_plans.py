"""Plans of dense conv1d: what they say, and why a problem is left to aten."""

from __future__ import annotations

import re

import pytest
import torch

import sluice
from dense_problems import HAS_CODE
from linked_forms import link_mode
from sluice import PackedWeight, stages
from sluice.plan import H200, Device
from tf32 import Setting


def plan(shape: tuple[int, int, int], outputs: int, taps: int, *arguments, dtype=torch.float16, device=H200, **options):
    x = torch.empty(shape, dtype=dtype, device="meta")
    w = torch.empty(outputs, shape[1], taps, dtype=dtype, device="meta")
    return sluice.plan("conv1d", x, w, None, *arguments, device=device, **options)


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_a_plan_says_what_it_does() -> None:
    found = plan((4, 128, 55168), 128, 11, 1, 25, 5, post=stages.gelu())
    assert (found.method, found.kernel, found.schedule) == ("dense", "dense_positions", "bulk")
    assert found.reason.startswith("auto: tensor cores")
    assert found.detail.startswith("tiles of ")
    assert found.workspace_bytes == 2 * 2 * 11 * 128 * 64
    assert found.form
    w = torch.empty(128, 128, 11, dtype=torch.float16, device="meta")
    x = torch.empty(4, 128, 55168, dtype=torch.float16, device="meta")
    packed = PackedWeight(w, torch.empty(2, 11, 128, 64, dtype=torch.float16, device="meta"))
    assert sluice.plan("conv1d", x, packed, device=H200).workspace_bytes == 0


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_float32_runs_on_tensor_cores_in_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    for precision, parts in (("ieee", 2), ("tf32", 1)):
        Setting(monkeypatch).put(precision)
        for options in ({}, {"post": stages.gelu()}):
            found = plan((4, 128, 59136), 128, 11, 1, 25, 5, dtype=torch.float32, **options)  # whole waves of tiles
            assert (found.method, found.kernel) == ("dense", "dense_positions")
            converted = 4 * 4 * 128 * 59136 if "converted" in found.detail else 0
            assert found.workspace_bytes == converted + 4 * parts * 11 * 128 * 128  # high and low parts of the weight


@pytest.mark.parametrize(
    ("reason", "arguments", "options"),
    [
        ("are for float32 and half types", (), {"dtype": torch.float64}),
        ("are for compute capabilities 8.x, 9.0 and 12.x", (), {"device": Device(compute_capability=100)}),
        ("so few positions", (), {"length": 7}),
        ("each as long as the kernel's reach", (1, 2000, 2000), {}),
    ],
)
def test_what_is_left_to_aten_has_a_reason(reason: str, arguments, options) -> None:
    found = plan((2, 64, options.pop("length", 500)), 64, 3, *arguments, **options)
    assert (found.method, found.schedule, found.detail, found.workspace_bytes) == ("aten", "aten", "", 0)
    assert found.reason.startswith("auto: aten's convolution and a pass of the chain, because ")
    assert reason in found.reason or not HAS_CODE


def test_a_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="schedule must be auto here, because only depthwise .*; got two_stage"):
        plan((2, 64, 500), 64, 3, schedule="two_stage")


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_tiles_are_split_in_the_same_way_until_the_chains_are_linked() -> None:
    """Or the bits would differ. Where `pre` is in the linked kernel, nothing is split."""
    snake = stages.snake(torch.empty(512, 1, device="meta"))
    for options in ({"post": snake}, {"pre": stages.relu()}, {"pre": snake, "post": snake}):
        details = []
        for mode in ("never", "always"):
            with link_mode(mode):
                details.append(plan((2, 512, 4864), 512, 9, 1, 4, **options).detail)
        splits = [re.findall(r"split-K of .* by \d+", detail) for detail in details]
        assert splits[0] == splits[1]
        assert bool(splits[0]) == ("pre" not in options or "with pre applied" in details[1])
