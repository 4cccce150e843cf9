"""The benchmarks' clocks, and how their samples and errors become numbers."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import time

import pytest
import torch

from sluice.bench import timing
from sluice.bench.check import relative_error
from sluice.bench.timing import FULL, QUICK, CallClock, ColdClock, Effort, GraphClock, HostClock, interleave

pytestmark = pytest.mark.no_gpu
CPU = torch.device("cpu")


class TestTiming:
    def test_median_range_and_ratio(self):
        warm = [[9.0], [9.0]]
        script = {
            "ours": iter([*warm, [1.0, 2.0, 30.0], [4.0, 4.0, 4.0]]),
            "peer": iter([*warm, [8.0] * 3, [8.0] * 3]),
        }
        running = []

        class Clock:
            def measure(self, call, samples):
                call()
                return next(script[running[-1]])

        calls = {name: lambda name=name: running.append(name) for name in script}
        timings = interleave(Clock(), calls, Effort(rounds=2, samples=3, warm_up=1))
        assert timings["ours"].median_us == 4.0
        assert (timings["ours"].minimum_us, timings["ours"].maximum_us) == (1.0, 30.0)
        assert timings["ours"].ratio == 1.0
        assert timings["peer"].ratio == 3.0  # the median of 8 / 2 and 8 / 4
        # a first call and a warm-up each; then the second round starts with the other call
        assert running == ["ours", "ours", "peer", "peer", "ours", "peer", "peer", "ours"]

    def test_slow_calls_are_timed_less_often(self):
        asked = []

        class Clock:
            def measure(self, call, samples):
                asked.append(samples)
                return [call()] * samples

        timings = interleave(Clock(), {"ours": lambda: 1.0, "peer": lambda: 50_000.0}, Effort(2, 6, 4))
        assert asked == [1, 4, 1, 1, 6, 2, 2, 6]
        assert timings["peer"].ratio == 50_000

    def test_very_slow_calls_are_timed_once_in_three_rounds(self):
        times = {"ours": 300_000.0, "peer": 1.0, "other": 900_000.0}
        asked = []

        class Clock:
            def measure(self, call, samples):
                asked.append((call(), samples))
                return [times[call()]] * samples

        timings = interleave(Clock(), {name: lambda name=name: name for name in times}, Effort(5, 6, 4))
        rounds = asked[2 + 2 + 2 :]
        assert [sum(1 for who, _ in rounds if who == name) for name in times] == [3, 5, 3]
        assert {samples for who, samples in rounds if who != "peer"} == {1}
        assert timings["other"].ratio == 3.0

    def test_full_effort_is_what_the_design_asks_for(self):
        assert FULL.rounds * FULL.samples >= 25
        assert FULL.rounds == 5
        assert not QUICK.slow_peers

    def test_host_clock_counts_each_call(self):
        calls = []
        times = HostClock(CPU, calls=7).measure(lambda: calls.append(1), 3)
        assert len(calls) == 21
        assert len(times) == 3
        assert all(0 < time < 1e4 for time in times)

    def test_call_clock_times_each_call_without_collections(self):
        collecting, naps = [], iter([0.002, 0.02])

        def call():
            collecting.append(gc.isenabled())
            time.sleep(next(naps))

        short, long = CallClock(CPU).measure(call, 2)
        assert collecting == [False, False]
        assert gc.isenabled()
        assert short >= 2000
        assert long >= 20_000


def test_relative_error():
    reference = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error(reference.float(), reference) == 0
    assert relative_error(torch.tensor([3.0, 4.5]), reference) == pytest.approx(0.1)
    assert math.isnan(relative_error(torch.tensor([3.0, math.nan]), reference))


def test_relative_error_of_pieces():
    result = torch.randn(10, 3)
    expected = result.double() + 0.25
    pieces = list(expected.split(4))
    assert relative_error(result, iter(pieces)) == pytest.approx(relative_error(result, expected), rel=1e-12)
    result[9, 2] = math.nan
    assert math.isnan(relative_error(result, iter(pieces)))
    with pytest.raises(ValueError, match="the result's 10 rows, got 8"):
        relative_error(result, iter(pieces[:2]))


class TestColdClock:
    """The loop around the samples; tests/bench/test_gpu_clock.py has the times."""

    @pytest.mark.parametrize(("reached", "holds"), [([False], 1), ([True, True, False], 3), ([True] * 20, 4)])
    def test_the_gpu_is_held_for_longer_until_the_host_is_ahead(self, monkeypatch, reached, holds):
        held, answers = [], iter(reached)

        class Event:
            def record(self):
                pass

            def query(self):
                return next(answers)

            def elapsed_time(self, end):
                return 0.25

        now = iter(range(0, 10**12, 10**6))  # the host takes a millisecond
        monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(now) + (sum(held) // 2 if held else 0))
        monkeypatch.setattr(timing, "_event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "_sleep", held.append, raising=False)
        clock = ColdClock.__new__(ColdClock)
        clock._device, clock._larger_than_l2 = CPU, torch.empty(1)
        assert clock.measure(lambda: None, 2) == [250.0, 250.0]
        assert len(held) == holds
        assert all(later >= 2 * earlier for earlier, later in itertools.pairwise(held))


class TestGraphClock:
    """What is captured, and when; tests/bench/test_gpu_clock.py has the times."""

    @pytest.fixture
    def replays(self, monkeypatch):
        """The graphs that were replayed, in their order, where torch's CUDA is a stand-in."""
        replayed = []

        class Graph:
            def replay(self):
                replayed.append(self)

        class Event:
            def record(self):
                pass

            def query(self):
                return False

            def elapsed_time(self, end):
                return 0.25

        monkeypatch.setattr(timing, "_event", Event)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        for name in ("synchronize", "Stream", "_sleep"):
            monkeypatch.setattr(torch.cuda, name, lambda *args: None, raising=False)
        for name in ("device", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name, contextlib.nullcontext)
        return replayed

    def test_a_call_is_captured_once(self, replays):
        ran = {"ours": 0, "peer": 0}

        def ours():
            ran["ours"] += 1

        def peer():
            ran["peer"] += 1

        clock = GraphClock(CPU, calls=5)
        assert clock.measure(ours, 2) == [50.0, 50.0]  # 250 us a replay
        captured = 4 + 5  # the calls ahead of the capture, and the calls in it
        assert ran == {"ours": captured, "peer": 0}
        clock.measure(peer, 1)
        clock.measure(ours, 1)
        assert ran == {"ours": captured, "peer": captured}
        assert [graph is replays[0] for graph in replays] == [True, True, False, True]

    def test_a_graph_goes_with_its_call(self, replays):
        clock = GraphClock(CPU)
        clock.measure(lambda: None, 1)
        gc.collect()
        assert len(clock._graphs) == 0
