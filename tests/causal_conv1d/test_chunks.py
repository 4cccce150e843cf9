"""Causal convolutions of weights with three dimensions: whole rows, and chunks with states in the slots of a cache."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from chunk_problems import TOLERANCE, X_LAYOUTS, Draw, check_chunk, error_of, history_of
from common import DTYPES, NAN, Layout, permuted
from sluice import stages
from update_problems import assert_nothing_around_is_written, assert_same_bits

OP = "causal_conv1d"


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_rows(device: str, dtype: torch.dtype, layout: Layout) -> None:
    """Zeros, or the first input, on the left alone: results are as many as the stride divides the row into."""
    for taps, stride, dilation, groups in itertools.product((1, 2, 4, 7), (1, 2, 3), (1, 3), (1, 2)):
        x = layout(torch.randn(2, 6, 12, device=device).to(dtype))
        w = (torch.randn(4, 6 // groups, taps, device=device) / (6 * taps) ** 0.5).to(dtype)
        b, numbers = torch.randn(4, device=device).to(dtype), {"stride": stride, "dilation": dilation, "groups": groups}
        result = check_chunk(OP, x, w, b, **numbers)
        padded = F.pad(x.double(), (history_of(OP, taps, stride, dilation), 0))
        wanted = F.conv1d(padded, w.double(), b.double(), stride, 0, dilation, groups)
        assert error_of(result, wanted) <= TOLERANCE[dtype]
        for mode in ("replicate", "reflect"):
            check_chunk(OP, x, w, b, padding_mode=mode, pre=stages.shift(1.0), post=stages.silu(), **numbers)


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_chunk(device: str, dtype: torch.dtype, layout: Layout) -> None:
    """Chunks shorter than the history, as long as a cache's row, and longer; states are copied bit by bit."""
    for length, more, (taps, stride, dilation) in itertools.product(
        (6, 12, 36), (0, 5), ((1, 1, 1), (1, 3, 1), (3, 1, 1), (7, 2, 2), (4, 6, 1), (7, 1, 3))
    ):
        columns = history_of(OP, taps, stride, dilation) + more
        x = layout(torch.randn(3, 10, length, device=device).to(dtype))
        w = (torch.randn(6, 10, taps, device=device) / (10 * taps) ** 0.5).to(dtype)
        b, cache = torch.randn(6, device=device).to(dtype), torch.randn(3, 10, columns, device=device).to(dtype)
        flags = torch.tensor([True, False, True], device=device)
        for mode in ("zeros", "replicate", "reflect"):
            check_chunk(
                OP, x, w, b, stride=stride, dilation=dilation, state_cache=cache, has_initial_state=flags,
                padding_mode=mode, pre=stages.elu(), post=stages.shift(1.0),
            )  # fmt: skip


def test_slots(device: str) -> None:
    """Rows without a slot have zeros and change nothing, also where x or their state is not a number."""
    cache = torch.full((6, 5, 4), NAN, device=device)
    cache[[4, 0]] = torch.randn(2, 5, 4, device=device)
    x, w, b = torch.randn(4, 5, 6, device=device), torch.randn(7, 5, 3, device=device), torch.randn(7, device=device)
    x[[1, 3]] = NAN
    for index_type, wrong in itertools.product((torch.int32, torch.int64), (-1, 6, 99, 2)):
        slots = torch.tensor([4, wrong, 0, -1], device=device, dtype=index_type)
        result = check_chunk(
            OP, x, w, b, stride=2, state_cache=permuted(cache), cache_indices=slots, null_slot_id=2,
            pre=stages.shift(1.0), post=stages.shift(1.0),
        )  # fmt: skip
        assert not result[[1, 3]].any()
        assert result[[0, 2]].isfinite().all()


def test_drawn_calls(device: str) -> None:
    draw = Draw(torch.initial_seed())
    for _ in range(120):
        problem = draw.convolution(OP, device, keeps_zeros=False)
        given, batch = problem["given"], draw.choice([0, 1, 3])
        length = given["stride"] * draw.choice([1, 2, 5, 40])
        x = torch.randn(batch, problem["inputs"], length, device=device).to(problem["weight"].dtype)
        x = draw.choice(X_LAYOUTS)(x)
        if draw.random() < 0.8:
            slots = batch + draw.choice([0, 2])
            given["state_cache"] = draw.cache(OP, slots, problem, device)
            if slots != batch:
                names = draw.sample(range(-1, slots), batch)
                given["cache_indices"] = torch.tensor(names, dtype=torch.int32, device=device)
            if draw.random() < 0.5:
                given["has_initial_state"] = torch.rand(batch, device=device) < 0.5
        check_chunk(OP, x, problem["weight"], problem["bias"], **given)


def test_any_cut_gives_the_whole_row(device: str) -> None:
    draw = Draw(torch.initial_seed())
    for _ in range(120):
        problem = draw.convolution(OP, device, keeps_zeros=True)
        given, w, b = problem["given"], problem["weight"], problem["bias"]
        step, slots = given["stride"], torch.tensor([3, 0], device=device)
        x = draw.choice(X_LAYOUTS)(torch.randn(2, problem["inputs"], step * 24, device=device).to(w.dtype))
        cache, flags = draw.cache(OP, 5, problem, device), torch.tensor([False, False], device=device)
        around = cache[[1, 2, 4]].clone()
        parts = []
        # Padding by "reflect" takes inputs of the first chunk.
        least = 1 if given.get("padding_mode") != "reflect" else 1 + history_of(OP, w.shape[2], step, given["dilation"])
        for chunk in x.split(draw.cut(x.shape[2], step, least), dim=-1):
            parts.append(
                sluice.causal_conv1d(
                    chunk, w, b, state_cache=cache, cache_indices=slots, has_initial_state=flags, **given
                )
            )
            flags = torch.tensor([True, True], device=device)
        whole = sluice.causal_conv1d(x, w, b, **given)
        assert error_of(torch.cat(parts, dim=-1), whole) <= 2 * TOLERANCE[w.dtype]
        kept = min(cache.shape[2], x.shape[2])
        assert_same_bits(cache[[3, 0], :, cache.shape[2] - kept :], x[..., x.shape[2] - kept :])
        assert_same_bits(cache[[1, 2, 4]], around)


def test_states_without_a_cache(device: str) -> None:
    """Initial states are read and stay, final states are new memory or the caller's."""
    x, w = torch.randn(2, 4, 10, device=device), torch.randn(6, 4, 5, device=device)
    given: dict[str, Any] = {"stride": 2, "pre": stages.elu()}
    first, states = sluice.causal_conv1d(x[..., :4], w, return_final_states=True, **given)
    memory = torch.full((2, 4, 3), NAN, device=device)
    second, final = sluice.causal_conv1d(x[..., 4:], w, initial_states=states, final_states_out=memory, **given)
    whole = sluice.causal_conv1d(x, w, **given)
    torch.testing.assert_close(torch.cat([first, second], dim=-1), whole, rtol=1e-5, atol=1e-5)
    assert final is memory
    assert_same_bits(final, x[..., 7:])
    assert_same_bits(states, x[..., 1:4])
    only = sluice.causal_conv1d(x[..., 4:], w, initial_states=states, **given)
    assert_same_bits(only, second)


def test_activation_and_residual(device: str) -> None:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(6, 4, 3, device=device), torch.randn(6, device=device)
    r, cache = torch.randn(2, 6, 9, device=device), torch.randn(2, 4, 2, device=device)
    for given in ({}, {"state_cache": cache}):
        check_chunk(OP, x, w, b, activation="silu", residual=r, post=stages.scale(2.0), **given)


def test_a_cache_of_another_dtype(device: str) -> None:
    """Values reach the convolution in x's dtype."""
    x, w = torch.randn(2, 4, 6, device=device).half(), torch.randn(6, 4, 3, device=device).half()
    cache = torch.randn(2, 4, 2, device=device).half().float()
    mine, same = cache.clone(), cache.half()
    assert_same_bits(sluice.causal_conv1d(x, w, state_cache=mine), sluice.causal_conv1d(x, w, state_cache=same))
    assert_same_bits(mine, same.float())


def test_depthwise_weights_of_three_dimensions(device: str) -> None:
    """They take the kernels of depthwise filters, unless inputs go through a chain first."""
    x, w = torch.randn(2, 5, 8, device=device), torch.randn(5, 1, 4, device=device)
    for pre in (None, stages.elu()):
        cache = torch.randn(2, 5, 3, device=device)
        check_chunk(OP, x, w, None, groups=5, state_cache=cache, **({} if pre is None else {"pre": pre}))
    cache = torch.randn(2, 5, 3, device=device)
    flat, same = cache.clone(), cache.clone()
    a = sluice.causal_conv1d(x, w, groups=5, state_cache=same)
    assert_same_bits(a, sluice.causal_conv1d(x, w[:, 0], state_cache=flat))
    assert_same_bits(same, flat)


def test_nothing_around_is_written(device: str) -> None:
    x, w = torch.randn(2, 5, 8, device=device), torch.randn(6, 5, 4, device=device)
    wide = torch.full((4, 9, 7), NAN, device=device)
    cache = wide[1:3, 2:7, 2:5]
    cache.copy_(torch.randn(2, 5, 3, device=device))
    sluice.causal_conv1d(x, w, state_cache=cache)
    assert_nothing_around_is_written(cache)
