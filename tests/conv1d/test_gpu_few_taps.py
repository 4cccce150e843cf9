"""few_taps_rows: unaligned outputs and inputs, rows that fill many blocks, histories before them."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import sluice
from common import NAN, NARROW_TYPES, SCHEDULES, TOLERANCE, contiguous, error_of_sums, permuted, sliced
from gpu_tensors import DEVICE, around, placed, randn
from marks import ON_GPU

pytestmark = ON_GPU


def gap_of(rng: random.Random, length: int) -> int:
    """Contiguous rows of one position would be channels-last."""
    return rng.choice([0, 0, 1, 2, 5]) if length > 1 else rng.choice([1, 2, 5])


def check_rows(
    rng: random.Random, sizes: tuple[int, int, int], taps: int, padding: int, offsets: tuple[int, int], dtype
) -> None:
    """`direct` and `two_stage` agree bit for bit, in a slice of a wider tensor; some cases also agree with torch."""
    length = sizes[2] + 2 * padding - taps + 1
    if length < 1:
        return
    channels, ahead, behind = sizes[1], gap_of(rng, sizes[2]), gap_of(rng, length)
    x = placed(sizes, "cf", offsets[0], ahead, NAN, dtype).copy_(randn(*sizes))
    out = placed((*sizes[:2], length), "cf", offsets[1], behind, 7.0, dtype)
    w = randn(channels, 1, taps, dtype=dtype)
    b = randn(channels, dtype=dtype) if rng.random() < 0.5 else None
    arguments, problem = (x, w, b, 1, padding, 1, channels), (sizes, taps, padding, offsets, ahead, behind, b is None)
    assert sluice.plan("conv1d", *arguments, out=out, schedule="direct").kernel == "few_taps_rows", problem
    out.fill_(NAN)
    sluice.conv1d(*arguments, out=out, schedule="direct")
    assert torch.equal(out, sluice.conv1d(*arguments, schedule="two_stage")), problem
    if rng.random() < 0.2:
        bias = None if b is None else b.double()
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), bias, 1, padding, 1, channels)
        assert error_of_sums(out, wanted, x, w, 1, padding, 1, channels) <= TOLERANCE[dtype], problem
    out.fill_(7.0)
    assert bool((around(out) == 7.0).all()), problem


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("taps", [1, 2, 3, 4])
def test_any_alignment(taps: int, dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for padding, length in itertools.product((0, 1, 3, 5), (1, 7, 33, 128, 136, 1021, 2056)):
        for _ in range(4):
            sizes = (rng.randint(1, 2), rng.choice([2, 3, 8]), length)
            check_rows(rng, sizes, taps, padding, (rng.randrange(8), rng.randrange(8)), dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_every_pair_of_alignments(dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for number, offsets in enumerate(itertools.product(range(8), range(8))):
        check_rows(rng, (1, 2, 77 + number), 2 + number % 3, (0, 1, 2, 3)[number // 3 % 4], offsets, dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 300, 16384), (2, 1100, 1030), (3, 700, 2051), (1, 1100, 4099)])
def test_many_rows(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Threads that have their maximum of words."""
    rng = random.Random(torch.initial_seed())
    for padding, taps in itertools.product((0, 1, 4), (2, 4)):
        check_rows(rng, sizes, taps, padding, (rng.randrange(8), rng.randrange(8)), dtype)
    check_rows(rng, sizes, 4, 3, (0, 0), dtype)


def check_history(rng: random.Random, length: int, taps: int, dilation: int, schedules: list[str], dtype) -> None:
    """Each schedule that takes the call agrees with float64, and all have the same bits."""
    channels, history = 5, (taps - 1) * dilation
    x = placed((2, channels, length), "cf", rng.randrange(8), gap_of(rng, length), NAN, dtype)
    x.copy_(randn(*x.shape))
    w, b = randn(channels, taps, dtype=dtype), randn(channels, dtype=dtype)
    layout = rng.choice([contiguous, permuted, sliced])
    states = layout(randn(2, channels, history, dtype=dtype))
    whole = torch.cat([states, x], 2)
    last = (1, 0, dilation, channels)
    wanted = torch.nn.functional.conv1d(whole.double(), w[:, None].double(), b.double(), *last)
    found = None
    for schedule in schedules:
        out = placed((2, channels, length), "cf", rng.randrange(8), gap_of(rng, length), 7.0, dtype)
        given = {"dilation": dilation, "initial_states": states, "schedule": schedule}
        problem = (schedule, length, taps, dilation, x.stride(), out.stride(), x.storage_offset(), layout.__name__)
        try:
            kernel = sluice.plan("causal_conv1d", x, w, b, out=out, **given).kernel
        except ValueError:  # no such schedule on this device
            continue
        if schedule == "direct":
            assert kernel == ("few_taps_rows" if dilation == 1 else "direct_rows"), problem
        out.fill_(NAN)
        sluice.causal_conv1d(x, w, b, out=out, **given)
        assert error_of_sums(out, wanted, whole, w[:, None], *last) <= TOLERANCE[dtype], problem
        found = out.clone() if found is None else found
        assert torch.equal(out, found), problem
        out.fill_(7.0)
        assert bool((around(out) == 7.0).all()), problem
    assert found is not None


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_histories_of_rows_at_any_alignment(dilation: int, dtype: torch.dtype) -> None:
    rng = random.Random(torch.initial_seed())
    for taps, length in itertools.product((2, 3, 4), (1, 2, 9, 136, 1021)):
        check_history(rng, length, taps, dilation, ["auto", *SCHEDULES], dtype)
    for _ in range(30):
        check_history(rng, rng.randint(1, 70), rng.randint(2, 4), dilation, ["direct"], dtype)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_an_output_depends_on_its_window_alone(dtype: torch.dtype) -> None:
    """An output depends neither on memory beside its row nor on the inputs of a zero tap outside it."""
    rng = random.Random(torch.initial_seed())
    for taps, padding, length in itertools.product((1, 2, 3, 4), (0, 1, 5), (61, 403)):
        x = placed((2, 7, length), "cf", rng.randrange(8), rng.choice([0, 1]), NAN, dtype)
        x.copy_(randn(2, 7, length))
        for value in (NAN, float("inf")):
            x[torch.rand(x.shape, device=DEVICE) < 0.02] = value
        w, ones = torch.rand(7, 1, taps, device=DEVICE).add(0.5).to(dtype), torch.ones(7, 1, taps, device=DEVICE)
        touched = torch.nn.functional.conv1d((~x.isfinite()).float(), ones, padding=padding, groups=7)
        result = sluice.conv1d(x, w, padding=padding, groups=7, schedule="direct")
        assert torch.equal(result.isfinite(), touched < 0.5), (taps, padding, length)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_under_sanitizers(dtype: torch.dtype) -> None:
    """Tensors fill their allocations, so that reads beside a row are detected."""
    for taps, padding, length in ((4, 3, 129), (4, 0, 133), (3, 1, 61), (2, 5, 200)):
        for channels in (1, 3):
            x, w = randn(1, channels, length, dtype=dtype), randn(channels, 1, taps, dtype=dtype)
            wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=padding, groups=channels)
            result = sluice.conv1d(x, w, padding=padding, groups=channels, schedule="direct")
            assert error_of_sums(result, wanted, x, w, 1, padding, 1, channels) <= TOLERANCE[dtype]
    x, w, states = randn(2, 3, 67, dtype=dtype), randn(3, 4, dtype=dtype), randn(2, 3, 3, dtype=dtype)
    wanted = torch.nn.functional.conv1d(torch.cat([states, x], 2).double(), w[:, None].double(), groups=3)
    result = sluice.causal_conv1d(x, w, initial_states=states)
    assert error_of_sums(result, wanted, torch.cat([states, x], 2), w[:, None], 1, 0, 1, 3) <= TOLERANCE[dtype]
