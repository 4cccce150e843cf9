"""A model's graph, run ahead of Dynamo's guards, so that they are checked while a device computes.

The graph of the last call runs for the new arguments at once. Then the call goes its way: where its guards lead to the
same graph with the same inputs, the results are there, and else it runs as if nothing had run ahead. A graph runs ahead
only where nobody can tell: it is all of the call, it writes to none of its inputs and draws no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .._precision import settings

# Where graphs run ahead. One H200, eager's time over the call's, before / with it: Wav2Vec2's features, float16, eight
# requests 0.96 / 1.16; Whisper's stem 1.45 / 1.96; SpeechT5's vocoder, float16, in CUDA graphs 3.42 / 5.10.
DEVICES = frozenset(("cuda",))
_MOST_MISSES = 3  # misses of a model whose inputs, other than its arguments, differ from call to call


class Call(NamedTuple):
    """A call of a graph that has run.

    Attributes:
        graph: the graph.
        inputs: its inputs.
        results: its results.
    """

    graph: Any
    inputs: Sequence[Any]
    results: Any

    def is_of(self, graph: object, inputs: Sequence[Any]) -> bool:
        """Whether it is the call of this graph with these inputs."""
        return graph is self.graph and all(map(_is_same, inputs, self.inputs))


class _Expected(NamedTuple):
    """The next call of a graph.

    Attributes:
        graph: the graph.
        inputs: its inputs, with None in the place of the model's arguments.
        places: of each argument the indices of inputs that it is.
        arguments: what the arguments look like, and the modes and settings that decide a graph.
    """

    graph: Any
    inputs: list[Any]
    places: list[list[int]]
    arguments: tuple[Any, ...]


class Ahead:
    """What runs ahead of a model's calls."""

    def __init__(self) -> None:
        self._expected: _Expected | None = None
        self._misses = 0

    def expect(self, graph: Any, inputs: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Expects the next call to be like this call of a graph."""
        device = next((one.device.type for one in inputs if isinstance(one, torch.Tensor)), None)
        if device not in DEVICES or self._misses >= _MOST_MISSES:
            return
        places = [[i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor) and one is argument]
                  for argument in arguments]  # fmt: skip
        moving = {i for found in places for i in found}
        fixed = [None if i in moving else one for i, one in enumerate(inputs)]
        self._expected = _Expected(graph, fixed, places, _looks(arguments))

    def run(self, compute: Callable[[Any, Sequence[Any]], Any], arguments: Sequence[Any]) -> Call | None:
        """The call that is expected for the arguments, once it has run; None where none is.

        Args:
            compute: what runs a graph with inputs.
            arguments: the model's.
        """
        expected = self._expected
        if expected is None or _looks(arguments) != expected.arguments:
            return None
        inputs = list(expected.inputs)
        for argument, places in zip(arguments, expected.places, strict=True):
            for i in places:
                inputs[i] = argument
        try:
            return Call(expected.graph, inputs, compute(expected.graph, inputs))
        except Exception:  # whatever its class: the call itself will raise it, if it is to be raised
            self.miss()
            return None

    def miss(self) -> None:
        """Notes that what has run was not asked for."""
        self._expected, self._misses = None, self._misses + 1


def _is_same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) is int and a == b)


def _looks(arguments: Sequence[Any]) -> tuple[Any, ...]:
    tensors = [
        (one.shape, one.stride(), one.dtype, one.device, one.requires_grad) if isinstance(one, torch.Tensor) else None
        for one in arguments
    ]
    return (*tensors, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), settings.allows_tf32)
