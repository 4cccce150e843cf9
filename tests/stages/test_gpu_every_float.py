"""The stage functions for every float32, linked and interpreted."""

from __future__ import annotations

import pytest
import torch

from common import HALF_TYPES
from function_errors import FUNCTIONS, Worst, all_of_half
from linked_forms import interpreted, linking
from marks import LINKED_ON_GPU

pytestmark = LINKED_ON_GPU

CHUNK = 2**25


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    integers = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return bool(((a.view(integers) == b.view(integers)) | (a.isnan() & b.isnan())).all())


@pytest.mark.large
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_float32(name: str) -> None:
    function, worst = FUNCTIONS[name], Worst()
    links = linking()["linked_launches"]
    for first in range(-(2**31), 2**31, CHUNK):
        bits = torch.arange(first, first + CHUNK, dtype=torch.int64, device="cuda").to(torch.int32)
        x = bits.view(torch.float32)
        result = function.chain(x)
        assert same_bits(result, interpreted(lambda x=x: function.chain(x)))
        assert bool(result[x.isnan()].isnan().all())
        worst.add(function, x, result)
    assert linking()["linked_launches"] >= links + 2**32 // CHUNK
    print(f"{name}: {worst}")  # pytest -s shows what docs/measurements/functions.md has
    assert worst.near <= 2, worst
    assert worst.far <= max(worst.far_of_torch, 2), worst


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_halves_have_the_interpreters_bits(name: str, dtype: torch.dtype) -> None:
    chain, x = FUNCTIONS[name].chain, all_of_half(dtype, "cuda")
    for result_dtype in (dtype, torch.float32):
        linked = torch.ops.sluice.transform(x, chain.text, None, dtype=result_dtype)
        own = interpreted(lambda to=result_dtype: torch.ops.sluice.transform(x, chain.text, None, dtype=to))
        assert same_bits(linked, own)
