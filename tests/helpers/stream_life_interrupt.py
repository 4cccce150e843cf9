"""Cases of stream_life.py: Ctrl-C at every possible step."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch

import sluice
from sluice.stream import process
from sluice.stream.device.engine import D2H
from stream_life_common import CHUNK, ROWS, assert_works, case, items, mapped, source, two

Run = Callable[[sluice.Streamer], None]


def baseline(streamer: sluice.Streamer) -> list[object]:
    gc.collect()
    threads, deadline = 0, time.monotonic() + 2  # a thread that has reported its end may still be running
    while threads != (threads := len(os.listdir("/proc/self/task"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    slots = sorted((str(device), lent.slots.nbytes) for device, lent in streamer._lender.lent.items())
    kept = [lent.engine.kept for lent in streamer._lender.lent.values()]
    return [streamer._tenancy.running, streamer._tenancy.lock._holder, slots, kept, threads]


def assert_baseline(streamer: sluice.Streamer, before: list[object], *said: object) -> None:
    """The streamer is soon as it was: on a busy machine a thread ends late."""
    deadline = time.monotonic() + 30
    while (found := baseline(streamer)) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found == before, (*said, found, before)


def was_interrupted_in_threading(error: RuntimeError) -> bool:
    """Two signals in a row in `Thread.start`: CPython's Condition then releases a lock that it does not hold."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error.__context__, KeyboardInterrupt) and last.filename == threading.__file__


def run_under_signals(run: Run, streamer: sluice.Streamer, seconds: float, most: int) -> None:
    """Sends signals to the main thread at random times, as Ctrl-C does; signals after the run are ignored."""
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        for _ in range(random.randint(1, most)):
            time.sleep(random.random() * seconds)
            signal.pthread_kill(main, signal.SIGINT)

    def interrupt(_: int, frame: types.FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is run.__code__:  # type: ignore[attr-defined]
                raise KeyboardInterrupt
            frame = frame.f_back

    signal.signal(signal.SIGINT, interrupt)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(streamer)
    except RuntimeError as error:
        if not was_interrupted_in_threading(error):
            raise
    thread.join()


def run_map(streamer: sluice.Streamer) -> None:
    x = source()
    assert torch.equal(streamer.map(lambda x: x + 1, x, chunk_size=CHUNK), x + 1)


def run_iter(streamer: sluice.Streamer) -> None:
    # Closed explicitly: CPython reports and drops exceptions of a garbage collection, even Ctrl-C.
    with contextlib.closing(streamer.iter(lambda x: x + 1, items())) as results:  # type: ignore[type-var]
        for i, y in enumerate(results):
            assert float(y[0]) == i + 1


def run_future(streamer: sluice.Streamer) -> None:
    x = source()
    future = streamer.map(lambda x: x + 1, x, chunk_size=CHUNK, non_blocking=True)
    assert torch.equal(future.result(), x + 1)


def run_to_a_fault(streamer: sluice.Streamer) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x[0, 0] == 3 * CHUNK:
            raise LookupError
        return x

    with contextlib.suppress(LookupError):
        streamer.map(fn, torch.arange(float(ROWS)).unsqueeze(1).expand(ROWS, 50), chunk_size=CHUNK)


def run_half(streamer: sluice.Streamer) -> None:
    with contextlib.closing(streamer.iter(lambda x: x + 1, items())) as results:  # type: ignore[type-var]
        next(results)


RUNS = [run_map, run_iter, run_future, run_to_a_fault, run_half]


class Interrupter:
    """Interrupts the main thread before a line of sluice.stream that it executes, by number.

    Args:
        line: the line that raises.
        then: if not None, Ctrl-C comes as a signal before that line, and again `then` lines later.
    """

    HERE = os.path.dirname(process.__file__)

    def __init__(self, line: int, then: int | None = None) -> None:
        self._lines = [line] if then is None else [line, line + then]
        self._by_signal = then is not None
        self.seen = 0

    def _trace(self, frame: types.FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(self.HERE):
            return None
        if event == "line":
            self.seen += 1
            if self.seen in self._lines:
                if not self._by_signal:
                    raise KeyboardInterrupt
                signal.raise_signal(signal.SIGINT)
        return self._trace

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    @property
    def has_come(self) -> bool:
        return self.seen >= self._lines[0]


def interrupted_at_lines(devices: Any, step: int, first: int, then: int | None = None) -> None:
    """Interrupts every `step`-th line of every kind of run, clean-up included."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with sluice.Streamer(devices) as streamer:
        for run in RUNS * 2:
            run(streamer)
        before = baseline(streamer)
        for run in RUNS:
            line, interrupter = first, Interrupter(0)
            while line == first or interrupter.has_come:
                interrupter = Interrupter(line, then)
                try:
                    with interrupter:
                        run(streamer)
                    assert then or not interrupter.has_come, f"{run.__name__} swallowed Ctrl-C at line {line}"
                except KeyboardInterrupt:
                    assert all(lent.engine._drain(200) for lent in streamer._lender.lent.values())
                run_map(streamer)
                assert streamer._tenancy.running is None, line
                assert not streamer._tenancy.lock._holder, line
                assert all(lent.engine.kept is None for lent in streamer._lender.lent.values()), line
                line += step
            assert line > 6 * step or step > 50, line
            for run_again in RUNS:
                run_again(streamer)
            assert_baseline(streamer, before, run.__name__)


def interrupted_by_signals(devices: Any, seconds: float) -> None:
    """Several real signals, so that clean-up is interrupted too: only KeyboardInterrupt may be raised."""
    sys.unraisablehook = lambda _: None  # CPython reports and drops exceptions of weak references' callbacks
    with sluice.Streamer(devices) as streamer:
        for run in RUNS:
            run(streamer)
        before = baseline(streamer)
        for _ in range(10):
            for run in RUNS:
                run_under_signals(run, streamer, seconds, 3)
        for run in RUNS:
            run(streamer)
        assert_baseline(streamer, before)


@case
def interrupt_by_signals(device: str) -> None:
    interrupted_by_signals(device, 0.003)


@case
def interrupt_at_lines(device: str) -> None:
    interrupted_at_lines(device, 41, random.randint(1, 41))


@case
def interrupt_two_devices_at_lines(device: str) -> None:
    interrupted_at_lines(two(device), 97, random.randint(1, 97))


@case
def interrupt_twice_at_lines(device: str) -> None:
    interrupted_at_lines(device, 41, random.randint(1, 41), then=random.randint(1, 200))


@case
def interrupt_a_call_without_a_streamer(device: str) -> None:
    for line in range(random.randint(1, 61), 5000, 61):
        x = source()
        with contextlib.suppress(KeyboardInterrupt), Interrupter(line):
            mapped(device, x)
        assert_works(device)


def interrupted_while_a_copy_runs(streamer: sluice.Streamer, pause: float) -> None:
    """Three signals to the main thread, `pause` seconds apart, during a copy of 0.4 s."""
    ((_, lent),) = streamer._lender.lent.items()
    main, begun = threading.main_thread().ident, threading.Event()
    assert main is not None

    def send() -> None:
        begun.wait()
        for _ in range(3):
            time.sleep(pause)
            signal.pthread_kill(main, signal.SIGINT)

    def fn(x: torch.Tensor) -> torch.Tensor:
        if not begun.is_set():
            lent.engine.delay(D2H, 400_000)
            begun.set()
        return x

    threading.Thread(target=send, daemon=True).start()  # not joined if `fn` is never called
    begin = time.monotonic()
    try:
        streamer.map(fn, source(), chunk_size=CHUNK)
    except KeyboardInterrupt:
        # Far less than the copy takes, and far more than a busy machine needs to report that none is left.
        assert lent.engine._drain(200), "a copy was left running"
        assert time.monotonic() - begin >= 0.4
    else:
        raise AssertionError("not interrupted")
    with contextlib.suppress(KeyboardInterrupt):  # a busy machine may deliver one late
        time.sleep(0.2)


@case
def interrupt_while_copies_run(device: str) -> None:
    """Ctrl-C, and again during the wait for a slow copy."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with sluice.Streamer(device) as streamer:
        run_map(streamer)
        for pause in (0.0, 0.02):
            interrupted_while_a_copy_runs(streamer, pause)
            run_map(streamer)


@case
def interrupt_a_wait_for_a_future(device: str) -> None:
    """Ctrl-C ends the wait and is raised; the result stays available."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    with sluice.Streamer(device) as streamer:
        run_map(streamer)
        ((_, lent),) = streamer._lender.lent.items()
        for wait in ("result", "stats"):
            x = source()

            def fn(x: torch.Tensor) -> torch.Tensor:
                lent.engine.delay(D2H, 150_000)
                return x + 1

            future = streamer.map(fn, x, chunk_size=ROWS // 2, non_blocking=True)
            threading.Timer(0.03, signal.pthread_kill, (main, signal.SIGINT)).start()
            try:
                getattr(future, wait)()
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError(f"{wait} swallowed Ctrl-C")
            assert torch.equal(future.result(), x + 1)
        run_map(streamer)


@case
def interrupt_two_devices_by_signals(device: str) -> None:
    interrupted_by_signals(two(device), 0.005)
