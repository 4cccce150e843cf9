"""Dense conv1d in half types with a stride: F.conv1d's results for every layout and alignment, and its plans."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import HALF_TYPES, LAYOUTS, assert_close
from dense_problems import HAS_CODE, Problem, check_results, check_results_with_chains, plan
from marks import IS_PORTABLE
from rows import naming
from sluice import stages
from sluice.plan import H200

# Small versions of layers of speech models and codecs; taps fewer than the stride and as many, dilations with and
# without a common factor with it, rows that end in every residue, strides wider than a vector and than a raw tile.
PROBLEMS = [
    Problem((2, 64, 301), 64, 3, 2, 1),
    Problem((2, 512, 401), 96, 2, 2),
    Problem((1, 128, 1031), 160, 8, 4, 3),
    Problem((2, 40, 999), 72, 10, 5, 7),
    Problem((1, 32, 3001), 64, 16, 8, 4),
    Problem((1, 1, 2000), 48, 10, 5),
    Problem((2, 3, 1600), 64, 16, 16),
    Problem((1, 24, 700), 33, 1, 3),
    Problem((1, 100, 517), 7, 2, 5, 2),
    Problem((3, 16, 640), 32, 5, 2, 4, 3),
    Problem((1, 20, 900), 40, 7, 4, 9, 6),
    Problem((1, 48, 800), 24, 3, 6, 12, 4),
    Problem((1, 8, 9000), 16, 4, 100, 50),
    Problem((2, 72, 33), 40, 3, 2, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_results(device: str, dtype: torch.dtype, layout) -> None:
    for problem in PROBLEMS:
        with naming(problem):
            check_results(problem, device, dtype, layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_results_with_chains(device: str, dtype: torch.dtype, layout) -> None:
    for problem in (PROBLEMS[2], PROBLEMS[9], PROBLEMS[10]):
        with naming(problem):
            check_results_with_chains(problem, device, dtype, layout)


def test_more_zeros_on_one_side(device: str) -> None:
    problem = Problem((2, 32, 501), 48, 4, 2)
    x, w, b = problem.make(device, torch.float16)
    for left, right in ((3, 0), (0, 3), (7, 2)):
        wanted = problem.expected(F.pad(x, (left, right)), w, b)
        assert_close(torch.ops.sluice.conv1d(x, w, b, 2, left, padding_right=right), wanted)


@pytest.mark.skipif(not HAS_CODE or IS_PORTABLE, reason="plans of the kernel of compute capability 9.0")
def test_a_plan_says_how_the_stride_is_fetched() -> None:
    whisper = Problem((8, 1280, 3000), 1280, 3, 2, 1)
    last, first = plan(whisper, last=True, post=stages.gelu()), plan(whisper, post=stages.gelu())
    assert last.method == first.method == "dense"
    assert " positions of a residue and " in last.detail
    assert "converted to channels-last" in first.detail
    short = plan(Problem((1, 128, 1000), 128, 3, 2, 1))
    assert " positions of all residues and " in short.detail


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_a_weight_packed_ahead_is_not_packed_again() -> None:
    encoder = Problem((4, 256, 40000), 512, 16, 8, 4)
    x, w, b = encoder.meta()
    packed = sluice.PackedWeight(w, torch.empty(4, 16, 512, 64, dtype=torch.float16, device="meta"))
    found = sluice.plan("conv1d", x, packed, b, *encoder.numbers, device=H200)
    assert "converted to channels-last in a workspace first" in found.detail
    last, _, _ = encoder.meta(last=True)
    sums = sluice.plan("conv1d", last, packed, b, *encoder.numbers, device=H200).workspace_bytes
    assert (sums > 0) == ("split-K" in found.detail)
    assert found.workspace_bytes == 2 * x.numel() + sums
    assert plan(encoder).workspace_bytes == found.workspace_bytes + 2 * w.numel()
