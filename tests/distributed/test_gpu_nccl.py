"""The same random splits with NCCL, a GPU for each rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import split_calls
import torch
from ranks import Ranks

GPUS = torch.cuda.device_count()


@pytest.fixture(scope="module")
def group() -> Iterator[Ranks]:
    if GPUS < 2:
        pytest.skip("needs two CUDA devices")
    found = Ranks(GPUS, "nccl")
    yield found
    if found.is_alive:
        found.close()


@pytest.mark.parametrize("function", ["random_convolutions", "random_causal_convolutions"])
def test_random_splits(function: str, group: Ranks) -> None:
    found = group.run(getattr(split_calls, function), int(torch.randint(2**31, ())), 60, None, "cuda")
    assert [len(one) for one in found] == [60] * GPUS
