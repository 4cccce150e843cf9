"""sluice.replace on whole networks of transformers that nothing in sluice names: results as without it.

A run takes every eighth network; `SLUICE_ALL_CASES=1` takes all.
"""

from __future__ import annotations

import pytest
import torch

import sluice
from constructed_models import some
from sluice.bench.check import relative_error

pytest.importorskip("transformers")
from transformers_networks import NETWORKS, Call, leaves_of

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]
MOST = 1e-5  # relative error of float32 against eager's, through all layers


def results(network: torch.nn.Module, call: Call, length: int) -> list[torch.Tensor]:
    """The tensors that a call returns, with the same random numbers each time."""
    torch.manual_seed(3)
    with torch.no_grad():
        return list(leaves_of(call(network, length)))


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
        if one.is_floating_point():
            assert torch.equal(one, other) or relative_error(one, other) <= MOST
        else:
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", some(NETWORKS))
def test_networks(name: str) -> None:
    make, call, lengths = NETWORKS[name]
    torch.manual_seed(7)
    network = make().eval()
    expected = [results(network, call, length) for length in lengths]
    replacement = sluice.replace(network)
    for _ in range(2):
        for length, own in zip(lengths, expected, strict=True):
            assert_same(results(network, call, length), own)
    replacement.undo()
    assert_same(results(network, call, lengths[0]), expected[0])
