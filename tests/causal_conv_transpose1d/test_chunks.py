"""causal_conv_transpose1d: whole rows, and chunks with overlaps in the slots of a cache."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import sluice
from chunk_problems import TOLERANCE, X_LAYOUTS, Draw, check_chunk, error_of, history_of
from common import DTYPES, NAN, Layout, permuted
from sluice import stages
from sluice.pack import pack_transposed
from update_problems import assert_nothing_around_is_written, assert_same_bits

OP = "causal_conv_transpose1d"


def overlap_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_rows(device: str, dtype: torch.dtype, layout: Layout) -> None:
    """The first results of torch's transposed convolution; with gaps after the last tap where K < stride."""
    for taps, stride, dilation, groups in itertools.product((1, 2, 4, 7), (1, 2, 5), (1, 3), (1, 2)):
        x = layout(torch.randn(2, 6, 5, device=device).to(dtype))
        w = (torch.randn(6, 4 // groups, taps, device=device) / (6 * taps) ** 0.5).to(dtype)
        b, numbers = torch.randn(4, device=device).to(dtype), {"stride": stride, "dilation": dilation, "groups": groups}
        result = check_chunk(OP, x, w, b, **numbers)
        whole = F.conv_transpose1d(x.double(), w.double(), b.double(), stride, 0, 0, groups, dilation)
        wanted = b.double()[:, None].expand(2, 4, 5 * stride).clone()
        shared = min(whole.shape[2], wanted.shape[2])
        wanted[..., :shared] = whole[..., :shared]
        assert error_of(result, wanted) <= TOLERANCE[dtype]
        check_chunk(OP, x, w, b, pre=stages.shift(1.0), post=stages.silu(), **numbers)


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_chunk(device: str, dtype: torch.dtype, layout: Layout) -> None:
    """Chunks whose results are fewer than the overlap's columns, and more; caches that are wider than it."""
    for length, more, (taps, stride, dilation) in itertools.product(
        (1, 2, 9), (0, 4), ((1, 1, 1), (1, 3, 1), (3, 1, 1), (7, 2, 2), (4, 6, 1), (7, 1, 3), (16, 8, 1))
    ):
        columns = history_of(OP, taps, stride, dilation) + more
        x = layout(torch.randn(3, 10, length, device=device).to(dtype))
        w = (torch.randn(10, 6, taps, device=device) / (10 * taps) ** 0.5).to(dtype)
        b, cache = torch.randn(6, device=device).to(dtype), torch.randn(3, 6, columns, device=device)
        check_chunk(
            OP, x, w, b, stride=stride, dilation=dilation, overlap_cache=cache.to(overlap_type(dtype)),
            has_initial_state=torch.tensor([True, False, True], device=device), pre=stages.elu(),
            post=stages.shift(1.0),
        )  # fmt: skip


@pytest.mark.parametrize("layout", X_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_depthwise_chunk(device: str, dtype: torch.dtype, layout: Layout) -> None:
    """A GPU needs one launch up to 256 sums of a channel; the last lengths have so many, and more."""
    for (taps, stride, dilation, multiple), length in itertools.product(
        ((4, 2, 1, 1), (1, 1, 1, 2), (3, 1, 4, 1), (2, 5, 1, 3), (7, 3, 2, 1)), (1, 3, 40, 127, 128)
    ):
        columns = history_of(OP, taps, stride, dilation) + length % 2
        x = layout(torch.randn(3, 70, length, device=device).to(dtype))
        w = (torch.randn(70, multiple, taps, device=device) / taps**0.5).to(dtype)
        b, gate = torch.randn(70 * multiple, device=device).to(dtype), torch.rand(70, 1, device=device).to(dtype)
        given = {"stride": stride, "dilation": dilation, "groups": 70}
        given |= {"has_initial_state": torch.tensor([True, False, True], device=device)}
        given |= {"cache_indices": torch.tensor([4, 0, -1], device=device)}
        cache = torch.randn(5, 70 * multiple, columns, device=device).to(overlap_type(dtype))
        check_chunk(OP, x, w, b, overlap_cache=cache, **given)
        check_chunk(
            OP, x, w, None, overlap_cache=permuted(cache), pre=stages.mul(gate), post=stages.elu() | stages.shift(1.0),
            **given,
        )  # fmt: skip


def test_operands_of_pre_may_vary_along_positions(device: str) -> None:
    """Nothing before the chunk meets them, for overlaps are sums; also with a packed weight."""
    for dtype, length in itertools.product((torch.float32, torch.bfloat16), (1, 5)):
        x, gate = (
            torch.randn(2, 24, length, device=device).to(dtype),
            torch.rand(2, 24, length, device=device).to(dtype),
        )
        w, cache = (torch.randn(24, 6, 4, device=device) / 7).to(dtype), torch.randn(2, 6, 2, device=device)
        given = {"stride": 2, "pre": stages.mul(gate)}
        mine, again = cache.clone(), cache.clone()
        result = sluice.causal_conv_transpose1d(x * gate, w, overlap_cache=mine, stride=2)
        for weight in (w, pack_transposed(w, None, 2, 1, channels_last=False)):
            found = again.clone()
            packed = sluice.causal_conv_transpose1d(x, weight, overlap_cache=found, **given)
            assert error_of(packed, result) <= TOLERANCE[dtype]
            assert error_of(found, mine) <= 4 * TOLERANCE[dtype]


def test_slots(device: str) -> None:
    """Rows without a slot have zeros and change nothing, also where x or their overlap is not a number."""
    cache = torch.full((6, 7, 3), NAN, device=device)
    cache[[4, 0]] = torch.randn(2, 7, 3, device=device)
    x, w, b = torch.randn(4, 5, 6, device=device), torch.randn(5, 7, 4, device=device), torch.randn(7, device=device)
    x[[1, 3]] = NAN
    for index_type, wrong in itertools.product((torch.int32, torch.int64), (-1, 6, 99, 2)):
        slots = torch.tensor([4, wrong, 0, -1], device=device, dtype=index_type)
        result = check_chunk(
            OP, x, w, b, stride=2, overlap_cache=permuted(cache), cache_indices=slots, null_slot_id=2,
            pre=stages.shift(1.0), post=stages.shift(1.0),
        )  # fmt: skip
        assert not result[[1, 3]].any()
        assert result[[0, 2]].isfinite().all()


def test_drawn_calls(device: str) -> None:
    draw = Draw(torch.initial_seed())
    for _ in range(120):
        problem = draw.convolution(OP, device, keeps_zeros=False)
        given, batch, w = problem["given"], draw.choice([1, 3]), problem["weight"]
        x = torch.randn(batch, problem["inputs"], draw.choice([1, 2, 5, 40]), device=device).to(w.dtype)
        if draw.random() < 0.8:
            slots = batch + draw.choice([0, 2])
            given["overlap_cache"] = draw.cache(OP, slots, problem, device)
            if slots != batch:
                names = draw.sample(range(-1, slots), batch)
                given["cache_indices"] = torch.tensor(names, dtype=torch.int32, device=device)
            if draw.random() < 0.5:
                given["has_initial_state"] = torch.rand(batch, device=device) < 0.5
        check_chunk(OP, draw.choice(X_LAYOUTS)(x), w, problem["bias"], **given)


def test_any_cut_gives_the_whole_row(device: str) -> None:
    draw = Draw(torch.initial_seed())
    for _ in range(120):
        problem = draw.convolution(OP, device, keeps_zeros=False)
        given, w, b = problem["given"], problem["weight"], problem["bias"]
        x = draw.choice(X_LAYOUTS)(torch.randn(2, problem["inputs"], 24, device=device).to(w.dtype))
        cache, slots = draw.cache(OP, 5, problem, device), torch.tensor([3, 0], device=device)
        around, flags = cache[[1, 2, 4]].clone(), torch.tensor([False, False], device=device)
        parts = []
        for chunk in x.split(draw.cut(24, 1), dim=-1):
            parts.append(
                sluice.causal_conv_transpose1d(
                    chunk, w, b, overlap_cache=cache, cache_indices=slots, has_initial_state=flags, **given
                )
            )
            flags = torch.tensor([True, True], device=device)
        whole = sluice.causal_conv_transpose1d(x, w, b, **given)
        assert error_of(torch.cat(parts, dim=-1), whole) <= 2 * TOLERANCE[w.dtype]
        assert_same_bits(cache[[1, 2, 4]], around)


def test_the_bias_is_added_once(device: str) -> None:
    x, w = torch.zeros(1, 3, 4, device=device), torch.randn(3, 2, 8, device=device)
    cache, b = torch.zeros(1, 2, 6, device=device), torch.tensor([1.0, -2.0], device=device)
    for _ in range(3):
        result = sluice.causal_conv_transpose1d(x, w, b, stride=2, overlap_cache=cache)
        assert torch.equal(result, b[:, None].expand(1, 2, 8))
        assert not cache.any()


def test_sums_of_half_types_stay_float32(device: str) -> None:
    """Overlaps are not rounded to x's dtype: results are as near as the whole row's."""
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(1, 64, 12, device=device).to(dtype)
        w = (torch.randn(64, 8, 16, device=device) / 32).to(dtype)
        cache = torch.zeros(1, 8, 14, device=device)
        chunks = [sluice.causal_conv_transpose1d(c, w, stride=2, overlap_cache=cache) for c in x.split(1, -1)]
        wanted = sluice.reference.causal_conv_transpose1d(x.double(), w.double(), stride=2)[0]
        assert error_of(torch.cat(chunks, -1), wanted) <= TOLERANCE[dtype] / 2
        assert error_of(cache, F.conv_transpose1d(x.double(), w.double(), stride=2)[..., 24:]) <= 1e-5


def test_nothing_around_is_written(device: str) -> None:
    x, w = torch.randn(2, 5, 8, device=device), torch.randn(5, 6, 4, device=device)
    wide = torch.full((4, 9, 9), NAN, device=device)
    cache = wide[1:3, 2:8, 3:6]
    cache.copy_(torch.randn(2, 6, 3, device=device))
    sluice.causal_conv_transpose1d(x, w, stride=1, overlap_cache=cache)
    assert_nothing_around_is_written(cache)
