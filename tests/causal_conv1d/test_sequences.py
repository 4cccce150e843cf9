"""causal_conv1d of sequences that are packed: by starts, by ids, with dilation and chains, and their states."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, NAN, Layout, assert_close, contiguous, double_chain, permuted, poisoned_like, sliced
from sequence_calls import ints
from sequence_problems import (
    X_LAYOUTS,
    Draw,
    assert_each_close,
    assert_same_numbers,
    check,
    counted,
    expanded,
    expected,
    numbers_that_are_none,
    projected,
    strided,
)
from sluice import stages
from update_problems import INDEX_TYPES, STATE_LAYOUTS, assert_same_bits


def starts_of(lengths: list[int], first: int = 0) -> list[int]:
    return list(itertools.accumulate(lengths, initial=first))


def by_tokens(
    x: torch.Tensor, weight: torch.Tensor, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums token by token and tap by tap, the states column by column, and which tokens count."""
    values, ids, history = x.double(), options.get("seq_idx"), (weight.shape[1] - 1) * options.get("dilation", 1)
    values = values if x.dim() == 3 else values[None]
    batch, channels, length = values.shape
    ends = [(b, 0, length) for b in range(batch)]
    if (starts := options.get("cu_seqlens")) is not None:
        ends = [(0, a, b) for a, b in itertools.pairwise(starts.tolist())]
    before = options.get("state_cache", options.get("initial_states"))
    before = values.new_zeros((len(ends), channels, history)) if before is None else before.double()
    sums, counts, after = torch.zeros_like(values), torch.zeros_like(values, dtype=torch.bool), before.clone()
    for n, (b, start, end) in enumerate(ends):
        slot, none = n, (options.get("pad_slot_id", -1), options.get("null_slot_id"))
        if "cache_indices" in options:
            slot = int(options["cache_indices"][n])
            if slot in none or not 0 <= slot < len(before):
                continue
        old = before[slot] * 1
        if "has_initial_state" in options and not options["has_initial_state"][n]:
            old.zero_()

        tokens = [t for t in range(start, end) if ids is None or ids[b, t] >= 0]
        begin = tokens[0] if tokens else end

        def column(t: int, first: int, b: int = b, begin: int = begin, old: torch.Tensor = old) -> torch.Tensor:
            """The column at t; its sequence begins at `first`."""
            if t >= first:
                return values[b, :, t]
            return old[:, old.shape[1] + t - first] if first == begin else torch.zeros_like(old[:, 0])

        first = begin
        for t in tokens:
            if ids is not None and t > start and ids[b, t] != ids[b, t - 1]:
                first = t
            counts[b, :, t] = True
            for k in range(weight.shape[1]):
                lag = (weight.shape[1] - 1 - k) * options.get("dilation", 1)
                sums[b, :, t] += weight[:, k] * column(t - lag, first)
        last = tokens[-1] + 1 if tokens else end
        for j in range(old.shape[1]):
            after[slot, :, j] = column(last - old.shape[1] + j, first)
    return sums.view(x.shape), after, counts.view(x.shape)


def test_the_reference_token_by_token() -> None:
    draw = Draw(0)
    for _ in range(120):
        (x, weight, bias), options = draw.problem()
        options.pop("final_states_out", None)
        if x.numel() > 2000:
            continue
        wanted, states, _ = expected(x, weight, bias, **options)
        v = sluice.reference.transform(x, options.pop("pre", sluice.Chain()), dtype=x.dtype)
        y, after, counts = by_tokens(v, weight.double(), options)
        y = y if bias is None else y + bias.double()[:, None]
        y = F.silu(y) if options["activation"] in ("silu", "swish") else y
        y = y if "residual" not in options else y + options["residual"].double()
        y = sluice.reference.transform(y, double_chain(options.get("post", sluice.Chain())))
        torch.testing.assert_close(wanted, torch.where(counts, y, 0), rtol=1e-11, atol=1e-11, equal_nan=True)
        assert_same_numbers(states, after.to(states.dtype))
        assert torch.equal(counts, counted(x, weight, options))


PACKED = {
    "a few": [3, 70, 1, 130],
    "short": [1, 2, 0, 3, 1, 1, 4, 0, 0, 2, 5, 1],
    "one": [65],
    "empty": [0, 0, 0],
    "none": [],
}


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences(device: str, name: str, layout: Layout) -> None:
    for dtype, width in itertools.product(DTYPES, (1, 2, 4, 7)):
        first, behind = (2, 3) if width > 3 else (0, 0)
        starts = starts_of(PACKED[name], first)
        x = layout(torch.randn(1, 35, starts[-1] + behind, device=device).to(dtype))
        w, b = torch.randn(35, width, device=device).to(dtype), torch.randn(35, device=device).to(dtype)
        states = torch.randn(len(starts) - 1, 35, width - 1, device=device).to(dtype)
        given = {"cu_seqlens": ints(starts, device), "activation": "silu"}
        check(x, w, b, **given)
        result = check(x[0], w, b, initial_states=states, **given)
        assert not result[:, :first].any()
        assert not result[:, starts[-1] :].any()


def test_packed_sequences_are_what_they_are_by_themselves(device: str) -> None:
    lengths = [5, 1, 0, 64, 2, 33]
    starts, w = ints(starts_of(lengths), device), torch.randn(20, 4, device=device)
    x, states = torch.randn(1, 20, sum(lengths), device=device), torch.randn(6, 20, 3, device=device)
    result, final = sluice.causal_conv1d(x, w, initial_states=states, cu_seqlens=starts, return_final_states=True)
    for n, part in enumerate(x.split(lengths, dim=-1)):
        alone, last = sluice.causal_conv1d(part, w, initial_states=states[n : n + 1], return_final_states=True)
        assert_close(result[..., starts[n] : starts[n + 1]], alone.double())
        assert_same_bits(final[n], last[0])


def test_states_carry_packed_sequences_across_calls(device: str) -> None:
    x, w = torch.randn(3, 20, 40, device=device), torch.randn(20, 5, device=device)
    whole, states, found = sluice.causal_conv1d(x, w, dilation=2), None, []
    at = [0, 0, 0]
    for lengths in ([1, 0, 7], [0, 30, 2], [2, 3, 0], [37, 7, 31]):
        parts = [x[n, :, at[n] : at[n] + size] for n, size in enumerate(lengths)]
        packed, starts = torch.cat(parts, dim=-1), ints(starts_of(lengths), device)
        options = {"cu_seqlens": starts, "initial_states": states, "dilation": 2}
        result, states = sluice.causal_conv1d(packed, w, return_final_states=True, **options)
        found.append(result.split(lengths, dim=-1))
        at = [a + size for a, size in zip(at, lengths, strict=True)]
    for n in range(3):
        assert_close(torch.cat([pieces[n] for pieces in found], dim=-1), whole[n].double())
    assert_same_bits(states, x[..., -8:])


IDS = {
    "one": [[4] * 9],
    "changes": [[0, 0, 0, 1, 1, 2, 2, 2, 2], [5, 3, 3, 3, 5, 5, 5, 5, 3]],
    "padding": [[0, 0, -1, -1, 1, 1, 1, -3, -3], [-1, 7, 7, -1, 7, -2, -1, 0, 0]],
    "all padding": [[-1] * 9, [-5, -5, -6, -6, -6, -6, -6, -1, -1]],
    "each its own": [[8, 7, 6, 5, 4, 3, 2, 1, 0]],
}


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", IDS)
def test_ids(device: str, name: str, layout: Layout) -> None:
    """Each id for one token, and for ten."""
    sizes = ((1, 2), (1, 7), (10, 1), (10, 4))
    for number, (index_type, (repeats, width)) in enumerate(itertools.product(INDEX_TYPES, sizes)):
        ids = ints(IDS[name], device, index_type).repeat_interleave(repeats, dim=1)
        dtypes = [torch.float32, torch.bfloat16]
        # On the CPU each of the sizes has either dtype with one of the index types.
        for dtype in dtypes if device == "cuda" else [dtypes[(number + number // 4) % 2]]:
            x = layout(torch.randn(len(ids), 35, ids.shape[1], device=device).to(dtype))
            w, b = torch.randn(35, width, device=device).to(dtype), torch.randn(35, device=device)
            states = torch.randn(len(ids), 35, width - 1, device=device).to(dtype)
            result = check(x, w, b, seq_idx=ids, initial_states=states)
            assert not result.mT[ids < 0].any()
            residual = torch.randn_like(x, memory_format=torch.contiguous_format)
            result = check(x, w, b, seq_idx=ids, residual=residual, post=stages.shift(3.0))
            assert not result.mT[ids < 0].any()


def test_ids_give_what_starts_give(device: str) -> None:
    lengths, w = [3, 1, 40, 2, 19], torch.randn(20, 4, device=device)
    ids = torch.arange(5, device=device).repeat_interleave(torch.tensor(lengths, device=device))[None]
    x, starts = torch.randn(1, 20, 65, device=device), ints(starts_of(lengths), device)
    by_ids, last = sluice.causal_conv1d(x, w, seq_idx=ids, return_final_states=True)
    by_starts, final = sluice.causal_conv1d(x, w, cu_seqlens=starts, return_final_states=True)
    torch.testing.assert_close(by_ids, by_starts, rtol=2e-6, atol=2e-6)
    assert_same_bits(last[0], final[-1])


def test_states_of_rows_with_ids(device: str) -> None:
    """The first sequence has the initial states, the last one leaves the final states; padding is no sequence."""
    x, w, states = (
        torch.ones(4, 2, 5, device=device),
        torch.ones(2, 4, device=device),
        torch.ones(4, 2, 3, device=device),
    )
    ids = ints([[0] * 5, [0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [-1, -1, 0, 0, -1]], device)
    result, final = sluice.causal_conv1d(x, w, seq_idx=ids, initial_states=states * 2, return_final_states=True)
    wanted = [[7, 6, 5, 4, 4], [7, 6, 1, 2, 3], [7, 6, 5, 4, 1], [0, 0, 7, 6, 0]]
    assert result[:, 0].tolist() == wanted
    assert final[:, 1].tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 1], [2, 1, 1]]
    final = sluice.causal_conv1d(
        x[..., :1], w, seq_idx=ids[:, :1], initial_states=states * 2, return_final_states=True
    )[1]  # fmt: skip
    assert final[:, 1].tolist() == [[2, 2, 1]] * 3 + [[2, 2, 2]]


@pytest.mark.parametrize("layout", STATE_LAYOUTS, ids=lambda f: f.__name__)
def test_layouts_and_dtypes_of_states(device: str, layout: Layout) -> None:
    """`final_states_out` may have any; what it has in common with the initial states is copied from them."""
    starts = ints([0, 1, 1, 9], device)
    for dtype, other in itertools.product(DTYPES, DTYPES):
        x, w = torch.randn(1, 9, 9, device=device).to(dtype), torch.randn(9, 3, device=device).to(dtype)
        states = layout(torch.randn(3, 9, 4, device=device).to(other))
        options = {"dilation": 2, "initial_states": states, "final_states_out": states}
        check(x, w, cu_seqlens=starts, **options)
        rows = x[..., :3].expand(3, -1, -1)
        check(rows, w, **options)
        check(rows, w.double(), pre=stages.scale(2.0), **options)


def test_states_in_the_place_of_the_initial_ones(device: str) -> None:
    starts, w = ints([0, 1, 1, 9, 11], device), torch.randn(9, 4, device=device)
    x, states = torch.randn(1, 9, 11, device=device), torch.randn(4, 9, 3, device=device)
    wanted = sluice.causal_conv1d(x, w, cu_seqlens=starts, initial_states=states, return_final_states=True)
    result, returned = sluice.causal_conv1d(
        x, w, cu_seqlens=starts, initial_states=states, final_states_out=states
    )  # fmt: skip
    assert returned is states
    assert_same_bits(result, wanted[0])
    assert_same_bits(states, wanted[1])


@pytest.mark.parametrize("layout", [*X_LAYOUTS, expanded], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dilation", [1, 2, 3, 50])
def test_dilation(device: str, dilation: int, layout: Layout) -> None:
    problems = list(itertools.product(DTYPES, (1, 2, 4), (1, 5, 90)))
    if device == "cpu":  # each dtype has each width, and each length
        problems = problems[dilation % 4 :: 4] + problems[-1:]
    for dtype, width, length in problems:
        x, w = (
            layout(torch.randn(2, 35, length, device=device).to(dtype)),
            torch.randn(35, width, device=device).to(dtype),
        )
        states = torch.randn(2, 35, (width - 1) * dilation, device=device).to(dtype)
        check(x, w, dilation=dilation, initial_states=states)
        check(x[:1], w, dilation=dilation, activation="silu", cu_seqlens=ints([0, length // 2, length], device))
    for schedule in ("direct", "multi_stage"):
        result = sluice.causal_conv1d(x, w, dilation=dilation, initial_states=states, schedule=schedule)
        assert_close(result, expected(x, w, dilation=dilation, initial_states=states)[0], factor=2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "ids", "starts", "flat"])
def test_chains(device: str, form: str, dtype: torch.dtype) -> None:
    """`pre` is rounded to x's dtype, and so are the states; `residual` and `post` are not."""
    shape = (35, 20) if form == "flat" else (1 if form == "starts" else 2, 35, 20)
    x, gate, back = (torch.randn(shape, device=device).to(dtype) for _ in range(3))
    w, b = torch.randn(35, 4, device=device).to(dtype), torch.randn(35, device=device)
    given: dict[str, Any] = {"cu_seqlens": ints([0, 1, 3, 3, 20], device)}
    if form in ("rows", "ids"):
        given = {} if form == "rows" else {"seq_idx": ints([[0] * 7 + [-1] + [2] * 12] * 2, device)}
    check(x, w, pre=stages.mul(gate), post=stages.mul(back), **given)  # LFM2's two gates
    for operand in (torch.randn(35, 1, device=device), torch.randn(20, device=device), permuted(gate), gate.double()):
        chains = {"pre": stages.mul(operand), "residual": back, "post": stages.mul(operand) | stages.tanh()}
        check(x, w, b, activation="silu", **chains, **given)
        check(projected(x), w, residual=operand, **given)
    text = {"pre": "scale(0.5) | neg", "post": "scale(0.5)|cast(float32)"}
    result = sluice.causal_conv1d(x, w, **text, **given)
    wanted = expected(-x, w, post=stages.scale(0.25) | stages.cast(torch.float32), **given)[0]
    assert_close(result, wanted, factor=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["rows", "ids", "starts"])
def test_stages_of_ones_own(form: str, dtype: torch.dtype) -> None:
    """On the CPU by their references, after or before the kernel; tokens without a sequence stay 0."""
    own = stages.cpp("x + 1", reference=lambda x: x + 1)
    x, w, third = torch.randn(2, 9, 12).to(dtype), torch.randn(9, 3), stages.scale(1 / 3)
    given: dict[str, Any] = {"seq_idx": ints([[3] * 5 + [-1] * 2 + [2] * 5] * 2, "cpu")} if form == "ids" else {}
    if form == "starts":
        x, given = x[:1], {"cu_seqlens": ints([1, 3, 3, 11], "cpu")}
    for chains in (
        {"post": own},
        {"post": stages.scale(0.5) | own | stages.shift(1.0), "residual": torch.randn(9, 1)},
        {"pre": own},
        {"pre": third | own, "post": own},
        {"pre": third, "post": own},  # rounded, although the sums after it are not
    ):
        check(x, w, activation="silu", **chains, **given)


@pytest.mark.parametrize("form", ["rows", "starts", "ids"])
def test_noncontiguous_everything(device: str, form: str) -> None:
    x = projected(torch.randn(3, 33, 18, device=device))
    w, b = permuted(torch.randn(33, 4, device=device)), strided(torch.randn(33, device=device))
    given: dict[str, Any] = {}
    if form == "ids":
        given["seq_idx"] = strided(ints([[0] * 9 + [1] * 9, [2] * 18, [-1] * 3 + [5] * 15], device))
    if form == "starts":
        x, given["cu_seqlens"] = x[:1], strided(ints([0, 1, 4, 18], device, torch.int64))
    given["initial_states"] = sliced(torch.randn(3, 33, 3, device=device))
    given["residual"] = sliced(torch.randn(x.shape, device=device))
    check(x, w, b, **given, final_states_out=permuted(torch.empty(3, 33, 3, device=device)))
    for out_layout in (contiguous, permuted, sliced):
        out = out_layout(poisoned_like(x))
        assert sluice.causal_conv1d(x, w, b, **given, out=out) is out
        assert_each_close(out, expected(x, w, b, **given)[0])
    if "seq_idx" in given:
        shared = given["seq_idx"][:1].expand(3, -1)
        check(x, w, b, **{**given, "seq_idx": shared})


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_finite_stays_in_its_sequence(device: str, dtype: torch.dtype, value: float) -> None:
    w, starts = torch.randn(33, 4, device=device).to(dtype), ints([2, 5, 5, 9, 10, 18], device)
    x, states = torch.randn(1, 33, 20, device=device).to(dtype), torch.randn(5, 33, 3, device=device).to(dtype)
    x[..., 6] = x[..., :2] = x[..., 18:] = states[1] = value
    result = check(x, w, cu_seqlens=starts, initial_states=states)
    assert result[..., [*range(6), *range(9, 20)]].isfinite().all()
    assert not result[..., 6:9].isfinite().any()
    ids = ints([[-1, -1, 3, 3, 3, 8, 8, 8, 8, 2, *[5] * 8, -1, -1]], device)
    result = check(x, w, seq_idx=ids, post=stages.shift(1.0))
    assert result[..., [*range(6), *range(9, 20)]].isfinite().all()
    assert not result[..., 6:9].isfinite().any()
    everywhere = torch.full_like(x, value)
    check(x, w, seq_idx=ids, residual=everywhere, pre=stages.mul(everywhere), post=stages.mul(everywhere))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_final_states_are_the_bits_of_tokens(device: str, dtype: torch.dtype) -> None:
    """The bits of a NaN too."""
    x = numbers_that_are_none(1, 8, 9, dtype=dtype, device=device)
    w, starts = torch.zeros(8, 4, device=device), ints([0, 3, 4, 9], device)
    initial = torch.randn(3, 8, 3, device=device).to(dtype)
    for given in ({}, {"final_states_out": permuted(poisoned_like(initial))}):
        states = sluice.causal_conv1d(
            x, w, cu_seqlens=starts, initial_states=initial, **(given or {"return_final_states": True})
        )[1]
        assert_same_bits(states[0], x[0, :, :3])
        assert_same_bits(states[1], torch.cat([initial[1, :, 1:], x[0, :, 3:4]], dim=-1))
        assert_same_bits(states[2], x[0, :, 6:])


def test_rows_are_sequences(device: str) -> None:
    """The same rows as a batch, as one id each, and concatenated."""
    for width, dilation in ((1, 1), (3, 1), (4, 1), (5, 2)):
        x, w = torch.randn(3, 33, 40, device=device), torch.randn(33, width, device=device)
        options = {"dilation": dilation, "initial_states": torch.randn(3, 33, (width - 1) * dilation, device=device)}
        rows = sluice.causal_conv1d(x, w, **options)
        ids = sluice.causal_conv1d(x, w, seq_idx=torch.zeros(3, 40, dtype=torch.int32, device=device), **options)
        flat, starts = x.transpose(0, 1).reshape(33, 120), ints([0, 40, 80, 120], device)
        packed = sluice.causal_conv1d(flat, w, cu_seqlens=starts, **options).view(33, 3, 40).transpose(0, 1)
        for found in (ids, packed):
            torch.testing.assert_close(found, rows, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("number", range(150))
def test_random_problems(device: str, number: int) -> None:
    (x, weight, bias), options = Draw(number).problem(device)
    check(x, weight, bias, **options)
