"""vLLM's causal convolution: the functions of `vllm/model_executor/layers/mamba/ops/causal_conv1d.py` (0.33).

States may have any strides, so both of its layouts work: "SD" with contiguous channels, "DS" with contiguous columns.
"""

from __future__ import annotations

from typing import Any

import torch

from .._arguments import check_tensor
from ..causal_conv1d import causal_conv1d as convolve
from ..causal_conv1d_update import causal_conv1d_update as update
from ._activation import check_activation

__all__ = ["NULL_BLOCK_ID", "PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_update"]

PAD_SLOT_ID = -1
NULL_BLOCK_ID = 0


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    conv_states: torch.Tensor,
    query_start_loc: torch.Tensor,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    activation: str | bool | None = "silu",
    pad_slot_id: int = PAD_SLOT_ID,
    null_block_id: int | None = NULL_BLOCK_ID,
    metadata: Any = None,
    validate_data: bool = False,
) -> torch.Tensor:
    """`sluice.causal_conv1d` of packed sequences with states in the slots of a cache, which is changed in place.

    Args:
        x: (C, T); vLLM passes channels-last.
        conv_states: (slots, C, >= K-1): a slot's first K-1 columns are a state, and others are left alone.
        query_start_loc: sluice's `cu_seqlens`.
        cache_indices: (N,), or (N, blocks), whose first column counts. Without it sequence n has slot n.
        has_initial_state: (N,) bool: where false, or absent, the old state counts as zeros. A sequence without tokens
            then leaves zeros in its slot, which vLLM does not write.
        null_block_id: an index that names no slot, as `pad_slot_id` is, or None.
        metadata: ignored; it places the blocks of vLLM's kernel.
        validate_data: assert that `cache_indices` and `has_initial_state` have shape (N,). Without it more elements are
            allowed and ignored.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
        AssertionError: an assertion of `validate_data` fails.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`.

    Example:
        >>> import torch
        >>> from sluice.compat.vllm import causal_conv1d_fn
        >>> x, weight, states = torch.ones(2, 4), torch.ones(2, 3), torch.ones(3, 2, 2)
        >>> starts, slots = torch.tensor([0, 3, 4]), torch.tensor([1, 0])  # 0 is the null block
        >>> causal_conv1d_fn(x, weight, None, states, starts, slots, activation=None)
        tensor([[1., 2., 3., 0.],
                [1., 2., 3., 0.]])

    Source: the function of this name in vLLM 0.33.
    """
    op = "causal_conv1d_fn"
    check_activation(op, activation)
    for name, given in (("conv_states", conv_states), ("query_start_loc", query_start_loc)):
        check_tensor(op, name, given)
    if validate_data:
        sequences = query_start_loc.shape[0] - 1
        for name, each in (("cache_indices", cache_indices), ("has_initial_state", has_initial_state)):
            if each is not None and each.shape != (sequences,):
                raise AssertionError(f"{op}: {name} must have shape ({sequences},), got {tuple(each.shape)}")
    return convolve_slots(
        op, x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state, activation,
        pad_slot_id=pad_slot_id, null_slot_id=null_block_id,
    )  # fmt: skip


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    conv_state_indices: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    max_query_len: int = -1,
    null_block_id: int | None = NULL_BLOCK_ID,
    validate_data: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`sluice.causal_conv1d_update` with the state in a slot's first columns and the result written to x.

    Args:
        x: (B, C) or (B, C, S); with `query_start_loc` (tokens, C).
        conv_state: (slots, C, >= K-1): a slot's first K-1 columns are its state, and others are left alone.
        conv_state_indices: (B,), or (B, blocks), whose first column counts. Without it sequence b has slot b.
        max_query_len: ignored; it sizes the blocks of vLLM's kernel.
        null_block_id: an index that names no slot, or None: the result is 0, and no state is changed.
        validate_data: assert that there is a null block, and one index for each sequence. Without it indices, accepted
            numbers and starts of further sequences are allowed and ignored.
        out: written and returned instead of x.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
        AssertionError: an assertion of `validate_data` fails.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d_update`.

    Example:
        >>> import torch
        >>> from sluice.compat.vllm import causal_conv1d_update
        >>> x, states, slots = torch.ones(2, 2), torch.ones(3, 2, 2), torch.tensor([2, 0])  # 0 is the null block
        >>> causal_conv1d_update(x, states, torch.ones(2, 3), conv_state_indices=slots) is x
        True
        >>> x
        tensor([[3., 3.],
                [0., 0.]])

    Source: the function of this name in vLLM 0.33.
    """
    op = "causal_conv1d_update"
    check_activation(op, activation)
    for name, given in (("x", x), ("conv_state", conv_state)):
        check_tensor(op, name, given)
    if out is None:
        out = x
    elif isinstance(out, torch.Tensor) and out.dtype != x.dtype:
        raise ValueError(f"{op}: out must have x's dtype {x.dtype}, got {out.dtype}")
    if query_start_loc is None:
        sequences = x.shape[0]
    else:
        sequences = query_start_loc.shape[0] - 1 if conv_state_indices is None else conv_state_indices.shape[0]
    if conv_state_indices is None:
        conv_state = first(conv_state, sequences)
    if validate_data:
        if null_block_id is None:
            raise AssertionError(f"{op}: null_block_id must be an int with validate_data, got None")
        if conv_state_indices is not None and conv_state_indices.shape[0] != sequences:
            shape = tuple(conv_state_indices.shape)
            raise AssertionError(f"{op}: conv_state_indices must have {sequences} rows, got shape {shape}")
    return update(
        x,
        conv_state,
        weight,
        bias,
        activation,
        conv_state_indices=first_column(conv_state_indices, sequences),
        query_start_loc=None if query_start_loc is None else first(query_start_loc, sequences + 1),
        num_accepted_tokens=None if num_accepted_tokens is None else first(num_accepted_tokens, sequences),
        state_at="front",
        null_slot_id=null_block_id,
        out=out,
    )


def convolve_slots(
    op: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    conv_states: torch.Tensor,
    query_start_loc: torch.Tensor | None,
    cache_indices: torch.Tensor | None,
    has_initial_state: torch.Tensor | None,
    activation: str | bool | None,
    *,
    pad_slot_id: int,
    null_slot_id: int | None,
) -> torch.Tensor:
    """`sluice.causal_conv1d` with states in the first K-1 columns; without `has_initial_state` they count as zeros."""
    for name, given in (("x", x), ("weight", weight)):
        check_tensor(op, name, given)
    sequences = x.shape[0] if query_start_loc is None else max(query_start_loc.shape[0] - 1, 0)
    if cache_indices is None:
        conv_states = first(conv_states, sequences)
    if has_initial_state is None:
        has_initial_state = torch.zeros(sequences, dtype=torch.bool, device=x.device)
    return convolve(
        x,
        weight,
        bias,
        activation=activation,
        cu_seqlens=query_start_loc,
        state_cache=conv_states[..., : weight.shape[-1] - 1],
        cache_indices=first_column(cache_indices, sequences),
        has_initial_state=first(has_initial_state, sequences),
        pad_slot_id=pad_slot_id,
        null_slot_id=null_slot_id,
    )  # type: ignore[return-value]


def first(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` rows."""
    return tensor if tensor.shape[0] <= count else tensor[:count]


def first_column(indices: torch.Tensor | None, count: int) -> torch.Tensor | None:
    """The slots of the first sequences: vLLM's kernels read the first block of each."""
    if indices is None:
        return None
    return first(indices[:, 0] if indices.dim() == 2 else indices, count)
