"""causal_conv1d_update on a GPU: the kernel of rows, with every form and layout of the state, and packed tokens."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sluice
from common import NARROW_TYPES, Layout, contiguous, permuted
from gpu_tensors import DEVICE, index, randn
from marks import ON_GPU
from update_problems import assert_same_bits, check, twin

pytestmark = ON_GPU

FORMS = ["end", "front", "circular", "accepted"]
# Taps, and columns beside the history: up to 16 in all are the kernel's.
ROWS = [(3, 0), (3, 1), (4, 0), (4, 1), (4, 5), (4, 13), (4, 14)]
TOKENS = [1, 2, 3, 4, 5, 8, 9, 17]


def draw(low: int, high: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(low, high, (count,), device=DEVICE, dtype=dtype)


def options_of(form: str, sequences: int, number: int) -> dict[str, Any]:
    """The options of a form, with slots in most calls, some of them no slot; index types alternate."""
    kind, other = (torch.int32, torch.int64)[number // 2 % 2], (torch.int32, torch.int64)[number // 4 % 2]
    options: dict[str, Any] = {}
    if form == "circular":
        options["cache_seqlens"] = draw(-40, 40, sequences, kind)
    elif form != "end":
        options["state_at"] = "front"
    if form == "accepted":
        options["num_accepted_tokens"] = draw(-1, 8, sequences, kind)
    if number % 3 == 1:
        slots = torch.randperm(sequences + 2)[:sequences].tolist()
        options["conv_state_indices"] = index([-1 if n % 4 == 1 else slot for n, slot in enumerate(slots)], other)
    elif number % 3 == 2:  # the last valid block of each
        rows = [[-1, n, -1] if n % 4 != 1 else [sequences + 9, -1, -1] for n in range(sequences)]
        options["conv_state_indices"] = index(rows, other)
    return options


def parameters(number: int, channels: int, width: int, dtype: torch.dtype) -> list[Any]:
    """A weight, a bias or none, and an activation or none."""
    bias = (None, randn(channels, dtype=dtype), randn(channels))[number // 2 % 3]
    weight_type = torch.float32 if number % 5 == 4 else dtype
    return [randn(channels, width, dtype=weight_type), bias, (None, "silu")[number // 3 % 2]]


def check_tokens(
    form: str, number: int, channels: int, tokens: int, taps: tuple[int, int], layout: Layout, dtype: torch.dtype
) -> None:
    """Checks channels-last tokens, like a projection's output."""
    width, more = taps
    columns, sequences = width - 1 + more, 3
    if form == "accepted":
        tokens = min(tokens, columns - (width - 2))  # the op refuses more
    x, state = randn(sequences, tokens, channels, dtype=dtype).mT, randn(sequences + 2, channels, columns, dtype=dtype)
    options = options_of(form, sequences, number)
    state = state if "conv_state_indices" in options else state[:sequences]
    check(x, layout(state), *parameters(number, channels, width, dtype), **options)


def check_packed(
    form: str, number: int, channels: int, taps: tuple[int, int], layout: Layout, dtype: torch.dtype
) -> None:
    """Sequences of 0, 1, 3, 4 and 5 tokens, alternating with tokens before and after all of them."""
    width, more = taps
    before, behind = ((2, 3), (0, 1), (1, 0), (0, 0))[number % 4]
    starts = list(itertools.accumulate((0, 1, 3, 4, 5), initial=before))
    x, state = randn(starts[-1] + behind, channels, dtype=dtype), randn(7, channels, width - 1 + more, dtype=dtype)
    options = options_of(form, 5, number) | {"query_start_loc": index(starts, (torch.int32, torch.int64)[number % 2])}
    state = state if "conv_state_indices" in options else state[:5]
    check(x, layout(state), *parameters(number, channels, width, dtype), **options)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_tokens_of_rows(form: str, dtype: torch.dtype) -> None:
    for number, (tokens, taps, layout) in enumerate(itertools.product(TOKENS, ROWS, (contiguous, permuted))):
        check_tokens(form, number, 264, tokens, taps, layout, dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_packed_tokens(form: str, dtype: torch.dtype) -> None:
    for number, (taps, layout, _) in enumerate(itertools.product(ROWS, (contiguous, permuted), range(2))):
        check_packed(form, number, 264, taps, layout, dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_channels_that_fill_no_words(form: str, dtype: torch.dtype) -> None:
    """130 channels fill whole lanes; 33 do so in float32 only; 520 leave the last warp nearly empty."""
    for number, (channels, taps, _) in enumerate(itertools.product((130, 33, 520), ROWS, range(2))):
        layouts = (permuted, contiguous) if number % 2 else (contiguous, permuted)
        check_tokens(form, number, channels, TOKENS[number % len(TOKENS)], taps, layouts[0], dtype)
        check_packed(form, number + 1, channels, taps, layouts[1], dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_rows_in_the_middle_of_others(form: str, dtype: torch.dtype) -> None:
    """Strided slots and columns of a state, and tokens and results that are slices of wider tensors.

    The results have the bits of the kernel of single channels, which takes rows that begin anywhere.
    """
    for number, (tokens, taps) in enumerate(itertools.product((1, 3, 6), ROWS)):
        width, more = taps
        columns, channels = width - 1 + more, 136
        tokens = tokens if form != "accepted" else min(tokens, columns - (width - 2))
        wide = randn(4, tokens, 3 * channels, dtype=dtype)
        x, options = wide[..., channels : 2 * channels].mT, options_of(form, 4, number)
        rows = randn(12, channels, columns, dtype=dtype)[::2]
        apart = randn(6, columns + 1, channels + 8, dtype=dtype)[:, 1:, 8:].mT.copy_(rows)
        anywhere = randn(6, channels + 1, columns + 1, dtype=dtype)[:, 1:, 1:].copy_(rows)
        given, found = parameters(number, channels, width, dtype), []
        for state in (rows, apart, anywhere):
            state = state if "conv_state_indices" in options else state[:4]
            changed = twin(state)
            found.append(check(x, state, *given, **options))
            sluice.causal_conv1d_update(x, changed, *given, **options)
            found.append(changed)
        for result, moved in zip(found[2::2], found[3::2], strict=True):
            assert_same_bits(result, found[0])
            assert_same_bits(moved, found[1])
