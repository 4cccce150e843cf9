"""Values that are computed from parameters once, and again after a change of one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

_VERSION, _ADDRESS = operator.attrgetter("_version"), torch.Tensor.data_ptr


class _Value(NamedTuple):
    parameters: tuple[torch.Tensor, ...]
    versions: list[int]
    addresses: list[int]
    value: Any
    done: torch.cuda.Event | None

    def is_of(self, parameters: tuple[torch.Tensor, ...]) -> bool:
        """Whether the parameters are the same tensors in the same state."""
        return (
            all(map(operator.is_, parameters, self.parameters))
            and list(map(_VERSION, parameters)) == self.versions
            and list(map(_ADDRESS, parameters)) == self.addresses
        )


class Kept:
    """Values of the same parameters.

    A stream that did not compute a value waits for it once. A CUDA graph neither fills nor reads what is kept: it would
    replay the values of its capture, whose memory is freed when a parameter changes. A change through `parameter.data`
    is not seen unless it moves the parameter, because torch does not count its version.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[int, object], _Value] = {}  # by stream and key

    def of(self, parameters: tuple[torch.Tensor, ...], compute: Callable[[], Any], key: object = None) -> Any:
        """The value that `compute` makes of the parameters; `key` tells several values apart."""
        stream, is_cuda = 0, parameters[0].is_cuda
        if is_cuda:
            if torch.cuda.is_current_stream_capturing():
                return compute()
            stream = torch._C._cuda_getCurrentRawStream(parameters[0].device.index)
        found = self._values.get((stream, key))
        if found is not None and found.is_of(parameters):
            return found.value
        valid = {place: one for place, one in self._values.items() if one.is_of(parameters)}
        found = next((one for (_, other), one in valid.items() if other == key), None)
        if found is not None:
            _wait(found)
        else:
            with torch.inference_mode(False), torch.no_grad():  # a later call may save the value for its backward
                value = compute()
            if any(one.is_inference() for one in parameters):  # which count no versions
                return value
            done = torch.cuda.current_stream(parameters[0].device).record_event() if is_cuda else None
            found = _Value(parameters, list(map(_VERSION, parameters)), list(map(_ADDRESS, parameters)), value, done)
        self._values = {**valid, (stream, key): found}
        return found.value


def _wait(found: _Value) -> None:
    """Makes the current stream wait until the value is there, and its memory stay until the stream has read it."""
    stream = torch.cuda.current_stream(found.parameters[0].device)
    assert found.done is not None
    stream.wait_event(found.done)
    for tensor in _tensors_in(found.value):
        tensor.record_stream(stream)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    for one in value if isinstance(value, tuple) else vars(value).values() if hasattr(value, "packed") else ():
        yield from _tensors_in(one)
