"""A network whose call is captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Network = Callable[[torch.Tensor], Any]

_WARM_UP = 3  # calls before a capture


class Captured:
    """A network whose call is captured in a CUDA graph the first time, and replayed afterwards, on one input."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, x: torch.Tensor) -> Any:
        if self._graph is None:
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(_WARM_UP):
                    self._network(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._result = self._network(x)
            self._graph = graph
        self._graph.replay()
        return self._result
