"""The portable dense kernel (SLUICE_DENSE=portable): every shape, layout and dtype, and sanitizers.

The other tests of dense convolutions run with that setting too (tools/gpu_check.py).
"""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import LAYOUTS, NARROW_TYPES, Layout, contiguous, ends_of_words, permuted, relative_error, sliced
from dense_problems import LAYOUTS_AND_ENDS, Problem
from marks import IS_PORTABLE, ON_TENSOR_CORES
from rows import naming
from sluice import stages
from tf32 import assert_accurate, tf32_allowed, tolerance_in_tf32

pytestmark = [*ON_TENSOR_CORES, pytest.mark.skipif(not IS_PORTABLE, reason="needs SLUICE_DENSE=portable")]

# Weights that stay and weights that stream, tiles beside each other in positions and in channels, edges in both,
# residues of a stride, several units of taps, groups of whole words and of part of a word.
PROBLEMS = [
    Problem((2, 20, 300), 40, 3, 1, 1),
    Problem((2, 64, 90), 130, 5, 1, 1),
    Problem((1, 256, 700), 200, 3, 1, 1),
    Problem((9, 24, 3000), 130, 3, 1, 1),
    Problem((2, 96, 300), 96, 5, 1, 2, groups=2),
    Problem((2, 24, 304), 48, 5, 1, 2, groups=6),
    Problem((2, 20, 600), 40, 3, 2, 1),
    Problem((2, 64, 400), 130, 5, 3, 1, 2),
    Problem((1, 128, 500), 64, 41, 1, 60, 3),
    Problem((1, 1600, 200), 24, 9, 1, 4),
]


def portable(problem: Problem, x, w, b, **options) -> torch.Tensor:
    found = sluice.plan("conv1d", x, w, b, *problem.numbers, **options)
    assert found.kernel.startswith("portable"), found
    return sluice.conv1d(x, w, b, *problem.numbers, **options)


def check_layouts(problem: Problem, dtype: torch.dtype, tolerance: float) -> None:
    for layout in (contiguous, permuted, ends_of_words):
        x, w, b = problem.make("cuda", dtype, layout)
        out = torch.full(problem.results, float("nan"), dtype=dtype, device="cuda")
        result = sluice.conv1d(x, sluice.pack(w), b, *problem.numbers, out=out)
        assert relative_error(result, problem.expected(x, w, b)) <= tolerance


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_under_sanitizers(problem: Problem, dtype: torch.dtype) -> None:
    with tf32_allowed():
        check_layouts(problem, dtype, 1e-2)


@pytest.mark.sanitize
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_float32_split_in_place_under_sanitizers(problem: Problem) -> None:
    check_layouts(problem, torch.float32, 2e-6)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("layout", LAYOUTS_AND_ENDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_results_and_their_bits(dtype: torch.dtype, layout: Layout) -> None:
    for problem in PROBLEMS:
        with naming(problem):
            x, w, b = problem.make("cuda", dtype, layout)
            result, torchs = portable(problem, x, w, b), torch.conv1d(x, w, b, *problem.numbers)
            assert_accurate(result, problem.expected(x, w, b), lambda torchs=torchs: torchs)
            for other in (contiguous, permuted, sliced):
                out = other(torch.empty_like(result)).fill_(float("nan"))
                assert torch.equal(portable(problem, x, w, b, out=out), result)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_float32_at_full_precision(layout: Layout) -> None:
    for problem in PROBLEMS:
        with naming(problem):
            x, w, b = problem.make("cuda", torch.float32, layout)
            assert relative_error(portable(problem, x, w, b), problem.expected(x, w, b)) <= 1e-6


def test_random_problems_with_chains() -> None:
    pick = random.Random(7)
    for _ in range(150):
        groups = pick.choice((1, 1, 1, 2, 5))
        inputs, outputs = groups * pick.choice((1, 8, 16, 40, 100, 300)), groups * pick.choice((8, 24, 64, 136, 264))
        taps, stride, dilation = pick.randint(1, 24), pick.choice((1, 1, 1, 2, 3, 5)), pick.choice((1, 1, 2, 7))
        length = (taps - 1) * dilation + pick.randint(200, 3000)
        problem = Problem((pick.randint(1, 3), inputs, length), outputs, taps, stride, taps // 2, dilation, groups)
        dtype, layout = pick.choice(NARROW_TYPES), pick.choice(LAYOUTS_AND_ENDS)
        with naming(problem, dtype, layout.__name__), tf32_allowed(pick.random() < 0.5):
            x, w, b = problem.make("cuda", dtype, layout)
            pre = pick.choice((None, stages.leaky_relu(0.1), stages.snake(torch.rand(inputs, 1, device="cuda") + 0.5)))
            post = stages.gelu() | stages.add(torch.randn(problem.results, dtype=dtype, device="cuda"))
            found = sluice.plan("conv1d", x, w, b, *problem.numbers, pre=pre, post=post)
            if found.method != "dense":
                continue
            result = sluice.conv1d(x, w, b, *problem.numbers, pre=pre, post=post)
            assert relative_error(result, problem.expected(x, w, b, pre, post)) <= 2 * tolerance_in_tf32(dtype)
