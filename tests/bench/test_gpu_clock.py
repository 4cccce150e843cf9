"""The benchmarks' clock on a GPU: the work between its events."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from sluice.bench.timing import CallClock, ColdClock, GraphClock

pytestmark = [pytest.mark.gpu, pytest.mark.alone]  # other processes take the GPU for milliseconds


def wait(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_time_of_the_host_is_left_out(cuda: str) -> None:
    x = torch.zeros(1024, device=cuda)

    def call() -> None:
        wait(500e-6)
        x.add_(1)

    clock = ColdClock(x.device)
    clock.measure(call, 1)
    assert statistics.median(clock.measure(call, 6)) < 100


def test_a_call_that_waits_for_the_gpu_is_timed_as_it_is(cuda: str) -> None:
    x = torch.zeros(1024, device=cuda)

    def call() -> None:
        x.add_(1)
        torch.cuda.synchronize()
        wait(500e-6)
        x.add_(1)

    assert statistics.median(ColdClock(x.device).measure(call, 6)) > 500


def test_a_call_in_a_graph_is_timed_without_its_host(cuda: str) -> None:
    x = torch.zeros(1024, device=cuda)

    def call() -> None:
        wait(500e-6)
        x.add_(1)

    clock = GraphClock(x.device, calls=50)
    clock.measure(call, 1)
    assert statistics.median(clock.measure(call, 6)) < 20
    # All calls of each replay ran; four more ran before the capture.
    assert int(x[0]) % 50 == 4
    assert int(x[0]) >= 4 + 7 * 50


def test_a_callers_time_has_the_hosts_part_and_the_gpus(cuda: str) -> None:
    x = torch.zeros(1024, device=cuda)

    def call() -> None:
        torch.cuda._sleep(2_000_000)  # a millisecond at the fastest clock
        wait(500e-6)

    clock = CallClock(x.device)
    clock.measure(call, 1)
    assert statistics.median(clock.measure(call, 6)) > 900
    assert statistics.median(clock.measure(lambda: wait(500e-6), 6)) > 500
    assert statistics.median(clock.measure(lambda: x.add_(1), 6)) < 200  # not its write over L2
