"""conv_transpose1d: F.conv_transpose1d's results for every shape, layout, dtype and schedule, with chains around it."""

from __future__ import annotations

import functools
import random

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck

import sluice
from common import (
    DTYPES,
    LAYOUTS,
    SCHEDULES,
    assert_close,
    contiguous,
    in_float64,
    offset_by_one,
    permuted,
    poisoned_like,
    sliced,
)
from convolution_tensors import transposed
from op_checks import ALL_CHECKS, FAST_CHECKS
from rows import naming
from sluice import stages

expected = functools.partial(in_float64, sluice.reference.conv_transpose1d)


def spread(x: torch.Tensor, w: torch.Tensor, numbers: tuple[int, int, int, int, int]) -> torch.Tensor:
    """The definition, one tap at a time."""
    stride, padding, output_padding, groups, dilation = numbers
    batch, channels, length = x.shape
    outputs, taps = w.shape[1], w.shape[2]
    whole = (length - 1) * stride + dilation * (taps - 1) + 1 + output_padding
    y = x.new_zeros(batch, groups * outputs, max(whole, padding))
    for g in range(groups):
        own = slice(g * channels // groups, (g + 1) * channels // groups)
        part = y[:, g * outputs : (g + 1) * outputs]
        for k in range(taps):
            reached = slice(k * dilation, k * dilation + (length - 1) * stride + 1, stride)
            part[..., reached] += torch.einsum("bcl,co->bol", x[:, own], w[own, :, k])
    return y[..., padding : whole - padding]


# channels, output channels of a group, groups, length, taps, stride, padding, output padding, dilation
CASES = [
    (6, 10, 1, 53, 3, 1, 1, 0, 1),
    (6, 10, 1, 53, 16, 8, 4, 0, 1),
    (4, 3, 2, 20, 4, 2, 1, 0, 1),
    (8, 2, 4, 20, 5, 3, 2, 2, 1),
    (4, 4, 1, 17, 3, 2, 1, 1, 2),
    (4, 4, 1, 17, 3, 2, 0, 2, 3),
    (1, 7, 1, 40, 10, 5, 0, 0, 1),
    (1, 9, 1, 30, 4, 1, 2, 0, 1),
    (6, 2, 3, 30, 5, 1, 9, 0, 1),
    (6, 1, 6, 61, 4, 1, 3, 0, 1),
    (20, 1, 20, 100, 12, 2, 5, 0, 1),
    (5, 1, 5, 31, 3, 2, 0, 1, 1),
    (3, 2, 3, 77, 7, 3, 8, 1, 2),
    (16, 1, 16, 40, 5, 1, 9, 0, 1),  # padding crops the input
    (16, 1, 16, 20, 6, 2, 9, 1, 1),
    (7, 1, 7, 9, 2, 3, 0, 0, 1),  # results without a tap
    (7, 3, 7, 12, 6, 2, 1, 1, 2),  # components of odd results have no tap
    (4, 1, 4, 12, 300, 1, 20, 0, 1),
    (18, 1, 18, 5, 40, 20, 0, 0, 1),  # more components than are worth launches
    (2, 1, 2, 3, 4, 2, 3, 0, 1),
]


def make(device: str, case, dtype: torch.dtype, layout=contiguous, batch: int = 2):
    """Input, weight, bias and the numbers after them."""
    channels, outputs, groups, length, taps, stride, padding, output_padding, dilation = case
    shape, options = (batch, channels, length), {"stride": stride, "groups": groups, "device": device}
    numbers = (stride, padding, output_padding, groups, dilation)
    return *transposed(shape, outputs, taps, dtype, layout, **options), numbers


def test_the_reference_is_the_definition() -> None:
    for case in CASES:
        with naming(case):
            x, w, b, numbers = make("cpu", case, torch.float64)
            wanted = spread(x, w, numbers) + b[:, None]
            torch.testing.assert_close(sluice.reference.conv_transpose1d(x, w, b, *numbers), wanted)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            x, w, b, numbers = make(device, case, dtype, layout)
            wanted = expected(x, w, b, *numbers)
            result = sluice.conv_transpose1d(x, w, b, *numbers)
            assert_close(result, wanted)
            # The result's layout does not depend on the input's.
            for other in (contiguous, permuted, sliced, offset_by_one):
                out = other(poisoned_like(wanted, dtype))
                assert sluice.conv_transpose1d(x, w, b, *numbers, out=out) is out
                assert_close(out, wanted)
            assert_close(sluice.conv_transpose1d(x, w, None, *numbers), expected(x, w, None, *numbers))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_with_chains(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            x, w, b, numbers = make(device, case, dtype, layout)
            # Tensors that differ at each position show a component, or a cropped input, at a wrong position.
            pre = stages.shift(1.0) | stages.mul(layout(torch.rand_like(x))) | stages.add(torch.randn_like(x[:1, :1]))
            plain = expected(x, w, b, *numbers, pre=pre)
            other = layout(torch.randn(plain.shape, device=device, dtype=dtype))
            post = stages.silu() | stages.add(other) | stages.mul(torch.randn(plain.shape[1:], device=device))
            wanted = expected(x, w, b, *numbers, pre=pre, post=post)
            result = sluice.conv_transpose1d(x, w, b, *numbers, pre=pre, post=post)
            assert_close(result, wanted, factor=2)
            assert result.stride() == sluice.conv_transpose1d(x, w, b, *numbers).stride()
            wide = sluice.conv_transpose1d(x, w, b, *numbers, pre=pre, post=post, dtype=torch.float64)
            assert wide.dtype == torch.float64
            assert_close(wide.to(dtype), wanted, factor=2)


def test_out_may_be_an_operand_of_post(device: str) -> None:
    for case in (CASES[1], CASES[10], CASES[15]):
        with naming(case):
            x, w, b, numbers = make(device, case, torch.float32)
            out = torch.randn(expected(x, w, b, *numbers).shape, device=device)
            wanted = expected(x, w, b, *numbers, post=stages.add(out.clone()))
            assert_close(sluice.conv_transpose1d(x, w, b, *numbers, post=stages.add(out), out=out), wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_schedules(device: str, dtype: torch.dtype, layout, schedule: str) -> None:
    for case in (CASES[9], CASES[10], CASES[12], CASES[13]):
        with naming(case):
            x, w, b, numbers = make(device, case, dtype, layout)
            chains = {"pre": stages.relu(), "post": stages.silu()}
            result = sluice.conv_transpose1d(x, w, b, *numbers, **chains, schedule=schedule)
            assert_close(result, expected(x, w, b, *numbers, **chains), factor=2)


def check_random_numbers(device: str, draw: random.Random) -> None:
    groups, each, outputs = draw.choice([1, 1, 2, 5, 24]), draw.choice([1, 1, 2, 8]), draw.choice([1, 1, 2, 3, 16])
    stride, dilation = draw.choice([1, 1, 2, 2, 3, 4, 8, 17]), draw.choice([1, 1, 1, 2, 3, 4])
    taps, length = draw.choice([1, 2, 3, 4, 7, 12, 16, 40]), draw.choice([1, 2, 3, 9, 33, 64, 200])
    output_padding = draw.randrange(max(stride, dilation))
    whole = (length - 1) * stride + dilation * (taps - 1) + output_padding + 1
    padding = draw.choice([0, 0, draw.randrange((whole + 1) // 2), (whole - 1) // 2])
    dtype, layout = draw.choice(DTYPES), draw.choice(LAYOUTS)
    case = (groups * each, outputs, groups, length, taps, stride, padding, output_padding, dilation)
    x, w, b, numbers = make(device, case, dtype, layout, batch=draw.choice([1, 3]))
    w = draw.choice([contiguous, permuted, sliced, offset_by_one])(w)
    with naming(case, dtype, layout.__name__, w.stride()):
        assert_close(sluice.conv_transpose1d(x, w, b, *numbers), expected(x, w, b, *numbers))


def test_random_numbers(device: str) -> None:
    for seed in range(150):  # fixed: the few sums of a small result may cancel in others
        torch.manual_seed(seed)
        check_random_numbers(device, random.Random(seed))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_strided_weights(device: str, layout) -> None:
    for case in (CASES[0], CASES[12], CASES[10]):
        with naming(case):
            x, w, b, numbers = make(device, case, torch.float32)
            wanted = expected(x, w, b, *numbers)
            across = w.permute(2, 1, 0).contiguous().permute(2, 1, 0)
            for other in (layout(w), across, across.transpose(0, 1).contiguous().transpose(0, 1)):
                assert_close(sluice.conv_transpose1d(x, other, layout(b), *numbers), wanted)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_result_layout(device: str, layout) -> None:
    for case in (CASES[1], CASES[10], CASES[0]):
        with naming(case):
            x, w, _, numbers = make(device, case, torch.float32, layout)
            result = sluice.conv_transpose1d(x, w, None, *numbers)
            _, channels, length = result.shape
            last = layout is permuted
            assert result.stride() == ((channels * length, 1, channels) if last else (channels * length, length, 1))


@pytest.mark.parametrize("groups", [1, 4])
def test_unbatched_and_tuples(device: str, groups: int) -> None:
    x, w = torch.randn(4, 20, device=device), torch.randn(4, 4 // groups, 3, device=device)
    post = stages.add(torch.randn(4, 1, device=device))
    one = sluice.conv_transpose1d(x, w, None, (2,), (1,), [1], groups, (1,), post=post)
    assert_close(one, expected(x[None], w, None, 2, 1, 1, groups, 1, post=post)[0])
    out = torch.empty_like(one)
    assert sluice.conv_transpose1d(x, w, None, 2, 1, 1, groups, post=post, out=out) is out
    assert torch.equal(out, one)
    assert sluice.conv_transpose1d(x[None][:0], w, groups=groups).shape == (0, 4, 22)


def test_result_dtype(device: str) -> None:
    x, w, _, numbers = make(device, CASES[10], torch.float16)
    wanted = expected(x, w, None, *numbers)
    for options in ({"dtype": torch.float32}, {"post": stages.cast(torch.float32)}):
        result = sluice.conv_transpose1d(x, w, None, *numbers, **options)
        assert result.dtype == torch.float32
        assert_close(result, wanted)  # float32 sums are not rounded to half in between


def test_no_result_sees_an_input_that_does_not_reach_it(device: str) -> None:
    x = torch.ones(1, 2, 64, device=device)
    x[0, :, 40] = float("inf")
    w = torch.ones(2, 1, 4, device=device)
    result = sluice.conv_transpose1d(x, w, None, 2, 1, 0, 2)
    assert torch.equal(result[0, 0].isinf().nonzero()[:, 0].cpu(), torch.arange(79, 83))
    assert not result.isnan().any()


def test_a_packed_weight_stands_for_its_weight(device: str) -> None:
    x, w, b, numbers = make(device, CASES[0], torch.float16)
    packed = sluice.PackedWeight(w, torch.ops.sluice._pack_conv1d_weight(w))
    assert torch.equal(
        sluice.conv_transpose1d(x, packed, b, *numbers), sluice.conv_transpose1d(x, w, b, *numbers)
    )  # fmt: skip


def test_autocast_casts_as_torch_does(device: str) -> None:
    x, w, b, numbers = make(device, CASES[2], torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = sluice.conv_transpose1d(x, w, b, *numbers)
        assert result.dtype == F.conv_transpose1d(x, w, b, *numbers).dtype == torch.bfloat16
    assert_close(result, expected(x.bfloat16(), w.bfloat16(), b.bfloat16(), *numbers))


# contracts/test_fakes.py traces conv_transpose1d in every kind of layout, so one of them traces all arguments here.
@pytest.mark.parametrize("layout", [contiguous, permuted, sliced], ids=lambda f: f.__name__)
@pytest.mark.parametrize("groups", [1, 6])
def test_opcheck(device: str, layout, groups: int) -> None:
    tests = ALL_CHECKS if layout is contiguous and groups == 1 else FAST_CHECKS
    x = layout(torch.randn(2, 6, 20, device=device))
    w, b = torch.randn(6, 6 // groups, 4, device=device), torch.randn(6, device=device)
    y = torch.randn(6, 1, device=device)
    op = torch.ops.sluice.conv_transpose1d.default
    opcheck(op, (x, w, None, 1, 2, 0, groups), {"post": "silu"}, test_utils=tests)
    opcheck(
        op,
        (x, w, b, 2, 1, 1, groups, 3),
        {"pre": "mul($0)", "pre_operands": [y], "post": "add($0)|cast(bfloat16)", "post_operands": [y]},
        test_utils=tests,
    )
    opcheck(op, (x[0], w, b, 1, 0, 0, groups), test_utils=tests)
    out = torch.empty_like(sluice.conv_transpose1d(x, w, groups=groups))
    opcheck(
        torch.ops.sluice.conv_transpose1d_out.default, (x, w, None, 1, 0, 0, groups), {"out": out}, test_utils=tests
    )
