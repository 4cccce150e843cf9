"""Cases of stream_life.py: what a child of a streaming process can and cannot do."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

import sluice
from stream_life_common import CHUNK, HELD, assert_works, case, half_read, items, mapped, source, two


def wait_for_child(pid: int, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"a child ended with status {status}"
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("a child hangs")


def forked(work: Callable[[], None], leave: Callable[[int], Any] = sys.exit) -> None:
    """Runs `work` in a child, which ends normally, or by `leave`."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except SystemExit:
            raise
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(1)
        leave(0)
    wait_for_child(pid)


def refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except RuntimeError as error:
        assert "the process that" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("an inherited object worked in a child")


def refused_by_torch(device: str) -> None:
    """In a child of a process that has used CUDA."""
    for call in (lambda: mapped(device, source()), lambda: sluice.thread_stream(device)):
        try:
            call()
        except RuntimeError as error:
            assert "re-initialize CUDA in forked subprocess" in str(error), error  # noqa: PT017
        else:
            raise AssertionError("a child used its parent's CUDA")


def child_works(device: str) -> None:
    assert_works("cpu")
    if device != "cpu":
        refused_by_torch(device)


@case
def fork_after_a_call(device: str) -> None:
    assert_works(device)
    forked(lambda: child_works(device))
    forked(lambda: None)
    assert_works(device)


@case
def fork_with_everything_alive(device: str) -> None:
    streamer, other = sluice.Streamer(device), sluice.Streamer(device)
    x = source()
    unused, iterator = streamer.iter(torch.neg, items()), half_read(device)
    future = other.map(lambda x: x + 1, x, chunk_size=CHUNK, non_blocking=True)

    def child() -> None:
        nonlocal streamer, other, unused, iterator, future
        for call in (
            lambda: streamer.map(torch.neg, x),
            lambda: streamer.iter(torch.neg, items()),
            lambda: other.map(torch.neg, x),
            streamer.__enter__,
            streamer.stats,
            streamer.cancel,
            future.result,
            future.done,
            future.cancel,
            future.stats,
            lambda: next(unused),
            lambda: next(iterator),
        ):
            refused(call)
        streamer.close()
        iterator.close()  # type: ignore[attr-defined]
        streamer = other = unused = iterator = future = None  # type: ignore[assignment]
        gc.collect()
        child_works(device)

    forked(child)
    forked(lambda: None)
    forked(lambda: child_works(device), leave=os._exit)
    assert torch.equal(future.result(), x + 1)
    assert [float(y[0]) for y in iterator] == [float(i + 1) for i in range(1, 9)]
    assert torch.equal(streamer.map(torch.neg, x), -x)


@case
def fork_while_threads_stream(device: str) -> None:
    stop, failed = threading.Event(), []
    # torch's first calls take locks that would stay locked in a child.
    assert_works(device)
    assert_works(two(device))

    def run(devices: Any) -> None:
        try:
            while not stop.is_set():
                assert_works(devices)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(devices,)) for devices in (device, device, two(device))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            time.sleep(random.random() * 0.01)
            forked(lambda: child_works(device))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def end_child(parent: int, device: str, error: RuntimeError) -> None:
    """Ends a child whose run was refused, after it has done work of its own; returns in the parent."""
    if os.getpid() == parent:
        return
    # torch's error if fn itself uses CUDA.
    assert "the process that" in str(error) or "CUDA" in str(error), error
    child_works(device)
    sys.exit(0)


@case
def fork_within_fn(device: str) -> None:
    parent, pids = os.getpid(), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        if os.getpid() == parent and len(pids) < 2:
            pids.append(os.fork())
        return x + 1

    x = source()
    try:
        y = sluice.stream_map(fn, x, devices=device, chunk_size=CHUNK)
    except RuntimeError as error:
        end_child(parent, device, error)
        raise
    assert os.getpid() == parent, "a child went on with its parent's run"
    assert torch.equal(y, x + 1)
    for pid in pids:
        wait_for_child(pid)


@case
def fork_within_fn_of_an_iterator(device: str) -> None:
    parent, pids = os.getpid(), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        if os.getpid() == parent and not pids:
            pids.append(os.fork())
        return x + 1

    x = source()
    try:
        results = list(sluice.stream_iter(fn, [x, x, x], devices=device))
    except RuntimeError as error:
        end_child(parent, device, error)
        raise
    assert os.getpid() == parent, "a child went on with its parent's iterator"
    assert all(torch.equal(y, x + 1) for y in results)
    wait_for_child(pids[0])


@case
def fork_within_fn_and_exit(device: str) -> None:
    parent, pids = os.getpid(), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        if not pids:
            pids.append(os.fork())
            if pids[0] == 0:
                sys.exit(0)
        return x + 1

    x = source()
    assert torch.equal(sluice.stream_map(fn, x, devices=device, chunk_size=CHUNK), x + 1)
    assert os.getpid() == parent
    wait_for_child(pids[0])


@case
def fork_and_fork_again(device: str) -> None:
    HELD.append(half_read(device))
    forked(lambda: (assert_works("cpu"), HELD.append(half_read("cpu")), forked(lambda: child_works(device)))[-1])


@case
def fork_by_multiprocessing(device: str) -> None:
    import multiprocessing

    assert_works(device)
    HELD.append(half_read(device))
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child_works, args=(device,)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(20)
        assert child.exitcode == 0


class Streamed(torch.utils.data.Dataset[torch.Tensor]):
    """Items that went through the worker's own stream."""

    def __init__(self, works: bool) -> None:
        self.works = works

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> torch.Tensor:
        x = torch.full((16, 4), float(i))
        return mapped("cpu", x) if self.works else x + 1


@case
def fork_of_data_loaders(device: str) -> None:
    assert_works(device)
    for works in (False, True):
        loader = torch.utils.data.DataLoader(Streamed(works), num_workers=2, multiprocessing_context="fork")
        wanted = [float(i + 1) for i in range(8)]
        assert [float(y[0, 0, 0]) for y in loader] == wanted  # with an idle Streamer to inherit
        assert [float(y[0, 0, 0]) for y in sluice.stream_iter(lambda x: x, loader, devices=device)] == wanted
