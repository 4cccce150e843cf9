"""The results of a raw op's call, without computing it: shapes, strides and dtypes, or the op's errors."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch

from .._errors import checked


class Described(NamedTuple):
    """What a tensor is without its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of its elements together."""
        return math.prod(self.shape) * self.dtype.itemsize


# The arguments of a call by name, hashable: tensors are described and lists are tuples.
Frozen = tuple[tuple[str, Any], ...]


def describe(tensor: torch.Tensor) -> Described:
    """What a tensor is."""
    return Described(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def freeze(values: dict[str, Any]) -> Frozen:
    """A call's arguments without their values."""
    return tuple((name, _frozen(value)) for name, value in values.items())


def _frozen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return describe(value)
    if isinstance(value, Described):
        return value
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def results_of(op: str, name: str, values: dict[str, Any], like: torch.Tensor) -> tuple[Described, ...]:
    """What the results of a raw op are. Devices are not compared.

    Args:
        op: for messages.
        name: the raw op's.
        values: its arguments by name; tensors may be described.
        like: the input, for the types of errors.

    Raises:
        TypeError, ValueError: the op refuses the call.
    """
    return checked(op, like, _remembered, name, freeze(values))


def raw_results_of(name: str, arguments: Frozen) -> tuple[Described, ...]:
    """The same of arguments whose sizes may be symbolic. Errors are the raw op's own."""
    found = getattr(torch.ops.sluice, name).default(**{key: _meta(value) for key, value in arguments})
    if found is None:
        return ()
    return tuple(describe(one) for one in ([found] if isinstance(found, torch.Tensor) else found))


_remembered = functools.lru_cache(maxsize=1024)(raw_results_of)


def _meta(value: Any) -> Any:
    if isinstance(value, Described):
        return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="meta")
    return [_meta(one) for one in value] if isinstance(value, tuple) else value
