"""Depthwise conv1d with hundreds and thousands of taps: F.conv1d's results, and plans of the Fourier method."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import assert_close, contiguous, offset_by_one
from fourier_problems import columns_of_wider, exact
from rows import naming
from sluice import stages
from sluice.plan import H200

# Shape, taps, padding, multiplier. On a GPU the first use transforms of whole and partitioned filters, the last do not.
CASES = [
    ((16, 4, 5000), 511, 255, 1),
    ((3, 8, 20001), 700, 699, 1),
    ((2, 8, 4096), 4096, 4095, 1),
    ((2, 5, 9001), 5003, 2500, 3),
    ((2, 3, 1000), 300, 0, 1),
]


@pytest.mark.parametrize("layout", [contiguous, offset_by_one, columns_of_wider], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_results(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            shape, taps, padding, multiplier = case
            x = layout(torch.randn(shape, device=device, dtype=dtype))
            w = torch.randn(shape[1] * multiplier, 1, taps, device=device, dtype=dtype) / taps**0.5
            b = torch.randn(shape[1] * multiplier, device=device, dtype=dtype)
            post = stages.mul(torch.rand(shape[1] * multiplier, 1, device=device))
            wanted = exact(x, w, b, padding)
            assert_close(sluice.conv1d(x, w, b, 1, padding, 1, shape[1]), wanted)
            wanted *= post.stages[0][1][0].double()
            assert_close(sluice.conv1d(x, w, b, 1, padding, 1, shape[1], post=post), wanted)


def test_the_reference_is_what_torch_computes() -> None:
    x, w, b = torch.randn(2, 3, 700).double(), torch.randn(6, 1, 200).double(), torch.randn(6).double()
    wanted = torch.nn.functional.conv1d(x, w, b, 1, 57, 1, 3)
    torch.testing.assert_close(exact(x, w, b, 57), wanted)


def plan(x: torch.Tensor, w: torch.Tensor, padding: int = 0, dilation: int = 1, **options) -> sluice.plan.Plan:
    return sluice.plan("conv1d", x, w, None, 1, padding, dilation, x.shape[1], device=H200, **options)


def test_plans_name_the_method() -> None:
    x = torch.empty(16, 2, 480000, device="meta")
    w = torch.empty(2, 1, 511, device="meta")
    made = plan(x, w, 255, post=stages.silu())
    assert (made.method, made.kernel, made.schedule, made.depth) == ("fourier", "fourier", "direct", 1)
    assert made.reason.startswith("auto: Fourier transforms")
    assert made.detail == "4096 points, segments of 3584 positions, the filter in 1 partition"
    # 16 rows of 134 segments, two a block.
    assert (made.tile, made.threads, made.grid) == (3584, 256, 2 * 16 * 134 // 2)
    # Six roots of each of 256 threads and 16 lanes; a spectrum for each channel; the channels' exponents.
    assert made.workspace_bytes == 6 * 8 * (256 + 16) + 2 * 4096 * 8 + 16
    long = plan(x, torch.empty(2, 1, 4096, device="meta"), 2048)
    assert long.method == "fourier"
    assert long.detail.endswith(" partitions")


def test_plans_keep_to_what_the_method_computes() -> None:
    x = torch.empty(16, 2, 480000, device="meta")
    w = torch.empty(2, 1, 511, device="meta")

    def method(x: torch.Tensor, w: torch.Tensor, **options) -> str:
        return plan(x, w, **options).method

    assert method(x[..., 1:], w) == method(x[..., :479999], w) == "fourier"
    assert method(x, w, dilation=2) == method(x, w, schedule="direct") == method(x.double(), w.double()) == "depthwise"
    assert method(x[..., ::2], w) == method(x, w[..., :60]) == "depthwise"
    assert method(x.half(), w.half()) == "long_filter"
    assert method(x.half(), torch.empty(2, 1, 4096, device="meta", dtype=torch.half)) == "fourier"
    assert sluice.plan("causal_conv1d", x, w[:, 0], device=H200).method == "fourier"
    # Nearly empty transforms, and fewer than SMs.
    assert method(x[..., :600], w) == method(x[:1, :, :9000], w) == "depthwise"
