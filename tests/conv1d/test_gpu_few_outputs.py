"""The kernel for few output channels: against float64, the same bits in both forms and every run, borders, memory."""

from __future__ import annotations

import functools
import random

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
from linked_forms import link_mode
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
def test_random_problems(dtype: torch.dtype, layout) -> None:
    rng = random.Random(torch.initial_seed())
    for _ in range(30):
        outputs = rng.randint(1, 4)
        taps, dilation = rng.randint(2, 32 // outputs), rng.choice([1, 1, 2, 5])
        reach = (taps - 1) * dilation + 1
        padding = rng.choice([0, reach // 2, reach - 1, rng.randint(0, reach + 9)])
        inputs = rng.choice([8, 16, 32, 64, 96, 9, 31, 33, 40, rng.randint(8, 300)])
        batch = rng.randint(1, 5)
        length = -(-LEAST // batch) + reach + rng.choice([0, 3, 8 * rng.randint(0, 500), rng.randint(0, 20000)])
        problem = (batch, inputs, outputs, length, taps, padding, dilation)
        x = layout(torch.randn(batch, inputs, length, device="cuda", dtype=dtype))
        w, b = weights(outputs, inputs, taps, dtype), torch.randn(outputs, device="cuda", dtype=dtype)
        results = length + 2 * padding - reach + 1
        around = torch.full((batch, outputs + 4, results + 6), 7.0, device="cuda", dtype=dtype)
        out = around[:, 2 : 2 + outputs, 3 : 3 + results].fill_(float("nan"))
        few_outputs(x, w, b, padding, dilation, out=out)
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), 1, padding, dilation)
        assert relative_error(out, wanted) <= TOLERANCE[dtype], problem
        returned = few_outputs(x, w, b, padding, dilation)
        assert torch.equal(returned, out), problem
        out.fill_(7.0)
        assert bool((around == 7.0).all()), problem


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
@pytest.mark.parametrize(("outputs", "taps"), [(1, 7), (2, 5), (3, 9), (4, 8)])
def test_the_same_bits_in_both_forms_and_every_run(outputs, taps, layout, dtype, linked_always: None) -> None:
    x = layout(torch.randn(3, 50, 6001, device="cuda", dtype=dtype))
    w, b = weights(outputs, 50, taps, dtype), torch.randn(outputs, device="cuda", dtype=dtype)
    plain = few_outputs(x, w, b, taps // 2)
    residual = torch.randn_like(plain)
    gain, before = torch.rand(outputs, 1, device="cuda") + 0.5, torch.rand(50, 1, device="cuda") + 0.5
    for options in (
        {},
        {"post": stages.tanh()},
        {"pre": stages.leaky_relu(0.1), "post": stages.tanh()},
        {"pre": stages.snake(before), "post": stages.add(residual) | stages.mul(gain)},
        {"pre": stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
        {"pre": stages.mul(x) | stages.shift(0.5)},
    ):
        again = functools.partial(few_outputs, x, w, b, taps // 2, **options)
        wanted = again()
        for mode in ("always", "never", "never"):
            with link_mode(mode):
                assert torch.equal(again(), wanted)
    passes = sluice.transform(few_outputs(x, w, b, taps // 2, dtype=torch.float32), stages.gelu(), dtype=dtype)
    assert_close(few_outputs(x, w, b, taps // 2, post=stages.gelu()), passes.double())


@each_dtype
@each_layout
def test_chains_before_do_not_reach_the_padding(dtype: torch.dtype, layout) -> None:
    gain = torch.rand(33, 1, device="cuda") + 0.5
    x = layout(torch.randn(2, 33, LEAST + 3, device="cuda", dtype=dtype))
    w, b = weights(2, 33, 7, dtype), torch.randn(2, device="cuda", dtype=dtype)
    for pre in (stages.shift(3.0), stages.leaky_relu(0.1), stages.snake(gain), stages.mul(gain) | stages.shift(1.0)):
        changed = sluice.transform(x, pre, dtype=dtype)
        wanted = torch.nn.functional.conv1d(changed.double(), w.double(), b.double(), 1, 9)
        for mode in ("never", "always"):
            with link_mode(mode):
                assert_close(few_outputs(x, w, b, 9, pre=pre), wanted)
    for length in (LEAST // 2, LEAST + 1):
        x = layout(torch.randn(2, 33, length, device="cuda", dtype=dtype))
        pre = stages.shift(3.0)
        plain = few_outputs(layout(sluice.transform(x, pre, dtype=dtype)), w, b, 9)
        assert torch.equal(few_outputs(x, w, b, 9, pre=pre), plain)


@each_dtype
@each_layout
def test_infinities_stay_in_their_windows(dtype: torch.dtype, layout) -> None:
    for inputs, outputs, taps, dilation in ((40, 1, 7, 1), (33, 3, 5, 4), (8, 2, 3, 1)):
        reach = (taps - 1) * dilation
        x = layout(torch.randn(1, inputs, LEAST + reach + 5, device="cuda", dtype=dtype))
        w = weights(outputs, inputs, taps, dtype)
        finite = few_outputs(x, w, None, reach, dilation)
        places = [0, 7, 1000, 1001, 9999, x.shape[2] - 1]
        reached = torch.zeros(finite.shape[2], dtype=torch.bool, device="cuda")
        for i, place in enumerate(places):
            x[0, i % inputs, place] = float("inf") if i % 2 else float("nan")
            for k in range(taps):
                reached[place + reach - k * dilation] = True
        result = few_outputs(x, w, None, reach, dilation)
        assert torch.equal(result[..., ~reached], finite[..., ~reached])
        assert not bool(result[..., reached].isfinite().any())


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
def test_repeats_and_graphs(dtype: torch.dtype) -> None:
    x = torch.randn(4, 32, 100003, device="cuda", dtype=dtype)
    w, b = weights(1, 32, 7, dtype), torch.randn(1, device="cuda", dtype=dtype)
    wanted = few_outputs(x, w, b, 3)
    out = torch.full_like(wanted, float("nan"))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        few_outputs(x, w, b, 3, out=out)
    for _ in range(10):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, wanted)


@each_dtype
def test_transposed_convolutions_of_stride_one(dtype: torch.dtype) -> None:
    for layout in LAYOUTS:
        x = layout(torch.randn(2, 40, LEAST, device="cuda", dtype=dtype))
        w = torch.randn(40, 1, 7, device="cuda", dtype=dtype) / (40 * 7) ** 0.5
        wanted = torch.nn.functional.conv_transpose1d(x.double(), w.double(), padding=3)
        assert_close(sluice.conv_transpose1d(x, w, padding=3), wanted)


@pytest.mark.large
@pytest.mark.parametrize("layout", [contiguous, permuted, offset_by_one], ids=lambda f: f.__name__)
def test_over_2_31_elements(layout) -> None:
    batch, inputs = 3, 64
    length = 2**31 // (2 * inputs) + 13
    x = layout(torch.empty(batch, inputs, length, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1))
    w = weights(1, inputs, 7, torch.bfloat16)
    y = few_outputs(x, w, None, 3)
    for b in range(batch):
        for begin in (0, length // 2, length - 5000):
            part = torch.nn.functional.conv1d(x[b : b + 1, :, begin : begin + 5000].double(), w.double())
            assert_close(y[b : b + 1, :, begin + 3 : begin + 4997], part)
    assert not y.isnan().any()


@pytest.mark.sanitize
@pytest.mark.parametrize("mode", ["never", "always"], ids=["interpreted", "linked"])
@each_layout
def test_under_sanitizers(layout, mode: str) -> None:
    for inputs, outputs, taps, more in ((8, 1, 7, 0), (33, 4, 8, 1), (40, 2, 5, 8)):
        length = LEAST // 2 + more
        x = layout(torch.randn(2, inputs, length, device="cuda", dtype=torch.float16))
        w, b = weights(outputs, inputs, taps, torch.float16), torch.randn(outputs, device="cuda", dtype=torch.float16)
        gain, after = torch.rand(inputs, 1, device="cuda"), torch.rand(outputs, 1, device="cuda")
        with link_mode(mode):
            for chains in ({}, {"pre": stages.mul(gain) | stages.relu(), "post": stages.tanh() | stages.mul(after)}):
                few_outputs(x, w, b, taps - 1, **chains)
    torch.cuda.synchronize()
