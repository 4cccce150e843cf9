"""causal_conv1d of sequences on a GPU: blocks that iterate over several channels, and states in quads of channels."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sluice
from common import NARROW_TYPES, contiguous, permuted
from gpu_tensors import randn
from marks import ON_GPU
from sequence_problems import check
from update_problems import assert_same_bits

pytestmark = ON_GPU


def starts_of(count: int, length: int) -> torch.Tensor:
    """Sequences of random lengths, some of them empty, that leave out the row's first and last positions."""
    places = torch.randint(3, length - 3, (count + 1,)).sort().values
    return places.to("cuda", torch.int32)


def ids_of(batch: int, length: int) -> torch.Tensor:
    """Changes about every 40 positions, some ids negative."""
    changes = torch.rand(batch, length, device="cuda") < 1 / 40
    ids = changes.int().cumsum(1, dtype=torch.int32)
    return torch.where(ids % 7 == 3, -1, ids)


def in_both_layouts(x: torch.Tensor, weight: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    """Results and states: of channels-first, over which blocks iterate, and of channels-last."""
    results = []
    for layout in (contiguous, permuted):
        own = dict(options)
        if "state_cache" in own:
            own["state_cache"] = own["state_cache"].clone()
        y = sluice.causal_conv1d(layout(x), weight, activation="silu", **own)
        results += [y, own.get("state_cache", y)]
    return tuple(results)


# More rows of words than 96 blocks for each of 132 SMs, so that a block has two turns and more; odd channel counts
# leave the last turns of a block without rows. Channels-last takes whole quads of channels.
@pytest.mark.parametrize(("channels", "length"), [(4100, 16384), (12340, 4096), (8212, 8190), (52004, 512)])
def test_blocks_that_take_channels_in_turn(channels: int, length: int) -> None:
    for dtype, width in ((torch.bfloat16, 4), (torch.float16, 3)):
        x, weight = randn(1, channels, length, dtype=dtype), randn(channels, width, dtype=dtype)
        count = 200
        cache = randn(count + 2, channels, width - 1, dtype=dtype)
        paged = {
            "state_cache": cache,
            "cache_indices": torch.randperm(count + 2, device="cuda")[:count].int(),
            "has_initial_state": torch.rand(count, device="cuda") < 0.5,
        }
        paged["cache_indices"][3::17] = -1
        starts = starts_of(count, length)
        for options in ({"cu_seqlens": starts}, {"cu_seqlens": starts, **paged}, {"seq_idx": ids_of(1, length)}):
            rows, states, expected, expected_states = in_both_layouts(x, weight, **options)
            assert_same_bits(rows, expected)
            assert_same_bits(states, expected_states)


def test_rows_of_ids_that_blocks_take_in_turn() -> None:
    x, weight = randn(3, 4108, 4096, dtype=torch.bfloat16), randn(4108, 4, dtype=torch.bfloat16)
    wide = ids_of(3, 2 * 4096)
    for ids in (wide[:, :4096].contiguous(), wide[:, ::2], wide[:, 1:4097], wide[:, :4096].long()):
        rows, _, expected, _ = in_both_layouts(x, weight, seq_idx=ids)
        assert_same_bits(rows, expected)
        slots = {
            "state_cache": randn(4, 4108, 3, dtype=torch.bfloat16),
            "cache_indices": torch.tensor([2, -1, 0], dtype=torch.int32, device="cuda"),
            "has_initial_state": torch.tensor([True, True, False], device="cuda"),
        }
        rows, states, expected, expected_states = in_both_layouts(x, weight, seq_idx=ids, **slots)
        assert_same_bits(rows, expected)
        assert_same_bits(states, expected_states)


# The columns of a state beyond the history, and its layout: a channel's columns contiguous, or a column's
# channels, from a multiple of four elements on or from elsewhere.
@pytest.mark.parametrize("lies", ["rows", "columns", "rows apart", "columns anywhere"])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_states_of_short_sequences(dtype: torch.dtype, lies: str) -> None:
    channels = 20
    for width, more in itertools.product((2, 3, 4), (0, 1, 2, 3)):
        columns, lengths = width - 1 + more, [*range(7), 0, 5, 1, 2, 1, 9]
        count = len(lengths)
        shape = {
            "rows": (count + 1, channels, columns),
            "columns": (count + 1, columns, channels),
            "rows apart": (count + 1, channels, columns + 1),
            "columns anywhere": (count + 1, columns, channels + 1),
        }[lies]
        cache = randn(*shape, dtype=dtype)
        cache = cache[..., -channels:].mT if lies.startswith("columns") else cache[..., -columns:]
        starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
        x = permuted(randn(1, channels, sum(lengths) + 3, dtype=dtype))
        slots = torch.randperm(count + 1, device="cuda")[:count].int()
        slots[4] = -1
        has = torch.arange(count, device="cuda") % 3 != 1
        check(
            x, randn(channels, width, dtype=dtype), None, activation="silu", cu_seqlens=starts,
            state_cache=cache, cache_indices=slots, has_initial_state=has,
        )  # fmt: skip
        # Final states apart from the initial states: rows that are sequences.
        batch = cache[:3] if columns == width - 1 else None
        if batch is not None:
            for length in (1, 2, 3, 40):
                check(
                    permuted(randn(3, channels, length, dtype=dtype)), randn(channels, width, dtype=dtype), None,
                    activation=None, initial_states=batch,
                )  # fmt: skip
