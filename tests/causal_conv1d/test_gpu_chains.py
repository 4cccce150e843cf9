"""causal_conv1d of sequences, channels last, with gates and residuals: the kernel that has these chains in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from common import NAN, NARROW_TYPES, Given, Layout, contiguous, permuted
from gpu_tensors import DEVICE, index, randn
from marks import ON_GPU
from sequence_problems import check
from sluice import stages
from update_problems import assert_same_bits

pytestmark = ON_GPU


def part(x: torch.Tensor) -> torch.Tensor:
    """Channels-last, the second of three thirds of a projection."""
    wide = x.new_full((x.shape[0], x.shape[2], 3 * x.shape[1]), NAN)
    return wide[..., x.shape[1] : 2 * x.shape[1]].mT.copy_(x)


def like(x: torch.Tensor, layout: Layout = permuted, dtype: torch.dtype | None = None) -> torch.Tensor:
    return layout(torch.randn(x.shape, device=DEVICE).to(dtype or x.dtype))


# A half type's SiLU has that type's precision: a sum after it would show the error where it cancels.
CHAINS: dict[str, Callable[[torch.Tensor], Given]] = {
    "gates": lambda x: {"pre": stages.mul(like(x)), "post": stages.mul(like(x)), "activation": "silu"},
    "parts": lambda x: {"pre": stages.mul(like(x, part)), "post": stages.mul(like(x, part))},
    "gate and residual": lambda x: {"pre": stages.mul(like(x)), "residual": like(x)},
    "residual and silu": lambda x: {"residual": like(x, part), "post": stages.silu()},
    "numbers": lambda x: {"pre": stages.scale(2.0), "post": stages.silu() | stages.mul(like(x))},
    "each channel": lambda x: {"pre": stages.mul(randn(x.shape[1], 1, dtype=x.dtype)), "residual": like(x)},
    # Chains that the kernel does not take: two tensors in a chain, other layouts, other dtypes.
    "two tensors": lambda x: {"residual": like(x), "post": stages.mul(like(x))},
    "rows": lambda x: {"pre": stages.mul(like(x, contiguous)), "post": stages.mul(like(x, contiguous))},
    "float32": lambda x: {"pre": stages.mul(like(x, dtype=torch.float32)), "post": stages.mul(like(x))},
}


def tile_of(channels: int, dtype: torch.dtype) -> int:
    """Positions of a block, whose threads have four channels at 8 positions of a half type, or at 4."""
    lanes = {132: 32, 36: 16, 8: 2}[channels]
    return 64 // lanes * (16 // dtype.itemsize)


def states_of(count: int, channels: int, width: int, dtype: torch.dtype, number: int) -> Given:
    """No states, initial states, or slots of a cache: one index is no slot, another has zeros instead of NaN."""
    if number % 3 == 0:
        return {}
    if number % 3 == 1:
        return {"initial_states": randn(count, channels, width - 1, dtype=dtype)}
    cache, slots = randn(count + 1, channels, width - 1 + number % 2, dtype=dtype), torch.randperm(count + 1).tolist()
    cache[[*slots[1:2], slots[count]]] = NAN
    names = [-1 if n % 5 == 3 else slot for n, slot in enumerate(slots[:count])]
    has = index([n != 1 for n in range(count)], torch.bool)
    return {"state_cache": cache, "cache_indices": index(names), "has_initial_state": has}


def sequences(channels: int, length: int, dtype: torch.dtype, number: int) -> Iterator[tuple[torch.Tensor, Given, int]]:
    """Rows, ids and starts: x, how it holds sequences, and the number of states."""
    layout = (permuted, part)[number % 2]
    rows = layout(randn(2, channels, length, dtype=dtype))
    yield rows, {}, 2
    third = length // 3
    ids = [[0] * third + [-1] * third + [4] * (length - 2 * third), [n // 3 % 5 - 1 for n in range(length)]]
    yield rows, {"seq_idx": index(ids, torch.int64 if number % 4 == 3 else torch.int32).view(2, length)}, 2
    starts = sorted([0, 1, third, third, max(length - 2, 1), max(length - 1, 1)])
    yield layout(randn(1, channels, length, dtype=dtype)), {"cu_seqlens": index(starts)}, len(starts) - 1


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str, dtype: torch.dtype) -> None:
    """Tails of tiles and a few short lengths; the states are moved in place, or are results of their own."""
    number = 0
    for channels in (132, 36, 8):
        tile = tile_of(channels, dtype)
        for length in (2, 5, tile - 1, tile, tile + 3, 2 * tile + 1):
            width = 2 + number // 3 % 3
            for form, (x, held, count) in enumerate(sequences(channels, length, dtype, number)):
                states = states_of(count, channels, width, dtype, number + form)
                bias = randn(channels, dtype=dtype) if (number + form) % 2 else None
                check(x, randn(channels, width, dtype=dtype), bias, **held, **states, **CHAINS[name](x))
            number += 1


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_a_sequence_that_begins_anywhere(dtype: torch.dtype) -> None:
    """A sequence of 1 to 5 positions begins at each position of a thread and of a tile."""
    channels = 132
    tile = tile_of(channels, dtype)
    for begin, size in itertools.product(range(2 * tile + 2), (1, 2, 5)):
        width, length = 2 + (begin + size) % 3, begin + 5 + begin % 19
        x, weight = permuted(randn(1, channels, length, dtype=dtype)), randn(channels, width, dtype=dtype)
        starts = index([0, begin, min(begin + size, length), length])
        cache, slots = randn(4, channels, width - 1 + begin % 3, dtype=dtype), index(torch.randperm(4)[:3].tolist())
        given = CHAINS[("gates", "gate and residual", "numbers")[begin % 3]](x)
        check(x, weight, cu_seqlens=starts, state_cache=cache, cache_indices=slots, **given)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_gates_of_ones_change_no_bits(dtype: torch.dtype) -> None:
    """The kernel with gates gives the bits of the kernel without a chain."""
    for number, (channels, length) in enumerate(itertools.product((132, 8), (3, 16, 45, 300))):
        for x, held, count in sequences(channels, length, dtype, number):
            weight, given = randn(channels, 4, dtype=dtype), held | states_of(count, channels, 4, dtype, number)
            ones = torch.ones_like(x)
            gated = check(x, weight, pre=stages.mul(ones), post=stages.mul(ones), activation="silu", **given)
            assert_same_bits(gated, check(x, weight, activation="silu", **given))


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_what_is_not_finite_stays_in_its_sequence(dtype: torch.dtype) -> None:
    """Every second sequence has non-finite values, in its state and its gates too."""
    channels, sizes = 36, [3, 1, 2, 5, 8, 1, 1, 16, 4, 7, 2, 30]
    starts, count = index(list(itertools.accumulate(sizes, initial=3))), len(sizes)
    x, cache = randn(1, channels, sum(sizes) + 7, dtype=dtype), randn(count, channels, 4, dtype=dtype)
    pre, post = like(x), like(x)
    for n in range(1, count, 2):
        for t in (x, pre, post):
            t[..., int(starts[n]) : int(starts[n + 1])] = NAN
        cache[n] = NAN
    chains: Given = {"pre": stages.mul(pre), "post": stages.mul(post)}
    weight = randn(channels, 4, dtype=dtype)
    result = check(permuted(x), weight, cu_seqlens=starts, state_cache=cache, activation="silu", **chains)
    for n in range(0, count, 2):
        assert result[..., int(starts[n]) : int(starts[n + 1])].isfinite().all()


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_under_sanitizers(dtype: torch.dtype) -> None:
    channels = 36
    length = tile_of(channels, dtype) + 1
    for number, (x, held, count) in enumerate(sequences(channels, length, dtype, 0)):
        states = states_of(count, channels, 4, dtype, number)
        check(x, randn(channels, 4, dtype=dtype), **held, **states, **CHAINS["gates"](x))
