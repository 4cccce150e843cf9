"""Refuses overlap of written memory, with the messages of ops/common/checks.cpp.

It is for calls that pass other memory to an op than they were given, in which the op would find no overlap.
"""

from __future__ import annotations

import torch

from ._fake import require


def check_written_once(op: str, written: str, tensor: torch.Tensor) -> None:
    """Raises if two elements of a written tensor share memory."""
    if torch.ops.sluice._overlaps_itself(tensor):
        strides = f"got strides {tensor.stride()} for shape {tuple(tensor.shape)}"
        require(op, False, lambda: f"{written} must not have two elements at one address, {strides}")


def check_no_overlap(
    op: str, written: str, tensor: torch.Tensor, argument: str, input: torch.Tensor, *, may_be_same: bool = False
) -> None:
    """Raises if a written tensor shares memory with an input, unless it may be the same tensor and is.

    A lazily negated input is read from a copy, which shares none.
    """
    if input.is_neg() or not torch.ops.sluice._overlap(tensor, input):
        return
    unless = " unless it is that tensor" if may_be_same else ""
    words = f"{written} must not overlap {argument}{unless}, got memory in common"
    require(op, may_be_same and _is_same(tensor, input), lambda: words)


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (a.data_ptr(), a.dtype, a.shape) != (b.data_ptr(), b.dtype, b.shape):
        return False
    return all(size == 1 or i == j for size, i, j in zip(a.shape, a.stride(), b.stride(), strict=True))


# A fake tensor has no memory.
torch.library.register_fake("sluice::_overlap")(lambda a, b: False)
torch.library.register_fake("sluice::_overlaps_itself")(lambda tensor: False)
