"""Streamers: budgets, several devices, threads, futures, steady state."""

from __future__ import annotations

import copy
import pickle
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sluice
from sluice.stream.device.engine import D2H, EngineDevice
from sluice.stream.device.layout import charged
from sluice.stream.map.chunks import automatic_size
from stream_calls import two
from stream_fuzz import DelayedEngine

SIZE = 1000


# --- budgets --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [None, 100])
@pytest.mark.parametrize("columns", [1, 2, 7])
def test_a_memory_budget_is_kept(device: str, size: int | None, columns: int) -> None:
    x = torch.randn(SIZE, 256)
    fn = lambda x: x.repeat(1, columns)  # noqa: E731
    for budget in (30_000 * columns, 100_000 * columns, 3_000_000):
        with sluice.Streamer(device, depth=3, memory_budget=budget) as streamer:
            before = torch.cuda.memory_allocated() if device == "cuda" else 0
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            assert torch.equal(streamer.map(fn, x, chunk_size=size), fn(x))
            stats = streamer.stats()
            rows = stats.chunk_size
            assert stats.slot_bytes + charged(rows * 1024 * columns) <= budget
            assert rows > 1
            if device == "cuda":
                assert torch.cuda.max_memory_allocated() - before <= budget


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("halo", [0, 2])
def test_a_budget_that_not_one_row_fits_names_the_smallest(device: str, depth: int, halo: int) -> None:
    x = torch.randn(40, 1000)
    options: dict[str, Any] = {"devices": device, "depth": depth, "halo": halo}
    with pytest.raises(ValueError, match="stream_map: memory_budget must be at least") as caught:
        sluice.stream_map(torch.neg, x, memory_budget=100, **options)
    found = re.search(r"at least (\d+) .* got 100", str(caught.value))
    assert found is not None
    smallest = int(found[1])
    assert torch.equal(sluice.stream_map(torch.neg, x, memory_budget=smallest, **options), -x)
    with pytest.raises(ValueError, match=f"at least {smallest} "):
        sluice.stream_map(torch.neg, x, memory_budget=smallest - 1, **options)


def test_a_budget_that_a_later_result_does_not_fit(device: str) -> None:
    x = torch.ones(100, 256)
    fn = lambda x: x.repeat(1 if x[0, 0] == 1 else 50, 1)  # noqa: E731
    x[60:] = 2
    with pytest.raises(ValueError, match="memory_budget must be at least .* for the result of chunk 6"):
        sluice.stream_map(fn, x, devices=device, chunk_size=10, memory_budget=150_000)


def test_automatic_chunks_grow_with_the_data_and_the_link() -> None:
    sizes = [automatic_size(n << 20, 1, 50) for n in (1, 64, 1024, 100 * 1024)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1 << 20  # not worth dividing
    assert sizes[-1] == 32 << 20  # never longer
    assert automatic_size(1 << 30, 1, 5) < automatic_size(1 << 30, 1, 50)
    assert automatic_size(10, 1 << 30, 50) == 1
    assert automatic_size(0, 4, 50) == 1


def test_without_room_for_a_ring(cuda: str) -> None:
    x = torch.randn(SIZE, 4)
    with pytest.raises(ValueError, match=r"stream_map: pinned_budget must be at least \d+ to stage inputs\[0\], got 0"):
        sluice.stream_map(torch.neg, x, pinned_budget=0)


# --- several devices --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", ["depth_first", "breadth_first", "sequential"])
@pytest.mark.parametrize("halo", [0, 3])
def test_several_devices_in_one_call(device: str, order: str, halo: int) -> None:
    x, threads = torch.randn(SIZE, 3), set()

    def fn(x: torch.Tensor) -> torch.Tensor:
        threads.add(threading.get_ident())
        time.sleep(0.001)
        return x * 2

    with sluice.Streamer(two(device)) as streamer:
        for call in range(3):
            assert torch.equal(streamer.map(fn, x, chunk_size=17, order=order, halo=halo), x * 2)
            stats = streamer.stats()
            assert sum(stats.chunks_by_device) == stats.chunks == 59
            assert min(stats.chunks_by_device) > 0 or call == 0  # a GPU may still make its context in the first call
            assert sorted(t.chunk for t in stats.timeline) == list(range(59))
    assert threading.get_ident() not in threads


def test_a_function_for_each_device(device: str) -> None:
    devices, x = two(device), torch.zeros(100, 3)
    result = sluice.stream_map(
        {devices[0]: lambda x: x + 1, devices[1]: lambda x: x + 2}, x, devices=devices, chunk_size=3
    )
    assert set(result.flatten().tolist()) <= {1.0, 2.0}
    with pytest.raises(ValueError, match="fn must have a callable for each device, got none for"):
        sluice.stream_map({devices[0]: torch.neg}, x, devices=devices)


def test_modes_reach_the_workers(device: str) -> None:
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        seen.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled(kind)))
        return x

    with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16):
        sluice.stream_map(fn, torch.randn(20), devices=two(device), chunk_size=2)
    assert set(seen) == {(False, True, True)}


@pytest.mark.parametrize("chunk", [0, 5, 19])
def test_a_worker_that_fails(device: str, chunk: int) -> None:
    x = torch.arange(20.0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        if x[0] == chunk:
            raise KeyError("broken")
        return x

    with sluice.Streamer(two(device)) as streamer:
        with pytest.raises(KeyError, match="broken") as caught:
            streamer.map(fn, x, chunk_size=1)
        assert f"chunk {chunk}, rows" in "".join(caught.value.__notes__)
        assert torch.equal(streamer.map(torch.neg, x, chunk_size=1), -x)


# --- threads ----------------------------------------------------------------------------------------------------------
def test_eight_threads_on_one_streamer_and_on_their_own(device: str) -> None:
    x = torch.randn(SIZE, 8)
    wrong: list[int] = []
    with sluice.Streamer(device) as shared:

        def work(number: int) -> None:
            for i in range(6):
                call = shared.map if i % 2 else sluice.stream_map
                options = {} if i % 2 else {"devices": device}
                if not torch.equal(call(lambda x: x * number, x, chunk_size=111, **options), x * number):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert not wrong


def test_two_streamers_run_at_once(device: str) -> None:
    both = threading.Barrier(2, timeout=20)

    def fn(x: torch.Tensor) -> torch.Tensor:
        both.wait()  # neither goes on unless the other is in its fn too
        return x

    def work() -> None:
        with sluice.Streamer(device) as streamer:
            streamer.map(fn, torch.ones(4), chunk_size=2)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not both.broken


def test_waiting_does_not_hold_the_gil() -> None:
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    engine = EngineDevice(torch.device("cpu"), 2, 1, (1, 4096))
    thread = threading.Thread(target=count)
    thread.start()
    try:
        time.sleep(0.05)
        before = counted[0]
        assert not engine.wait(1, 300)
        assert counted[0] - before > 1000
    finally:
        stop.set()
        thread.join()
        engine.close()


# --- futures ----------------------------------------------------------------------------------------------------------
def test_a_future(device: str) -> None:
    x = torch.randn(SIZE, 9)
    with sluice.Streamer(device) as streamer:
        future = streamer.map(torch.exp, x, chunk_size=100, non_blocking=True)
        result = future.result(timeout=20)
        assert future.done()
        assert future.result() is result
        torch.testing.assert_close(result, torch.exp(x))
        assert future.stats() == streamer.stats()
        assert future.stats().chunks == 10
        assert not future.cancel()
        # The next call waits for the call before.
        futures = [streamer.map(lambda x, k=k: x * k, x, chunk_size=100, non_blocking=True) for k in range(4)]
        for k, future in reversed(list(enumerate(futures))):
            assert torch.equal(future.result(), x * k)


def test_a_future_that_nobody_asks(device: str) -> None:
    x, out = torch.randn(SIZE, 9), torch.empty(SIZE, 9)
    with sluice.Streamer(device) as streamer:
        streamer.map(torch.neg, x, chunk_size=100, non_blocking=True, out=out)
    assert torch.equal(out, -x)  # closing waits
    sluice.stream_map(torch.neg, x, devices=device, chunk_size=100, non_blocking=True)
    assert torch.equal(sluice.stream_map(torch.neg, x, devices=device, chunk_size=100), -x)


def slow_store(device: str) -> sluice.Streamer:
    """A Streamer whose copies out take a second."""

    class Slow(DelayedEngine):
        def store(self, *arguments: Any) -> None:
            self.delay(D2H, 400_000)
            super().store(*arguments)

    streamer = sluice.Streamer(device, depth=3)
    streamer._lender.make_engine = lambda device: Slow(device, 2 * 3, 1, (3, 1 << 20))  # type: ignore[method-assign]
    return streamer


def test_done_never_blocks_and_result_may_time_out(device: str) -> None:
    x = torch.randn(4, 9)
    with slow_store(device) as streamer:
        future = streamer.map(torch.neg, x, chunk_size=2, non_blocking=True, staging="ring")
        assert not future.done()  # so it has not waited
        with pytest.raises(TimeoutError, match="the result must be complete within 0.05 s, got no result yet"):
            future.result(timeout=0.05)
        assert torch.equal(future.result(), -x)
        assert future.done()


def test_a_cancelled_future(device: str) -> None:
    import concurrent.futures

    x = torch.randn(4, 9)
    with slow_store(device) as streamer:
        future = streamer.map(torch.neg, x, chunk_size=2, non_blocking=True, staging="ring")
        assert future.cancel()
        assert future.done()
        for _ in range(2):
            with pytest.raises(concurrent.futures.CancelledError):
                future.result()
        assert torch.equal(streamer.map(torch.neg, x, chunk_size=4, staging="ring"), -x)


def test_a_pageable_source_has_been_read_when_the_call_returns(device: str) -> None:
    x = torch.randn(SIZE, 9)
    wanted = -x
    with slow_store(device) as streamer:
        future = streamer.map(torch.neg, x, chunk_size=500, non_blocking=True, staging="ring")
        x.zero_()
        assert torch.equal(future.result(), wanted)


def test_fn_that_raises_comes_out_of_the_call_itself(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        raise KeyError

    with pytest.raises(KeyError):
        sluice.stream_map(fn, torch.ones(3), devices=device, non_blocking=True)


# --- copies -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_pickle_or_a_copy_is_refused(device: str, copied: Callable[[object], object]) -> None:
    x = torch.randn(20, 3)
    with sluice.Streamer(device) as streamer:
        future = streamer.map(torch.neg, x, chunk_size=5, non_blocking=True)
        for thing, rule in (
            (streamer, "it holds a device's streams and buffers: make one in each process"),
            (future, "it waits for a run of its process: pass on its result()"),
        ):
            name = type(thing).__name__
            with pytest.raises(TypeError) as caught:
                copied(thing)
            assert str(caught.value) == f"{name}: a {name} must not be pickled or copied, because {rule}"
        assert torch.equal(future.result(), -x)
        assert torch.equal(streamer.map(torch.neg, x, chunk_size=5), -x)
        assert copied(streamer.stats())  # numbers travel


# --- steady state -------------------------------------------------------------------------------------------------
def test_slots_and_rings_are_made_once(device: str) -> None:
    x, out = torch.randn(SIZE, 9), torch.empty(SIZE, 9)
    made = []
    original = sluice.stream.device.slots.buffer_on  # type: ignore[attr-defined]

    def counting(*arguments: Any) -> torch.Tensor:
        made.append(arguments)
        return original(*arguments)

    with sluice.Streamer(device) as streamer, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.stream.device.slots.buffer_on", counting)
        for _ in range(2):
            streamer.map(torch.neg, x, out=out, chunk_size=100, staging="ring")
        count, pinned = len(made), streamer.stats().pinned_bytes
        assert count == 6
        assert pinned > 0
        for _ in range(3):
            streamer.map(torch.neg, x, out=out, chunk_size=100, staging="ring")
        assert len(made) == count
        assert streamer.stats().pinned_bytes == pinned


def test_stats_say_what_moved_and_how(device: str) -> None:
    x = torch.randn(SIZE, 4)
    with sluice.Streamer(device, depth=2) as streamer:
        assert streamer.stats() == sluice.StreamStats()
        streamer.map(lambda x: x.half(), x, chunk_size=300, staging="ring", order="breadth_first")
        stats = streamer.stats()
    assert (stats.chunks, stats.chunk_size, stats.depth, stats.order) == (4, 300, 2, "breadth_first")
    assert stats.bytes_in == {"ring": x.nbytes}
    assert sum(stats.bytes_out.values()) == x.nbytes // 2
    assert [t.chunk for t in stats.timeline] == [0, 1, 2, 3]
    for times in stats.timeline:
        (a, b), (c, d), (e, f) = times.h2d, times.compute, times.d2h
        assert -1e-3 <= a <= b <= c + 1e-3
        assert c <= d <= e + 1e-3
        assert e <= f < stats.seconds + 0.1
