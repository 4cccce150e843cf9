"""The tensor-core kernel of conv1d with a stride: bits, borders and memory, in both forms and every layout."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import (
    HALF_TYPES,
    TOLERANCE,
    Layout,
    contiguous,
    ends_of_words,
    offset_by_one,
    permuted,
    relative_error,
    sliced,
)
from convolution_tensors import convolution
from dense_problems import LAYOUTS_AND_ENDS
from linked_forms import link_mode
from marks import ON_TENSOR_CORES
from sluice import stages

pytestmark = ON_TENSOR_CORES


def dense(x, w, b, *numbers: int, **options) -> torch.Tensor:
    """Computed by the kernel, not by aten. `numbers`: stride, padding, dilation."""
    found = sluice.plan("conv1d", x, w, b, *numbers)
    assert found.method == "dense", found.reason
    return sluice.conv1d(x, w, b, *numbers, **options)


def error_of(result, x, w, b, *numbers: int) -> float:
    wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), *numbers)
    return relative_error(result, wanted)


# Layers of Wav2Vec2, Whisper and codecs' encoders, and a patch embedding, in full size.
LAYERS = [
    ((2, 512, 31999), 512, 3, 2, 0, 1),
    ((2, 512, 1999), 512, 2, 2, 0, 1),
    ((2, 1280, 3000), 1280, 3, 2, 1, 1),
    ((1, 64, 100000), 128, 4, 2, 1, 1),
    ((1, 128, 50000), 256, 8, 4, 2, 1),
    ((1, 160, 25000), 320, 10, 5, 3, 1),
    ((2, 256, 12504), 512, 16, 8, 4, 1),
    ((2, 16, 16000), 768, 16, 16, 0, 1),
]


@pytest.mark.parametrize("layout", [contiguous, permuted, offset_by_one], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_layers_of_models(layer, dtype: torch.dtype, layout: Layout) -> None:
    shape, outputs, taps, *numbers = layer
    x, w, b = convolution(shape, outputs, taps, dtype, layout)
    result = dense(x, w, b, *numbers)
    assert error_of(result, x, w, b, *numbers) <= TOLERANCE[dtype]
    assert torch.equal(dense(x, sluice.pack(w), b, *numbers), result)


def random_problem(rng: random.Random) -> tuple[tuple[int, int, int], int, int, int, int, int]:
    """Shape, output channels, taps, stride, padding, dilation."""
    size = lambda most: int(2 ** rng.uniform(0, most))  # noqa: E731
    taps, dilation, stride = size(5), rng.choice([1, 1, 1, 2, 3, 4, 6]), rng.choice([2, 2, 3, 4, 5, 6, 7, 8, 10, 16])
    reach = (taps - 1) * dilation
    padding = rng.choice([0, reach // 2, reach, rng.randint(0, reach + 3)])
    length = stride * max(20, size(11)) + reach + rng.randint(0, 9)
    return (rng.randint(1, 3), size(9), length), size(9), taps, stride, padding, dilation


@pytest.mark.parametrize("layout", LAYOUTS_AND_ENDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_random_problems(dtype: torch.dtype, layout: Layout) -> None:
    rng = random.Random(torch.initial_seed())
    dense_ones = 0
    for _ in range(30):
        problem = random_problem(rng)
        shape, outputs, taps, stride, padding, dilation = problem
        numbers = (stride, padding, dilation)
        x, w, b = convolution(shape, outputs, taps, dtype, layout)
        plan = sluice.plan("conv1d", x, w, b, *numbers)
        if plan.method != "dense":
            continue
        dense_ones += 1
        length = (shape[2] + 2 * padding - (taps - 1) * dilation - 1) // stride + 1
        # Written to the middle of a larger tensor, in any layout: every result, and nothing else.
        around = torch.full((shape[0], outputs + 4, length + 6), 7.0, device="cuda", dtype=dtype)
        around = rng.choice([contiguous, permuted])(around)
        out = around[:, 2 : 2 + outputs, 3 : 3 + length].fill_(float("nan"))
        sluice.conv1d(x, w, b, *numbers, out=out)
        assert error_of(out, x, w, b, *numbers) <= TOLERANCE[dtype], (problem, plan)
        inside = out.clone()
        assert torch.equal(sluice.conv1d(x, w, b, *numbers), inside), (problem, plan)
        out.fill_(7.0)
        assert bool((around == 7.0).all()), (problem, plan)
    assert dense_ones > 5


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [(64, 128, 2000, 7, 2, 9, 3), (96, 40, 999, 3, 3, 1, 1), (16, 600, 500, 5, 4, 2, 1), (20, 7, 3001, 2, 2, 1, 1)],
    ids=str,
)
def test_the_same_bits_in_every_form_and_run(case, dtype: torch.dtype, linked_always: None) -> None:
    inputs, outputs, length, taps, *numbers = case
    x, w, b = convolution((2, inputs, length), outputs, taps, dtype)
    alpha, scale = torch.rand(inputs, 1, device="cuda") + 0.5, torch.rand(outputs, 1, device="cuda")
    residual = torch.randn_like(dense(x, w, b, *numbers))
    packed = sluice.pack(w)
    for options in (
        {},
        {"post": stages.gelu()},
        {"pre": stages.snake(alpha), "post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)},
        {"pre": stages.leaky_relu(0.1) | stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
    ):
        for layout in LAYOUTS_AND_ENDS:  # sums go residue by residue, or tap by tap, depending on the layout
            own = layout(x)
            wanted = dense(own, w, b, *numbers, **options)
            assert torch.equal(dense(own, w, b, *numbers, **options), wanted)
            assert torch.equal(dense(own, packed, b, *numbers, **options), wanted)
            out = layout(torch.empty_like(wanted)).fill_(float("nan"))
            assert torch.equal(dense(own, w, b, *numbers, **options, out=out), wanted)
            with link_mode("never"):
                assert torch.equal(dense(own, w, b, *numbers, **options), wanted)


@pytest.mark.parametrize("layout", LAYOUTS_AND_ENDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("stride", [2, 3, 5])
def test_rows_do_not_leak_into_each_other(layout: Layout, stride: int) -> None:
    x, w, b = convolution((3, 40, 900), 48, 9, torch.bfloat16)
    wanted = dense(x, w, b, stride, 8)
    x[1] = float("nan")
    x[0, :, 300] = float("inf")
    result = dense(layout(x), w, b, stride, 8)
    assert torch.isfinite(result[2]).all()
    assert relative_error(result[2], wanted[2].double()) <= TOLERANCE[torch.bfloat16]
    assert bool(result[1].isnan().all())
    first = torch.arange(result.shape[-1], device="cuda") * stride - 8
    touched = (first <= 300) & (first + 9 > 300)
    assert bool(result[0][:, ~touched].isfinite().all())
    assert not bool(result[0][:, touched].isfinite().any())


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_capture(ahead: bool, layout: Layout) -> None:
    x, w, b = convolution((2, 64, 6000), 96, 5, torch.float16, layout)
    weight = sluice.pack(w) if ahead else w
    chains = {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}
    sluice.prepare(chains["post"], x, weight, b, 2, 2, op="conv1d", pre=chains["pre"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = sluice.conv1d(x, weight, b, 2, 2, **chains)
    for _ in range(3):
        x.normal_()
        result.fill_(float("nan"))
        graph.replay()
        assert torch.equal(result, sluice.conv1d(x, weight, b, 2, 2, **chains))


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_more_than_2_to_31_elements(layout: Layout) -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of device memory")
    length = (1 << 25) + 1000
    x = layout(torch.empty(1, 72, length, device="cuda", dtype=torch.bfloat16).normal_())
    _, w, b = convolution((1, 72, 16), 64, 3, torch.bfloat16)
    result = dense(x, w, b, 2)
    assert x.numel() > 2**31
    for begin in (0, length // 4, result.shape[-1] - 4096):
        own = dense(layout(x[..., 2 * begin : 2 * begin + 2 * 4096 + 1]), w, b, 2)
        assert torch.equal(result[..., begin : begin + 4096], own[..., :4096])


@pytest.mark.sanitize
@pytest.mark.parametrize("layout", [contiguous, permuted, sliced, ends_of_words], ids=lambda f: f.__name__)
def test_under_sanitizers(layout: Layout) -> None:
    # All residues read, some of them, and more positions than the taps read.
    for inputs, outputs, length, taps, *numbers in (
        (20, 40, 600, 3, 2, 1),
        (64, 130, 400, 5, 3, 1, 2),
        (16, 24, 500, 2, 5),
    ):
        x, w, b = convolution((2, inputs, length), outputs, taps, torch.float16, layout)
        with link_mode("never"):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu()}):
                result = sluice.conv1d(x, w, b, *numbers, **chains)
                assert bool(result.isfinite().all())
