"""Plans: pure functions of the problem, the request and the device, made here without a GPU."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import DTYPES, FIXED_DEPTH, SCHEDULES
from sluice import stages
from sluice.plan import H200, Device

A100 = Device(80, 108, 2048, 167936, 166912)


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("device", [H200, A100], ids=["h200", "a100"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_schedule_fits_the_device(device: Device, schedule: str, dtype: torch.dtype) -> None:
    x, w = meta(8, 512, 2048, dtype=dtype), meta(512, 1, 4, dtype=dtype)
    last = x.new_empty(8, 2048, 512).transpose(1, 2)
    image, kernel = meta(64, 3, 1080, 1920, dtype=dtype), meta(3, 31, 31, dtype=dtype)
    if schedule == "bulk" and device.compute_capability < 90:
        with pytest.raises(ValueError, match="bulk copies need compute capability 9.0, got bulk"):
            sluice.plan("transform", x, stages.silu(), schedule=schedule, device=device)
        return
    for plan in (
        sluice.plan("filter2d", image, kernel, schedule=schedule, device=device),
        sluice.plan("filter2d", image[0, 0], (kernel[0, 0], kernel[0, 0]), schedule=schedule, device=device),
        sluice.plan("transform", x, stages.silu(), schedule=schedule, device=device),
        sluice.plan("conv1d", x, w, groups=512, padding=3, schedule=schedule, device=device),
        sluice.plan("causal_conv1d", last, w[:, 0], schedule=schedule, device=device),
    ):
        assert plan.schedule == schedule
        assert plan.shared_memory <= device.shared_memory_per_block
        assert 32 <= plan.threads <= 1024
        assert plan.grid >= 1
        assert plan.reason.startswith("forced: ")
        assert plan.depth == FIXED_DEPTH.get(schedule, plan.depth)
        assert (plan.depth > 1) == (schedule not in ("direct", "single_stage"))


def test_depth_covers_the_bytes_in_flight_and_can_be_forced() -> None:
    x = meta(1 << 26)
    plan = sluice.plan("transform", x, stages.silu(), schedule="multi_stage", device=H200)
    stage = plan.shared_memory // plan.depth
    blocks = plan.grid // H200.multiprocessors
    assert plan.depth * stage * blocks >= 48 * 1024
    for depth in range(1, 9):
        assert (
            sluice.plan("transform", x, stages.silu(), schedule="multi_stage", depth=depth, device=H200).depth == depth
        )


def test_the_grid_covers_the_problem() -> None:
    for n in (1, 4095, 4096, 4097, 2**31 + 5):
        plan = sluice.plan("transform", meta(n), stages.silu(), device=H200)
        assert (plan.grid - 1) * plan.tile < n <= plan.grid * plan.tile
    ring = sluice.plan("transform", meta(2**31), stages.silu(), schedule="sync", device=H200)
    assert ring.grid % H200.multiprocessors == 0


def test_auto_says_why() -> None:
    x = meta(8, 512, 2048)
    assert sluice.plan("transform", x, device=H200).reason.startswith("auto: ")
    depthwise = sluice.plan("conv1d", x, meta(512, 1, 4), groups=512, device=H200)
    assert depthwise.reason.startswith("auto: ")
    image = meta(3, 1080, 1920)
    assert sluice.plan("filter2d", image, meta(3, 3), device=H200).reason.startswith("auto: ")
    dense = sluice.plan("conv1d", x, meta(64, 512, 4), device=H200)
    assert dense.schedule == "aten"
    assert "tensor-core kernels of its own" in dense.reason


def test_filter2d_plans_for_aligned_rows() -> None:
    image, kernel = meta(8, 3, 100, 240), meta(3, 3, 3)

    def is_aligned(x: torch.Tensor, w: torch.Tensor, *args: object, **options: object) -> bool:
        return "aligned rows" in sluice.plan("filter2d", x, w, *args, device=H200, **options).reason

    assert is_aligned(image, kernel)
    assert is_aligned(image, kernel, schedule="direct")
    assert not is_aligned(image, kernel, schedule="sync")
    assert is_aligned(image[0, 0], kernel[0])
    assert is_aligned(image, meta(5, 5), None, (2, 2))
    assert is_aligned(image, meta(3, 3), None, (2, 1))
    assert is_aligned(image[:, :, 1:], kernel)
    assert is_aligned(image[..., :160], kernel)  # the columns of a wider image
    assert is_aligned(image.expand(5, 8, 3, 100, 240), kernel)
    assert is_aligned(image, kernel, dtype=torch.float32)
    assert is_aligned(image.to(torch.uint8), kernel.float())
    assert is_aligned(image, kernel, out=meta(8, 3, 100, 256)[..., :240])
    assert not is_aligned(image, kernel, out=meta(8, 3, 100, 244)[..., :240])
    assert not is_aligned(image, kernel, None, "valid")
    assert not is_aligned(image, meta(5, 5), None, (2, 1))
    assert not is_aligned(image, kernel, None, (3, 1))
    assert not is_aligned(image, meta(3, 5))
    assert not is_aligned(image, meta(7, 7))
    assert not is_aligned(image, (kernel[:, 0], kernel[:, 0]))
    assert not is_aligned(image.double(), kernel.double())
    assert not is_aligned(image[..., :236], kernel)
    assert not is_aligned(image.mT, kernel)
    assert not is_aligned(meta(8, 100, 240, 3).movedim(-1, -3), kernel)
    assert not is_aligned(image, kernel, pre=stages.relu())
    # A chain behind runs there where it is linked.
    made = sluice.plan("filter2d", image, kernel, post=stages.relu(), device=H200)
    assert ("aligned rows" in made.reason) == (made.form == "linked")


def test_what_cannot_be_planned_is_refused() -> None:
    x = meta(8, 64, 9000)
    last = x.new_empty(8, 9000, 64).transpose(1, 2)
    with pytest.raises(
        ValueError, match="plan: op must be one of transform, conv1d, causal_conv1d, filter2d, got 'fft'"
    ):
        sluice.plan("fft", x)
    with pytest.raises(ValueError, match="plan: schedule must be one of"):
        sluice.plan("transform", x, schedule="fastest")
    with pytest.raises(ValueError, match="plan: depth must be 1 to 8, got 9"):
        sluice.plan("transform", x, schedule="sync", depth=9)
    with pytest.raises(ValueError, match="plan: schedule must be auto here"):
        sluice.plan("conv1d", x, meta(64, 64, 3), schedule="sync", device=H200)
    with pytest.raises(ValueError, match="taps must fit into the shared memory of a block"):
        sluice.plan("filter2d", meta(2000, 2000), meta(1500, 1500), device=H200)
    with pytest.raises(ValueError, match="must fit into the shared memory of a block"):
        sluice.plan("conv1d", last, meta(64, 1, 4000), groups=64, schedule="sync", device=H200)
