"""Dense conv1d with split-K, over the input channels: bits, layouts, chains and memory."""

from __future__ import annotations

import itertools

import pytest
import torch

import sluice
from common import NARROW_TYPES, Layout, contiguous, ends_of_words, offset_by_one, permuted, relative_error
from dense_problems import Problem
from linked_forms import link_mode
from marks import ON_TENSOR_CORES
from sluice import stages
from tf32 import assert_accurate, tf32_allowed, tolerance_in_tf32

pytestmark = ON_TENSOR_CORES

LAYOUTS: list[Layout] = [contiguous, permuted, ends_of_words, offset_by_one]
# Long sums and few outputs; a last split of fewer k-blocks, odd counts of channels, a stride, a dilation.
CASES = [
    Problem((1, 1064, 1720), 24, 17, 1, 8),
    Problem((1, 823, 1264), 90, 9, 5, 4),
    Problem((2, 512, 400), 64, 65, 1, 32),
    Problem((2, 700, 333), 5, 24, 1, 0, 3),
    Problem((1, 130, 100), 300, 31, 2, 7, 2),
]
# Waves of whole tiles, then a few tiles that are split; of half types.
LARGE = [Problem((2, 512, 4864), 512, 9, 1, 4), Problem((1, 640, 4152), 520, 17, 1, 8)]
HALF_TYPES = (torch.float16, torch.bfloat16)


def split_k(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, problem: Problem, **options) -> torch.Tensor:
    found = sluice.plan("conv1d", x, w, b, *problem.numbers, **options)
    assert "split-K of" in found.detail, found
    return sluice.conv1d(x, w, b, *problem.numbers, **options)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("problem", "dtype"),
    [*itertools.product(CASES, NARROW_TYPES), *itertools.product(LARGE, HALF_TYPES)],
    ids=str,
)
def test_sums_are_right_and_the_same_each_time(problem: Problem, dtype: torch.dtype, layout: Layout) -> None:
    x, w, b = problem.make("cuda", dtype, layout)
    result = split_k(x, w, b, problem)
    assert_accurate(result, problem.expected(x, w, b), lambda: torch.conv1d(x, w, b, *problem.numbers))
    out = layout(torch.full_like(result, float("nan")))
    for _ in range(3):
        assert torch.equal(split_k(x, w, b, problem), result)
        assert torch.equal(split_k(x, w, b, problem, out=out.fill_(float("nan"))), result)
    packed = sluice.pack(w)
    assert torch.equal(sluice.conv1d(x, packed, b, *problem.numbers), result)


@pytest.mark.parametrize("outputs", [6, 37])
@pytest.mark.parametrize("layout", [permuted, contiguous], ids=lambda f: f.__name__)
def test_few_outputs_that_are_no_whole_words(outputs: int, layout: Layout) -> None:
    problem = Problem((1, 256, 400), outputs, 65, 1, 32)
    x, w, b = problem.make("cuda", torch.float32, layout)
    with tf32_allowed():
        residual = torch.randn_like(split_k(x, w, b, problem))
        for chain in (None, stages.gelu(), stages.add(residual)):
            wanted = problem.expected(x, w, b, post=chain)
            for mode in ("never", "always"):
                with link_mode(mode):
                    result = split_k(x, w, b, problem, post=chain)
                    assert relative_error(result, wanted) <= tolerance_in_tf32(x.dtype)
                    out = permuted(torch.full_like(result, float("nan")))
                    assert torch.equal(split_k(x, w, b, problem, post=chain, out=out), result)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize(
    ("problem", "dtype"),
    [*itertools.product(CASES[:2], (torch.float16, torch.float32)), (LARGE[0], torch.float16)],
    ids=str,
)
def test_chains_see_the_whole_sums(problem: Problem, dtype: torch.dtype) -> None:
    x, w, b = problem.make("cuda", dtype)
    limit = tolerance_in_tf32(dtype)
    residual = torch.randn_like(split_k(x, w, b, problem))
    gain = torch.rand(problem.outputs, 1, device="cuda")
    crowded = stages.shift(0.0)
    for _ in range(11):
        crowded = crowded | stages.add(torch.randn_like(residual))
    for chain in (stages.gelu(), stages.snake(gain) | stages.add(residual), stages.mul(residual), crowded):
        for bias in (b, None):
            wanted = problem.expected(x, w, bias, post=chain)
            results = []
            for mode in ("never", "always"):
                with link_mode(mode):
                    results.append(split_k(x, w, bias, problem, post=chain))
                assert relative_error(results[-1], wanted) <= limit
            assert torch.equal(*results)
            single = split_k(x, w, bias, problem, post=chain, dtype=torch.float32)
            assert relative_error(single, wanted) <= 1e-3
    before = sluice.plan("conv1d", x, w, b, *problem.numbers, pre=stages.relu())
    # Splits do not apply `pre`: either the conversion of the input does, or the sums are not split.
    assert "with pre applied" in before.detail or "split-K" not in before.detail, before
    wanted = problem.expected(x, w, b, pre=stages.relu())
    for chain in (None, stages.gelu()):
        results = []
        for mode in ("never", "always"):
            with link_mode(mode):
                results.append(sluice.conv1d(x, w, b, *problem.numbers, pre=stages.relu(), post=chain))
        assert torch.equal(*results)
    assert relative_error(sluice.conv1d(x, w, b, *problem.numbers, pre=stages.relu()), wanted) <= limit


def test_calls_in_two_streams_do_not_share_sums() -> None:
    problem = CASES[0]
    x, w, b = problem.make("cuda", torch.float16)
    wanted = split_k(x, w, b, problem)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(split_k(x, w, b, problem))
    torch.cuda.synchronize()
    assert all(torch.equal(result, wanted) for result in results)


@pytest.mark.sanitize
@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_under_sanitizers(dtype: torch.dtype) -> None:
    for problem in (Problem((1, 330, 130), 9, 40, 1, 2), Problem((1, 203, 190), 20, 40, 2)):
        for layout in LAYOUTS:
            x, w, b = problem.make("cuda", dtype, layout)
            with link_mode("never"):
                assert bool(split_k(x, w, b, problem, post=stages.relu()).isfinite().all())
    torch.cuda.synchronize()
