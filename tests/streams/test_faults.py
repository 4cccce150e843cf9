"""Errors while chunks are in flight: the right type, resources released, the Streamer usable again."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sluice
from common import memory_in_use
from sluice import stages
from stream_calls import ORDERS

CHUNKS = 8
WHERE = {"first": 0, "middle": 4, "last": CHUNKS - 1}


class StrangeError(Exception):
    """An error of a type of its own."""


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def raising_at(chunk: int, raised: Callable[[], None]) -> Callable[[torch.Tensor], torch.Tensor]:
    calls = iter(range(10**9))

    def fn(x: torch.Tensor) -> torch.Tensor:
        if next(calls) == chunk:
            raised()
        return x * 2

    return fn


def throw(error: BaseException) -> Callable[[], None]:
    def raised() -> None:
        raise error

    return raised


def allocated(device: str) -> int:
    return memory_in_use() if device == "cuda" else 0


def assert_usable(streamer: sluice.Streamer) -> None:
    x = torch.randn(40, 6)
    assert torch.equal(streamer.map(lambda x: x + 1, x, chunk_size=6), x + 1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("where", WHERE)
def test_fn_raises(device: str, order: str, where: str) -> None:
    chunk, x = WHERE[where], torch.randn(80, 50)
    with sluice.Streamer(device) as streamer:
        for warm in (False, True):
            if warm:
                assert_usable(streamer)
            before = allocated(device)
            with pytest.raises(StrangeError) as caught:
                streamer.map(raising_at(chunk, throw(StrangeError("as it was"))), x, chunk_size=10, order=order)
            assert str(caught.value) == "as it was"
            assert (
                f"stream_map: raised by fn for chunk {chunk}, rows {10 * chunk} to {10 * chunk + 10} of dimension 0"
                in (notes(caught.value))
            )
            del caught
            assert allocated(device) <= before
        assert_usable(streamer)


def test_a_failed_out_is_said_to_be_partly_written(device: str) -> None:
    x, out = torch.randn(80, 5), torch.zeros(80, 5)
    with pytest.raises(StrangeError) as caught:
        sluice.stream_map(raising_at(5, throw(StrangeError())), x, devices=device, chunk_size=10, out=out)
    assert "out may be partly written" in notes(caught.value)
    with pytest.raises(StrangeError) as caught:
        sluice.stream_map(raising_at(0, throw(StrangeError())), x, devices=device, chunk_size=10, out=out.zero_())
    assert "out may be" not in notes(caught.value)
    assert not out.any()


@pytest.mark.parametrize("where", WHERE)
def test_ctrl_c_within_fn(device: str, where: str) -> None:
    x = torch.randn(80, 5)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(KeyboardInterrupt) as caught:
            streamer.map(raising_at(WHERE[where], throw(KeyboardInterrupt())), x, chunk_size=10)
        assert f"chunk {WHERE[where]}, rows" in notes(caught.value)
        assert_usable(streamer)


@pytest.fixture
def _python_takes_ctrl_c() -> Iterator[None]:
    """A shell's background job inherits an ignored SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_python_takes_ctrl_c")
def test_ctrl_c_from_outside() -> None:
    x = torch.randn(400, 5)

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    starts = iter([timer.start])  # within a run: making the first context may take seconds

    def slow(x: torch.Tensor) -> torch.Tensor:
        next(starts, lambda: None)()
        time.sleep(0.01)
        return x

    with sluice.Streamer() as streamer:
        with pytest.raises(KeyboardInterrupt) as caught:
            streamer.map(slow, x, chunk_size=1)
        timer.join()
        assert "stream_map: " in notes(caught.value)
        assert_usable(streamer)


def out_of_memory() -> None:
    raise torch.OutOfMemoryError("no room")


def test_out_of_memory_on_the_first_chunk_halves_it(device: str) -> None:
    x, sizes = torch.randn(100, 4), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        if len(x) > 13:
            out_of_memory()
        return x + 1

    with sluice.Streamer(device) as streamer:
        assert torch.equal(streamer.map(fn, x, chunk_size=50), x + 1)
        assert sizes == [50, 25, *[13] * 7, 9]
        assert streamer.stats().tries == ("50 rows: out of memory", "25 rows: out of memory")
        assert streamer.stats().chunk_size == 13


def test_out_of_memory_later_is_raised(device: str) -> None:
    x = torch.randn(80, 4)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(torch.OutOfMemoryError, match="no room") as caught:
            streamer.map(raising_at(1, out_of_memory), x, chunk_size=10)
        assert "chunk 1, rows 10 to 20" in notes(caught.value)
        with pytest.raises(torch.OutOfMemoryError, match="no room"):
            streamer.map(lambda x: out_of_memory(), x, chunk_size=10)
        assert streamer.stats().tries[-1] == "2 rows: out of memory"  # one row was tried last
        assert_usable(streamer)


@pytest.mark.parametrize("where", WHERE)
def test_cancel(device: str, where: str) -> None:
    x = torch.randn(80, 5)
    with sluice.Streamer(device) as streamer:
        fn = raising_at(WHERE[where], streamer.cancel)
        with pytest.raises(concurrent.futures.CancelledError, match="cancel"):
            streamer.map(fn, x, chunk_size=10)
        assert_usable(streamer)
        streamer.cancel()  # nothing runs: nothing happens
        assert_usable(streamer)


def test_cancel_from_another_thread(device: str) -> None:
    x = torch.randn(1000, 5)
    called = []

    def slow(x: torch.Tensor) -> torch.Tensor:
        called.append(x)
        if len(called) == 5:
            threading.Thread(target=streamer.cancel).start()
        time.sleep(0.005)
        return x

    with sluice.Streamer(device) as streamer:
        with pytest.raises(concurrent.futures.CancelledError):
            streamer.map(slow, x, chunk_size=1)
        assert 5 <= len(called) < 1000
        assert_usable(streamer)


@pytest.mark.filterwarnings("ignore:.*pageable")
@pytest.mark.parametrize("staging", ["auto", "ring", "pageable"])
@pytest.mark.parametrize("where", WHERE)
def test_a_file_that_is_cut_short(device: str, staging: str, where: str, tmp_path: pathlib.Path) -> None:
    page, rows = os.sysconf("SC_PAGE_SIZE"), 80
    path = tmp_path / "x.bin"
    path.write_bytes(b"\1" * page * rows)
    x = torch.from_file(str(path), shared=True, size=page * rows, dtype=torch.uint8).view(rows, page)
    cut = 10 * WHERE[where] + 5

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x

    os.truncate(path, cut * page)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(OSError, match="stream_map: a memory-mapped tensor must keep its file's length"):
            streamer.map(fn, x, chunk_size=10, staging=staging)
        assert_usable(streamer)


@pytest.mark.parametrize("pages", [20, 200])
@pytest.mark.parametrize("fn", [None, stages.scale(2.0), torch.neg], ids=["none", "chain", "callable"])
def test_a_file_that_known_functions_read_is_cut_short(
    device: str, fn: Any, pages: int, tmp_path: pathlib.Path
) -> None:
    page, path = os.sysconf("SC_PAGE_SIZE"), tmp_path / "x.bin"
    path.write_bytes(b"\0" * page * pages)
    x = torch.from_file(str(path), shared=True, size=page * pages // 4).view(pages, -1)
    os.truncate(path, 2 * page)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(OSError, match="stream_map: a memory-mapped tensor must keep its file's length"):
            streamer.map(fn, x, chunk_size=4)
        with pytest.raises(OSError, match="stream_iter: a memory-mapped tensor must keep its file's length"):
            list(streamer.iter(fn, [x]))
        assert_usable(streamer)


@pytest.mark.filterwarnings("ignore:.*pageable")
@pytest.mark.parametrize("staging", ["auto", "ring", "pageable"])
def test_an_out_that_is_cut_short(device: str, staging: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "y.bin"
    path.write_bytes(b"\0" * 400_000)
    out = torch.from_file(str(path), shared=True, size=100_000)
    os.truncate(path, 8192)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(OSError, match="a file ended while it was written") as caught:
            streamer.map(torch.neg, torch.ones(100_000), chunk_size=10_000, out=out, staging=staging)
        assert "out may be partly written" in notes(caught.value)
        assert_usable(streamer)


@pytest.mark.parametrize("where", WHERE)
def test_a_source_that_is_modified(device: str, where: str) -> None:
    x = torch.randn(80, 5)
    with sluice.Streamer(device) as streamer:
        fn = raising_at(WHERE[where], lambda: x.add_(1))
        with pytest.raises(
            RuntimeError, match=r"stream_map: inputs\[0\] must not change while it is streamed, got 1 changes"
        ):
            streamer.map(fn, x, chunk_size=10)
        assert_usable(streamer)


def test_progress_that_raises(device: str) -> None:
    with sluice.Streamer(device) as streamer:
        with pytest.raises(StrangeError):
            streamer.map(torch.neg, torch.randn(80, 5), chunk_size=10, progress=lambda *_: throw(StrangeError())())
        assert_usable(streamer)


def test_threads_and_files_return_to_their_baseline(device: str) -> None:
    def counts() -> tuple[int, int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), threading.active_count()

    def once() -> None:
        with sluice.Streamer(device, staging_threads=3) as streamer:
            for chunk in (0, 3):
                with pytest.raises(StrangeError):
                    streamer.map(raising_at(chunk, throw(StrangeError())), torch.randn(80, 5), chunk_size=10)

    once()
    before = counts()
    for _ in range(5):
        once()
    assert counts() == before


def test_a_closed_streamer_raises(device: str) -> None:
    streamer = sluice.Streamer(device)
    streamer.close()
    streamer.close()
    for call in (
        lambda: streamer.map(torch.neg, torch.ones(3)),
        lambda: streamer.iter(torch.neg, []),
        streamer.__enter__,
    ):
        with pytest.raises(RuntimeError, match="the Streamer must be open, got a closed one"):
            call()
    assert streamer.stats().chunks == 0


def test_a_streamer_within_its_own_run_is_told(device: str) -> None:
    x: Any = torch.randn(6, 2)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(RuntimeError, match="a Streamer must do one thing at a time"):
            streamer.map(lambda c: streamer.map(torch.neg, x), x)
        assert_usable(streamer)
    # stream_map takes another Streamer for a call within a call.
    nested = sluice.stream_map(
        lambda c: sluice.stream_map(torch.neg, x, devices=device).to(c.device), x, devices=device
    )
    assert torch.equal(nested, -x)
