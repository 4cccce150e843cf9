"""A host function under device work."""

from __future__ import annotations

import time

import pytest
import torch

import sluice

pytestmark = pytest.mark.gpu


@pytest.mark.alone
@pytest.mark.usefixtures("cuda")
def test_host_work_runs_under_device_work() -> None:
    """A host function of 0.8 of the device's time adds no time before `result()`, and all of its time after it."""
    x = torch.randn(64, 4096).pin_memory()
    slow = lambda x: (torch.cuda._sleep(50_000_000), x + 1)[1]  # noqa: E731

    def host_function(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    def seconds(non_blocking: bool, of_host: float) -> float:
        begin = time.perf_counter()
        future = streamer.map(slow, x, chunk_size=8, non_blocking=True)
        if not non_blocking:
            future.result()
        host_function(of_host)
        assert torch.equal(future.result(), x + 1)
        return time.perf_counter() - begin

    with sluice.Streamer(depth=4) as streamer:
        seconds(False, 0.0)
        alone = min(seconds(False, 0.0) for _ in range(3))
        hidden = min(seconds(True, 0.8 * alone) for _ in range(3))
        behind = min(seconds(False, 0.8 * alone) for _ in range(3))
    assert hidden < 1.4 * alone
    assert behind > 1.7 * alone
