"""Which results are 0, because a token has no sequence or its sequence no slot: the rule of kernels, in torch's ops.

For a chain that runs behind a kernel and changes the zeros that the kernel has written.
"""

from __future__ import annotations

import torch


def skipped_sequences(
    indices: torch.Tensor | None, slots: int, pad_slot: int, null_slot: int | None
) -> torch.Tensor | None:
    """Which sequences have no slot, a bool for each; None where all have one.

    Args:
        indices: the slot of each sequence, or a row of them, one of which has to be valid.
        slots: how many there are.
        pad_slot: an index that names no slot.
        null_slot: another one.
    """
    if indices is None:
        return None
    valid: torch.Tensor = (indices >= 0) & (indices < slots) & (indices != pad_slot)
    if null_slot is not None:
        valid = valid & (indices != null_slot)
    return ~(valid.any(-1) if valid.dim() == 2 else valid)


def skipped_tokens(starts: torch.Tensor, tokens: int, skipped: torch.Tensor | None) -> torch.Tensor:
    """Which of the packed tokens have no sequence, or one of those `skipped`; a bool for each."""
    sequences = starts.shape[0] - 1
    positions = torch.arange(tokens, device=starts.device)
    sequence = torch.searchsorted(starts.long(), positions, right=True) - 1
    outside = (sequence < 0) | (sequence >= sequences)
    if skipped is not None and sequences > 0:
        outside = outside | skipped[sequence.clamp(0, sequences - 1)]
    return outside
