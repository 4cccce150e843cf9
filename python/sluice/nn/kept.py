"""Values that are computed from parameters once, and again after a change of one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class _Value(NamedTuple):
    parameters: tuple[torch.Tensor, ...]
    versions: list[int]
    addresses: list[int]
    value: Any

    def is_of(self, parameters: tuple[torch.Tensor, ...]) -> bool:
        """Whether the parameters are the same tensors in the same state."""
        return (
            all(map(operator.is_, parameters, self.parameters))
            and [one._version for one in parameters] == self.versions
            and [one.data_ptr() for one in parameters] == self.addresses
        )


class Kept:
    """Values of the same parameters, by stream: a kernel of another one might read a value before it is written.

    A CUDA graph neither fills nor reads it: it would replay the values of its capture, whose memory is freed when a
    parameter changes. A change through `parameter.data` is not seen unless it moves the parameter, because torch does
    not count its version.
    """

    def __init__(self) -> None:
        self._values: dict[Any, _Value] = {}

    def of(self, parameters: tuple[torch.Tensor, ...], compute: Callable[[], Any], key: object = None) -> Any:
        """The value that `compute` makes of the parameters; `key` tells apart several ones."""
        stream = 0
        if parameters[0].is_cuda:
            if torch.cuda.is_current_stream_capturing():
                return compute()
            stream = torch._C._cuda_getCurrentRawStream(parameters[0].device.index)
        found = self._values.get((stream, key))
        if found is not None and found.is_of(parameters):
            return found.value
        with torch.inference_mode(False), torch.no_grad():  # a later call may save the value for its backward
            value = compute()
        if any(one.is_inference() for one in parameters):  # which count no versions
            return value
        versions, addresses = [one._version for one in parameters], [one.data_ptr() for one in parameters]
        others = {place: one for place, one in self._values.items() if one.is_of(parameters)}
        self._values = {**others, (stream, key): _Value(parameters, versions, addresses, value)}
        return value
