"""Results that are 0 because a token has no sequence or its sequence no slot: the kernels' rule in torch ops.

It is for a chain that runs after a kernel and changes the zeros that the kernel wrote.
"""

from __future__ import annotations

import torch


def skipped_sequences(
    indices: torch.Tensor | None, slots: int, pad_slot: int, null_slot: int | None
) -> torch.Tensor | None:
    """Whether each sequence has no slot; None if all have one.

    Args:
        indices: the slot of each sequence, or a row of slots, at least one valid.
        slots: their number.
        pad_slot: an index that names no slot.
        null_slot: another index that names no slot.
    """
    if indices is None:
        return None
    valid: torch.Tensor = (indices >= 0) & (indices < slots) & (indices != pad_slot)
    if null_slot is not None:
        valid = valid & (indices != null_slot)
    return ~(valid.any(-1) if valid.dim() == 2 else valid)


def skipped_tokens(starts: torch.Tensor, tokens: int, skipped: torch.Tensor | None) -> torch.Tensor:
    """Whether each packed token has no sequence, or a `skipped` one."""
    sequences = starts.shape[0] - 1
    positions = torch.arange(tokens, device=starts.device)
    sequence = torch.searchsorted(starts.long(), positions, right=True) - 1
    outside = (sequence < 0) | (sequence >= sequences)
    if skipped is not None and sequences > 0:
        outside = outside | skipped[sequence.clamp(0, sequences - 1)]
    return outside
