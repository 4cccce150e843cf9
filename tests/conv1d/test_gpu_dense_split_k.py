"""Dense conv1d with split-K, over the input channels: bits, layouts, chains and memory."""

from __future__ import annotations

import re

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


def split_k(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, problem: Problem, **options) -> torch.Tensor:
    found = sluice.plan("conv1d", x, w, b, *problem.numbers, **options)
    assert "split-K by" in found.detail, found
    return sluice.conv1d(x, w, b, *problem.numbers, **options)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("problem", CASES, ids=str)
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
def test_splits_that_begin_between_words(outputs: int, layout: Layout) -> None:
    """Positions of all splits' sums begin at words of 16 bytes, but the second split's channels do not."""
    problem = Problem((1, 256, 400), outputs, 65, 1, 32)
    x, w, b = problem.make("cuda", torch.float32, layout)
    with tf32_allowed():
        found = sluice.plan("conv1d", x, w, b, *problem.numbers)
        splits = int(re.findall(r"split-K by (\d+)", found.detail)[0])
        assert outputs % 4 != 0, found
        assert splits * outputs % 4 == 0, found
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
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("problem", CASES[:2], ids=str)
def test_chains_run_in_the_pass_that_adds(problem: Problem, dtype: torch.dtype) -> None:
    x, w, b = problem.make("cuda", dtype)
    limit = tolerance_in_tf32(dtype)
    residual = torch.randn_like(split_k(x, w, b, problem))
    gain = torch.rand(problem.outputs, 1, device="cuda")
    for chain in (stages.gelu(), stages.snake(gain) | stages.add(residual), stages.mul(residual)):
        for bias in (b, None):
            wanted = problem.expected(x, w, bias, post=chain)
            for mode in ("never", "always"):
                with link_mode(mode):
                    assert relative_error(split_k(x, w, bias, problem, post=chain), wanted) <= limit
            single = split_k(x, w, bias, problem, post=chain, dtype=torch.float32)
            assert relative_error(single, wanted) <= 1e-3
    before = sluice.plan("conv1d", x, w, b, *problem.numbers, pre=stages.relu())
    # Splits do not apply `pre`: either the conversion of the input does, or the sums are not split.
    assert "with pre applied" in before.detail or "split-K" not in before.detail, before
    wanted = problem.expected(x, w, b, pre=stages.relu())
    assert relative_error(sluice.conv1d(x, w, b, *problem.numbers, pre=stages.relu()), wanted) <= limit
    crowded = stages.shift(0.0)
    for _ in range(11):
        crowded = crowded | stages.add(torch.randn_like(residual))
    found = sluice.plan("conv1d", x, w, b, *problem.numbers, post=crowded)
    assert "split-K" not in found.detail  # the pass takes no more tensors
    wanted = problem.expected(x, w, b, post=crowded)
    assert relative_error(sluice.conv1d(x, w, b, *problem.numbers, post=crowded), wanted) <= limit


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
