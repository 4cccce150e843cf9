"""Who waits for whom: every order that the events allow gives the same result, and planted bugs are detected."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest
import torch

import sluice
from stream_calls import ORDERS
from stream_fuzz import BUGS_ON_THE_HOST, DelayedEngine, streamer_on
from stream_simulation import BUGS, RefilledEarly, SimulatedDevice, simulate, simulate_refilled


@pytest.mark.parametrize("order", ORDERS)
def test_a_thousand_random_schedules(order: str) -> None:
    for seed in range(1000):
        shape = random.Random(seed)
        depth, chunks = shape.randint(1, 4), shape.randint(0, 9)
        limit = shape.choice([0, depth, depth + 1])
        assert simulate(seed, order, depth, chunks, limit=limit), f"seed {seed}, depth {depth}, {chunks} chunks"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
@pytest.mark.parametrize("order", ["depth_first", "breadth_first"])
def test_a_planted_bug_is_caught(bug: type[SimulatedDevice], order: str) -> None:
    caught = sum(not simulate(seed, order, 2, 8, bug) for seed in range(50))
    assert caught > 0


def test_a_buffer_that_is_filled_again_and_again() -> None:
    for seed in range(500):
        assert simulate_refilled(seed, 1 + seed % 4, seed % 9), f"seed {seed}"
    assert not all(simulate_refilled(seed, 2, 8, RefilledEarly) for seed in range(50))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("staging", ["auto", "ring"])
def test_delayed_streams_of_the_host_change_nothing(order: str, staging: str) -> None:
    for seed in range(1, 8):
        shape = random.Random(seed)
        x = torch.randn(shape.randint(1, 60), 700)
        options: dict[str, Any] = {
            "chunk_size": shape.randint(1, max(1, len(x) // 2)),
            "order": order,
            "staging": staging,
        }
        with streamer_on(DelayedEngine, seed, "cpu", shape.randint(1, 3)) as streamer:
            for _ in range(2):  # an identical call copies ahead of the first chunk's result
                assert torch.equal(streamer.map(torch.neg, x, **options), -x), f"seed {seed}"


@pytest.mark.parametrize("bug", BUGS_ON_THE_HOST, ids=lambda bug: bug.__name__)
def test_a_planted_bug_in_a_real_engine_is_caught(bug: type[DelayedEngine]) -> None:
    x = torch.randn(40, 5000)
    for seed in range(1, 30):
        with streamer_on(bug, seed, "cpu", 2) as streamer:
            out = torch.full_like(x, float("nan"))
            result = streamer.map(lambda x: x * 3, x, chunk_size=2, staging="ring", out=out)
            if not torch.equal(result, x * 3):
                return
    pytest.fail(f"{bug.__name__} was not seen")


def test_a_small_chunk_costs_few_calls_of_python() -> None:
    # The host bounds small chunks; a Python call takes about 0.1 us, and the count does not depend on load.
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def calls_for(chunks: int) -> int:
        nonlocal calls
        x, calls = torch.ones(chunks, 4), 0
        sys.setprofile(count)
        try:
            streamer.map(lambda x: x, x, out=torch.empty_like(x), chunk_size=1)
        finally:
            sys.setprofile(None)
        return calls

    with sluice.Streamer("cpu") as streamer:
        calls_for(8)
        assert calls_for(108) - calls_for(8) <= 100 * 60
