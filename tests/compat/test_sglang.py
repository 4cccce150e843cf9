"""compat.sglang: rows and packed sequences with states in slots, beside loops over the sequences."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from common import NARROW_TYPES, Layout, assert_close, contiguous, permuted, sliced
from compat_references import convolved
from sluice.compat.sglang import PAD_SLOT_ID, causal_conv1d_fn, causal_conv1d_update
from update_problems import assert_same_bits, projected

WIDTHS = [2, 3, 4, 6]


def prefilled(
    pieces: list[torch.Tensor], states: torch.Tensor, weight: torch.Tensor, bias: Any, activation: Any,
    *, slots: list[int], continues: list[bool],
) -> tuple[list[torch.Tensor], torch.Tensor]:  # fmt: skip
    """The results of the tokens (C, S) of each sequence in float64, and the states; a slot of -1 is none."""
    results, after, columns = [], states.clone(), weight.shape[1] - 1
    for tokens, slot, goes_on in zip(pieces, slots, continues, strict=True):
        if slot < 0:
            results.append(torch.zeros_like(tokens, dtype=torch.float64))
            continue
        old = states[slot, :, :columns]
        history = old if goes_on else torch.zeros_like(old)
        results.append(convolved(history, tokens, weight, bias, activation))
        after[slot, :, :columns] = torch.cat([history, tokens], dim=-1)[:, tokens.shape[1] :]
    return results, after


SLOTS = [7, 2, PAD_SLOT_ID, 3, 5]
CONTINUES = [True, False, True, False, True]
STARTS = [0, 5, 6, 23, 25, 34]


def cache(columns: int, **options: Any) -> torch.Tensor:
    """Nine slots, NaN except in the used slots."""
    states = torch.full((9, 70, columns), float("nan"), **options)
    states[[7, 2, 3, 5]] = torch.randn(4, 70, columns, **options)
    return states


def slots_on(device: str, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(SLOTS, dtype=dtype, device=device)


@pytest.mark.parametrize("layout", [contiguous, permuted, sliced], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_prefill(device: str, width: int, dtype: torch.dtype, layout: Layout) -> None:
    weight, bias = (torch.randn(70, *shape, device=device, dtype=dtype) for shape in ((width,), ()))
    states = permuted(cache(width + 1, device=device, dtype=dtype))
    states[..., width - 1 :] = float("nan")
    old = torch.tensor(CONTINUES, device=device)
    starts = torch.tensor(STARTS, dtype=torch.int32, device=device)
    x = layout(torch.randn(2, 70, 34, device=device, dtype=dtype)[:1])[0]
    pieces = [x[:, a:b] for a, b in itertools.pairwise(STARTS)]
    wanted, wanted_states = prefilled(pieces, states, weight, bias, "silu", slots=SLOTS, continues=CONTINUES)
    before = x.clone()
    result = causal_conv1d_fn(
        x, weight, bias, starts, slots_on(device), old, states, "silu", PAD_SLOT_ID,
        seq_lens_cpu=[5, 1, 17, 2, 9], block_table=None,
    )  # fmt: skip
    assert_close(result, torch.cat(wanted, dim=-1), factor=2)
    assert not result[:, STARTS[2] : STARTS[3]].any()
    assert_same_bits(states, wanted_states)
    assert_same_bits(x, before)


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("tokens", [1, 2, 8, 65])
def test_rows(device: str, tokens: int, layout: Layout) -> None:
    """Each row of (B, C, L) is a sequence."""
    x, weight = layout(torch.randn(5, 70, tokens, device=device)), torch.randn(70, 4, device=device)
    old = torch.tensor(CONTINUES, device=device)
    options: dict[str, Any] = {"cache_indices": slots_on(device), "has_initial_state": old}
    states = cache(3, device=device)
    wanted, wanted_states = prefilled(list(x), states, weight, None, "silu", slots=SLOTS, continues=CONTINUES)
    assert_close(causal_conv1d_fn(x, weight, conv_states=states, **options), torch.stack(wanted))
    assert_same_bits(states, wanted_states)
    own = torch.randn(5, 70, 3, device=device)
    for goes_on in (old, None):
        continues = CONTINUES if goes_on is not None else [False] * 5
        wanted, wanted_states = prefilled(list(x), own, weight, None, None, slots=list(range(5)), continues=continues)
        given = {"has_initial_state": goes_on, "activation": None, "conv_states": own}
        assert_close(causal_conv1d_fn(x, weight, **given), torch.stack(wanted))
        assert_same_bits(own, wanted_states)


def test_without_states(device: str) -> None:
    x, weight, bias = (torch.randn(shape, device=device) for shape in ((2, 70, 9), (70, 4), (70,)))
    zeros = torch.zeros(70, 3, device=device)
    wanted = torch.stack([convolved(zeros, row, weight, bias, "silu") for row in x])
    assert_close(causal_conv1d_fn(x, weight, bias), wanted)
    starts = torch.tensor([0, 4, 9], device=device)
    wanted = torch.cat([convolved(zeros, part, weight, bias, None) for part in x[0].split([4, 5], dim=-1)], dim=-1)
    assert_close(causal_conv1d_fn(x[0], weight, bias, starts, activation=None), wanted)


@pytest.mark.parametrize("layout", [contiguous, permuted, projected], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_update(device: str, tokens: int, width: int, dtype: torch.dtype, layout: Layout) -> None:
    """In x's place; the last columns of a row are the state, and the whole row moves."""
    weight, bias = (torch.randn(70, *shape, device=device, dtype=dtype) for shape in ((width,), ()))
    for columns in (width - 1, width + 1):
        x = layout(torch.randn(5, 70, tokens, device=device, dtype=dtype))
        states = permuted(cache(columns, device=device, dtype=dtype))
        wanted, wanted_states = torch.zeros_like(x, dtype=torch.float64), states.clone()
        for b, slot in enumerate(SLOTS):
            if slot >= 0:
                history = states[slot, :, columns - (width - 1) :]
                wanted[b] = convolved(history, x[b], weight, bias, "silu")
                wanted_states[slot] = torch.cat([states[slot], x[b]], dim=-1)[:, -columns:]
        indices = slots_on(device, torch.int64)
        result = causal_conv1d_update(x, states, weight, bias, "silu", conv_state_indices=indices)
        assert result is x
        assert_close(x, wanted, factor=2)
        assert not x[2].any()
        assert_same_bits(states, wanted_states)


def test_update_of_single_tokens_and_circular_states(device: str) -> None:
    x, weight = torch.randn(5, 70, device=device), torch.randn(70, 4, device=device)
    states = torch.randn(5, 70, 6, device=device)
    history, token = states[..., -3:].clone(), x.clone()
    wanted = torch.stack([convolved(history[b], token[b, :, None], weight, None, None)[:, 0] for b in range(5)])
    assert causal_conv1d_update(x, states, weight) is x
    assert_close(x, wanted)
    torch.testing.assert_close(states[..., -1], token, rtol=0, atol=0)
    lengths = torch.tensor([0, 3, 7, 2, 5], dtype=torch.int32, device=device)
    before, token = states.clone(), x.clone()
    for b, length in enumerate(lengths.tolist()):
        row = before[b].roll(-length, dims=-1)
        wanted[b] = convolved(row[:, -3:], token[b, :, None], weight, None, "silu")[:, 0]
        before[b, :, length % 6] = token[b]
    causal_conv1d_update(x, states, weight, None, "silu", lengths)
    assert_close(x, wanted)
    assert_same_bits(states, before)


def test_nothing_is_read_on_the_host(device: str) -> None:
    weight, starts = torch.randn(70, 4, device=device), torch.tensor(STARTS, device=device)
    prefill = (
        torch.randn(70, 34, device=device),
        weight,
        None,
        starts,
        slots_on(device),
        None,
        cache(3, device=device),
    )
    decode = (torch.randn(5, 70, device=device), cache(3, device=device), weight, None, None, None, slots_on(device))
    for function, given in ((causal_conv1d_fn, prefill), (causal_conv1d_update, decode)):
        result = function(*given)
        with FakeTensorMode() as mode:
            fake = function(*(None if value is None else mode.from_tensor(value) for value in given))
        assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)
        if device != "cpu":
            torch.cuda.set_sync_debug_mode("error")
            try:
                function(*given)
            finally:
                torch.cuda.set_sync_debug_mode("default")


def test_refusals(device: str) -> None:
    x, weight, state = (torch.randn(shape, device=device) for shape in ((2, 6), (6, 4), (2, 6, 3)))
    words = re.escape("activation must be None, identity, silu or swish, got 'gelu'")
    with pytest.raises(NotImplementedError, match=f"causal_conv1d_fn: {words}"):
        causal_conv1d_fn(x[..., None], weight, activation="gelu")
    with pytest.raises(NotImplementedError, match=f"causal_conv1d_update: {words}"):
        causal_conv1d_update(x, state, weight, activation="gelu")
    with pytest.raises(TypeError, match=r"causal_conv1d_update: x must be a torch.Tensor, got NoneType"):
        causal_conv1d_update(None, state, weight)
    with pytest.raises(ValueError, match=r"conv_state must have 2 slots, one per sequence"):
        causal_conv1d_update(x, torch.zeros(3, 6, 3, device=device), weight)
    with pytest.raises(RuntimeError, match="sluice is forward-only"):
        causal_conv1d_update(x, state, weight.clone().requires_grad_())
