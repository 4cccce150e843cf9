"""Plans of conv_transpose1d: methods, polyphase components, and why a problem is left to aten."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import (
    HALF_TYPES,
)
from dense_problems import HAS_CODE
from linked_forms import link_mode
from sluice import stages
from sluice.plan import H200, Device
from tf32 import Setting


def plan(shape, weight, *numbers, dtype=torch.float16, device=H200, **options) -> sluice.Plan:
    x, w = (torch.empty(sizes, dtype=dtype, device="meta") for sizes in (shape, weight))
    return sluice.plan("conv_transpose1d", x, w, None, *numbers, device=device, **options)


def test_a_plan_says_how_many_components_there_are() -> None:
    found = plan((2, 64, 500), (64, 1, 12), 2, 5, 0, 64, post=stages.gelu())
    assert found.method == "depthwise"
    assert found.detail == "2 polyphase components, one launch each"
    assert plan((2, 64, 500), (64, 1, 3), 1, 1, 0, 64).detail == ""
    assert plan((2, 64, 500), (64, 1, 12), 2, 5, 0, 64, schedule="multi_stage").schedule == "multi_stage"


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_dense_ones_of_stride_1_go_to_the_tensor_cores() -> None:
    found = plan((4, 128, 5000), (128, 64, 7), 1, 3, post=stages.gelu())
    assert (found.method, found.kernel) == ("dense", "dense_positions")
    assert found.workspace_bytes == 2 * 2 * 7 * 64 * 64
    assert found.detail.startswith("tiles of ")


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(
    ("inputs", "outputs", "length", "taps", "stride", "padding"),
    [(512, 256, 430, 16, 8, 4), (64, 32, 55040, 4, 2, 1), (1536, 768, 512, 16, 8, 4)],
)
def test_components_of_equally_many_taps_are_rows_of_one_product(
    inputs, outputs, length, taps, stride, padding, dtype
) -> None:
    found = plan((4, inputs, length), (inputs, outputs, taps), stride, padding, dtype=dtype, post=stages.gelu())
    assert (found.method, found.kernel) == ("dense", "interleaved")
    converted = 2 * 4 * inputs * length if "converted to channels-last" in found.detail else 0
    assert found.workspace_bytes == 2 * inputs * outputs * taps + converted
    assert f"; channels of {stride} polyphase components, interleaved by the stores" in found.detail


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_float32_runs_on_tensor_cores_in_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    for precision, parts in (("ieee", 2), ("tf32", 1)):
        Setting(monkeypatch).put(precision)
        for numbers, kernel in (((2,), "interleaved"), ((), "dense_positions")):
            found = plan((2, 64, 500), (64, 64, 4), *numbers, dtype=torch.float32, post=stages.gelu())
            assert (found.method, found.kernel) == ("dense", kernel)
            assert found.workspace_bytes == 4 * parts * 64 * 64 * 4  # high and low parts of the weight


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_channels_last_has_every_stride() -> None:
    x = torch.empty(2, 500, 64, dtype=torch.float16, device="meta").transpose(1, 2)
    w = torch.empty(64, 20, 10, dtype=torch.float16, device="meta")
    for numbers in ((5,), (5, 2), (10, 0, 3), (5, 2, 1, 1, 3)):
        found = sluice.plan("conv_transpose1d", x, w, None, *numbers, device=H200)
        assert found.method == "dense", found
        assert found.workspace_bytes == 2 * 64 * 10 * 24  # channels are rounded up to multiples of 8


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
@pytest.mark.parametrize(("taps", "numbers"), [(10, (5,)), (64, (64,)), (4, (2, 1, 0, 1, 3)), (7, (2, 3))], ids=str)
def test_channels_first_results_that_are_no_spans_are_transposed(taps: int, numbers: tuple[int, ...]) -> None:
    found = plan((2, 64, 500), (64, 20, taps), *numbers)
    assert found.method == "dense"
    assert "results are channels-last in a workspace, then transposed into the output" in found.detail
    x, w = (torch.empty(sizes, device="meta") for sizes in ((2, 64, 500), (64, 20, taps)))
    assert found.workspace_bytes >= 2 * 2 * 24 * sluice.conv_transpose1d(x, w, None, *numbers).shape[2]


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_taps_that_are_no_multiple_of_the_stride_make_two_launches() -> None:
    found = plan((2, 64, 500), (64, 64, 7), 3)
    assert "; channels of 1 polyphase component, interleaved" in found.detail
    assert "; 2 launches, of polyphase components with 3 and 2 taps" in found.detail
    assert "; 2 launches, of polyphase components with 1 and 0 taps" in plan((2, 64, 500), (64, 64, 2), 5).detail
    assert "launches" not in plan((2, 64, 500), (64, 64, 6), 3).detail
    dilated = plan((2, 64, 500), (64, 64, 5), 4, 0, 0, 1, 2)
    assert "; 3 launches, of polyphase components with 3, 2 and 0 taps" in dilated.detail
    assert plan((2, 64, 500), (64, 64, 4), 2, 4).method == "dense"  # the first input reaches no result


@pytest.mark.parametrize(
    ("reason", "arguments", "options"),
    [
        ("leaves most results without a tap", ((2, 64, 500), (64, 64, 4), 5, 0, 0, 1, 5), {}),
        ("do not support groups", ((2, 64, 500), (64, 16, 4), 2, 0, 0, 2), {}),
        ("are for float32 and half types", ((2, 64, 500), (64, 64, 4), 2), {"dtype": torch.float64}),
        ("do not support groups", ((2, 64, 500), (64, 16, 4), 1, 0, 0, 2), {}),
        ("are for float32 and half types", ((2, 64, 500), (64, 64, 4)), {"dtype": torch.float64}),
        ("are for compute capabilities 8.x", ((2, 64, 500), (64, 64, 4)), {"device": Device(compute_capability=100)}),
        (
            "each polyphase component needs a launch, and there are many components",
            ((2, 64, 500), (64, 1, 40), 20, 0, 0, 64),
            {},
        ),
        (
            "each polyphase component needs a launch, and there are few results",
            ((2, 64, 500), (64, 1, 12), 3, 0, 0, 64),
            {},
        ),
        ("some results have no tap, or no input", ((2, 64, 500), (64, 1, 2), 3, 0, 0, 64), {}),
    ],
)
def test_what_is_left_to_aten_has_a_reason(reason: str, arguments, options) -> None:
    found = plan(*arguments, **options)
    assert (found.method, found.schedule, found.detail, found.workspace_bytes) == ("aten", "aten", "", 0)
    assert found.reason.startswith("auto: aten's convolution and a pass of the chain, because ")
    assert reason in found.reason


def test_a_schedule_is_refused_where_there_is_none() -> None:
    rule = "conv_transpose1d: schedule must be auto here, because {}; got two_stage"
    for arguments, reason in (
        (((2, 64, 500), (64, 64, 3), 2), "only depthwise convolutions have a choice of schedule"),
        (((2, 64, 500), (64, 64, 3), 1), "only depthwise convolutions have a choice of schedule"),
        (
            ((2, 64, 500), (64, 1, 2), 3, 0, 0, 64),
            "only depthwise transposed convolutions in which every output has a tap",
        ),
    ):
        with pytest.raises(ValueError, match=rule.format(reason + ".*")):
            plan(*arguments, schedule="two_stage")


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_passes_of_chains_where_a_launch_has_no_taps() -> None:
    """The launch with taps converts its input with `pre` applied; the other has no input to convert."""
    x = torch.empty(2, 48, 300, dtype=torch.float16, device="meta")
    w, scale = x.new_empty(48, 5, 3), x.new_empty(5, 1)
    pre = stages.snake(x.new_empty(48, 1))
    for layout in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        for mode in ("never", "always"):
            with link_mode(mode):
                found = sluice.plan(
                    "conv_transpose1d", layout, w, None, 8, pre=pre, post=stages.snake(scale), device=H200
                )
            assert found.method == "dense"
            assert ("passes" in found.detail) == (mode == "never")
