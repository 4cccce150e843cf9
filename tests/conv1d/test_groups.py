"""conv1d in half types with groups: F.conv1d's results for every layout, and plans."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import HALF_TYPES, LAYOUTS
from dense_problems import HAS_CODE, Problem, check_results, check_results_with_chains, plan
from rows import naming
from sluice import stages
from sluice.plan import H200

FEW_CHANNELS = [
    Problem((2, 32, 700), 128, 5, 2, 2, groups=16),
    Problem((2, 64, 333), 128, 3, 1, 1, groups=16),
    Problem((1, 64, 1032), 64, 9, 1, 8, 2, groups=8),
    Problem((2, 48, 500), 64, 3, 3, 4, 2, groups=4),
    Problem((1, 24, 999), 192, 7, 1, 3, groups=8),
]
# Small versions of Wav2Vec2's positional convolution and ResNeXt's groups; groups of odd inputs, of more outputs than a
# tile has, of 10 outputs, which torch computes; groups with a stride and a dilation; groups of few channels, whose rows
# of a k-block are mostly zeros: 2 -> 8, 4 -> 8, 8 -> 8 (a word of channels), 12 -> 16, 3 -> 24.
PROBLEMS = [
    Problem((2, 96, 299), 96, 32, 1, 16, groups=2),
    Problem((2, 128, 300), 128, 3, 1, 1, groups=8),
    Problem((1, 192, 1031), 192, 5, 1, 8, 4, groups=3),
    Problem((2, 40, 333), 80, 3, 1, 1, groups=2),
    Problem((1, 64, 700), 320, 7, 1, 3, groups=2),
    Problem((2, 64, 200), 20, 3, 1, 1, groups=2),
    Problem((1, 96, 1200), 96, 4, 2, 1, groups=2),
    Problem((1, 64, 999), 128, 3, 3, 4, 2, groups=4),
    Problem((2, 48, 512), 48, 1, 1, groups=3),
    *FEW_CHANNELS,
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
    for problem in (PROBLEMS[3], PROBLEMS[7], *FEW_CHANNELS[:3]):
        with naming(problem):
            check_results_with_chains(problem, device, dtype, layout)


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
@pytest.mark.parametrize("last", [False, True])
def test_groups_run_on_the_dense_kernel(last: bool) -> None:
    wav2vec2 = Problem((8, 768, 1499), 768, 128, 1, 64, groups=16)
    found = plan(wav2vec2, last, post=stages.gelu())
    assert found.method == "dense", found.reason
    assert " x 64 channels" in found.detail
    x, w, b = wav2vec2.meta(last)
    packed = sluice.PackedWeight(w, torch.empty(1, 128, 768, 64, dtype=torch.float16, device="meta"))
    ahead = sluice.plan("conv1d", x, packed, b, *wav2vec2.numbers, device=H200)
    assert ahead.workspace_bytes == (2 * x.numel() if "converted" in found.detail else 0)
    assert found.workspace_bytes == ahead.workspace_bytes + 2 * 128 * 768 * 64


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
@pytest.mark.parametrize("last", [False, True])
def test_groups_of_few_channels_run_on_the_dense_kernel(last: bool) -> None:
    for problem in FEW_CHANNELS:
        with naming(problem):
            found = plan(problem, last)
            assert found.method == "dense", found.reason


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(64, 40, 2), (64, 32, 8), (16, 32, 8), (96, 96, 8)])
def test_groups_without_whole_words_of_results_are_left_to_aten(inputs: int, outputs: int, groups: int) -> None:
    found = plan(Problem((4, inputs, 3000), outputs, 3, 1, 1, groups=groups))
    assert found.method == "aten"
    assert "a multiple of 8" in found.reason
