"""Depthwise conv1d of half types with many taps: F.conv1d's results, wherever rows begin and however long they are."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import HALF_TYPES, LAYOUTS, assert_close, contiguous, in_float64, offset_by_one, permuted
from convolution_tensors import depthwise
from fourier_problems import columns_of_wider
from rows import naming
from sluice import stages
from sluice.plan import H200


def expected(x, w, b, padding, dilation=1, pre=None, post=None) -> torch.Tensor:
    return in_float64(sluice.reference.conv1d, x, w, b, 1, padding, dilation, x.shape[1], pre=pre, post=post)


def method(x, w, padding: int = 0, dilation: int = 1, **options) -> str:
    return sluice.plan("conv1d", x, w, None, 1, padding, dilation, x.shape[1], device=H200, **options).method


# Shape, taps, padding, dilation, multiplier: one step of the tensor cores and many, odd lengths, rows shorter than the
# taps, than a vector, and than a group; several segments a row; causal and other paddings.
CASES = [
    ((2, 3, 300), 5, 4, 1, 1),
    ((2, 3, 257), 9, 4, 1, 1),
    ((3, 5, 1000), 31, 15, 1, 1),
    ((2, 3, 77), 31, 30, 1, 1),
    ((1, 2, 4099), 64, 63, 1, 1),
    ((2, 2, 2500), 128, 64, 1, 1),
    ((1, 3, 1300), 255, 254, 1, 1),
    ((1, 2, 3001), 600, 300, 1, 1),
    ((2, 3, 40), 600, 599, 1, 1),
    ((2, 3, 1), 40, 39, 1, 1),
    ((2, 3, 33), 7, 100, 1, 1),
    ((2, 3, 900), 17, 0, 1, 1),
    ((2, 3, 700), 33, 32, 3, 1),
    ((2, 3, 515), 5, 500, 200, 1),
    ((2, 3, 520), 31, 15, 1, 3),
    ((9, 3, 77), 31, 15, 1, 1),
    ((17, 2, 33), 9, 4, 1, 1),
    ((1, 2, 9000), 2500, 1250, 1, 1),
    ((2, 16, 300), 31, 15, 1, 1),
    ((2, 33, 129), 16, 15, 1, 1),
    ((1, 40, 700), 64, 32, 2, 1),
    ((2, 71, 513), 200, 100, 1, 1),
]


@pytest.mark.parametrize("layout", [*LAYOUTS, columns_of_wider], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_results(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            shape, taps, padding, dilation, multiplier = case
            x, w, b = depthwise(shape, taps, dtype, layout, multiplier, device=device)
            for bias in (b, None):
                wanted = expected(x, w, bias, padding, dilation)
                result = sluice.conv1d(x, w, bias, 1, padding, dilation, shape[1])
                assert_close(result, wanted)
            # Into the middle of a larger tensor: each result is written, and nothing else.
            batch, channels, length = wanted.shape
            around = torch.full((batch, channels + 1, length + 9), 7.0, device=device, dtype=dtype)
            for first in range(9) if device == "cuda" else (0, 1, 4, 7):
                out = around[:, 1:, first : first + length].fill_(float("nan"))
                sluice.conv1d(x, w, None, 1, padding, dilation, shape[1], out=out)
                assert_close(out, wanted)
                out.fill_(7.0)
                assert bool((around == 7.0).all())


@pytest.mark.parametrize("taps", [5, 6, 7, 8, 15, 16, 17, 18, 19, 34, 35, 50, 51, 66, 67, 130, 131, 146, 147, 259, 600])
def test_every_shift_of_the_taps(device: str, taps: int) -> None:
    """Where a row begins, and where its windows do, against words of 16 bytes."""
    x, w, _ = depthwise((1, 2, 700), taps, torch.float16, device=device)
    wide = torch.full((1, 2, 720), float("nan"), device=device, dtype=torch.float16)
    for first in range(8):
        for padding in (taps - 1, taps // 2, first):
            moved = wide[..., first : first + 700]
            moved.copy_(x)
            if 700 + 2 * padding >= taps:
                assert_close(sluice.conv1d(moved, w, None, 1, padding, 1, 2), expected(x, w, None, padding))


@pytest.mark.parametrize("layout", [contiguous, permuted, offset_by_one, columns_of_wider], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_results_with_chains(device: str, dtype: torch.dtype, layout) -> None:
    for case in (*CASES[-4:], CASES[2], CASES[5], CASES[7], CASES[12], CASES[14]):
        with naming(case):
            shape, taps, padding, dilation, multiplier = case
            x, w, b = depthwise(shape, taps, dtype, layout, multiplier, device=device)
            # shift(0.5) shows whether padding is zero after `pre`, as it must be.
            alpha = torch.rand(shape[1], 1, device=device) + 0.5
            pre = stages.shift(0.5) | stages.snake(alpha) | stages.leaky_relu(0.1)
            plain = expected(x, w, b, padding, dilation, pre)
            residual = layout(torch.randn(plain.shape, device=device, dtype=dtype))
            scale = torch.randn(plain.shape[1], 1, device=device)
            for post in (stages.gelu(), stages.silu() | stages.add(residual) | stages.mul(scale)):
                wanted = expected(x, w, b, padding, dilation, pre, post)
                options = {"pre": pre, "post": post}
                assert_close(sluice.conv1d(x, w, b, 1, padding, dilation, shape[1], **options), wanted, factor=2)
                wide = sluice.conv1d(x, w, b, 1, padding, dilation, shape[1], **options, dtype=torch.float32)
                assert wide.dtype == torch.float32
                assert_close(wide.to(dtype), wanted, factor=2)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_causal_convolutions_with_states(device: str, dtype: torch.dtype) -> None:
    for length, taps in ((300, 31), (1031, 64), (40, 7), (2000, 200), (64, 128)):
        with naming(length, taps):
            x, w, b = depthwise((2, 5, length), taps, dtype, device=device)
            w = w[:, 0]
            for states_dtype in (dtype, torch.float32):
                states = torch.randn(2, 5, taps - 1, device=device, dtype=dtype).to(states_dtype)
                for layout in (contiguous, columns_of_wider):
                    given = layout(states)
                    result = sluice.causal_conv1d(layout(x), w, b, activation="silu", initial_states=given)
                    wanted, _ = sluice.reference.causal_conv1d(
                        x.double(), w.double(), b.double(), activation="silu", initial_states=states.double()
                    )
                    assert_close(result, wanted, factor=2)
            assert_close(sluice.causal_conv1d(x, w), sluice.reference.causal_conv1d(x.double(), w.double())[0])


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("taps", [5, 31, 130])
def test_infinities_stay_within_their_windows(device: str, taps: int, layout, dtype: torch.dtype, value: float) -> None:
    channels = 3 if layout is contiguous else 17
    x, w, _ = depthwise((2, channels, 1100), taps, dtype, device=device)
    x = layout(x)
    w = w.abs() + 0.01
    wanted = sluice.conv1d(x, w, padding=taps // 2, groups=channels)
    for position in (0, 7, 300, 511, 1099):
        other = x.clone()  # the same strides
        other[1, 1, position] = value
        result = sluice.conv1d(other, w, padding=taps // 2, groups=channels)
        touched = torch.zeros_like(result, dtype=torch.bool)
        first = position + taps // 2 - (taps - 1)
        touched[1, 1, max(first, 0) : position + taps // 2 + 1] = True
        assert torch.equal(result[~touched], wanted[~touched])  # to the last bit
        if value != value:
            assert bool(result[touched].isnan().all())
        else:
            assert bool((result[touched] == value).all())


def test_infinite_taps_and_sums_are_what_they_are(device: str) -> None:
    x, w, b = depthwise((1, 3, 500), 9, torch.bfloat16, device=device)
    x = x.abs() + 0.5
    w[1, 0, 4] = float("inf")
    b[2] = float("nan")
    result = sluice.conv1d(x, w, b, padding=0, groups=3)
    assert bool((result[0, 1] == float("inf")).all())
    assert bool(result[0, 2].isnan().all())
    assert_close(result[:, :1], expected(x[:, :1], w[:1], b[:1], 0))
    huge = sluice.conv1d(x * 1e38, torch.ones_like(w), None, padding=0, groups=3)
    assert bool((huge == float("inf")).all())


def test_plans_name_the_method() -> None:
    x = torch.empty(8, 768, 8192, dtype=torch.bfloat16, device="meta")
    w = torch.empty(768, 1, 31, dtype=torch.bfloat16, device="meta")
    made = sluice.plan("conv1d", x, w, None, 1, 15, groups=768, post=stages.silu(), device=H200)
    assert (made.method, made.kernel, made.copy_width, made.alignment) == ("long_filter", "long_filter", 16, 16)
    assert made.reason.startswith("auto: tensor cores")
    assert made.detail.startswith("segments of 1024 positions a warp, 3 ")
    assert method(x, w, dilation=4) == method(x[..., 1:], w) == method(x[..., :1001], w) == "long_filter"
    for schedule in ("direct", "primitives"):
        assert method(x, w, schedule=schedule) == "depthwise"
    assert method(x.float(), w.float()) == method(x[..., ::2], w) == method(x, w[..., :4]) == "depthwise"
    last = x.mT.contiguous().mT
    made = sluice.plan("conv1d", last, w, None, 1, 15, groups=768, post=stages.silu(), device=H200)
    assert (made.kernel, made.copy_width) == ("long_filter_channels", 16)
    assert made.detail.startswith("segments of 256 positions of 32 channels a block, 3 ")
    assert sluice.plan("conv1d", last[:, :767], w[:767], groups=767, device=H200).copy_width == 16
    odd = torch.empty(8, 8192, 767, dtype=torch.bfloat16, device="meta").mT
    assert sluice.plan("conv1d", odd, w[:767], groups=767, device=H200).copy_width == 2
    assert method(last, w[..., :11]) == method(last, w, dtype=torch.float32) == "depthwise"
    assert method(last, w, post=stages.add(last[..., :8162])) == "depthwise"  # tensors
    assert method(x[..., :132], w[..., :5]) == method(x[..., :143], w[..., :16]) == "long_filter"
    assert method(x[..., :131], w[..., :5]) == method(x[..., :142], w[..., :16]) == "depthwise"  # shorter rows
    causal = sluice.plan("causal_conv1d", x, w[:, 0], device=H200)
    assert causal.method == "long_filter"
    assert sluice.plan("causal_conv1d", x, w[:, 0].float(), device=H200).method == "depthwise"
