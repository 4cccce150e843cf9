"""causal_conv1d_update: results in float64, states bit by bit, for every form of state, slots and packed tokens."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import (
    DTYPES,
    Layout,
    assert_close,
    contiguous,
    permuted,
    sliced,
)
from rows import naming
from sluice import stages
from update_problems import INDEX_TYPES, STATE_LAYOUTS, X_LAYOUTS, Draw, assert_same_bits, check, projected, twin


def sizes(sequences: int, channels: int, tokens: int | None) -> tuple[int, ...]:
    """x's shape; `tokens`: None where x has two dimensions."""
    return (sequences, channels) if tokens is None else (sequences, channels, tokens)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 40])
@pytest.mark.parametrize("tokens", [None, 1, 2, 5, 9])
def test_result_and_state(device: str, tokens: int | None, width: int) -> None:
    states = ((0, contiguous), (1, permuted), (6, sliced))
    for number, (dtype, layout) in enumerate(itertools.product(DTYPES, X_LAYOUTS)):
        x = layout(torch.randn(sizes(3, 70, tokens), device=device, dtype=dtype))
        w, b = torch.randn(70, width, device=device, dtype=dtype), torch.randn(70, device=device, dtype=dtype)
        # On the CPU one state after another: each dtype has each, and so has each layout.
        for more, state_layout in states if device == "cuda" else [states[number % 3]]:
            state = state_layout(torch.randn(3, 70, width - 1 + more, device=device, dtype=dtype))
            with naming(dtype, layout.__name__, more):
                check(x, state, w, b, "silu")


@pytest.mark.parametrize("layout", STATE_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("columns", [3, 4, 9])
def test_layouts_of_the_state(device: str, columns: int, layout: Layout) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        w = torch.randn(4, 33, device=device, dtype=dtype).t()  # FLA's: the taps are rows
        for tokens in (None, 4):
            x = torch.randn(sizes(4, 33, tokens), device=device, dtype=dtype)
            check(x, layout(torch.randn(4, 33, columns, device=device, dtype=dtype)), w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [1, 33, 130, 257])
def test_odd_numbers_of_channels(device: str, channels: int, dtype: torch.dtype) -> None:
    w = torch.randn(channels, 4, device=device, dtype=dtype)
    for tokens in (None, 3):
        x = torch.randn(sizes(65, channels, tokens), device=device, dtype=dtype)
        for layout in (contiguous, permuted):
            check(layout(x), layout(torch.randn(65, channels, 3, device=device, dtype=dtype)), w)


MIXED = {
    "float32 beside bfloat16": (torch.bfloat16, torch.float32, torch.float32, torch.float32),
    "float32 weights": (torch.bfloat16, torch.bfloat16, torch.float32, torch.float32),
    "a float16 state": (torch.float32, torch.float16, torch.float32, torch.float32),
    "a bfloat16 state": (torch.float16, torch.bfloat16, torch.float16, torch.float32),
    "a float64 state": (torch.float32, torch.float64, torch.bfloat16, torch.float64),
    "float64": (torch.float64, torch.float32, torch.float16, torch.bfloat16),
}


@pytest.mark.parametrize("name", MIXED)
def test_dtypes_side_by_side(device: str, name: str) -> None:
    of_x, of_state, of_weight, of_bias = MIXED[name]
    w = torch.randn(70, 4, device=device, dtype=of_weight)
    b = torch.randn(70, device=device, dtype=of_bias)
    for tokens in (None, 2, 7):
        x = torch.randn(sizes(3, 70, tokens), device=device, dtype=of_x)
        result = check(x, torch.randn(3, 70, 5, device=device, dtype=of_state), w, b, "silu")
        assert result.dtype == of_x


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("tokens", [None, 1, 2, 5, 9])
def test_circular_states(device: str, tokens: int | None, index_type: torch.dtype) -> None:
    far = 2**40 + 1 if index_type == torch.int64 else 2**30 + 1
    lengths = torch.tensor([-far, -5, -1, 0, 2, 5, 1000003, far], dtype=index_type, device=device)
    for width, columns in ((4, 3), (4, 4), (4, 9), (1, 0), (1, 2)):
        x, w = torch.randn(sizes(8, 33, tokens), device=device), torch.randn(33, width, device=device)
        check(x, torch.randn(8, 33, columns, device=device), w, cache_seqlens=lengths)


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("form", ["end", "circular", "front", "accepted"])
def test_slots(device: str, form: str, index_type: torch.dtype) -> None:
    """Pads, nulls and indices past either end: a result of 0, also with an addend after it; other rows stay NaN."""
    far = 2**32 + 1 if index_type == torch.int64 else 2**31 - 1
    indices = torch.tensor([7, -1, 0, 3, 9, -5, 2, far], dtype=index_type, device=device)
    skipped = [1, 2, 4, 5, 7]
    state = torch.full((9, 33, 6), float("nan"), device=device)
    state[[7, 3, 2]] = torch.randn(3, 33, 6, device=device)
    options: dict[str, Any] = {"conv_state_indices": indices, "null_slot_id": 0}
    if form == "circular":
        options["cache_seqlens"] = torch.arange(8, dtype=index_type, device=device)
    elif form != "end":
        options["state_at"] = "front"
    if form == "accepted":
        options["num_accepted_tokens"] = torch.arange(8, dtype=index_type, device=device) % 3 + 1
    w, b = torch.randn(33, 4, device=device), torch.randn(33, device=device)
    for tokens in (None, 3):
        x = torch.randn(sizes(8, 33, tokens), device=device)
        result = check(x, state, w, b, residual=torch.randn_like(x), post=stages.shift(3.0), **options)
        assert result.isfinite().all()
        assert not result[skipped].any()
        strided = torch.stack([indices, indices], 1)[:, 0]
        other = check(x, state, w, b, **{**options, "conv_state_indices": strided, "pad_slot_id": 3})
        assert not other[[*skipped, 3]].any()


def test_rows_of_blocks(device: str) -> None:
    rows = [[4, -1, -1], [2, 6, -1], [-1, 11, -1], [0, 9, 1], [3, 0, 5], [-1, -1, 8]]
    state = torch.randn(10, 33, 4, device=device)
    x, w = torch.randn(6, 33, 2, device=device), torch.randn(33, 4, device=device)
    for index_type in INDEX_TYPES:
        indices = torch.tensor(rows, dtype=index_type, device=device)
        for given in (indices, indices.t().contiguous().t()):
            assert not check(x, state, w, conv_state_indices=given)[2].any()
            check(x, state, w, conv_state_indices=given, null_slot_id=8)
        assert not check(x, state, w, conv_state_indices=indices[:, :0]).any()


def test_a_skipped_token_is_0_behind_a_stage_of_ones_own() -> None:
    post = stages.cpp("x + 1", reference=lambda x: x + 1) | stages.shift(1.0)  # on the CPU by its reference
    w, state = torch.randn(33, 4), torch.randn(5, 33, 3)
    slots = {
        "slots": torch.tensor([1, -1, 0, 9, 4]),
        "blocks": torch.tensor([[1, -1], [3, 0], [9, -1], [0, 2], [0, 4]]),
        "none": torch.zeros(5, 0, dtype=torch.int32),
    }
    for indices in slots.values():
        options = {"conv_state_indices": indices, "null_slot_id": 0, "post": post}
        for tokens in (None, 2):
            x = torch.randn(sizes(5, 33, tokens))
            check(x, state, w, None, "silu", residual=torch.randn_like(x), **options)
        packed = {"query_start_loc": torch.tensor([1, 1, 4, 6, 6, 7])}
        check(torch.randn(9, 33), state, w, **packed, **options)
        check(torch.randn(9, 33), state, w, **packed, post=post)


def test_the_state_stays_as_it_was_where_a_stage_behind_is_refused() -> None:
    x, w, state = torch.randn(2, 8), torch.randn(8, 3), torch.randn(2, 8, 2)
    shifted, kept = stages.cpp("x + 1", reference=lambda x: x + 1), state.clone()
    with pytest.raises(ValueError, match="must be given a reference="):
        sluice.causal_conv1d_update(x, state, w, post=stages.cpp("x + 1"))
    with pytest.raises(ValueError, match="out must have shape"):
        sluice.causal_conv1d_update(x, state, w, post=shifted, out=torch.empty(2, 9))
    assert_same_bits(state, kept)


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["end", "circular", "front", "accepted"])
def test_packed_tokens(device: str, form: str, dtype: torch.dtype, index_type: torch.dtype) -> None:
    """Sequences of no, few and more tokens than columns; tokens without a sequence before and after them."""

    def index(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=index_type, device=device)

    options: dict[str, Any] = {
        "end": {},
        "circular": {"cache_seqlens": index(3, -2, 0, 7, 11, 1)},
        "front": {"state_at": "front"},
        "accepted": {"state_at": "front", "num_accepted_tokens": index(1, 2, 3, 1, 4, 2)},
    }[form]
    w, b = torch.randn(70, 4, device=device, dtype=dtype), torch.randn(70, device=device, dtype=dtype)
    for starts, tokens in (((0, 0, 1, 1, 4, 13, 15), 15), ((2, 4, 4, 9, 10, 12, 12), 20), ((0,) * 7, 3)):
        for layout, columns in ((contiguous, 3), (projected, 4), (permuted, 8)):
            x = layout(torch.randn(tokens, 70, device=device, dtype=dtype))
            state = torch.randn(9, 70, columns, device=device, dtype=dtype)
            given = {**options, "query_start_loc": index(*starts)}
            result = check(x, state[:6], w, b, "silu", **given)
            assert not result[: starts[0]].any()
            assert not result[starts[-1] :].any()
            check(x, state, w, b, "silu", **given, conv_state_indices=index(8, 0, 3, -1, 4, 7))


@pytest.mark.parametrize("tokens", [None, 1, 2, 5, 9])
def test_a_history_at_the_front(device: str, tokens: int | None) -> None:
    for width, columns in ((4, 3), (4, 7), (1, 2), (7, 6)):
        x, w = torch.randn(sizes(3, 33, tokens), device=device), torch.randn(33, width, device=device)
        check(x, torch.randn(3, 33, columns, device=device), w, state_at="front")


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("tokens", [None, 1, 4])
def test_accepted_tokens(device: str, tokens: int | None, width: int, index_type: torch.dtype) -> None:
    """From 1 to all that the row has; numbers beyond count as the nearest of these."""
    x, w = torch.randn(sizes(8, 33, tokens), device=device), torch.randn(33, width, device=device)
    fewest = max(width - 2, 0) + (tokens or 1)
    for columns in (max(fewest, width - 1), width + 6):
        accepted = torch.tensor([1, 2, 3, 4, 5, 0, -9, 100], dtype=index_type, device=device)
        state = torch.randn(8, 33, columns, device=device)
        check(x, state, w, state_at="front", num_accepted_tokens=accepted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("tokens", [None, 2, 12])
def test_dilation(device: str, tokens: int | None, dtype: torch.dtype) -> None:
    x = torch.randn(sizes(3, 70, tokens), device=device, dtype=dtype)
    w = torch.randn(70, 4, device=device, dtype=dtype)
    for columns in (9, 10, 25):
        state = torch.randn(3, 70, columns, device=device, dtype=dtype)
        check(x, state, w, dilation=3)
        check(x, state, w, dilation=3, cache_seqlens=torch.arange(3, device=device) * 7)
        check(x, state, w, dilation=3, state_at="front")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [None, 5])
def test_chains(device: str, tokens: int | None, dtype: torch.dtype) -> None:
    shape = sizes(3, 70, tokens)
    x, state = (torch.randn(s, device=device, dtype=dtype) for s in (shape, (3, 70, 4)))
    w, b = torch.randn(70, 4, device=device, dtype=dtype), torch.randn(70, device=device, dtype=dtype)
    gate, residual = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
    channel = torch.randn((70,) if tokens is None else (70, 1), device=device)
    token = torch.randn((3, 1) if tokens is None else (3, 1, 5), device=device)
    check(x, state, w, pre=stages.mul(gate), post=stages.mul(residual))  # LFM2's two gates
    for operand in (channel, token):
        check(x, state, w, b, "silu", residual=operand)
        check(x, state, w, b, pre=stages.mul(operand), residual=residual, post=stages.mul(operand) | stages.tanh())
    check(x, state, w, b, "swish", residual=residual, post=stages.scale(0.5) | stages.cast(torch.float32))


def test_chains_of_packed_tokens(device: str) -> None:
    x, state = torch.randn(9, 70, device=device), torch.randn(3, 70, 4, device=device)
    w, starts = torch.randn(70, 4, device=device), torch.tensor([0, 1, 6, 8], device=device)
    for operand in (torch.randn(70, device=device), torch.randn(9, 1, device=device), projected(torch.randn_like(x))):
        chains = {"pre": stages.mul(operand), "residual": operand, "post": stages.mul(operand)}
        check(x, state, w, None, "silu", query_start_loc=starts, **chains)


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("width", [1, 4, 40])
@pytest.mark.parametrize("tokens", [None, 1, 6])
def test_a_result_in_the_inputs_place(device: str, tokens: int | None, width: int, layout: Layout) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = twin(layout(torch.randn(sizes(3, 70, tokens), device=device, dtype=dtype)))
        state = torch.randn(3, 70, width + 1, device=device, dtype=dtype)
        w, options = torch.randn(70, width, device=device, dtype=dtype), {"pre": stages.scale(2.0)}
        states = state.clone(), state.clone()
        wanted = sluice.causal_conv1d_update(x, states[0], w, None, "silu", **options)
        assert sluice.causal_conv1d_update(x, states[1], w, None, "silu", **options, out=x) is x
        assert torch.equal(x, wanted)
        assert_same_bits(*states)


@pytest.mark.parametrize("tokens", [None, 3])
def test_a_result_in_the_inputs_place_behind_a_stage_of_ones_own(tokens: int | None) -> None:
    x, w = torch.randn(sizes(3, 70, tokens)), torch.randn(70, 4)
    states, post = [torch.randn(3, 70, 4)] * 2, stages.cpp("x + 1", reference=lambda x: x + 1)
    for out in (x.clone(), torch._neg_view(-x)):
        states = [state.clone() for state in states]
        wanted = sluice.causal_conv1d_update(x, states[0], w, post=post)
        assert sluice.causal_conv1d_update(out, states[1], w, post=post, out=out) is out
        assert torch.equal(out, wanted)
        assert_same_bits(*states)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 3, 4])
def test_decoding_goes_on_like_the_whole_sequence(device: str, width: int, dtype: torch.dtype) -> None:
    x, w = torch.randn(2, 70, 12, device=device, dtype=dtype), torch.randn(70, width, device=device, dtype=dtype)
    b = torch.randn(70, device=device, dtype=dtype)
    whole, final = sluice.causal_conv1d(x, w, b, activation="silu", return_final_states=True)
    states = [torch.zeros(2, 70, n, device=device, dtype=dtype) for n in (width - 1, width, width + 3)]
    lengths = torch.zeros(2, dtype=torch.int32, device=device)
    found: list[list[torch.Tensor]] = [[], [], []]
    for t in range(12):
        for i, options in enumerate(({}, {}, {"cache_seqlens": lengths})):
            found[i].append(sluice.causal_conv1d_update(x[..., t], states[i], w, b, "silu", **options))
        lengths += 1
    for results in found:
        assert_close(torch.stack(results, dim=-1), whole.double(), factor=2)
    assert_same_bits(states[0], final)
    assert_same_bits(states[1], x[..., -width:])
    turn = [(t % (width + 3)) for t in range(12)]
    for t in range(12 - width - 3, 12):
        assert torch.equal(states[2][..., turn[t]], x[..., t])


def test_the_form_of_transformers(device: str) -> None:
    """Rows of K columns, the last for the new token: `torch_causal_conv1d_update`."""
    state, w = torch.randn(3, 70, 4, device=device), torch.randn(70, 4, device=device)
    b = torch.randn(70, device=device)
    for _ in range(6):
        x = torch.randn(3, 70, 1, device=device)
        rolled = torch.cat([state, x], dim=-1)[..., -4:]
        wanted = F.silu((rolled.double() * w.double()).sum(-1, keepdim=True) + b.double()[:, None])
        assert_close(sluice.causal_conv1d_update(x, state, w, b, "silu"), wanted)
        assert_same_bits(state, rolled)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_finite_stays_in_its_sequence(device: str, dtype: torch.dtype) -> None:
    w = torch.randn(33, 4, device=device, dtype=dtype)
    for value in (float("nan"), float("inf")):
        x, state = (torch.randn(s, device=device, dtype=dtype) for s in ((4, 33, 6), (4, 33, 5)))
        x[1, :, 2], state[3, 7, -1], state[2, :, 0] = value, value, value
        w[5] = 0
        result = check(x, state, w)
        assert result[[0, 2]].isfinite().all()  # the first of five columns is no history
        assert result[1, :, :2].isfinite().all()
        assert not result[1, :, 2:].isfinite().any()
        assert result[3, :7].isfinite().all()


@pytest.mark.parametrize("_", range(60))
def test_random_problems(device: str, _: int) -> None:
    arguments, options = Draw(torch.initial_seed()).problem(device)
    check(*arguments, **options)
