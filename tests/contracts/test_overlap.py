"""Overlap of `out` with inputs is decided by the elements, not by their address ranges."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch

import sluice
from sluice import stages

BUFFER = 4096


def addresses(tensor: torch.Tensor) -> list[int]:
    """The byte at which each element begins, one by one."""
    size, first = tensor.element_size(), tensor.storage_offset() * tensor.element_size()
    steps = itertools.product(*(range(n) for n in tensor.shape))
    return [first + size * sum(i * s for i, s in zip(at, tensor.stride(), strict=True)) for at in steps]


def bytes_of(tensor: torch.Tensor) -> set[int]:
    return {begin + i for begin in addresses(tensor) for i in range(tensor.element_size())}


def random_view(rng: random.Random, memory: torch.Tensor) -> torch.Tensor:
    """Up to 4 dimensions with any strides, nested or not, within the memory."""
    base = memory.view(rng.choice([torch.float32, torch.float16, torch.float64, torch.uint8]))
    while True:
        rank = rng.randint(0, 4)
        sizes = [rng.choice([0, 1, 2, 3, 4, 5, 7]) if rng.random() < 0.1 else rng.randint(1, 5) for _ in range(rank)]
        strides = [rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 15, 20, 30, 31, 60, 64]) for _ in range(rank)]
        offset = rng.randint(0, 64)
        reach = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if n)
        if reach < base.numel():
            return base.as_strided(sizes, strides, offset)


def test_overlap_is_exact() -> None:
    rng, memory = random.Random(7), torch.zeros(BUFFER, dtype=torch.uint8)
    found = {True: 0, False: 0}
    for _ in range(3000):
        a, b = random_view(rng, memory), random_view(rng, memory)
        expected = not bytes_of(a).isdisjoint(bytes_of(b))
        assert torch.ops.sluice._overlap(a, b) == expected, (a.shape, a.stride(), a.dtype, b.shape, b.stride(), b.dtype)
        assert torch.ops.sluice._overlap(b, a) == expected
        found[expected] += 1
    assert min(found.values()) > 300


def test_an_overlap_with_itself_is_exact() -> None:
    rng, memory = random.Random(8), torch.zeros(BUFFER, dtype=torch.uint8)
    found = {True: 0, False: 0}
    for _ in range(3000):
        view = random_view(rng, memory)
        begins = addresses(view)
        expected = len(set(begins)) < len(begins)
        assert torch.ops.sluice._overlaps_itself(view) == expected, (view.shape, view.stride())
        found[expected] += 1
    assert min(found.values()) > 300


def test_the_search_ends_and_never_misses() -> None:
    # Strides that nearly divide each other, over far more elements than could be walked.
    memory = torch.zeros(1 << 22, dtype=torch.uint8)
    a = memory.as_strided((900, 900, 900), (1001, 1003, 1007), 0)
    b = memory.as_strided((900, 900, 900), (1009, 1013, 1019), 1)
    assert torch.ops.sluice._overlap(a, b)
    assert torch.ops.sluice._overlaps_itself(a)
    even = memory.as_strided((300, 300, 300), (1002, 1006, 1010), 0)
    odd = memory.as_strided((300, 300, 300), (1014, 1018, 1022), 1)
    assert not torch.ops.sluice._overlap(even, odd)


def neighbours(device: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """name -> (x, out): of one piece of memory, without a byte in common."""
    flat, square = torch.randn(48, device=device), torch.randn(6, 12, device=device)
    return {
        "every other": (flat[::2], flat[1::2]),
        "two of three": (flat.view(-1, 3)[:, 0], flat.view(-1, 3)[:, 2]),
        "halves of rows": (square[:, :6], square[:, 6:]),
        "rows": (square[::2], square[1::2]),
        "columns": (square[:, 0], square[:, 1]),
        "transposed": (square[:, :6].t(), square[:, 6:].t()),
        "halves": (flat[:24], flat[24:]),
        "channels": (flat.view(2, 4, 6)[:, :2], flat.view(2, 4, 6)[:, 2:]),
    }


@pytest.mark.parametrize("name", neighbours("cpu"))
def test_neighbours_are_taken(device: str, name: str) -> None:
    x, out = neighbours(device)[name]
    before = x.clone()
    sluice.transform(x, stages.scale(2.0), out=out)
    assert torch.equal(out, before * 2)
    assert torch.equal(x, before)
    y = torch.randn_like(before)
    sluice.transform(y, stages.add(x), out=out)
    assert torch.equal(out, y + before)


def test_convolutions_beside_their_input(device: str) -> None:
    memory, w = torch.randn(2, 4, 32, device=device), torch.randn(4, 1, 3, device=device)
    for x, out in (
        (memory[..., ::2], memory[..., 1::2]),
        (memory[..., :16], memory[..., 16:]),
        (memory.transpose(1, 2)[:, :4, :16], memory.transpose(1, 2)[:, 4:8, :16]),
    ):
        taps = w[: x.shape[1]]
        groups, copy = x.shape[1], x.clone()
        expected = sluice.conv1d(copy, taps, padding=1, groups=groups)
        sluice.conv1d(x, taps, padding=1, groups=groups, out=out)
        torch.testing.assert_close(out, expected)
        assert torch.equal(x, copy)
        expected = sluice.causal_conv1d(copy, taps[:, 0])
        sluice.causal_conv1d(x, taps[:, 0], out=out)
        torch.testing.assert_close(out, expected)
        expected = sluice.filter2d(copy, taps[0])
        sluice.filter2d(x, taps[0], out=out)
        torch.testing.assert_close(out, expected)
        assert torch.equal(x, copy)


def refused(device: str) -> dict[str, tuple[str, Callable[[], object]]]:
    flat, x, w = torch.randn(64, device=device), torch.randn(2, 4, 9, device=device), torch.randn(4, 3, device=device)
    silu, causal = stages.silu(), sluice.causal_conv1d
    rows = torch.randn(16, device=device).as_strided((3, 4), (2, 1))
    states = torch.randn(2, 4, 2, device=device)
    memory = torch.empty(2, 4, 9, device=device)
    shared = torch.empty(2, 4, 1, device=device).expand(2, 4, 2)
    return {
        "one further": ("out must not overlap input", lambda: sluice.transform(flat[:-1], silu, out=flat[1:])),
        "rows by columns": (
            "out must not overlap input",
            lambda: sluice.transform(flat.view(8, 8), silu, out=flat.view(8, 8).t()),
        ),
        "bytes of another dtype": (
            "out must not overlap input",
            lambda: sluice.transform(flat[::2], silu, dtype=torch.float16, out=flat.view(torch.float16)[1:-2:4][:32]),
        ),
        "rows within rows": (
            r"out must not have two elements at one address, got strides \(2, 1\) for shape \(3, 4\)",
            lambda: sluice.transform(torch.zeros(3, 4, device=device), silu, out=rows),
        ),
        "expanded states": (
            "final_states_out must not have two elements at one address",
            lambda: causal(x, w, final_states_out=shared),
        ),
        "expanded states with out": (
            "final_states_out must not have two elements at one address",
            lambda: causal(x, w, final_states_out=shared, out=memory),
        ),
        "states in out": (
            "final_states_out must not overlap out",
            lambda: causal(x, w, final_states_out=memory[..., -2:], out=memory),
        ),
        "states in x": ("final_states_out must not overlap x", lambda: causal(x, w, final_states_out=x[..., 3:5])),
        "states in x, and out": (
            "final_states_out must not overlap x",
            lambda: causal(x, w, final_states_out=x[..., 3:5], out=memory),
        ),
        "states in states": (
            "final_states_out must not overlap initial_states",
            lambda: causal(x, w, initial_states=states, final_states_out=states.as_strided((2, 4, 2), (8, 1, 4))),
        ),
    }


@pytest.mark.parametrize("name", refused("cpu"))
def test_what_overlaps_is_refused_before_anything_is_written(device: str, name: str) -> None:
    text, call = refused(device)[name]
    with pytest.raises(ValueError, match=text):
        call()


def test_nothing_is_written_where_the_states_do_not_fit(device: str) -> None:
    x, w, out = (
        torch.randn(2, 4, 9, device=device),
        torch.randn(4, 3, device=device),
        torch.zeros(2, 4, 9, device=device),
    )
    for states in (out[..., -2:], x[..., -2:], torch.zeros(2, 4, 3, device=device), out[0, 0, 0].expand(2, 4, 2)):
        with pytest.raises(ValueError, match="causal_conv1d: final_states_out must"):
            sluice.causal_conv1d(x, w, final_states_out=states, out=out)
        assert not out.any()
    beside = torch.zeros(2, 4, 11, device=device)
    result, states = sluice.causal_conv1d(x, w, out=beside[..., :9], final_states_out=beside[..., 9:])
    torch.testing.assert_close(result, sluice.causal_conv1d(x, w))
    assert torch.equal(states, x[..., -2:])
