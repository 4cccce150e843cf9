"""Checks that the functions share: what a rank can see by itself, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .._fake import check_device, check_strided, dtype_name, require
from .._library import call, check_out, check_tensor
from .._memory import check_no_overlap, check_written_once


def check_plain(op: str, argument: str, value: Any) -> None:
    """Raises `TypeError` unless `value` is a tensor of torch's own class, `ValueError` unless it has memory."""
    check_tensor(op, argument, value)
    if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        rule = "must be a plain tensor, this rank's piece (sluice's own functions take a DTensor)"
        raise TypeError(f"{op}: {argument} {rule}, got {type(value).__name__}")
    if value.is_quantized:
        raise TypeError(f"{op}: {argument} must not be quantized, got {dtype_name(value.dtype)}")
    call(op, value, check_strided, op, argument, value)


def check_dim(op: str, dim: Any) -> None:
    """Raises `ValueError` unless the sequence is what is split."""
    if dim != "sequence":
        rule = "dim must be 'sequence': batch and channels need no communication"
        raise ValueError(f"{op}: {rule}, got {dim!r}")


def check_devices(op: str, x: torch.Tensor, tensors: Iterable[tuple[str, torch.Tensor | None]]) -> None:
    """Raises the op's error about a named tensor that has no memory or is not on x's device."""
    for name, tensor in tensors:
        if tensor is not None:
            call(op, x, check_strided, op, name, tensor)
            call(op, x, check_device, op, name, tensor, x)


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

    def check() -> None:
        require(op, out.dtype == dtype, lambda: f"out must have dtype {dtype_name(dtype)}, got {dtype_name(out.dtype)}")
        require(op, tuple(out.shape) == shape, lambda: f"out must have shape {shape}, got {tuple(out.shape)}")
        check_written_once(op, "out", out)
        for name, tensor in read:
            if tensor is not None:
                check_no_overlap(op, "out", out, name, tensor)

    check_out(op, "out", out)
    check_devices(op, x, [("out", out)])
    call(op, x, check)
