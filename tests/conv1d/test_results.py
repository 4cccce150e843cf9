"""conv1d: F.conv1d's results for every shape, layout, dtype and schedule, with chains before and after."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch.library import opcheck

import sluice
from common import (
    DTYPES,
    FIXED_DEPTH,
    LAYOUTS,
    SCHEDULES,
    assert_close,
    contiguous,
    in_float64,
    permuted,
    poisoned,
    sliced,
)
from op_checks import ALL_CHECKS, FAST_CHECKS
from rows import naming
from sluice import stages

expected = functools.partial(in_float64, sluice.reference.conv1d)


# batch, channels, length, taps, stride, padding, dilation, multiplier
DEPTHWISE = [
    (2, 8, 64, 4, 1, 3, 1, 1),
    (2, 8, 61, 3, 1, 1, 1, 1),
    (1, 5, 1031, 7, 1, 0, 1, 1),
    (3, 16, 100, 1, 1, 0, 1, 1),
    (2, 3, 77, 5, 2, 4, 1, 1),
    (2, 70, 50, 3, 3, 2, 4, 1),
    (2, 4, 40, 9, 1, 20, 1, 3),
    (1, 6, 33, 2, 2, 1, 3, 2),
    (2, 130, 19, 31, 1, 15, 1, 1),
    (1, 2, 3000, 255, 1, 127, 1, 1),
    (1, 1, 12, 4, 1, 3, 1, 1),
    (4, 72, 5, 4, 1, 9, 1, 1),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_depthwise(device: str, dtype: torch.dtype, layout, schedule: str) -> None:
    for case in DEPTHWISE:
        with naming(case):
            batch, channels, length, taps, stride, padding, dilation, multiplier = case
            x = layout(torch.randn(batch, channels, length, device=device, dtype=dtype))
            w = torch.randn(channels * multiplier, 1, taps, device=device, dtype=dtype) / taps
            b = torch.randn(channels * multiplier, device=device, dtype=dtype)
            wanted = expected(x, w, b, stride, padding, dilation, channels)
            result = poisoned(x, wanted.shape, layout)
            sluice.conv1d(x, w, b, stride, padding, dilation, channels, out=result, schedule=schedule)
            assert_close(result, wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_depthwise_with_chains(device: str, dtype: torch.dtype, layout, schedule: str) -> None:
    for case in (DEPTHWISE[0], DEPTHWISE[4], DEPTHWISE[6], DEPTHWISE[8]):
        with naming(case):
            batch, channels, length, taps, stride, padding, dilation, multiplier = case
            x = layout(torch.randn(batch, channels, length, device=device, dtype=dtype))
            w = torch.randn(channels * multiplier, 1, taps, device=device, dtype=dtype) / taps
            # shift(1) shows whether padding is zero after `pre`, as it must be.
            pre = (
                stages.shift(1.0)
                | stages.mul(torch.randn(channels, 1, device=device))
                | stages.snake(torch.rand(channels, 1, device=device))
            )
            plain = expected(x, w, None, stride, padding, dilation, channels, pre=pre)
            other = layout(torch.randn(plain.shape, device=device, dtype=dtype))
            post = stages.silu() | stages.add(other) | stages.mul(torch.randn(channels * multiplier, 1, device=device))
            wanted = expected(x, w, None, stride, padding, dilation, channels, pre=pre, post=post)
            numbers = (stride, padding, dilation, channels)
            result = sluice.conv1d(x, w, None, *numbers, pre=pre, post=post, schedule=schedule)
            assert_close(result, wanted, factor=2)


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_every_depth_gives_the_same_bits(device: str, schedule: str, layout) -> None:
    x = layout(torch.randn(3, 200, 3001, device=device, dtype=torch.bfloat16))
    w = torch.randn(200, 1, 4, device=device, dtype=torch.bfloat16)
    options = {"padding": 3, "groups": 200, "pre": stages.relu(), "post": stages.silu()}
    wanted = sluice.conv1d(x, w, **options)
    depths = range(1, 9) if device == "cuda" else (1, 8)  # the CPU takes the same way for each
    for depth in [FIXED_DEPTH[schedule]] if schedule in FIXED_DEPTH else depths:
        with naming(depth):
            assert torch.equal(sluice.conv1d(x, w, **options, schedule=schedule, depth=depth), wanted)


# inputs, outputs, groups, taps, stride, padding, dilation
DENSE = [
    (6, 10, 1, 3, 1, 1, 1),
    (8, 4, 2, 5, 2, 3, 2),
    (1, 7, 1, 10, 5, 0, 1),
    (6, 6, 3, 1, 1, 0, 1),
    (4, 4, 4, 3, 1, 1, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dense_and_grouped(device: str, dtype: torch.dtype, layout) -> None:
    for cin, cout, groups, taps, stride, padding, dilation in DENSE:
        with naming(cin, cout, groups, taps, stride, padding, dilation):
            x = layout(torch.randn(2, cin, 53, device=device, dtype=dtype))
            w = torch.randn(cout, cin // groups, taps, device=device, dtype=dtype) / (cin // groups * taps) ** 0.5
            b = torch.randn(cout, device=device, dtype=dtype)
            chains = {"pre": stages.relu(), "post": stages.add(torch.randn(cout, 1, device=device)) | stages.gelu()}
            wanted = expected(x, w, b, stride, padding, dilation, groups, **chains)
            assert_close(sluice.conv1d(x, w, b, stride, padding, dilation, groups, **chains), wanted, factor=2)
            out = poisoned(x, wanted.shape, layout)
            sluice.conv1d(x, w, b, stride, padding, dilation, groups, **chains, out=out)
            assert_close(out, wanted, factor=2)


@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_result_layout(device: str, layout, groups: int) -> None:
    x = layout(torch.randn(2, 6, 20, device=device))
    w = torch.randn(6, 6 // groups, 3, device=device)
    result = sluice.conv1d(x, w, padding=1, groups=groups)
    channels_last = x.stride(1) == 1 and x.stride(2) >= 6
    assert channels_last == (layout is permuted)
    assert result.stride() == ((120, 1, 6) if channels_last else (120, 20, 1))


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("taps", [1, 4, 5])
def test_padding_by_name(device: str, groups: int, taps: int) -> None:
    x, w = torch.randn(2, 8, 30, device=device), torch.randn(8, 8 // groups, taps, device=device)
    for padding, dilation in itertools.product(("same", "valid"), (1, 2)):
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=padding, dilation=dilation, groups=groups)
        assert_close(sluice.conv1d(x, w, padding=padding, dilation=dilation, groups=groups), wanted)


@pytest.mark.parametrize("groups", [1, 4])
def test_unbatched_empty_and_tuples(device: str, groups: int) -> None:
    x, w = torch.randn(4, 20, device=device), torch.randn(4, 4 // groups, 3, device=device)
    post = stages.add(torch.randn(4, 1, device=device))
    one = sluice.conv1d(x, w, None, (2,), (1,), (1,), groups, post=post)
    assert_close(one, expected(x[None], w, None, 2, 1, 1, groups, post=post)[0])
    out = torch.empty_like(one)
    assert sluice.conv1d(x, w, None, 2, 1, 1, groups, post=post, out=out) is out
    assert torch.equal(out, one)
    assert sluice.conv1d(x[None][:0], w, groups=groups).shape == (0, 4, 18)


def test_result_dtype(device: str) -> None:
    x, w = torch.randn(2, 4, 30, device=device).half(), torch.randn(4, 1, 3, device=device).half()
    wanted = expected(x, w, None, 1, 0, 1, 4)
    for options in ({"dtype": torch.float32}, {"post": stages.cast(torch.float32)}):
        result = sluice.conv1d(x, w, groups=4, **options)
        assert result.dtype == torch.float32
        assert_close(result, wanted)  # float32 sums are not rounded to half in between


def test_zero_taps_ignore_infinities_outside_their_window(device: str) -> None:
    x = torch.ones(1, 1, 64, device=device)
    x[0, 0, 40] = float("inf")
    w = torch.ones(1, 1, 3, device=device)
    for schedule in SCHEDULES:
        result = (
            sluice.conv1d(x, w, groups=1, padding=1, schedule=schedule)
            if device == "cpu"
            else sluice.conv1d(
                x.expand(1, 2, 64).contiguous(), w.expand(2, 1, 3).contiguous(), groups=2, padding=1, schedule=schedule
            )[:, :1]
        )
        assert torch.equal(result.isinf().nonzero()[:, 2].cpu(), torch.tensor([39, 40, 41]))
        assert not result.isnan().any()


def test_autocast_casts_as_torch_does(device: str) -> None:
    x, w, b = torch.randn(2, 4, 30, device=device), torch.randn(4, 1, 3, device=device), torch.randn(4, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = sluice.conv1d(x, w, b, groups=4)
        assert result.dtype == torch.nn.functional.conv1d(x, w, b, groups=4).dtype == torch.bfloat16
        assert sluice.transform(x, stages.silu()).dtype == torch.float32
    assert_close(result, expected(x.bfloat16(), w.bfloat16(), b.bfloat16(), groups=4))


# contracts/test_fakes.py traces conv1d in every kind of layout, so one of them traces all arguments here.
@pytest.mark.parametrize("layout", [contiguous, permuted, sliced], ids=lambda f: f.__name__)
@pytest.mark.parametrize("groups", [1, 6])
def test_opcheck(device: str, layout, groups: int) -> None:
    tests = ALL_CHECKS if layout is contiguous and groups == 1 else FAST_CHECKS
    x = layout(torch.randn(2, 6, 20, device=device))
    w, b = torch.randn(6, 6 // groups, 4, device=device), torch.randn(6, device=device)
    y = torch.randn(6, 1, device=device)
    op = torch.ops.sluice.conv1d.default
    opcheck(op, (x, w, None, 1, 2, 1, groups), {"post": "silu"}, test_utils=tests)
    opcheck(
        op,
        (x, w, b, 2, 1, 2, groups),
        {"pre": "mul($0)", "pre_operands": [y], "post": "add($0)|cast(bfloat16)", "post_operands": [y]},
        test_utils=tests,
    )
    opcheck(op, (x[0], w, b, 1, 0, 1, groups), {"padding_right": 2}, test_utils=tests)
    out = torch.empty_like(sluice.conv1d(x, w, groups=groups))
    opcheck(torch.ops.sluice.conv1d_out.default, (x, w, None, 1, 0, 1, groups), {"out": out}, test_utils=tests)
