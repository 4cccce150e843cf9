"""Dense conv1d with split-K, over the input channels: bits, layouts, borders, chains and memory."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import HALF_TYPES, TOLERANCE, Layout, contiguous, ends_of_words, offset_by_one, permuted, relative_error
from dense_problems import Problem
from linked_forms import link_mode
from marks import ON_TENSOR_CORES
from sluice import stages

pytestmark = ON_TENSOR_CORES

LAYOUTS: list[Layout] = [contiguous, permuted, ends_of_words, offset_by_one]
# Long sums and few outputs; a last split of fewer k-blocks, odd counts of channels, a stride, a dilation.
CASES = [
    Problem((1, 1064, 1720), 24, 9, 1, 4),
    Problem((1, 823, 1264), 90, 9, 5, 4),
    Problem((2, 512, 400), 64, 65, 1, 32),
    Problem((2, 700, 333), 5, 24, 1, 0, 3),
    Problem((1, 130, 100), 300, 31, 2, 7, 2),
]


def split_k(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, problem: Problem, **options) -> torch.Tensor:
    found = sluice.plan("conv1d", x, w, b, *problem.numbers, **options)
    assert "split-K by" in found.detail, found
    return sluice.conv1d(x, w, b, *problem.numbers, **options)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("problem", CASES, ids=str)
def test_sums_are_right_and_the_same_each_time(problem: Problem, dtype: torch.dtype, layout: Layout) -> None:
    x, w, b = problem.make("cuda", dtype, layout)
    result = split_k(x, w, b, problem)
    assert relative_error(result, problem.expected(x, w, b)) <= TOLERANCE[dtype]
    out = layout(torch.full_like(result, float("nan")))
    for _ in range(3):
        assert torch.equal(split_k(x, w, b, problem), result)
        assert torch.equal(split_k(x, w, b, problem, out=out.fill_(float("nan"))), result)
    packed = sluice.pack(w)
    assert torch.equal(sluice.conv1d(x, packed, b, *problem.numbers), result)


@pytest.mark.parametrize("problem", CASES[:2], ids=str)
def test_chains_run_in_the_pass_that_adds(problem: Problem) -> None:
    x, w, b = problem.make("cuda", torch.float16)
    residual = torch.randn_like(split_k(x, w, b, problem))
    gain = torch.rand(problem.outputs, 1, device="cuda")
    for chain in (stages.gelu(), stages.snake(gain) | stages.add(residual), stages.mul(residual)):
        for bias in (b, None):
            wanted = problem.expected(x, w, bias, post=chain)
            for mode in ("never", "always"):
                with link_mode(mode):
                    assert relative_error(split_k(x, w, bias, problem, post=chain), wanted) <= 2e-3
            single = split_k(x, w, bias, problem, post=chain, dtype=torch.float32)
            assert relative_error(single, wanted) <= 1e-3
    before = sluice.plan("conv1d", x, w, b, *problem.numbers, pre=stages.relu())
    # Splits do not apply `pre`: either the conversion of the input does, or the sums are not split.
    assert "with pre applied" in before.detail or "split-K" not in before.detail, before
    wanted = problem.expected(x, w, b, pre=stages.relu())
    assert relative_error(sluice.conv1d(x, w, b, *problem.numbers, pre=stages.relu()), wanted) <= 2e-3
    crowded = stages.shift(0.0)
    for _ in range(11):
        crowded = crowded | stages.add(torch.randn_like(residual))
    found = sluice.plan("conv1d", x, w, b, *problem.numbers, post=crowded)
    assert "split-K" not in found.detail  # the pass takes no more tensors
    wanted = problem.expected(x, w, b, post=crowded)
    assert relative_error(sluice.conv1d(x, w, b, *problem.numbers, post=crowded), wanted) <= 2e-3


def test_what_is_not_finite_stays_where_it_reaches() -> None:
    problem = CASES[0]
    x, w, b = problem.make("cuda", torch.bfloat16)
    wanted = split_k(x, w, b, problem)
    x[0, 1063, 800] = float("inf")
    result = split_k(x, w, b, problem)
    touched = torch.zeros(result.shape[2], dtype=torch.bool, device="cuda")
    touched[800 - 4 : 800 + 5] = True
    assert torch.equal(result[..., ~touched], wanted[..., ~touched])
    assert not bool(result[..., touched].isfinite().any())


def test_random_problems() -> None:
    rng = random.Random(torch.initial_seed())
    taken = 0
    for _ in range(80):
        taps, stride, dilation = rng.randint(1, 40), rng.choice([1, 1, 2, 5]), rng.choice([1, 1, 2])
        length = rng.randint(20, 900) + (taps - 1) * dilation
        shape = rng.randint(1, 3), rng.randint(65, 1500), length
        problem = Problem(shape, rng.randint(2, 300), taps, stride, rng.randint(0, taps), dilation)
        dtype, layout = rng.choice(HALF_TYPES), rng.choice(LAYOUTS)
        x, w, b = problem.make("cuda", dtype, layout)
        if "split-K by" not in sluice.plan("conv1d", x, w, b, *problem.numbers).detail:
            continue
        taken += 1
        assert relative_error(split_k(x, w, b, problem), problem.expected(x, w, b)) <= TOLERANCE[dtype], problem
    assert taken > 10


@pytest.mark.sanitize
def test_under_sanitizers() -> None:
    for problem in (Problem((1, 330, 130), 9, 40, 1, 2), Problem((1, 203, 190), 20, 40, 2)):
        for layout in LAYOUTS:
            x, w, b = problem.make("cuda", torch.float16, layout)
            with link_mode("never"):
                assert bool(split_k(x, w, b, problem, post=stages.relu()).isfinite().all())
    torch.cuda.synchronize()
