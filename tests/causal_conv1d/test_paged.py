"""causal_conv1d with states in the slots of a cache: results in float64, caches bit by bit."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch

import sluice
from common import DTYPES, NAN, Layout, assert_close, permuted, sliced
from sequence_calls import ints
from sequence_problems import X_LAYOUTS, Draw, check, numbers_that_are_none, projected, strided
from sluice import stages
from update_problems import INDEX_TYPES, STATE_LAYOUTS, assert_nothing_around_is_written, assert_same_bits, twin


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "ids", "starts", "flat"])
def test_result_and_cache(device: str, form: str, dtype: torch.dtype, layout: Layout) -> None:
    """Sequences that are shorter than the history, as long as a row of the cache, and longer."""
    sizes = list(itertools.product((1, 2, 4, 7), (0, 1, 5), (1, 5, 70)))
    if device == "cpu":  # each dtype has all sizes in some layout, and each layout in some dtype
        sizes = sizes[(DTYPES.index(dtype) + X_LAYOUTS.index(layout)) % 3 :: 4]
    for width, more, length in sizes:
        x = layout(torch.randn(3, 35, length, device=device).to(dtype))
        w, b = torch.randn(35, width, device=device).to(dtype), torch.randn(35, device=device).to(dtype)
        given: dict[str, Any] = {"activation": "silu"}
        if form == "ids":
            given["seq_idx"] = ints(
                [[0] * length, [0] * (length // 2) + [1] * (length - length // 2), [-1] * length], device
            )
        if form in ("starts", "flat"):
            x = x[0] if form == "flat" else x[:1]
            given["cu_seqlens"] = ints([0, length // 3, length // 3, length], device)
        cache = torch.randn(3, 35, width - 1 + more, device=device).to(dtype)
        check(x, w, b, state_cache=cache, **given)


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "starts"])
def test_slots(device: str, form: str, index_type: torch.dtype) -> None:
    """Pads, nulls and indices past either end: a result of 0, also with an addend after it; other rows stay NaN."""
    far = 2**32 + 1 if index_type == torch.int64 else 2**31 - 1
    indices = ints([7, -1, 0, 3, 9, -5, 2, far], device, index_type)
    cache = torch.full((9, 33, 6), NAN, device=device)
    cache[[7, 3, 2]] = torch.randn(3, 33, 6, device=device)
    w, b = torch.randn(33, 4, device=device), torch.randn(33, device=device)
    x, given = torch.randn(8, 33, 5, device=device), {"cache_indices": indices, "null_slot_id": 0}
    skipped = torch.zeros(8, dtype=torch.bool, device=device).index_fill(0, ints([1, 2, 4, 5, 7], device).long(), True)
    x[skipped] = NAN
    if form == "starts":
        x, given["cu_seqlens"] = x.transpose(0, 1).reshape(1, 33, 40), ints(list(range(0, 41, 5)), device, index_type)
    for options in (given, {**given, "cache_indices": strided(indices)}, {**given, "pad_slot_id": 3}):
        result = check(x, w, b, state_cache=cache, residual=torch.randn_like(x), post=stages.shift(3.0), **options)
        of_each = result if form == "rows" else result[0].view(33, 8, 5).transpose(0, 1)
        assert result.isfinite().all()
        assert not of_each[skipped].any()
        assert of_each[3].any() == (options.get("pad_slot_id") != 3)
    more = torch.cat([indices, ints([3, 2, 7, -1], device, index_type)])  # names that nobody has
    check(x, w, b, state_cache=cache, **{**given, "cache_indices": more})


def test_no_slot_at_all(device: str) -> None:
    x, w = torch.randn(2, 9, 4, device=device), torch.randn(9, 3, device=device)
    for slots in (0, 3):
        cache = torch.full((slots, 9, 2), NAN, device=device)
        result = check(x, w, state_cache=cache, cache_indices=ints([-1, slots], device), post=stages.shift(1.0))
        assert not result.any()


@pytest.mark.parametrize("form", ["rows", "ids", "starts"])
def test_what_has_no_initial_state(device: str, form: str) -> None:
    """The slot counts as zeros: before the tokens, in moved columns, and without tokens."""
    for length, more, layout in itertools.product((0, 1, 2, 9), (0, 1, 4), (permuted, sliced)):
        has = ints([True, False, False, True], device, torch.bool)
        cache = layout(torch.randn(4, 33, 3 + more, device=device))
        cache[~has] = NAN
        x, given = torch.randn(4, 33, length, device=device), {"has_initial_state": has}
        if form == "ids":
            given["seq_idx"] = ints([[3] * length, [3] * length, [-1] * length, [-1] * length], device).view(4, length)
        if form == "starts":
            x = torch.randn(1, 33, 2 * length, device=device)
            given["cu_seqlens"] = ints([0, length, 2 * length, 2 * length, 2 * length], device)
        w = torch.randn(33, 4, device=device)
        assert check(x, w, state_cache=cache, **given).isfinite().all()
        check(x, w, state_cache=cache, **{**given, "has_initial_state": strided(has)})
        slots = ints([3, 2, -1, 0], device)  # the third's row is nobody's, and stays NaN
        cache[[3, 2, 0]] = torch.where(has[[0, 1, 3], None, None], 1.0, NAN).to(device).expand(3, 33, 3 + more)
        cache[1] = NAN
        assert check(x, w, state_cache=cache, cache_indices=slots, **given).isfinite().all()


def test_a_cache_by_hand(device: str) -> None:
    x, w = torch.arange(1.0, 8, device=device).expand(1, 1, 7), torch.ones(1, 3, device=device)
    cache = torch.full((4, 1, 4), 10.0, device=device)
    options = {
        "cu_seqlens": ints([1, 2, 2, 5, 6], device),  # 2 | none | 3 4 5 | 6
        "cache_indices": ints([3, 0, 2, -1], device),
        "has_initial_state": ints([True, False, True, True], device, torch.bool),
    }
    result = sluice.causal_conv1d(x, w, state_cache=cache, **options)
    assert result.tolist() == [[[0, 22, 23, 17, 12, 0, 0]]]
    assert cache[:, 0].tolist() == [[0, 0, 0, 0], [10, 10, 10, 10], [10, 3, 4, 5], [10, 10, 10, 2]]


@pytest.mark.parametrize("layout", STATE_LAYOUTS, ids=lambda f: f.__name__)
def test_layouts_and_dtypes_of_the_cache(device: str, layout: Layout) -> None:
    for dtype, other in itertools.product(DTYPES, DTYPES):
        x, w = torch.randn(1, 33, 12, device=device).to(dtype), torch.randn(33, 4, device=device).to(dtype)
        starts, slots = ints([0, 1, 3, 12], device), ints([3, 0, 1], device)
        cache = layout(torch.randn(4, 33, 7, device=device).to(other))
        check(x, w, cu_seqlens=starts, cache_indices=slots, state_cache=cache)
        check(projected(x), w.double(), pre=stages.scale(1 / 3), dilation=2, state_cache=cache[:1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "ids", "starts"])
def test_bits_are_kept(device: str, form: str, dtype: torch.dtype) -> None:
    """NaN keeps its bits too: in tokens, in moved columns, and in unused slots."""
    none = functools.partial(numbers_that_are_none, dtype=dtype, device=device)
    x, w = none(1, 9, 5), torch.randn(9, 3, device=device).to(dtype)
    for length, layout in itertools.product((0, 1, 2, 5), (permuted, sliced)):
        memory = twin(layout(none(3, 9, 4)))
        before, tokens = memory.clone(), x[..., :length]
        options = {"seq_idx": torch.zeros(1, length, dtype=torch.int32, device=device)} if form == "ids" else {}
        if form == "starts":
            options["cu_seqlens"] = ints([0, length], device)
        sluice.causal_conv1d(tokens, w, state_cache=memory, cache_indices=ints([1], device), **options)
        assert_same_bits(memory[[0, 2]], before[[0, 2]])
        assert_same_bits(memory[1], torch.cat([before[1], tokens[0]], dim=-1)[:, length:])
        assert_nothing_around_is_written(memory)


@pytest.mark.parametrize("value", [NAN, float("inf")])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_finite_stays_in_its_sequence(device: str, dtype: torch.dtype, value: float) -> None:
    w, starts = torch.randn(33, 4, device=device).to(dtype), ints([1, 4, 9, 12, 15], device)
    x, cache = torch.randn(1, 33, 17, device=device).to(dtype), torch.randn(5, 33, 6, device=device).to(dtype)
    slots, has = ints([4, 0, -1, 2], device), ints([True, True, True, False], device, torch.bool)
    cache[[1, 2, 3]] = cache[4, :, :3] = cache[0, :, 4] = x[..., 0] = x[..., 9:12] = x[..., 15:] = value
    result = check(x, w, cu_seqlens=starts, state_cache=cache, cache_indices=slots, has_initial_state=has)
    assert not result[..., 4:6].isfinite().any()
    assert result[..., [*range(4), *range(6, 17)]].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "ids", "starts"])
def test_chains(device: str, form: str, dtype: torch.dtype) -> None:
    shape = (1 if form == "starts" else 2, 35, 20)
    x, gate, back = (torch.randn(shape, device=device).to(dtype) for _ in range(3))
    w, b = torch.randn(35, 4, device=device).to(dtype), torch.randn(35, device=device)
    cache, slots = torch.randn(5, 35, 11, device=device).to(dtype), ints([4, 1, -1, 0], device)
    given: dict[str, Any] = {"state_cache": cache, "cache_indices": slots, "dilation": 3}
    if form == "ids":
        given["seq_idx"] = ints([[0] * 7 + [-1] + [2] * 12, [3] * 20], device)
    if form == "starts":
        given["cu_seqlens"] = ints([0, 1, 3, 5, 20], device)
    check(x, w, pre=stages.mul(gate), post=stages.mul(back), **given)
    for operand in (torch.randn(35, 1, device=device), torch.randn(20, device=device), permuted(gate)):
        chains = {"pre": stages.mul(operand), "residual": back, "post": stages.mul(operand) | stages.tanh()}
        check(x, w, b, activation="silu", **chains, **given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["rows", "ids", "starts"])
def test_stages_of_ones_own(form: str, dtype: torch.dtype) -> None:
    own, third = stages.cpp("x + 1", reference=lambda x: x + 1), stages.scale(1 / 3)
    x, w, cache = torch.randn(3, 9, 12).to(dtype), torch.randn(9, 3), torch.randn(4, 9, 3)
    given: dict[str, Any] = {"cache_indices": ints([2, -1, 0], "cpu"), "null_slot_id": 0}
    if form == "ids":
        given["seq_idx"] = ints([[3] * 5 + [-1] * 2 + [2] * 5] * 3, "cpu")
    if form == "starts":
        x, given["cu_seqlens"] = x[:1], ints([1, 3, 4, 11], "cpu")
    for chains in ({"post": own, "residual": torch.randn(9, 1)}, {"pre": own}, {"pre": third, "post": own | third}):
        for options in (given, {**given, "cache_indices": ints([1, 3, 2], "cpu")}):
            check(x, w, activation="silu", state_cache=cache, **chains, **options)
            check(x, w, state_cache=cache.to(dtype), **chains, **options)


def test_the_cache_stays_as_it_was_where_a_stage_behind_is_refused() -> None:
    x, w, cache = torch.randn(2, 8, 3), torch.randn(8, 3), torch.randn(2, 8, 2)
    shifted, kept = stages.cpp("x + 1", reference=lambda x: x + 1), cache.clone()
    with pytest.raises(ValueError, match="must be given a reference="):
        sluice.causal_conv1d(x, w, state_cache=cache, post=stages.cpp("x + 1"))
    with pytest.raises(ValueError, match="out must have shape"):
        sluice.causal_conv1d(x, w, state_cache=cache, post=shifted, out=torch.empty(2, 9, 3))
    assert_same_bits(cache, kept)


def test_noncontiguous_everything(device: str) -> None:
    x = projected(torch.randn(1, 33, 18, device=device))
    w, b = permuted(torch.randn(33, 4, device=device)), strided(torch.randn(33, device=device))
    given = {
        "cu_seqlens": strided(ints([0, 1, 4, 18], device, torch.int64)),
        "cache_indices": strided(ints([5, 0, 2], device)),
        "has_initial_state": strided(ints([True, False, True], device, torch.bool)),
        "state_cache": sliced(torch.randn(6, 33, 5, device=device)),
        "residual": sliced(torch.randn(x.shape, device=device)),
    }
    check(x, w, b, **given)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 3, 4])
def test_prefill_in_parts_then_decode(device: str, width: int, dtype: torch.dtype) -> None:
    """Parts of three prompts, interleaved and packed, then single tokens: the same as one row each."""
    x, w = torch.randn(3, 40, 60, device=device).to(dtype), torch.randn(40, width, device=device).to(dtype)
    b, found, at = torch.randn(40, device=device).to(dtype), [[], [], []], [0, 0, 0]
    whole = sluice.causal_conv1d(x, w, b, activation="silu")
    for columns in (width - 1, width, width + 3):
        cache, found, at = torch.full((7, 40, columns), NAN, device=device, dtype=dtype), [[], [], []], [0, 0, 0]
        slots = ints([5, 0, 3], device)
        for lengths in ([1, 50, 0], [20, 0, 3], [30, 2, 1], [0, 0, 46]):
            parts = [x[n, :, at[n] : at[n] + size] for n, size in enumerate(lengths)]
            starts = ints(list(itertools.accumulate(lengths, initial=0)), device)
            result = sluice.causal_conv1d(
                torch.cat(parts, dim=-1), w, b, activation="silu", cu_seqlens=starts, state_cache=cache,
                cache_indices=slots, has_initial_state=ints([a > 0 for a in at], device, torch.bool),
            )  # fmt: skip
            for n, piece in enumerate(result.split(lengths, dim=-1)):
                found[n].append(piece)
            at = [a + size for a, size in zip(at, lengths, strict=True)]
        while min(at) < 60:
            names = ints([slot if a < 60 else -1 for slot, a in zip(slots.tolist(), at, strict=True)], device)
            tokens = torch.stack([x[n, :, min(a, 59)] for n, a in enumerate(at)])
            result = sluice.causal_conv1d_update(tokens, cache, w, b, "silu", conv_state_indices=names)
            for n, a in enumerate(at):
                found[n] += [result[n, :, None]] if a < 60 else []
            at = [min(a + 1, 60) for a in at]
        for n in range(3):
            assert_close(torch.cat(found[n], dim=-1), whole[n].double(), factor=2)
            assert_same_bits(cache[slots[n]], x[n, :, 60 - columns :])
        assert cache[[1, 2, 4, 6]].isnan().all()


@pytest.mark.parametrize("number", range(100))
def test_random_problems(device: str, number: int) -> None:
    draw = Draw(1000 + number)
    while True:
        (x, weight, bias), options = draw.problem(device)
        if "state_cache" in options:
            check(x, weight, bias, **options)
            return
