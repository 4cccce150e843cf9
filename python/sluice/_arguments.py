"""Plain arguments that the functions share: checked before any work, with sluice's wording of messages."""

from __future__ import annotations

import numbers
from typing import Any

import torch

_LIMIT = 1 << 63


def integer(op: str, argument: str, value: Any, rule: str = "be an int") -> int:
    """`value` as an int: NumPy's integers are accepted, bools are not."""
    if type(value) is int:
        if -_LIMIT < value < _LIMIT:
            return value
        raise ValueError(f"{op}: {argument} must be less than 2^63, got {value}")
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{op}: {argument} must {rule}, got {type(value).__name__}")
    return int(value)


def single(op: str, argument: str, value: Any) -> int:
    """The number in `value`, which may be a tuple of one, as in torch."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise ValueError(f"{op}: {argument} must be one number, got {tuple(value)}")
        value = value[0]
    return integer(op, argument, value)


def are_integers(first: Any, second: Any, third: Any, fourth: Any) -> bool:
    """Whether all four are plain, not negative, and below 2^63: `integer` would return them unchanged.

    One check of all bits instead of four, which cost a call 0.5 us.
    """
    return (
        type(first) is type(second) is type(third) is type(fourth) is int
        and 0 <= (first | second | third | fourth) < _LIMIT
    )


def check_tensors(op: str, input: Any, weight: Any, bias: Any) -> None:
    """Raises `TypeError` unless a convolution's arguments are tensors."""
    if not (
        isinstance(input, torch.Tensor)
        and isinstance(weight, torch.Tensor)
        and (bias is None or isinstance(bias, torch.Tensor))
    ):
        check_tensor(op, "input", input)
        check_tensor(op, "weight", weight)
        if bias is not None:
            check_tensor(op, "bias", bias)


def check_dtype(op: str, dtype: Any) -> None:
    """Raises `TypeError` unless `dtype` is one of torch's."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{op}: dtype must be a torch.dtype, got {type(dtype).__name__}")


def check_string(op: str, argument: str, value: Any) -> None:
    """Raises `TypeError` unless `value` is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{op}: {argument} must be a string, got {type(value).__name__}")


def check_tensor(op: str, argument: str, value: object) -> None:
    """Raises `TypeError` unless `value` is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{op}: {argument} must be a torch.Tensor, got {type(value).__name__}")
