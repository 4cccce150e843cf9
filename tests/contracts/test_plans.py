"""Plans: pure functions of the problem, the request and the device, made here without a GPU."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import torch

import sluice
from common import DTYPES, SCHEDULES
from ops import OPS
from planned_calls import DEVICES, STATIC, check, meta
from sluice import stages
from sluice.plan import H200, Plan

pytestmark = pytest.mark.no_gpu
PLANNED = {op: row for op, row in OPS.items() if row.planned is not None}
CODE_FOR_90A_AND_PTX_FOR_80 = "80, 90a and PTX for 80" in sluice.info()["build"]


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("schedule", ["auto", *SCHEDULES])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_schedule_fits_the_device_or_is_refused(name: str, schedule: str, dtype: torch.dtype) -> None:
    device = DEVICES[name]
    planned: dict[str, int] = {}
    refusals: list[str] = []
    calls = [call for row in PLANNED.values() for call in row.planned(dtype)]
    for op, arguments, options in calls:
        try:
            plan = sluice.plan(op, *arguments, schedule=schedule, device=device, **options)
        except ValueError as error:
            refusals.append(str(error))
            continue
        if plan.schedule != "aten":
            check(plan, device, schedule)
        planned[op] = planned.get(op, 0) + 1
    forced = "direct" if schedule == "auto" else schedule
    rule = f"must be able to run here: .*(bulk copies need|must fit into (its|the) shared memory).*, got {forced} at"
    assert all(re.match(rf"\w+: schedule {rule}", text) for text in refusals)
    if schedule == "bulk" and CODE_FOR_90A_AND_PTX_FOR_80 and name != "9.0":
        assert not planned
    elif schedule != "bulk":
        assert all(planned[op] >= 3 for op in PLANNED)


@pytest.mark.skipif(not CODE_FOR_90A_AND_PTX_FOR_80, reason="built for other GPUs")
def test_bulk_copies_need_code_that_has_them() -> None:
    x = meta(1 << 20)
    for name, reason in {
        "8.0": "bulk copies need compute capability 9.0",
        "10.0": "bulk copies need code for compute capability 9.0 or newer; this device runs older code",
        "12.0": "bulk copies need code for compute capability 9.0 or newer; this device runs older code",
    }.items():
        with pytest.raises(ValueError, match=f"transform: schedule must be able to run here: {reason}"):
            sluice.plan("transform", x, stages.silu(), schedule="bulk", device=DEVICES[name])
    assert sluice.plan("transform", x, stages.silu(), schedule="bulk", device=DEVICES["9.0"]).schedule == "bulk"


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES[1:] if name != "two_stage"])
def test_what_a_pipe_keeps_in_shared_memory_counts(schedule: str) -> None:
    def plan(taps: int, schedule: str) -> Plan:
        w = meta(4, 1, taps, dtype=torch.float32)
        return sluice.plan("conv1d", x, w, groups=4, schedule=schedule, device=H200)

    x = meta(2, 4, 60_000, dtype=torch.float32)
    available = H200.shared_memory_per_block - STATIC
    assert available - 16 < plan(28_521, schedule).shared_memory <= available
    # With these many taps they and a tile of 1024 results take what a block has, which leaves nothing for the pipe.
    inputs = -(-(1024 + 28_540 - 1) // 4) + 2
    assert inputs * 16 + 28_540 * 4 == H200.shared_memory_per_block
    with pytest.raises(ValueError, match="must fit into the shared memory of a block"):
        plan(28_540, schedule)
    assert plan(28_540, "auto").schedule == "direct"


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
    assert sluice.plan("conv1d", x, meta(64, 512, 4), device=H200).reason.startswith("auto: ")
    grouped = sluice.plan("conv1d", x, meta(256, 8, 4), groups=64, device=H200)
    assert grouped.schedule == "aten"
    assert "groups whose output channels are a multiple of 8" in grouped.reason


def test_chains_that_are_not_linked_may_need_atens_convolution() -> None:
    """With `pre` a kernel of unaligned rows is faster than aten's product, which is faster between passes."""
    x = meta(8 * 32 * 1000 + 1).to(torch.float16)[1:].view(8, 32, 1000)
    w = meta(128, 32, 1).to(torch.float16)
    out = x.new_empty(8, 1000, 128).transpose(1, 2)

    def planned(linked: bool) -> dict[str, object]:
        asked = {"linked": linked, "device": list(dataclasses.astuple(H200))}
        return json.loads(torch.ops.sluice._plan_conv1d(x, w, pre="silu", out=out, **asked))

    assert planned(True)["method"] == "dense"
    unlinked = planned(False)
    assert unlinked["method"] == "aten"
    assert str(unlinked["reason"]).startswith("auto: aten's convolution and a pass of the chain")


def test_a_plan_has_all_fields_of_the_text() -> None:
    asked = {"linked": False, "device": list(dataclasses.astuple(H200))}
    made = json.loads(torch.ops.sluice._plan_transform(meta(64), "", **asked))
    aten = json.loads(torch.ops.sluice._plan_conv1d(meta(1, 4, 64), meta(8, 2, 3), groups=2, **asked))
    fields = {field.name for field in dataclasses.fields(Plan)} - {"form_reason"} | {"elements"}
    assert set(made) == set(aten) == fields
    assert aten["schedule"] == "aten"


def test_a_plan_names_its_method_and_its_kernel() -> None:
    x = meta(8, 512, 2048)
    last = x.new_empty(8, 2048, 512).transpose(1, 2)
    w = meta(512, 1, 4)
    image = meta(8, 3, 100, 240)

    def names(op: str, *arguments: object, **options: object) -> tuple[str, str]:
        plan = sluice.plan(op, *arguments, device=H200, **options)
        return plan.method, plan.kernel

    assert names("transform", x) == ("transform", "direct_flat")
    assert names("transform", x, schedule="sync") == ("transform", "staged_strided")
    assert names("conv1d", x, w, groups=512, padding="same") == ("depthwise", "few_taps_rows")
    assert names("conv1d", x, w, groups=512) == ("depthwise", "few_taps_rows")  # not equally aligned
    assert names("conv1d", last, w, groups=512) == ("depthwise", "few_taps_channels")
    assert names("conv1d", last, w, groups=512, dilation=3) == ("depthwise", "gated_channels")
    assert names("conv1d", last, w, groups=512, pre=stages.mul(last)) == ("depthwise", "gated_channels")
    assert names("conv1d", last, meta(512, 1, 7), groups=512) == ("depthwise", "eight_taps_channels")
    assert names("conv1d", x, w, groups=512, schedule="bulk") == ("depthwise", "staged_rows")
    assert names("conv1d", x, meta(512, 1, 8), groups=512) == ("long_filter", "long_filter")
    assert names("conv1d", x, meta(512, 1, 200), groups=512) == ("long_filter", "long_filter_many_steps")
    assert names("conv1d", last, meta(512, 1, 16), groups=512) == ("long_filter", "long_filter_channels")
    assert names("conv1d", x, meta(512, 1, 2000), padding=1999, groups=512) == ("fourier", "fourier")
    assert names("conv1d", x, meta(512, 1, 8), groups=512, schedule="direct") == ("depthwise", "plain_rows")
    assert names("conv1d", x, meta(1, 512, 7), padding=3) == ("few_outputs", "few_outputs_positions_16")
    assert names("conv1d", last, meta(4, 512, 8), padding=4) == ("few_outputs", "few_outputs_channels_32")
    assert names("conv1d", x, meta(512, 2, 4), groups=256) == ("aten", "convolution")
    single = meta(1, 1, 400, dtype=torch.float32), meta(80, 1, 16, dtype=torch.float32)
    assert names("conv1d", *(one.double() for one in single)) == ("aten", "convolution")
    assert names("conv1d", single[0], single[1][..., :15]) == ("aten", "convolution")  # a short sum
    if CODE_FOR_90A_AND_PTX_FOR_80:
        assert names("conv1d", x, meta(64, 512, 4)) == ("dense", "dense_positions")
        assert names("conv1d", *single) == ("dense", "dense_positions")
    assert names("causal_conv1d", x, w[:, 0]) == ("depthwise", "few_taps_rows")
    assert names("causal_conv1d", x, w, groups=512) == ("depthwise", "few_taps_rows")
    assert names("causal_conv_transpose1d", x, w, groups=512, stride=2) == ("depthwise", "plain_rows")
    if CODE_FOR_90A_AND_PTX_FOR_80:
        assert names("causal_conv1d", x, meta(64, 512, 4), stride=2) == names("conv1d", x, meta(64, 512, 4), stride=2)
        upsampled = meta(512, 256, 16)
        assert names("causal_conv_transpose1d", x, upsampled, stride=8) == names(
            "conv_transpose1d", x, upsampled, stride=8
        )
    assert names("filter2d", image, meta(3, 3)) == ("stencil", "aligned3")
    assert names("filter2d", image, (meta(3), meta(3)), schedule="direct") == ("stencil", "separable")


def test_a_plan_says_what_it_copies_and_how_many_blocks_there_are() -> None:
    x = meta(8, 512, 2048)
    last = x.new_empty(8, 2048, 512).transpose(1, 2)
    w = meta(512, 1, 4)

    def numbers(*arguments: object, **options: object) -> tuple[int, int, int]:
        plan = sluice.plan("conv1d", *arguments, groups=512, device=H200, **options)
        return plan.alignment, plan.copy_width, plan.resident_blocks

    assert numbers(x, w, padding="same") == (16, 16, 8)
    assert numbers(last, w) == (8, 8, 11)
    assert numbers(x, w, schedule="multi_stage") == (16, 16, 4)
    assert numbers(last, w, schedule="bulk") == (16, 128, 4)
    assert numbers(x, w, stride=2) == (2, 2, 5)
    pixels = meta(8, 100, 240, 3).movedim(-1, -3)
    assert sluice.plan("filter2d", pixels, meta(7, 7), schedule="sync", device=H200).copy_width == 2


def test_filter2d_plans_for_aligned_rows() -> None:
    image, kernel = meta(8, 3, 100, 240), meta(3, 3, 3)

    def is_aligned(x: torch.Tensor, w: torch.Tensor, *args: object, **options: object) -> bool:
        return " aligned rows" in sluice.plan("filter2d", x, w, *args, device=H200, **options).reason

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
    assert not is_aligned(image.to(torch.uint8), kernel.float())  # bytes have strips of their own
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
    # A `post` chain runs there if it is linked.
    made = sluice.plan("filter2d", image, kernel, post=stages.relu(), device=H200)
    assert ("aligned rows" in made.reason) == (made.form == "linked")


def test_what_cannot_be_planned_is_refused() -> None:
    x = meta(8, 64, 9000)
    last = x.new_empty(8, 9000, 64).transpose(1, 2)
    names = "transform, conv1d, conv_transpose1d, causal_conv1d, causal_conv_transpose1d, filter2d"
    with pytest.raises(ValueError, match=f"plan: op must be one of {names}, got 'fft'"):
        sluice.plan("fft", x)
    with pytest.raises(ValueError, match="transform: schedule must be one of"):
        sluice.plan("transform", x, schedule="fastest")
    with pytest.raises(ValueError, match="transform: depth must be 1 to 8, got 9"):
        sluice.plan("transform", x, schedule="sync", depth=9)
    with pytest.raises(ValueError, match="conv1d: schedule must be auto here"):
        sluice.plan("conv1d", x, meta(64, 64, 3), schedule="sync", device=H200)
    with pytest.raises(ValueError, match="taps must fit into the shared memory of a block"):
        sluice.plan("filter2d", meta(2000, 2000), meta(1500, 1500), device=H200)
    with pytest.raises(ValueError, match="must fit into the shared memory of a block"):
        sluice.plan("conv1d", last, meta(64, 1, 4000), groups=64, schedule="sync", device=H200)
