"""Equal chunks of known functions are issued by one call into C++: which, that they are right, and how they end."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sluice
from sluice import stages
from sluice.stream.known import is_known
from sluice.stream.map import loop
from sluice.stream.map.chunks import Chunks
from sluice.stream.map.work import DeviceWork
from stream_calls import ORDERS, assert_convolved_in_bfloat16, exact, stream
from stream_loops import recorded_loops

CHAIN = stages.scale(2.0) | stages.relu()
WEIGHT = torch.randn(6, 1, 5)


def convolution(device: str) -> Callable[..., torch.Tensor]:
    return functools.partial(sluice.conv1d, weight=WEIGHT.to(device), padding=2, groups=6)


pytestmark = pytest.mark.usefixtures("through_the_engine")


@pytest.fixture(params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def loops() -> Iterator[list[str]]:
    """How far each call of a loop came."""
    with recorded_loops() as (told, _):
        yield told


@pytest.mark.parametrize("size", [1, 7, 10, 25, 50, 100])
@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("staging", ["auto", "ring"])
def test_known_functions(device: str, loops: list[str], size: int, depth: int, staging: str) -> None:
    x = torch.randn(100, 33)
    for fn, wanted in ((None, x), (CHAIN, (x * 2).relu()), (functools.partial(sluice.transform, chain=CHAIN), None)):
        with sluice.Streamer(device, depth=depth) as streamer:
            for _ in range(2):
                loops.clear()
                got = streamer.map(fn, x, chunk_size=size, staging=staging)
                exact(got, (x * 2).relu() if wanted is None else wanted)
                stats = streamer.stats()
                assert stats.chunks == -(-100 // size)
                assert [times.chunk for times in stats.timeline] == list(range(stats.chunks))
                assert sum(stats.bytes_in.values()) == sum(stats.bytes_out.values()) == x.nbytes
                last = 100 % size == 0
                equal = stats.chunks - 2 + last
                assert loops[-1:] == ([f"{equal} {equal}"] if equal >= 3 else [])


def test_an_op_with_bound_arguments(device: str, loops: list[str]) -> None:
    x = torch.randn(40, 6, 300)
    got = stream(convolution(device), x, device=device, chunk_size=4)
    torch.testing.assert_close(got, torch.nn.functional.conv1d(x, WEIGHT, padding=2, groups=6), rtol=1e-4, atol=1e-5)
    assert loops[-1] == "9 9"


def test_a_chain_with_a_tensor(device: str, loops: list[str]) -> None:
    x, offset = torch.randn(100, 33), torch.randn(33)
    exact(stream(stages.add(offset.to(device)), x, device=device, chunk_size=9), x + offset)
    assert loops[-1] == "10 10"  # a slow machine needs several calls


def test_what_is_known() -> None:
    assert is_known(CHAIN)
    assert is_known(convolution("cpu"))
    assert not is_known(lambda x: x)
    assert not is_known(sluice.transform)  # needs a chain: a mistake, which the op explains
    assert not is_known(functools.partial(torch.add, other=1))
    assert not is_known(functools.partial(sluice.transform, chain=CHAIN, out=torch.ones(3)))
    assert not is_known(functools.partial(sluice.causal_conv1d, weight=WEIGHT[:, 0], return_final_states=True))


@pytest.mark.parametrize(
    "options",
    [{"order": "breadth_first"}, {"order": "sequential"}, {"chunk_size": 40}, {"halo": 40}],
    ids=lambda options: next(iter(options)),
)
def test_other_calls_take_the_other_way(device: str, loops: list[str], options: dict[str, Any]) -> None:
    x = torch.randn(100, 3)
    exact(stream(CHAIN, x, device=device, **{"chunk_size": 9, **options}), (x * 2).relu())
    assert loops == []


def test_a_converted_input_is_left_to_python(device: str, loops: list[str]) -> None:
    x = torch.randn(40, 6, 300)
    with torch.autocast(device, dtype=torch.bfloat16):
        got = stream(convolution(device), x, device=device, chunk_size=4)
    assert loops[0] == ""
    assert_convolved_in_bfloat16(got, x, WEIGHT)


def test_other_layouts(device: str, loops: list[str]) -> None:
    x = torch.randn(33, 100).t()
    for fn, wanted in ((None, x), (CHAIN, (x * 2).relu())):
        exact(stream(fn, x, device=device, chunk_size=9), wanted)
        out = torch.empty(100, 66)[:, ::2]
        exact(stream(fn, x, device=device, chunk_size=9, out=out), wanted)
        exact(
            stream(fn, torch._neg_view(x), device=device, chunk_size=9), torch._neg_view(x) if fn is None else CHAIN(-x)
        )
        exact(stream(fn, x, device=device, chunk_size=9, out=x.clone()), wanted)
    mine = x.clone()
    assert stream(CHAIN, mine, device=device, chunk_size=9, out=mine) is mine
    exact(mine, (x * 2).relu())
    assert loops
    both = stream(None, x, x + 1, device=device, chunk_size=9)
    exact(both[0], x)
    exact(both[1], x + 1)


# --- halos ------------------------------------------------------------------------------------------------------------
HALOS = [1, 3, (0, 2), (2, 0), (5, 4), (20, 1), (1, 20)]


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    """The tensor with other strides: contiguous, with the dimensions reversed in memory, with gaps."""
    return [x, x.transpose(0, 2).contiguous().transpose(0, 2), x.repeat_interleave(2, 1)[:, ::2]]


def order(x: torch.Tensor) -> list[int]:
    return sorted(range(x.dim()), key=x.stride)


@pytest.mark.parametrize("halo", HALOS, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("fn", [None, CHAIN], ids=["none", "chain"])
def test_a_halo(device: str, fn: Any, dim: int, halo: int | tuple[int, int]) -> None:
    sizes = [5, 6, 7]
    sizes[dim] = 100
    x = torch.randn(sizes)
    wanted = x if fn is None else (x * 2).relu()
    chunks = Chunks(100, 9, (halo, halo) if isinstance(halo, int) else halo)
    left_to_python = [i for i in range(1, len(chunks)) if i not in chunks.equal]
    for source in layouts(x):
        for out in (None, *map(torch.empty_like, layouts(x)), torch.empty(*sizes[:2], 2 * sizes[2])[..., ::2]):
            with recorded_loops() as (told, by_python):
                exact(stream(fn, source, device=device, dim=dim, chunk_size=9, halo=halo, out=out), wanted)
            if fn is None and order(source) != order(x if out is None else out):
                assert told == []  # the copy changes the layout
            else:
                assert told[-1] == f"{len(chunks.equal)} {len(chunks.equal)}"
                assert by_python == left_to_python


@pytest.mark.parametrize("size", [32, 50])
@pytest.mark.parametrize("given", [False, True])
def test_a_window_over_the_rows_of_other_chunks(device: str, loops: list[str], size: int, given: bool) -> None:
    x = torch.randn(3, 6, 300)
    wanted = torch.nn.functional.conv1d(x, WEIGHT, padding=2, groups=6)
    out = torch.empty_like(x) if given else None
    got = stream(convolution(device), x, device=device, dim=-1, chunk_size=size, halo=2, out=out)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    equal = Chunks(300, size, (2, 2)).equal
    assert loops[-1] == f"{len(equal)} {len(equal)}"
    image, kernel = torch.randn(2, 200, 40), torch.randn(3, 3)
    wanted = torch.nn.functional.conv2d(image[:, None], kernel[None, None], padding=1)[:, 0]
    blur = functools.partial(sluice.filter2d, kernel=kernel.to(device))
    got = stream(blur, image, device=device, dim=1, chunk_size=size // 2, halo=(1, 3))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    equal = Chunks(200, size // 2, (1, 3)).equal
    assert loops[-1] == f"{len(equal)} {len(equal)}"


def test_which_chunks_are_equal() -> None:
    for extent in range(1, 40):
        for size in range(1, extent + 1):
            for halo in ((0, 0), (1, 0), (0, 1), (3, 2), (30, 30)):
                chunks = Chunks(extent, size, halo)
                wide = size + sum(halo)
                full = [i for i in range(1, len(chunks)) if chunks[i].extent == wide and chunks[i].rows == size]
                assert list(chunks.equal) == full


def test_random_calls(device: str) -> None:
    draw = random.Random(torch.initial_seed())
    for _ in range(150):
        rows, depth = draw.randint(1, 400), draw.randint(1, 5)
        x = torch.randn(rows, draw.choice([1, 7, 256, 1000]))
        if device == "cuda" and draw.random() < 0.5:
            x = x.pin_memory()
        dim = draw.randint(0, 1)
        x = x.t() if dim else x
        fn, whole = draw.choice([(None, x), (CHAIN, (x * 2).relu())])
        options: dict[str, Any] = {"chunk_size": draw.randint(1, rows), "staging": draw.choice(["auto", "ring"])}
        if draw.random() < 0.3:
            options["memory_budget"] = 64 << 20
        if draw.random() < 0.5:
            options["halo"] = draw.choice([draw.randint(0, 9), (draw.randint(0, rows), draw.randint(0, rows))])
        if draw.random() < 0.3:
            options["out"] = torch.empty_like(x)
        exact(stream(fn, x, device=device, depth=depth, dim=dim, **options), whole)


# --- ends -------------------------------------------------------------------------------------------------------------
def test_progress_and_cancel_within_a_loop(device: str) -> None:
    x, calls = torch.randn(1000, 100), []
    exact(stream(None, x, device=device, chunk_size=10, progress=lambda *numbers: calls.append(numbers)), x)
    assert calls[-1] == (2 * x.nbytes, 2 * x.nbytes)
    with sluice.Streamer(device) as streamer:

        def cancel(done: int, total: int) -> None:
            if done < total:
                streamer.cancel()

        def call_until_cancelled() -> None:
            for _ in range(50):  # a fast machine may finish a call before it is asked
                streamer.map(CHAIN, x, chunk_size=1, progress=cancel)

        with pytest.raises(concurrent.futures.CancelledError):
            call_until_cancelled()
        exact(streamer.map(None, x), x)


def test_an_op_that_fails_within_a_loop(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(100, 8)
    call = loop._call

    def torn(work: DeviceWork, numbers: list[int], *views: Any) -> str:
        return call(work, numbers[:-1], *views)

    monkeypatch.setattr(loop, "_call", torn)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(RuntimeError, match="commands must be whole") as caught:
            streamer.map(CHAIN, x, chunk_size=9)
        assert (
            "raised by fn for chunk 1, rows 9 to 18 of dimension 0 (12 chunks) or a later one"
            in caught.value.__notes__[0]
        )
        monkeypatch.undo()
        exact(streamer.map(CHAIN, x, chunk_size=9), (x * 2).relu())


@pytest.mark.parametrize("order", ORDERS)
def test_a_callable_around_a_chain_is_not_known(device: str, loops: list[str], order: str) -> None:
    x = torch.randn(100, 3)
    exact(stream(lambda x: CHAIN(x), x, device=device, chunk_size=9, order=order), (x * 2).relu())
    assert loops == []


def test_a_call_of_the_loop_that_ends_before_it_has_stored_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    # All chunks are fetched ahead; the last chunk, which is shorter, is Python's.
    call, calls = loop._call, itertools.count()

    def too_short(work: DeviceWork, numbers: list[int], *others: Any) -> str:
        _, _, _, fetched, stored, *_ = numbers
        return f"{fetched} {stored}" if next(calls) % 3 < 2 else call(work, numbers, *others)

    monkeypatch.setattr(loop, "_call", too_short)
    x = torch.randn(9, 5)
    with sluice.Streamer("cpu", depth=8) as streamer:
        for _ in range(3):
            exact(streamer.map(CHAIN, x, chunk_size=2, staging="ring"), (x * 2).relu())
            assert streamer.stats().chunks == 5
    assert next(calls) == 9
