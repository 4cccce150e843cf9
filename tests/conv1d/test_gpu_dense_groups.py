"""The tensor-core kernel of conv1d with groups: bits, borders between groups and memory, in both forms and layouts."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import HALF_TYPES, LAYOUTS, TOLERANCE, contiguous, offset_by_one, permuted, relative_error
from dense_problems import Layout, Problem
from linked_forms import link_mode
from marks import ON_TENSOR_CORES
from sluice import stages

pytestmark = ON_TENSOR_CORES


def dense(problem: Problem, x, w, b, **options) -> torch.Tensor:
    """Computed by the kernel, not by aten."""
    found = sluice.plan("conv1d", x, w, b, *problem.numbers)
    assert found.method == "dense", found.reason
    return sluice.conv1d(x, w, b, *problem.numbers, **options)


LAYERS = [
    Problem((2, 768, 1499), 768, 128, 1, 64, groups=16),  # Wav2Vec2's positional convolution
    Problem((2, 4096, 500), 4096, 3, 1, 1, groups=64),
    Problem((2, 256, 5000), 256, 3, 1, 1, groups=16),
    Problem((2, 512, 5001), 512, 7, 1, 9, 3, groups=4),
    Problem((2, 128, 5000), 384, 5, 1, 2, groups=2),
    Problem((2, 256, 8000), 256, 4, 2, 1, groups=4),
]


@pytest.mark.parametrize("layout", [contiguous, permuted, offset_by_one], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_layers_of_models(layer: Problem, dtype: torch.dtype, layout: Layout) -> None:
    x, w, b = layer.make("cuda", dtype, layout)
    result = dense(layer, x, w, b)
    assert relative_error(result, layer.expected(x, w, b)) <= TOLERANCE[dtype]
    assert torch.equal(dense(layer, x, sluice.pack(w), b), result)


def random_problem(rng: random.Random) -> Problem:
    groups, taps, dilation = rng.choice([2, 3, 4, 8, 16]), int(2 ** rng.uniform(0, 6)), rng.choice([1, 1, 2, 5])
    reach, stride = (taps - 1) * dilation, rng.choice([1, 1, 1, 2, 3])
    inputs, outputs = rng.randint(16, 130), 8 * rng.randint(2, 20)
    length = stride * rng.randint(16, 2000) + reach
    padding = rng.choice([0, reach // 2, reach])
    shape = (rng.randint(1, 2), groups * inputs, length)
    return Problem(shape, groups * outputs, taps, stride, padding, dilation, groups)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_random_problems(dtype: torch.dtype, layout: Layout) -> None:
    rng = random.Random(torch.initial_seed())
    dense_ones = 0
    for _ in range(30):
        problem = random_problem(rng)
        x, w, b = problem.make("cuda", dtype, layout)
        plan = sluice.plan("conv1d", x, w, b, *problem.numbers)
        if plan.method != "dense":
            continue
        dense_ones += 1
        wanted = problem.expected(x, w, b)
        # Written to the middle of a larger tensor: every result of every group, and nothing else.
        around = torch.full((x.shape[0], problem.outputs + 4, wanted.shape[2] + 6), 7.0, device="cuda", dtype=dtype)
        around = rng.choice([contiguous, permuted])(around)
        out = around[:, 2 : 2 + problem.outputs, 3 : 3 + wanted.shape[2]].fill_(float("nan"))
        sluice.conv1d(x, w, b, *problem.numbers, out=out)
        assert relative_error(out, wanted) <= TOLERANCE[dtype], (problem, plan)
        inside = out.clone()
        assert torch.equal(sluice.conv1d(x, w, b, *problem.numbers), inside), (problem, plan)
        out.fill_(7.0)
        assert bool((around == 7.0).all()), (problem, plan)
    assert dense_ones > 5


@pytest.mark.parametrize("problem", [LAYERS[2], Problem((2, 96, 700), 96, 9, 1, 4, groups=2)], ids=str)
def test_the_same_bits_in_every_layout_and_form(problem: Problem, linked_always: None) -> None:
    x, w, b = problem.make("cuda", torch.float16)
    alpha, scale = torch.rand(x.shape[1], 1, device="cuda") + 0.5, torch.rand(problem.outputs, 1, device="cuda")
    residual = torch.randn_like(dense(problem, x, w, b))
    for options in (
        {},
        {"post": stages.gelu()},
        {"pre": stages.snake(alpha), "post": stages.add(residual) | stages.mul(scale)},
    ):
        wanted = dense(problem, x, w, b, **options)
        for layout in LAYOUTS:
            assert torch.equal(dense(problem, layout(x), w, b, **options), wanted)
            out = layout(torch.empty_like(wanted)).fill_(float("nan"))
            assert torch.equal(dense(problem, x, w, b, **options, out=out), wanted)
        with link_mode("never"):
            assert torch.equal(dense(problem, x, w, b, **options), wanted)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_groups_do_not_leak_into_each_other(layout: Layout) -> None:
    problem = Problem((2, 144, 500), 144, 5, 1, 2, groups=3)
    x, w, b = problem.make("cuda", torch.bfloat16)
    wanted = dense(problem, x, w, b)
    x[:, 48:96] = float("nan")
    result = dense(problem, layout(x), w, b)
    assert bool(result[:, 48:96].isnan().all())
    assert torch.equal(result[:, :48], wanted[:, :48])
    assert torch.equal(result[:, 96:], wanted[:, 96:])


@pytest.mark.sanitize
@pytest.mark.parametrize("layout", [contiguous, permuted, offset_by_one], ids=lambda f: f.__name__)
def test_under_sanitizers(layout: Layout) -> None:
    for problem in (Problem((2, 96, 300), 96, 5, 1, 2, groups=2), Problem((1, 40, 400), 48, 3, 2, 1, groups=2)):
        x, w, b = problem.make("cuda", torch.float16, layout)
        with link_mode("never"):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu()}):
                result = dense(problem, x, w, b, **chains)
                assert bool(result.isfinite().all())
