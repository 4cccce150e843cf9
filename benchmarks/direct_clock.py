"""A clock for calls that cost microseconds in a CUDA graph, and more as they are."""

from __future__ import annotations

import itertools

import torch

from sluice.bench import CallClock, GraphClock
from sluice.bench.timing import Call

STEPS = 25  # calls of a block


class Direct:
    """A call that is timed as it is, the host's part included; all other calls are timed in a CUDA graph."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self) -> object:
        return self._call()


class StepClock:
    """Time of a call: in a CUDA graph that repeats it, as `GraphClock`; of a `Direct` call, in a block of `STEPS`.

    A block is timed on the host, from its first call until the GPU is done with the last call, over the number of
    calls. The host may run ahead of the GPU within a block, as it does where steps follow each other. The first call of
    a block finds nothing of its tensors in L2.
    """

    def __init__(self, device: torch.device) -> None:
        self._in_graphs, self._in_blocks = GraphClock(device), CallClock(device)

    def measure(self, call: Call, samples: int) -> list[float]:
        """Each sample is the mean over the calls of a graph's replay, or of a block."""
        if not isinstance(call, Direct):
            return self._in_graphs.measure(call, samples)

        def block() -> None:
            for _ in itertools.repeat(None, STEPS):
                call()

        return [us / STEPS for us in self._in_blocks.measure(block, samples)]
