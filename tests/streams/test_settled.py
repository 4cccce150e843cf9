"""A Streamer remembers sizes from a call for the next identical one, by the callable, which is not kept alive."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sluice
from sluice.stream.device.engine import EngineDevice
from sluice.stream.device.lent import Settled
from sluice.stream.map.work import DeviceWork
from stream_calls import two

Fn = Callable[..., Any]


@pytest.mark.usefixtures("through_the_engine")
def test_chunks_are_copied_ahead_of_the_first_result(device: str) -> None:
    x, seen, room = torch.randn(100, 4), [], [True]

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append(("compute", len(x)))
        if not room[0] and len(x) > 13:
            raise torch.OutOfMemoryError("no room")
        return x + 1

    class Seen(EngineDevice):
        def fetch(self, *arguments: Any) -> None:
            seen.append(("fetch", 0))
            super().fetch(*arguments)

    def before_first_call() -> int:
        count = [kind for kind, _ in seen].index("compute")
        seen.clear()
        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.stream.device.lender.EngineDevice", Seen)
        with sluice.Streamer(device, depth=3) as streamer:
            counts = []
            for order in ("depth_first", "depth_first", "sequential", "breadth_first"):
                assert torch.equal(streamer.map(fn, x, chunk_size=25, order=order), x + 1)
                counts.append(before_first_call())
            assert counts == [3, 3, 1, 1]
            assert torch.equal(streamer.map(fn, x, chunk_size=60, halo=2), x + 1)
            assert before_first_call() == 2  # all
            room[0] = False  # chunks in flight are dropped, and divided again
            assert torch.equal(streamer.map(fn, x, chunk_size=25), x + 1)
            assert [rows for kind, rows in seen if kind == "compute"] == [25, *[13] * 7, 9]
            assert before_first_call() == 3
            assert torch.equal(streamer.map(fn, x, chunk_size=25), x + 1)  # again 13 rows from the start
            assert before_first_call() == 3
        room[0] = True
        with sluice.Streamer(device, depth=3, memory_budget=64 << 20) as streamer:
            counts = []
            for _ in range(2):  # with a budget, only an identical call knows that the chunks fit
                assert torch.equal(streamer.map(fn, x, chunk_size=25), x + 1)
                counts.append(before_first_call())
            assert counts == [1, 3]
        with sluice.Streamer([f"{device}:0"], depth=1) as streamer:
            assert torch.equal(streamer.map(fn, x, chunk_size=25), x + 1)
            assert before_first_call() == 1


@pytest.mark.usefixtures("through_the_engine")
def test_several_devices_copy_one_chunk_ahead(device: str) -> None:
    x, ahead = torch.randn(100, 4), []
    fetch_ahead = DeviceWork.fetch_ahead

    def seen(self: DeviceWork, count: int) -> None:
        fetch_ahead(self, count)
        ahead.append([flight.item.chunk.index for flight in self.fetched_ahead])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceWork, "fetch_ahead", seen)
        with sluice.Streamer(two(device), depth=4) as streamer:
            for _ in range(2):
                assert torch.equal(streamer.map(lambda x: x + 1, x, chunk_size=5), x + 1)
    assert ahead == [[1], [1]]


@pytest.mark.usefixtures("through_the_engine")
def test_an_error_for_the_first_chunk_is_told_as_its_own(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("broken")

    note = "stream_map: raised by fn for chunk 0, rows 0 to 5 of dimension 0 (20 chunks)"
    with sluice.Streamer(device) as streamer:
        for _ in range(2):
            with pytest.raises(KeyError, match="broken") as caught:
                streamer.map(fn, torch.ones(100, 4), chunk_size=5)
            assert caught.value.__notes__ == [note]
        assert torch.equal(streamer.map(torch.neg, torch.ones(100, 4), chunk_size=5), -torch.ones(100, 4))


class Scaler(torch.nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return self(x)  # type: ignore[no-any-return]


class Slotted:
    """It has no weak references."""

    __slots__ = ()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def wide(columns: int) -> Fn:
    return lambda x: x.repeat(1, columns)


def callables() -> dict[str, Fn]:
    module = Scaler()
    return {
        "function": wide(2),
        "builtin": torch.square,
        "module": module,
        "bound method": module.scale,
        "partial": functools.partial(torch.mul, other=2.0),
        "compiled module": torch.compile(module, backend="eager"),
        "compiled function": torch.compile(lambda x: x + 1, backend="eager"),
        "method of a builtin type": torch.Tensor.square,
        "object without weak references": Slotted(),
    }


@pytest.mark.parametrize("name", callables())
def test_a_callable_is_known_again_by_itself(name: str, device: str) -> None:
    fn, other, settled = callables()[name], callables()[name], Settled()
    settled.keep(fn, "problem", 7)
    assert settled.rows_for(fn, "problem") == 7
    assert settled.rows_for(fn, "another problem") is None
    if name not in ("builtin", "method of a builtin type"):  # there is one of each
        assert settled.rows_for(other, "problem") is None
    x = torch.rand(60, 3)
    with sluice.Streamer(device, memory_budget=6 * 2**21) as streamer:
        sizes = set()
        for _ in range(3):
            torch.testing.assert_close(streamer.map(fn, x), fn(x))
            sizes.add(streamer.stats().chunk_size)
    assert len(sizes) == 1


def test_another_access_gives_a_bound_method_that_is_known() -> None:
    module, settled = Scaler(), Settled()
    settled.keep(module.scale, "problem", 7)
    assert settled.rows_for(module.scale, "problem") == 7
    assert settled.rows_for(module.forward, "problem") is None
    assert settled.rows_for(Scaler().scale, "problem") is None


@pytest.mark.parametrize("make", [wide, Scaler, lambda n: Scaler(n).scale, lambda n: functools.partial(torch.mul, n)])
def test_a_callable_is_not_kept_alive(make: Callable[[int], Fn], device: str) -> None:
    fn = make(3)
    owner = weakref.ref(getattr(fn, "__self__", fn))
    with sluice.Streamer(device) as streamer:
        streamer.map(fn, torch.rand(10, 2), chunk_size=5)
        del fn
        gc.collect()
        assert owner() is None


def test_what_has_no_weak_references_is_let_go_with_the_slots() -> None:
    settled, fn = Settled(), Slotted()
    settled.keep(fn, "problem", 7)
    settled.let_go()
    assert settled.rows_for(fn, "problem") is None


def test_the_id_of_a_callable_that_is_gone_is_no_sign_of_it(device: str) -> None:
    x, budget = torch.rand(4000, 256), 24 * 2**20

    def chunk_size(streamer: sluice.Streamer, fn: Fn) -> int:
        streamer.map(fn, x, chunk_size=len(x))  # the budget makes chunks smaller
        return streamer.stats().chunk_size

    with sluice.Streamer(device, memory_budget=budget) as streamer:
        wanted = chunk_size(streamer, wide(1))
    with sluice.Streamer(device, memory_budget=budget) as streamer:
        large = wide(8)
        assert chunk_size(streamer, large) < wanted
        number = id(large)
        del large
        gc.collect()
        others = []
        while id(again := wide(1)) != number and len(others) < 10_000:
            others.append(again)
        assert id(again) == number, "no other function was given its number"
        assert chunk_size(streamer, again) == wanted
