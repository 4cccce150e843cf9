"""Cases of stream_life.py: the interpreter ends while something is half done."""

from __future__ import annotations

import atexit
import gc
import sys
import threading
import time
from collections.abc import Iterator

import torch

import sluice
from sluice.stream import process
from sluice.stream.device.engine import D2H
from sluice.stream.ending import Ending
from sluice.stream.streamer import _close_all
from stream_life_common import CHUNK, HELD, ROWS, case, half_read, items, source, two


@case
def exit_with_a_half_read_iterator(device: str) -> None:
    HELD.append(half_read(device))


@case
def exit_with_a_half_read_iterator_of_two(device: str) -> None:
    HELD.append(half_read(two(device)))


@case
def exit_with_an_iterator_of_a_streamer(device: str) -> None:
    streamer = sluice.Streamer(device)
    HELD.extend([streamer, half_read(device, streamer), streamer.iter(torch.neg, items())])


@case
def exit_within_a_generator_over_an_iterator(device: str) -> None:
    def doubled() -> Iterator[torch.Tensor]:
        for y in sluice.stream_iter(lambda x: x + 1, items(), devices=device):
            yield y * 2

    iterator = doubled()
    next(iterator)
    HELD.extend([iterator])


@case
def exit_with_a_suspended_iterator_of_a_thread(device: str) -> None:
    ready = threading.Event()

    def run() -> None:
        HELD.append(half_read(device))
        ready.set()
        time.sleep(1000)

    threading.Thread(target=run, daemon=True).start()
    ready.wait()


@case
def exit_while_a_thread_maps(device: str) -> None:
    ready = threading.Event()

    def fn(x: torch.Tensor) -> torch.Tensor:
        ready.set()
        time.sleep(0.001)
        return x

    def run() -> None:
        while True:
            sluice.stream_map(fn, source(), devices=device, chunk_size=1)

    threading.Thread(target=run, daemon=True).start()
    ready.wait()


@case
def exit_while_threads_wait_for_one_streamer(device: str) -> None:
    ready, streamer, x = threading.Event(), sluice.Streamer(two(device)), source()
    HELD.append(streamer)

    def fn(x: torch.Tensor) -> torch.Tensor:
        ready.set()
        time.sleep(1)  # not in torch: the interpreter's end would end the process from a thread there
        return x

    for _ in range(3):
        threading.Thread(target=streamer.map, args=(fn, x), kwargs={"chunk_size": 1}, daemon=True).start()
    ready.wait()
    time.sleep(0.2)  # the others reach the streamer


@case
def exit_holds_threads_in_their_calls(device: str) -> None:
    process.EXIT_SECONDS = 1000.0  # an exit that waits for a thread that it holds would hang
    ready, streamer, left = threading.Event(), sluice.Streamer(device), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        ready.set()
        with Ending(lambda _: None):  # as a GPU's compute stream has around the calls of fn
            time.sleep(0.001)
        return x

    def run() -> None:
        try:
            while True:
                streamer.map(fn, source(), chunk_size=1)
        finally:
            left.append("call")

    @atexit.register
    def check() -> None:
        time.sleep(0.1)
        if left:
            print("a thread left its call while the interpreter ended")

    atexit.unregister(_close_all)
    atexit.register(_close_all)  # handlers run in reverse order: before check
    threading.Thread(target=run, daemon=True).start()
    ready.wait()


@case
def exit_with_a_future_on_its_way(device: str) -> None:
    streamer = sluice.Streamer(device)
    future = streamer.map(lambda x: x + 1, source(), chunk_size=1, non_blocking=True)
    HELD.extend([streamer, future])
    threading.Thread(target=future.result, daemon=True).start()


@case
def exit_within_fn(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        sys.exit(0)

    sluice.stream_map(fn, source(), devices=device, chunk_size=CHUNK)


@case
def exit_with_a_source_that_raises_when_it_is_closed(device: str) -> None:
    def bad() -> Iterator[torch.Tensor]:
        try:
            yield from items()
        finally:
            raise LookupError("the source")

    iterator = sluice.stream_iter(torch.neg, bad(), devices=device)
    next(iterator)
    HELD.append(iterator)


@case
def collect_iterators_at_any_step(device: str) -> None:
    """Garbage collection may end a half-read iterator at any allocation, even inside another call."""

    class Knot:
        pass

    x, thresholds = source(), gc.get_threshold()
    for _ in range(20):
        knot = Knot()
        knot.self, knot.iterator = knot, half_read(device)  # type: ignore[attr-defined]
        del knot
        gc.set_threshold(1)
        assert torch.equal(sluice.stream_map(torch.neg, x, devices=device, chunk_size=CHUNK), -x)
        gc.set_threshold(*thresholds)


@case
def exit_while_copies_do_not_end(device: str) -> None:
    process.EXIT_SECONDS = 0.2
    streamer = sluice.Streamer(device)
    x = source()
    assert torch.equal(streamer.map(torch.neg, x), -x)
    ((_, lent),) = streamer._lender.lent.items()

    def fn(x: torch.Tensor) -> torch.Tensor:
        lent.engine.delay(D2H, 1_000_000)  # a GPU's driver waits for it when the process ends
        return x

    streamer.map(fn, source(), chunk_size=ROWS // 2, non_blocking=True)


@case
def exit_while_fn_never_returns(device: str) -> None:
    ready = threading.Event()
    process.EXIT_SECONDS = 0.2

    def fn(x: torch.Tensor) -> torch.Tensor:
        ready.set()
        time.sleep(1000)
        return x

    def run() -> None:
        sluice.stream_map(fn, source(), devices=device, chunk_size=CHUNK)

    threading.Thread(target=run, daemon=True).start()
    ready.wait()
