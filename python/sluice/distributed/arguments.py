"""Checks that the functions share: what a rank can see by itself, before anything is sent."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import torch

from .._arguments import check_tensor
from .._autograd import check_out, innermost_transform
from .._errors import checked
from .._fake import check_device, check_strided, dtype_name, require
from .._memory import check_no_overlap, check_written_once
from ..chain import Chain

Found = TypeVar("Found")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Accepted(Generic[Found]):
    """What the checks of earlier calls found, for calls whose arguments differ in nothing that they read."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Found] = {}

    def find(self, key: Hashable | None) -> Found | None:
        """What was found for this key, or None."""
        return None if key is None else self._found.get(key)

    def add(self, key: Hashable | None, found: Found) -> None:
        """Remembers it."""
        if key is not None:
            if len(self._found) >= 1024:
                self._found.clear()
            self._found[key] = found


def key_of(*arguments: Any) -> Hashable | None:
    """What checks read of arguments, without tensors' values and memory; None if they read more."""
    if torch._C._is_any_autocast_enabled() or innermost_transform() is not None:
        return None
    parts: list[Any] = []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            if type(value) not in _PLAIN or value.layout is not torch.strided or value.is_nested:
                return None
            parts += (value.shape, value.stride(), value.dtype, value.device)
        elif isinstance(value, Chain):
            operands = key_of(*value.operands)
            if operands is None:
                return None
            parts += (value.text, value.has_channels, operands)
        else:
            parts += [type(value), value]
    try:
        hash(key := tuple(parts))
    except TypeError:  # a list, say
        return None
    return key


def check_plain(op: str, argument: str, value: Any) -> None:
    """Raises `TypeError` unless `value` is a tensor of torch's own class, `ValueError` unless it has memory."""
    check_tensor(op, argument, value)
    if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        rule = "must be a plain tensor, this rank's piece (sluice's own functions take a DTensor)"
        raise TypeError(f"{op}: {argument} {rule}, got {type(value).__name__}")
    if value.is_quantized:
        raise TypeError(f"{op}: {argument} must not be quantized, got {dtype_name(value.dtype)}")
    checked(op, value, check_strided, op, argument, value)


def check_dim(op: str, dim: Any) -> None:
    """Raises `ValueError` unless the sequence is what is split."""
    if dim != "sequence":
        rule = "dim must be 'sequence': batch and channels need no communication"
        raise ValueError(f"{op}: {rule}, got {dim!r}")


def check_devices(op: str, x: torch.Tensor, tensors: Iterable[tuple[str, torch.Tensor | None]]) -> None:
    """Raises the op's error about a named tensor that has no memory or is not on x's device."""
    for name, tensor in tensors:
        if tensor is not None:
            checked(op, x, check_strided, op, name, tensor)
            checked(op, x, check_device, op, name, tensor, x)


def check_target(
    op: str,
    out: torch.Tensor,
    x: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    read: Iterable[tuple[str, torch.Tensor | None]],
) -> None:
    """Raises the op's errors about an `out`.

    Args:
        op: for messages.
        out: the argument.
        x: the input.
        shape: of the result.
        dtype: of the result.
        read: the named tensors that `out` must not overlap.
    """
    check_out(op, "out", out)
    tensors = [(name, tensor) for name, tensor in read if tensor is not None]
    if not _is_writable(out, x, shape, dtype, tensors):
        check_devices(op, x, [("out", out)])
        checked(op, x, _check_target, op, out, shape, dtype, tensors)


def _is_writable(
    out: torch.Tensor,
    x: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    read: Sequence[tuple[str, torch.Tensor]],
) -> bool:
    """Whether the checks certainly find nothing, which costs a fourth of them."""
    if type(out) is not torch.Tensor or out.layout is not torch.strided or out.device != x.device:
        return False
    if out.dtype != dtype or out.shape != shape or torch.ops.sluice._overlaps_itself(out):
        return False
    return not any(torch.ops.sluice._overlap(out, tensor) for _, tensor in read)


def _check_target(
    op: str,
    out: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    read: Sequence[tuple[str, torch.Tensor]],
) -> None:
    require(op, out.dtype == dtype, lambda: f"out must have dtype {dtype_name(dtype)}, got {dtype_name(out.dtype)}")
    require(op, tuple(out.shape) == shape, lambda: f"out must have shape {shape}, got {tuple(out.shape)}")
    check_written_once(op, "out", out)
    for name, tensor in read:
        check_no_overlap(op, "out", out, name, tensor)
