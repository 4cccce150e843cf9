"""The kernel for few output channels: counts of channels, what lies around tensors, weights, and results."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import (
    HALF_TYPES,
    TOLERANCE,
    assert_close,
    contiguous,
    ends_of_words,
    offset_by_one,
    parts_of_positions,
    permuted,
    relative_error,
)
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU

LEAST = 16384  # positions of all results, by the policy

LAYOUTS = [contiguous, permuted, offset_by_one, ends_of_words, parts_of_positions]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
each_dtype = pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)


def few_outputs(x, w, b=None, padding: int = 0, dilation: int = 1, **options) -> torch.Tensor:
    """By the kernel of that name, and no other."""
    asked = {name: value for name, value in options.items() if name != "out"}
    assert sluice.plan("conv1d", x, w, b, 1, padding, dilation, **asked).method == "few_outputs"
    return sluice.conv1d(x, w, b, 1, padding, dilation, **options)


def weights(outputs: int, inputs: int, taps: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(outputs, inputs, taps, device="cuda", dtype=dtype) / (inputs * taps) ** 0.5


@each_dtype
@each_layout
@pytest.mark.parametrize("inputs", [8, 30, 33, 512, 1535, 1536])
def test_counts_of_channels(inputs: int, layout, dtype: torch.dtype) -> None:
    for length in (LEAST, LEAST + 1):
        x = layout(torch.randn(1, inputs, length, device="cuda", dtype=dtype))
        for outputs, taps in ((1, 7), (2, 5), (4, 7) if inputs < 512 else (1, 3)):
            w = weights(outputs, inputs, taps, dtype)
            wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=taps // 2)
            assert_close(few_outputs(x, w, None, taps // 2), wanted)


@each_dtype
@each_layout
def test_a_chain_before_has_the_bits_of_a_pass(dtype: torch.dtype, layout) -> None:
    w, b = weights(2, 33, 7, dtype), torch.randn(2, device="cuda", dtype=dtype)
    for length in (LEAST // 2, LEAST + 1):
        x = layout(torch.randn(2, 33, length, device="cuda", dtype=dtype))
        pre = stages.shift(3.0)
        plain = few_outputs(layout(sluice.transform(x, pre, dtype=dtype)), w, b, 9)
        assert torch.equal(few_outputs(x, w, b, 9, pre=pre), plain)


@each_dtype
@each_layout
def test_what_lies_around_the_input_is_not_read_into_it(dtype: torch.dtype, layout) -> None:
    # ends_of_words and parts_of_positions have NaN around; the first and last words of a tensor are cut here.
    x = layout(torch.randn(2, 35, LEAST + 1, device="cuda", dtype=dtype))
    w = weights(1, 35, 7, dtype)
    for part in (x, x[:, :, 1:], x[:, :, 5:-3], x[:, 1:], x[:, 3:-2, 2:-1], x[1:], x[:, :, ::2], x[:, ::2]):
        own = w[:, : part.shape[1]]
        wanted = torch.nn.functional.conv1d(part.double(), own.double(), padding=3)
        result = sluice.conv1d(part, own, padding=3)  # by whichever method
        assert relative_error(result, wanted) <= TOLERANCE[dtype], (layout.__name__, part.shape, part.stride())


@each_dtype
def test_weights_may_lie_anywhere(dtype: torch.dtype) -> None:
    x = torch.randn(2, 24, LEAST, device="cuda", dtype=dtype)
    w = weights(2, 24, 5, dtype)
    wanted = few_outputs(x, w)
    assert torch.equal(few_outputs(x, offset_by_one(w)), wanted)
    assert torch.equal(few_outputs(x, w.transpose(0, 2).contiguous().transpose(0, 2)), wanted)
    assert torch.equal(few_outputs(x, sluice.pack(w)), wanted)
    spread = x.new_zeros(2, 48, 10)[:, ::2, ::2]
    assert torch.equal(few_outputs(x, spread.copy_(w)), wanted)


@each_dtype
def test_a_batch_without_a_stride_and_other_results(dtype: torch.dtype) -> None:
    x, w = torch.randn(32, LEAST, device="cuda", dtype=dtype), weights(1, 32, 7, dtype)
    wanted = torch.nn.functional.conv1d(x.double()[None], w.double(), padding=3)
    assert_close(sluice.conv1d(x, w, padding=3), wanted[0])
    many = x.expand(4, -1, -1)
    assert_close(few_outputs(many, w, None, 3), wanted.expand(4, -1, -1))
    for result in (torch.float32, torch.float16, torch.bfloat16):
        y = few_outputs(many, w, None, 3, dtype=result)
        assert y.dtype is result
        assert_close(y, wanted.expand(4, -1, -1), factor=2)


@each_dtype
def test_transposed_convolutions_of_stride_one(dtype: torch.dtype) -> None:
    for layout in LAYOUTS:
        x = layout(torch.randn(2, 40, LEAST, device="cuda", dtype=dtype))
        w = torch.randn(40, 1, 7, device="cuda", dtype=dtype) / (40 * 7) ** 0.5
        wanted = torch.nn.functional.conv_transpose1d(x.double(), w.double(), padding=3)
        assert_close(sluice.conv_transpose1d(x, w, padding=3), wanted)
