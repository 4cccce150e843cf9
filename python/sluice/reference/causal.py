"""Causal convolutions of sequences, with states."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F

from .._apply import compute_dtype
from ..chain import Chain
from .chunks import Rows, causal_dense
from .slots import slot_of
from .stages import transform


def _runs(length: int, ids: torch.Tensor | None) -> list[tuple[int, int]]:
    """The start and end of each sequence of a row, of an empty sequence if there are none: a negative id is padding."""
    numbers = [0] * length if ids is None else ids.tolist()
    starts = [t for t in range(length) if t == 0 or numbers[t] != numbers[t - 1]]
    return [(a, b) for a, b in itertools.pairwise([*starts, length]) if numbers[a] >= 0] or [(0, 0)]


def _causal_sums(columns: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dilation: int) -> torch.Tensor:
    """The sums of (channels, history and tokens), one for each token."""
    offset = None if bias is None else bias.to(columns.dtype)
    taps = weight.to(columns.dtype)[:, None]
    return F.conv1d(columns[None], taps, offset, dilation=dilation, groups=len(taps))[0]


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | bool | None = None,
    residual: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    state_cache: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    pre: Chain | None = None,
    post: Chain | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the final states or the new cache, one row after the other; `state_cache` stays as it is."""
    if weight.dim() == 3:
        before = initial_states if state_cache is None else state_cache
        dense = Rows(x, before, cache_indices, has_initial_state, (pad_slot_id, null_slot_id))
        numbers = stride, 0, dilation, groups
        y, after = causal_dense(dense, weight, bias, numbers, padding_mode, pre, before)
        return dense.finished(y, activation, residual, post), after
    compute, history = compute_dtype(x.dtype), (weight.shape[1] - 1) * dilation
    tokens = x if pre is None else transform(x, pre, dtype=x.dtype)
    tokens = tokens if x.dim() == 3 else tokens[None]
    y, is_computed = torch.zeros_like(tokens, dtype=compute), torch.zeros_like(tokens, dtype=torch.bool)
    if cu_seqlens is None:
        rows = [(b, _runs(x.shape[-1], None if seq_idx is None else seq_idx[b])) for b in range(len(tokens))]
    else:
        rows = [(0, [(a, b)]) for a, b in itertools.pairwise(cu_seqlens.tolist())]
    before = initial_states if state_cache is None else state_cache
    if before is None:
        before = x.new_zeros((len(rows), x.shape[-2], history))
    after = before.to(x.dtype if state_cache is None else before.dtype, copy=True)
    for n, (row, runs) in enumerate(rows):
        slot = slot_of(cache_indices, n, len(before), (pad_slot_id, null_slot_id))
        if slot is None:
            continue
        is_fresh = has_initial_state is not None and not has_initial_state[n]
        kept = torch.zeros_like(before[slot]) if is_fresh else before[slot]
        for first, last in runs:
            new = tokens[row, :, first:last]
            past = kept[:, kept.shape[1] - history :]
            if new.numel() > 0:
                columns = torch.cat([past.to(compute), new.to(compute)], dim=-1)
                y[row, :, first:last] = _causal_sums(columns, weight, bias, dilation)
                is_computed[row, :, first:last] = True
            after[slot] = torch.cat([kept.to(after.dtype), new.to(after.dtype)], dim=-1)[:, last - first :]
            kept = torch.zeros_like(kept)
    y, is_computed = y.view(x.shape), is_computed.view(x.shape)
    if activation in (True, "silu", "swish"):
        y = F.silu(y)
    if residual is not None:
        y = y + residual.to(compute)
    return torch.where(is_computed, transform(y, post or Chain(), dtype=x.dtype), 0), after


def _advance(
    row: torch.Tensor, new: torch.Tensor, history: int, length: int | None, accepted: int | None, front: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The columns before the tokens `new`, oldest first, and the row after them; both are (channels, columns)."""
    columns, count = row.shape[-1], new.shape[-1]
    new, after = new.to(row.dtype), row.clone()
    if length is not None:
        past = row[:, [(length - history + j) % columns for j in range(history)]]
        for t in range(count if columns > 0 else 0):
            after[:, (length + t) % columns] = new[:, t]
    elif accepted is not None:
        first = min(max(accepted, 1), columns - history + 1) - 1
        past = row[:, first : first + history]
        written = torch.cat([past[:, 1:], new], dim=-1)[:, :columns]
        after[:, : written.shape[-1]] = written
    else:
        size = history if front else columns
        past = row[:, size - history : size]
        after[:, :size] = torch.cat([row[:, :size], new], dim=-1)[:, count:]
    return past, after


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    *,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    query_start_loc: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    state_at: str = "end",
    null_slot_id: int | None = None,
    dilation: int = 1,
    pre: Chain | None = None,
    residual: torch.Tensor | None = None,
    post: Chain | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the new state, one sequence after the other; `conv_state` stays as it is."""
    compute = compute_dtype(x.dtype)
    state, history = conv_state.clone(), (weight.shape[1] - 1) * dilation
    tokens = x if pre is None else transform(x, pre, dtype=x.dtype)
    y, is_computed = torch.zeros(x.shape, dtype=compute, device=x.device), torch.zeros_like(x, dtype=torch.bool)

    def of_sequence(t: torch.Tensor, n: int) -> torch.Tensor:
        """Its part of a tensor of x's shape, as (channels, tokens)."""
        if query_start_loc is not None:
            return t[int(query_start_loc[n]) : int(query_start_loc[n + 1])].mT
        return t[n] if t.dim() == 3 else t[n, :, None]

    def number(of_each: torch.Tensor | None, n: int) -> int | None:
        return None if of_each is None else int(of_each[n])

    for n in range(x.shape[0] if query_start_loc is None else len(query_start_loc) - 1):
        new = of_sequence(tokens, n)
        slot = slot_of(conv_state_indices, n, len(state), (pad_slot_id, null_slot_id))
        if slot is None or new.shape[-1] == 0:
            continue
        length, accepted = number(cache_seqlens, n), number(num_accepted_tokens, n)
        past, state[slot] = _advance(state[slot].clone(), new, history, length, accepted, state_at == "front")
        columns = torch.cat([past.to(compute), new.to(compute)], dim=-1)
        sums = of_sequence(y, n)
        if bias is not None:
            sums += bias.to(compute)[:, None]
        for k in range(weight.shape[1]):
            sums += weight[:, k, None].to(compute) * columns[:, k * dilation : k * dilation + new.shape[-1]]
        of_sequence(is_computed, n).fill_(True)
    if activation in (True, "silu", "swish"):
        y = F.silu(y)
    if residual is not None:
        y = y + residual.to(compute)
    result = transform(y, post or Chain(), dtype=x.dtype)
    return torch.where(is_computed, result, 0), state
