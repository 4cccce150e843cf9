"""causal_conv1d of rows with padding, which has negative ids, beside each of their sequences by itself."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, NAN, NARROW_TYPES, Layout, contiguous, permuted, sliced
from sequence_calls import ints
from sequence_problems import assert_each_close, projected, strided
from sluice import stages
from update_problems import INDEX_TYPES, assert_same_bits

# Channels and layouts for which a GPU has different kernels (KERNELS of test_gpu_sequences.py).
FORMS: dict[str, tuple[int, Layout]] = {
    "channels": (132, permuted),
    "few channels": (8, permuted),
    "rows": (3, contiguous),
    "general by channels": (33, permuted),
    "general by positions": (3, sliced),
}


def runs_of(ids: list[int]) -> list[tuple[int, int]]:
    """The start and the end of each run of equal ids that are not negative."""
    found, start = [], 0
    for number, run in itertools.groupby(ids):
        end = start + len(list(run))
        found += [(start, end)] if number >= 0 else []
        start = end
    return found


def by_themselves(
    tokens: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, before: torch.Tensor, dilation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of each sequence, convolved after its history, and the final states."""
    history = (weight.shape[1] - 1) * dilation
    sums, after = torch.zeros_like(tokens), before.clone()
    for b, row in enumerate(ids.tolist()):
        kept = before[b]
        for start, end in runs_of(row):
            columns = torch.cat([kept, tokens[b, :, start:end]], dim=-1)
            read = columns[None, :, kept.shape[1] - history :]
            sums[b, :, start:end] = F.conv1d(read, weight[:, None], dilation=dilation, groups=len(weight))[0]
            after[b] = columns[:, end - start :]
            kept = torch.zeros_like(kept)
    return sums, after


def check_padded(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    ids: torch.Tensor,
    *,
    dilation: int = 1,
    activation: str | None = None,
    gate: torch.Tensor | None = None,
    back: torch.Tensor | None = None,
    more: int = 0,
) -> None:
    """Checks calls with states of every form, and a cache of `more` columns. Padding becomes NaN in x and operands."""
    padding = (ids < 0)[:, None].expand(x.shape)
    for tensor in (x, gate, back):
        if tensor is not None:
            tensor.masked_fill_(padding, NAN)
    given: dict[str, Any] = {"seq_idx": ids, "dilation": dilation, "activation": activation}
    given |= {"pre": stages.mul(gate)} if gate is not None else {}
    given |= {"post": stages.mul(back)} if back is not None else {}
    tokens = x if gate is None else (x.double() * gate.double()).to(x.dtype)

    def wanted(before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sums, after = by_themselves(tokens.double(), weight.double(), ids, before.double(), dilation)
        y = sums if bias is None else sums + bias.double()[:, None]
        y = F.silu(y) if activation == "silu" else y
        return (y if back is None else y * back.double()).masked_fill(padding, 0), after.to(x.dtype)

    def compare(result: torch.Tensor, y: torch.Tensor) -> None:
        assert_each_close(result, y)
        assert not result[padding].any()

    batch, channels, _ = x.shape
    columns = (weight.shape[1] - 1) * dilation
    states = torch.randn(batch, channels, columns, device=x.device).to(x.dtype)
    for initial in (states, None):
        y, after = wanted(torch.zeros_like(states) if initial is None else initial)
        result, final = sluice.causal_conv1d(
            x, weight, bias, initial_states=initial, return_final_states=True, **given
        )  # fmt: skip
        compare(result, y)
        assert_same_bits(final, after)
    y, after = wanted(states)
    compare(sluice.causal_conv1d(x, weight, bias, initial_states=states, final_states_out=states, **given)[0], y)
    assert_same_bits(states, after)

    cache = torch.randn(batch + 1, channels, columns + more, device=x.device).to(x.dtype)
    rows = torch.arange(batch, device=x.device)
    slots, has, is_skipped = torch.randperm(batch + 1, device=x.device)[:batch], rows % 3 != 1, rows % 5 == 4
    cache[slots[~has]] = NAN
    y, after = wanted(torch.where(has[:, None, None], cache[slots], 0))
    y[is_skipped] = 0
    kept, names = cache.clone(), slots.masked_fill(is_skipped, -1).int()
    kept[slots[~is_skipped]] = after[~is_skipped]
    compare(
        sluice.causal_conv1d(
            x, weight, bias, state_cache=cache, cache_indices=names, has_initial_state=has, **given
        ), y,
    )  # fmt: skip
    assert_same_bits(cache, kept)


def check_form(form: str, ids: torch.Tensor, width: int, dtype: torch.dtype, **given: Any) -> None:
    channels, layout = FORMS[form]
    channels = channels if ids.is_cuda else min(channels, 33)  # the CPU has one kernel
    x = layout(torch.randn(len(ids), channels, ids.shape[1], device=ids.device).to(dtype))
    weight, bias = (torch.randn(*shape, device=ids.device).to(dtype) for shape in ((channels, width), (channels,)))
    check_padded(x, weight, bias, ids, **given)


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=str)
def test_padding_by_hand(device: str, index_type: torch.dtype, layout: Layout) -> None:
    """Padding before a sequence, after it, and within it, which makes two of it; or nothing else."""
    before, w = torch.full((4, 4, 2), 10.0, device=device), torch.ones(4, 3, device=device)
    rows = torch.tensor([[90.0, 91, 92, 1, 2, 3], [1, 2, 3, 90, 91, 92], [1, 2, 90, 91, 3, 4], [90.0] * 6])
    x = layout(rows[:, None].expand(4, 4, 6).to(device).contiguous())
    ids = ints([[-1] * 3 + [0] * 3, [0] * 3 + [-1] * 3, [0, 0, -1, -2, 0, 0], [-1] * 6], device, index_type)
    result, final = sluice.causal_conv1d(x, w, seq_idx=ids, initial_states=before, return_final_states=True)
    wanted = [[0, 0, 0, 21, 13, 6], [21, 13, 6, 0, 0, 0], [21, 13, 0, 0, 3, 7], [0] * 6]
    assert result[:, 2].tolist() == wanted
    assert final[:, 2].tolist() == [[2, 3], [2, 3], [3, 4], [10, 10]]
    final = sluice.causal_conv1d(x, w, seq_idx=ids, return_final_states=True)[1]
    assert final[:, 2].tolist() == [[2, 3], [2, 3], [3, 4], [0, 0]]
    has, cache = ints([True, False, True, False], device, torch.bool), before.clone()
    cache[~has] = NAN
    result = sluice.causal_conv1d(x, w, seq_idx=ids, state_cache=cache, has_initial_state=has)
    assert result[:, 2].tolist() == [wanted[0], [1, 3, 6, 0, 0, 0], wanted[2], wanted[3]]
    assert cache[:, 2].tolist() == [[2, 3], [2, 3], [3, 4], [0, 0]]


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_padding(device: str, form: str) -> None:
    """No sequence at all: states stay as they are, to the bit, or become zeros where there was no initial state."""
    channels, layout = FORMS[form]
    for length, dtype in itertools.product((0, 1, 9, 70), NARROW_TYPES):
        x = layout(torch.full((3, channels, length), NAN, device=device, dtype=dtype))
        w, ids = torch.randn(channels, 4, device=device).to(dtype), ints([[-1] * length] * 3, device).view(3, length)
        states = torch.randn(3, channels, 3, device=device).to(dtype)
        states[1] = NAN
        kept, has = states.clone(), ints([True, True, False], device, torch.bool)
        result, final = sluice.causal_conv1d(x, w, seq_idx=ids, initial_states=states, return_final_states=True)
        assert not result.any()
        assert_same_bits(final, kept)
        sluice.causal_conv1d(x, w, seq_idx=ids, initial_states=states, final_states_out=states)
        assert_same_bits(states, kept)
        kept[2] = 0
        sluice.causal_conv1d(x, w, seq_idx=ids, state_cache=states, has_initial_state=has)
        assert_same_bits(states, kept)


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_rows_of_padding_among_others(device: str, layout: Layout) -> None:
    """On a GPU separate blocks write their zeros in a cache, each for 4 rows and 1024 channels."""
    for channels, batch in ((1028, 9), (2052, 5), (4, 1)):
        rows = [[-1] * 5 if b % 4 != 2 else [-1, 0, 0, -1, -1] for b in range(batch)]
        x, weight = layout(torch.randn(batch, channels, 5, device=device)), torch.randn(channels, 4, device=device)
        check_padded(x, weight, None, ints(rows, device), more=channels % 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_between_padding_anywhere(device: str, form: str, dtype: torch.dtype) -> None:
    """At each place of a GPU's words and tiles; a second sequence may follow, with the same id or another."""
    begins = [*range(19), *range(61, 67), *range(250, 258), *range(507, 514)]
    begins = begins if device == "cuda" else [0, 1, 2, 3, 9, 17, 62, 65, 253, 256, 510, 513]
    for size, width in ((1, 4), (2, 3), (3, 5), (9, 2)):
        rows = [[-1] * a + [5] * size + [-3] * (1 + a % 4) + [5 + a % 2] * (a % 6) + [-1] * 530 for a in begins]
        ids = ints([row[:530] for row in rows], device)
        check_form(form, ids, width, dtype, more=size % 3)


@pytest.mark.parametrize("form", FORMS)
def test_long_padding(device: str, form: str) -> None:
    """Over a thousand positions before a sequence, after it, on both sides, and between two sequences."""
    length = 2611
    rows = []
    for size in (1, 2, 4, 700) if device == "cuda" else (2, 700):
        rest = length - size
        rows += [[-1] * rest + [0] * size, [0] * size + [-1] * rest, [-1] * 1201 + [0] * size + [-1] * (rest - 1201)]
        rows.append([3] * size + [-1] * (rest - 2) + [3] * 2)
    for number, ids in enumerate((ints(rows, device), ints(rows, device, torch.int64), strided(ints(rows, device)))):
        check_form(form, ids, 4 - number % 3, DTYPES[number], more=number)


def padded_ids(draw: random.Random, length: int) -> list[int]:
    """Padding at either end of a row in most cases, short sequences, and padding between them."""
    ids = [-1] * draw.choice([0, 0, draw.randrange(8), draw.randint(0, length)])
    while len(ids) < length:
        ids += [draw.choice([0, 1, 2**31 - 1, -1, -(2**31)])] * draw.randint(1, draw.choice([3, 9, 40]))
    behind = draw.choice([0, 0, draw.randrange(8), draw.randint(0, length), length])
    return [*ids[: max(length - behind, 0)], *[-2] * behind][:length]


@pytest.mark.parametrize("number", range(80))
def test_random_padding(device: str, number: int) -> None:
    draw = random.Random(f"{torch.initial_seed()} {number}")
    width, dilation, dtype = draw.randint(2, 5), draw.choice([1, 1, 1, 2, 3]), draw.choice(DTYPES)
    batch, channels, layout = draw.randint(1, 6), draw.choice([1, 3, 8, 33, 132]), draw.choice([contiguous, permuted])
    layout = draw.choice([layout, layout, layout, projected, sliced])
    length = draw.choice([0, 1, 2, 3, 5, 8, draw.randint(0, 40), draw.randint(0, 300)])
    ids = ints([padded_ids(draw, length) for _ in range(batch)], device, draw.choice(INDEX_TYPES)).view(batch, length)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    operands = {name: layout(values(batch, channels, length)) for name in ("gate", "back") if draw.random() < 0.3}
    check_padded(
        layout(values(batch, channels, length)), values(channels, width), draw.choice([None, values(channels)]),
        strided(ids) if draw.random() < 0.2 else ids, dilation=dilation, activation=draw.choice([None, "silu"]),
        more=draw.choice([0, 0, 1, 3]), **operands,
    )  # fmt: skip


def test_a_module_with_gradients(device: str) -> None:
    """Its results at padding are zeros, although its chain does not keep zeros."""
    layer = sluice.nn.CausalConv1d(6, 4, post=torch.nn.Sigmoid()).to(device)
    x, states = torch.randn(2, 6, 9, device=device), torch.randn(2, 6, 3, device=device)
    ids = ints([[-1] * 3 + [0] * 4 + [-1] * 2, [4] * 2 + [-1] * 7], device)
    trained, final = layer(x, seq_idx=ids, initial_states=states, return_final_states=True)
    assert trained.requires_grad
    with torch.no_grad():
        result, own = layer(x, seq_idx=ids, initial_states=states, return_final_states=True)
        packed = layer(x[:1], cu_seqlens=ints([2, 5], device))
    assert not trained.mT[ids < 0].any()
    torch.testing.assert_close(trained.detach(), result)
    torch.testing.assert_close(final.detach(), own)
    torch.testing.assert_close(layer(x[:1], cu_seqlens=ints([2, 5], device)).detach(), packed)
