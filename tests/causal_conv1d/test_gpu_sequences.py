"""causal_conv1d of sequences on a GPU: the edges of its kernels' tiles, states in place, graphs, 2^31 elements."""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import sluice
from common import (
    DTYPES,
    NAN,
    NARROW_TYPES,
    Given,
    Layout,
    contiguous,
    ends_of_words,
    parts_of_positions,
    permuted,
    sliced,
)
from gpu_tensors import DEVICE, index, randn
from marks import ON_GPU
from sequence_problems import X_LAYOUTS, Draw, assert_each_close, check, counted, expected
from sluice import stages
from update_problems import assert_same_bits

pytestmark = ON_GPU

OP = "causal_conv1d"

# x's channels and layout, and the positions of a block's tile for half types (conv1d/depthwise/policy.h).
#   channels: up to four taps; a thread has four channels at 8 positions, 32 threads are side by side where there are
#             channels for them; the 33rd quad of channels is a tile of its own
#   rows:     up to four taps; a thread has a word of 8 positions, a block 64 words of a row
#   general:  a thread has 8 positions of a channel; neighbours are channels where the result is channels-last
KERNELS: dict[str, tuple[int, Layout, int]] = {
    "channels": (132, permuted, 16),
    "few channels": (8, permuted, 256),
    "rows": (3, contiguous, 512),
    "general by channels": (33, permuted, 8),
    "general by positions": (3, sliced, 1024),
}


def tile_of(kernel: str, dtype: torch.dtype) -> int:
    tile = KERNELS[kernel][2]
    return tile if kernel.startswith("general") else tile * 2 // dtype.itemsize


def check_on(kernel: str, batch: int, length: int, width: int, dtype: torch.dtype, **given: Any) -> None:
    """Checks a call of one of the kernels; `given` has `seq_idx`, `cu_seqlens` and the other options."""
    channels, layout, _ = KERNELS[kernel]
    x, bias = layout(randn(batch, channels, length, dtype=dtype)), randn(channels)
    activation = "silu" if length % 2 == 0 else None
    check(x, randn(channels, width, dtype=dtype), bias, activation=activation, **given)


def cache_of(kernel: str, count: int, columns: int, dtype: torch.dtype) -> Given:
    """A cache with one unused slot, in which the second sequence begins with zeros instead of NaN."""
    cache, slots = randn(count + 1, KERNELS[kernel][0], columns, dtype=dtype), torch.randperm(count + 1).tolist()
    cache[[*slots[1:2], slots[count]]] = NAN
    has = index([n != 1 for n in range(count)], torch.bool)
    return {"state_cache": cache, "cache_indices": index(slots[:count]), "has_initial_state": has}


def states_of(kernel: str, count: int, width: int, dtype: torch.dtype) -> Given:
    return {"initial_states": randn(count, KERNELS[kernel][0], width - 1, dtype=dtype)}


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length(kernel: str, dtype: torch.dtype) -> None:
    """None to three tiles, and every tail after them; rows, ids and starts alternate, each with other dtypes' tails."""
    tile = tile_of(kernel, dtype)
    lengths = {*range(27), *(n * tile + d for n in (1, 2, 3) for d in range(-9, 10))}
    for number, length in enumerate(sorted(size for size in lengths if size >= 0)):
        width, form = 2 + number // 3 % 3, (number + NARROW_TYPES.index(dtype)) % 3
        if form == 0:
            given = states_of(kernel, 2, width, dtype) if number % 2 else cache_of(kernel, 2, width + 1, dtype)
            check_on(kernel, 2, length, width, dtype, **given)
        elif form == 1:
            third = length // 3
            ids = index([[0] * third + [-1] * third + [4] * (length - 2 * third), [7] * length]).view(2, length)
            given = states_of(kernel, 2, width, dtype) if number % 2 else cache_of(kernel, 2, width - 1, dtype)
            check_on(kernel, 2, length, width, dtype, seq_idx=ids, **given)
        else:
            starts = index([0, length // 3, length // 3, max(length - 1, length // 3), length])
            check_on(kernel, 1, length, width, dtype, cu_seqlens=starts, **cache_of(kernel, 4, width, dtype))


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_sequence_that_begins_anywhere(kernel: str, dtype: torch.dtype) -> None:
    """In each place of words and tiles, with 1 to 5 positions: its first outputs may be in the next tile.

    The states are changed in place, by the thread in whose tile the sequence begins.
    """
    tile, shift = tile_of(kernel, dtype), NARROW_TYPES.index(dtype)
    for begin in sorted({*range(34), *range(max(tile - 9, 0), tile + 10)}):
        size, width, length = 1 + (begin + shift) % 5, 2 + (begin + shift) % 3, begin + 5 + begin % 19
        starts = index([0, begin, begin + size, length], torch.int64 if begin % 2 else torch.int32)
        columns = width - 1 + begin % 4
        check_on(kernel, 1, length, width, dtype, cu_seqlens=starts, **cache_of(kernel, 3, columns, dtype))
        check_on(kernel, 1, length, width, dtype, cu_seqlens=starts[1:-1], **states_of(kernel, 1, width, dtype))


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_ids_that_change_anywhere(kernel: str, dtype: torch.dtype) -> None:
    """The id changes one position later in each row."""
    tile = min(tile_of(kernel, dtype), 256)
    length = tile + 21
    rows = torch.tensor([*range(27), *range(tile - 5, length)], device=DEVICE)[:, None]
    places, count = torch.arange(length, device=DEVICE), len(rows)
    second = (places >= rows).int()
    for size, width in ((1, 4), (2, 3), (3, 4), (5, 2)):
        behind = places >= rows + size
        states = states_of(kernel, count, width, dtype)
        check_on(kernel, count, length, width, dtype, seq_idx=second + behind, **states)
        padded = torch.where(behind, 3, -second).long()  # 0, then padding, then 3
        cache = cache_of(kernel, count, width - 1 + size, dtype)
        check_on(kernel, count, length, width, dtype, seq_idx=padded, **cache)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_many_short_sequences(kernel: str, dtype: torch.dtype) -> None:
    """Sequences of 1 to 5 positions, alternating with any length; some without positions or without a slot."""
    for sizes in (*([n] * (60 // n) for n in range(1, 6)), [1, 0, 2, 5, 0, 0, 1, 3, 4, 1] * 4):
        starts, length = index(list(itertools.accumulate(sizes, initial=0))), sum(sizes)
        for width in (2, 4):
            cache = cache_of(kernel, len(sizes), width + len(sizes) % 2, dtype)
            skipped = torch.arange(len(sizes), device=DEVICE) % 7 == 3
            cache["cache_indices"] = cache["cache_indices"].masked_fill(skipped, -1)
            check_on(kernel, 1, length + 3, width, dtype, cu_seqlens=starts + 2, **cache)
            numbers = [n % 97 if n % 5 else -n for n, size in enumerate(sizes) for _ in range(size)]
            ids, states = index([numbers, numbers[::-1]]), states_of(kernel, 2, width, dtype)
            check_on(kernel, 2, length, width, dtype, seq_idx=ids, **states)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [*X_LAYOUTS, ends_of_words, parts_of_positions], ids=lambda f: f.__name__)
def test_taps_channels_and_layouts(layout: Layout, dtype: torch.dtype) -> None:
    """With an odd number of positions rows are unaligned."""
    taps = ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (9, 1), (1, 3), (2, 3), (4, 3))
    for number, ((width, dilation), length) in enumerate(itertools.product(taps, (13, 21, 64, 87))):
        channels, history = (1, 3, 4, 8, 35)[number % 5], (width - 1) * dilation
        x, starts = layout(randn(1, channels, length, dtype=dtype)), index([1, 3, 3, 12, length - 1])
        given: Given = {"dilation": dilation} if dilation > 1 else {}
        states = randn(4, channels, history, dtype=dtype)
        weight = randn(channels, width, dtype=dtype if length % 2 else torch.float32)
        check(x, weight, cu_seqlens=starts, initial_states=states, activation="silu", **given)
        ids = index([[5] * 6 + [-2] * 2 + [6] * (length - 8)])
        cache = layout(randn(2, channels, history + 2, dtype=dtype))
        check(x, weight, seq_idx=ids, state_cache=cache, cache_indices=index([1]), **given)


@pytest.mark.parametrize("value", [NAN, float("inf")])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_not_finite_stays_in_its_sequence(kernel: str, dtype: torch.dtype, value: float) -> None:
    """Padding, sequences without a slot, and every second sequence with its state have non-finite values."""
    channels, layout, _ = KERNELS[kernel]
    for sizes in ([3, 1, 2, 5, 8, 1, 1, 16, 4, 7, 2, 30], [1] * 30, [9, 20, 6, 17, 33]):
        count, weight = len(sizes), randn(channels, 4, dtype=dtype)
        starts = index(list(itertools.accumulate(sizes, initial=3)))
        slots = torch.arange(count, device=DEVICE).flip(0).masked_fill(torch.arange(count, device=DEVICE) % 4 == 3, -1)
        cache, x = randn(count, channels, 5, dtype=dtype), randn(1, channels, sum(sizes) + 7, dtype=dtype)
        given: Given = {"cu_seqlens": starts, "cache_indices": slots, "state_cache": cache}
        x[~counted(x, weight, given)] = value
        for n in range(1, count, 2):
            x[..., int(starts[n]) : int(starts[n + 1])] = value
            cache[count - 1 - n] = value
        result = check(layout(x), weight, activation="silu", **given)
        for n in range(0, count, 2):
            assert result[..., int(starts[n]) : int(starts[n + 1])].isfinite().all()
        numbers = [n if n % 4 != 3 else -n for n, size in enumerate(sizes) for _ in range(size)]
        ids = index([[-1] * 3 + numbers + [-1] * 4])
        result = check(layout(x), weight, seq_idx=ids, post=stages.shift(1.0))
        assert result.mT[ids >= 0].isfinite().any()
        assert result.mT[ids < 0].eq(0).all()


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_threads_with_all_the_words_or_positions_that_they_may_have(layout: Layout, dtype: torch.dtype) -> None:
    """Enough rows for an H200's threads, and positions for more than 2048 of a sequence."""
    channels, length = (192, 6144) if layout is contiguous else (72, 2080)
    lengths = [length + d for d in (-13, 0, 3)]
    for size, width in zip(lengths, (4, 3, 2), strict=True):
        x, weight = layout(randn(1, channels, size, dtype=dtype)), randn(channels, width, dtype=dtype)
        starts = index([0, 1, 500, 511, 512, 513, 516, 1024, 2040, 2047, size])
        slots, cache = index([3, 0, 9, -1, 5, 4, 8, 1, 2, 7]), randn(10, channels, width, dtype=dtype)
        check(x, weight, activation="silu", cu_seqlens=starts, state_cache=cache, cache_indices=slots)
        ids = (torch.arange(size, device=DEVICE)[None] // 61 % 9 - 1).int()
        check(x, weight, seq_idx=ids, initial_states=randn(1, channels, width - 1, dtype=dtype))
        check(x, weight, state_cache=cache[:1])


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_sequences_without_positions(layout: Layout, dtype: torch.dtype) -> None:
    """Separate blocks write their states, each for 4 sequences and 1024 channels."""
    for channels, count in ((1028, 9), (2052, 5), (4, 1), (1024, 4)):
        for length in (0, 2):
            x, weight = layout(randn(1, channels, length, dtype=dtype)), randn(channels, 4, dtype=dtype)
            starts = index([0] * (count // 2 + 1) + [length] * (count - count // 2))
            has = torch.arange(count, device=DEVICE) % 3 != 0
            cache = torch.where(has[:, None, None], randn(count, channels, 4, dtype=dtype), NAN)
            check(x, weight, cu_seqlens=starts, state_cache=cache, has_initial_state=has)
            check(x, weight, cu_seqlens=starts, initial_states=cache[..., :3])
        rows = layout(randn(count, channels, 0, dtype=dtype))
        check(rows, weight, state_cache=cache, has_initial_state=has)
        check(rows, weight, seq_idx=torch.zeros(count, 0, dtype=torch.int32, device=DEVICE))


@pytest.mark.sanitize
@pytest.mark.parametrize("number", range(3))
def test_a_few_random_calls(number: int) -> None:
    draw = Draw(torch.initial_seed() + number)
    for _ in range(13):
        arguments, options = draw.problem(DEVICE)
        if options.keys() & {"seq_idx", "cu_seqlens", "state_cache"}:  # others may run a ring (gpu_check.py)
            check(*arguments, **options)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_under_sanitizers(kernel: str, dtype: torch.dtype) -> None:
    tile = min(tile_of(kernel, dtype), 64)
    for length, width in ((tile + 1, 4), (2 * tile - 3, 3)):
        starts = index([1, 2, 2, tile - 2, tile - 1, length - 1])
        check_on(kernel, 1, length, width, dtype, cu_seqlens=starts, **cache_of(kernel, 5, width + 1, dtype))
        ids = (torch.arange(2 * length, device=DEVICE).view(2, length) // 5 % 4 - 1).int()
        check_on(kernel, 2, length, width, dtype, seq_idx=ids, **states_of(kernel, 2, width, dtype))
        check_on(kernel, 2, length, width, dtype, **cache_of(kernel, 2, width - 1, dtype))


def calls(layout: Layout) -> Iterator[tuple[torch.Tensor, torch.Tensor, Given]]:
    """Tokens, a weight and options: every form of sequences with every form of states."""
    weight, bias = randn(72, 4), randn(72)
    for form, is_paged, has_chains in itertools.product(("rows", "ids", "starts"), (False, True), (False, True)):
        given: Given = {"bias": bias, "activation": "silu"}
        x = layout(randn(1 if form == "starts" else 4, 72, 90))
        if form == "ids":
            given["seq_idx"] = (torch.arange(360, device=DEVICE).view(4, 90) // 17 % 4 - 1).int()
        if form == "starts":
            given["cu_seqlens"] = index([0, 1, 1, 40, 88])
        if has_chains:
            given |= {"pre": stages.mul(bias[:, None]), "residual": layout(torch.randn_like(x)), "post": stages.tanh()}
        if is_paged:
            given |= {"state_cache": randn(9, 72, 5), "cache_indices": index([7, 0, -1, 3])}
            given["has_initial_state"] = index([True, False, True, True], torch.bool)
        else:
            given |= {"initial_states": randn(4, 72, 3), "return_final_states": True}
        yield x, weight, given


LAYOUTS = [contiguous, permuted, sliced]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_a_call_is_one_launch_and_does_not_synchronise(layout: Layout, tmp_path: pathlib.Path) -> None:
    every, path = list(calls(layout)), tmp_path / "trace.json"

    def call_all() -> None:
        for x, weight, given in every:
            sluice.causal_conv1d(x, weight, **given)

    call_all()  # the first launch of a kernel loads it
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call_all()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call_all()
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    on_device = [event["name"] for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(on_device) == len(every) + 2  # rows with other chains than gates: a pass of `pre`, and one of the states
    assert all("sluice" in name for name in on_device)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_replays_of_a_cuda_graph(layout: Layout) -> None:
    """Tokens, starts, ids, slots and flags are read, and the cache is written, at each replay."""
    for x, weight, given in calls(layout):

        def step(**changed: torch.Tensor) -> list[torch.Tensor]:
            result = sluice.causal_conv1d(x, weight, **{**given, **changed})  # noqa: B023
            return list(result) if isinstance(result, tuple) else [result]

        cache = given.get("state_cache", randn(1))
        copies: Given = {"state_cache": cache.clone()} if "state_cache" in given else {}
        step(**copies)
        before, graph = cache.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step()
        assert_same_bits(cache, before)
        for replay in range(3):
            x.normal_()
            if "cu_seqlens" in given:
                given["cu_seqlens"].copy_(torch.randint(0, 91, (5,), device=DEVICE).sort().values)
            if "seq_idx" in given:
                given["seq_idx"].add_(1 - replay)
            if copies:
                given["cache_indices"].copy_(torch.randperm(9, device=DEVICE)[:4] - replay % 2)  # -1 is no slot
                given["has_initial_state"].logical_not_()
                copies["state_cache"].copy_(cache)
            wanted = step(**copies)
            for result in results:
                result.fill_(NAN)
            graph.replay()
            for one, other in zip([*results, cache], [*wanted, copies.get("state_cache", cache)], strict=True):
                assert_same_bits(one, other)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_repeated_calls_on_another_stream_give_the_same_bits(layout: Layout) -> None:
    side = torch.cuda.Stream()
    for x, weight, given in calls(layout):
        cache, found, tokens = given.get("state_cache"), [], x.clone()
        torch.cuda.synchronize()
        for number in range(4):
            with torch.cuda.stream(side if number > 1 else torch.cuda.current_stream()):
                own = {} if cache is None else {"state_cache": cache.clone()}
                if number > 1:  # a launch on any other stream would see other tokens
                    x.zero_()
                    torch.cuda._sleep(1_000_000)
                    x.copy_(tokens)
                result = sluice.causal_conv1d(x, weight, **{**given, **own})
            torch.cuda.synchronize()
            found.append([*(result if isinstance(result, tuple) else (result,)), *own.values()])
        for one, other in itertools.pairwise(found):
            for a, b in zip(one, other, strict=True):
                assert_same_bits(a, b)


def test_tensors_of_another_device_are_refused() -> None:
    for x, weight, given in calls(contiguous):
        named = {"weight": weight, "out": x, **given}
        if "initial_states" in given:
            named["final_states_out"] = given["initial_states"]
        for name, value in named.items():
            if not isinstance(value, torch.Tensor):
                continue
            argument = "post operand 0" if name == "residual" else name
            with pytest.raises(ValueError, match=f"^{OP}: {argument} must be on the input's device cuda:0, got cpu$"):
                sluice.causal_conv1d(x, **{"weight": weight, **given, name: value.cpu()})


@pytest.mark.large
@pytest.mark.parametrize(("channels", "width", "layout"), [
    (1024, 4, contiguous), (1024, 4, permuted), (1024, 5, contiguous), (1024, 5, permuted), (1, 4, contiguous)
])  # fmt: skip
def test_over_2_31_elements(channels: int, width: int, layout: Layout) -> None:
    length = 2**31 // channels + 4099
    shape = (1, length, channels) if layout is permuted else (1, channels, length)
    x = torch.empty(shape, device=DEVICE, dtype=torch.bfloat16).uniform_(-1, 1)
    x = x.mT if layout is permuted else x
    cut, weight = length - 3000, randn(channels, width, dtype=torch.bfloat16)
    starts, slots = index([0, cut, cut + 1, cut + 1, length - 5, length], torch.int64), index([5, 0, 3, 2, 4])
    cache = randn(6, channels, width, dtype=torch.bfloat16)
    changed = cache.clone()
    result = sluice.causal_conv1d(x, weight, cu_seqlens=starts, state_cache=changed, cache_indices=slots)
    given: Given = {"cu_seqlens": starts[1:] - cut, "state_cache": cache, "cache_indices": slots[1:]}
    wanted, states, _ = expected(x[..., cut:], weight, **given)
    assert_each_close(result[..., cut:], wanted)
    assert_same_bits(changed[:5], states[:5])
    assert_same_bits(changed[5], x[0, :, cut - width : cut])
    given = {"cu_seqlens": index([0, 2000]), "state_cache": cache, "cache_indices": slots[:1]}
    assert_each_close(result[..., :2000], expected(x[..., :2000], weight, **given)[0])
    assert not result.isnan().any()


@pytest.mark.large
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_a_cache_over_2_31_elements(layout: Layout) -> None:
    cache = torch.zeros(70_001, 8_192, 4, device=DEVICE, dtype=torch.float16)
    assert cache.numel() > 2**31
    x, weight = layout(randn(1, 8_192, 6, dtype=torch.float16)), randn(8_192, 4, dtype=torch.float16)
    given: Given = {"cu_seqlens": index([0, 2, 6]), "cache_indices": index([70_000, 69_999])}
    result = sluice.causal_conv1d(x, weight, state_cache=cache, **given)
    wanted = sluice.causal_conv1d(x, weight, cu_seqlens=given["cu_seqlens"])
    assert_same_bits(result, wanted)
    assert_same_bits(cache[70_000, :, 2:], x[0, :, :2])
    assert_same_bits(cache[69_999], x[0, :, 2:])
    assert int(cache.count_nonzero()) == int(x.count_nonzero())
