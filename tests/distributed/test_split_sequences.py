"""`conv1d` and `causal_conv1d` of sequences that are split among processes, compared with the unsplit call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import split_calls
import torch
from ranks import Ranks

pytestmark = pytest.mark.no_gpu
SIZES = [1, 2, 3, 4]
CASES = 65  # cases of each function and each size: 520


def seed() -> int:
    return int(torch.randint(2**31, ()))


@pytest.mark.parametrize("size", SIZES)
def test_conv1d_of_random_splits(size: int, ranks: Callable[[int], Ranks]) -> None:
    found = ranks(size).run(split_calls.random_convolutions, seed(), CASES)
    assert [len(one) for one in found] == [CASES] * size
    equal = Counter(one for rank in found for one in rank)
    assert equal["depthwise", False] == 0  # whose order of sums does not depend on a row's length
    assert equal["depthwise", True] > 0


@pytest.mark.parametrize("size", SIZES)
def test_causal_conv1d_of_random_splits(size: int, ranks: Callable[[int], Ranks]) -> None:
    found = ranks(size).run(split_calls.random_causal_convolutions, seed(), CASES)
    assert [len(one) for one in found] == [CASES] * size
    assert all(one.is_equal for rank in found for one in rank)
    assert {one.kind for one in found[0]} == {"rows", "ids", "packed"}


@pytest.mark.parametrize("members", [(1, 3), (0, 2, 3), (2,)])
@pytest.mark.parametrize("function", ["random_convolutions", "random_causal_convolutions"])
def test_a_group_within_a_larger_job(function: str, members: tuple[int, ...], ranks: Callable[[int], Ranks]) -> None:
    found = ranks(4).run(getattr(split_calls, function), seed(), 8, members)
    assert [len(one) for one in found] == [8 if rank in members else 0 for rank in range(4)]
