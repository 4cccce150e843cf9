"""SGLang's causal convolution: `sglang/srt/layers/attention/mamba/causal_conv1d.py` of SGLang 0.5.23."""

from __future__ import annotations

from typing import Any

import torch

from .._arguments import check_tensor
from ..causal_conv1d import causal_conv1d as convolve
from ..causal_conv1d_update import causal_conv1d_update as update
from ._activation import check_activation
from .vllm import PAD_SLOT_ID, convolve_slots

__all__ = ["PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_update"]


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    conv_states: torch.Tensor | None = None,
    activation: str | bool | None = "silu",
    pad_slot_id: int = PAD_SLOT_ID,
    **kwargs: Any,
) -> torch.Tensor:
    """`sluice.causal_conv1d` of sequences with states in the slots of a cache, which is changed in place.

    x does not change; SGLang overwrites it if its last stride is 1.

    Args:
        x: (B, C, L), or (C, T) with `query_start_loc`.
        query_start_loc: sluice's `cu_seqlens`.
        cache_indices: (N,), the slot of each sequence. Without it sequence n has slot n.
        has_initial_state: (N,) bool: where false, or absent, the old state counts as zeros.
        conv_states: (slots, C, >= K-1): a slot's first K-1 columns are a state, and others are left alone. Without it
            no states are kept, and `cache_indices` is ignored.
        **kwargs: ignored; they place the blocks of SGLang's kernels.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`.

    Example:
        >>> import torch
        >>> from sluice.compat.sglang import causal_conv1d_fn
        >>> x, states, starts = torch.ones(2, 4), torch.ones(3, 2, 2), torch.tensor([0, 3, 4])
        >>> slots, old = torch.tensor([0, -1]), torch.tensor([True, True])
        >>> causal_conv1d_fn(x, torch.ones(2, 3), None, starts, slots, old, states, activation=None)
        tensor([[3., 3., 3., 0.],
                [3., 3., 3., 0.]])

    Source: the function of this name in SGLang 0.5.23.
    """
    op = "causal_conv1d_fn"
    check_activation(op, activation)
    if conv_states is None:
        return convolve(x, weight, bias, activation=activation, cu_seqlens=query_start_loc)  # type: ignore[return-value]
    return convolve_slots(
        op, x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state, activation,
        pad_slot_id=pad_slot_id, null_slot_id=None,
    )  # fmt: skip


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    pad_slot_id: int = PAD_SLOT_ID,
) -> torch.Tensor:
    """`sluice.causal_conv1d_update` with the result written to x, which is returned.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d_update`.

    Example:
        >>> import torch
        >>> from sluice.compat.sglang import causal_conv1d_update
        >>> x, states, slots = torch.ones(2, 2), torch.ones(3, 2, 2), torch.tensor([0, -1])
        >>> causal_conv1d_update(x, states, torch.ones(2, 3), conv_state_indices=slots)
        tensor([[3., 3.],
                [0., 0.]])

    Source: the function of this name in SGLang 0.5.23.
    """
    op = "causal_conv1d_update"
    check_activation(op, activation)
    check_tensor(op, "x", x)
    return update(
        x,
        conv_state,
        weight,
        bias,
        activation,
        cache_seqlens=cache_seqlens,
        conv_state_indices=conv_state_indices,
        pad_slot_id=pad_slot_id,
        out=x,
    )
