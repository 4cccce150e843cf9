"""Chunks of streams: causal convolutions of weights with three dimensions, and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .._apply import compute_dtype
from ..chain import Chain
from .slots import slot_of
from .stages import transform


class Rows:
    """The rows of a batch and their slots of a cache.

    Attributes:
        x: (B, C, S).
        slots: each row's slot, if it has one.
        keeps: whether a row has a state.
    """

    def __init__(
        self,
        x: torch.Tensor,
        cache: torch.Tensor | None,
        indices: torch.Tensor | None,
        flags: torch.Tensor | None,
        skipped: Sequence[int | None],
    ) -> None:
        self.x = x
        self.slots = [slot_of(indices, n, 0 if cache is None else len(cache), skipped) for n in range(len(x))]
        self.keeps = [
            cache is not None and slot is not None and (flags is None or bool(flags[n]))
            for n, slot in enumerate(self.slots)
        ]

    def finished(
        self, y: torch.Tensor, activation: object, residual: torch.Tensor | None, post: Chain | None
    ) -> torch.Tensor:
        """The result: zeros in rows without a slot."""
        if activation in (True, "silu", "swish"):
            y = F.silu(y)
        if residual is not None:
            y = y + residual.to(y.dtype)
        result = transform(y, post or Chain(), dtype=self.x.dtype)
        for n, slot in enumerate(self.slots):
            if slot is None:
                result[n] = 0
        return result


def columns_before(x: torch.Tensor, columns: int, padding_mode: str) -> torch.Tensor:
    """What a row without a state has before its first position; zeros stand for inputs that it does not have."""
    if padding_mode == "replicate":
        return x[..., :1].repeat(1, 1, columns)
    before = x.new_zeros(*x.shape[:2], columns)
    if padding_mode == "reflect":
        count = min(columns, x.shape[2] - 1)
        before[..., columns - count :] = x[..., 1 : count + 1].flip(-1)
    return before


def causal_dense(
    rows: Rows,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    numbers: tuple[int, int, int, int],
    padding_mode: str,
    pre: Chain | None,
    cache: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums, and the new states, which are inputs before `pre`; `numbers` are as F.conv1d has them."""
    x, (stride, _, dilation, _) = rows.x, numbers
    compute, history = compute_dtype(x.dtype), max(0, dilation * (weight.shape[2] - 1) + 1 - stride)
    tokens = x if pre is None else transform(x, pre, dtype=x.dtype)
    after = x.new_zeros(len(x), x.shape[1], history) if cache is None else cache.clone()
    past = columns_before(tokens, history, padding_mode)
    for n, slot in enumerate(rows.slots):
        if slot is None:
            continue
        begin = columns_before(x[n : n + 1], after.shape[2], padding_mode)[0]
        old = after[slot].clone() if rows.keeps[n] else begin.to(after.dtype)
        if rows.keeps[n]:
            past[n] = old[:, old.shape[1] - history :].to(x.dtype)
        after[slot] = torch.cat([old, x[n].to(after.dtype)], dim=-1)[:, x.shape[2] :]
    if pre is not None and any(rows.keeps):
        kept = torch.tensor(rows.keeps, device=x.device)[:, None, None]
        past = torch.where(kept, transform(past, pre, dtype=x.dtype), past)
    columns, offset = torch.cat([past, tokens], dim=-1).to(compute), None if bias is None else bias.to(compute)
    return F.conv1d(columns, weight.to(compute), offset, *numbers), after


def causal_conv_transpose1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    stride: int,
    groups: int = 1,
    dilation: int = 1,
    overlap_cache: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    pre: Chain | None = None,
    post: Chain | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the new overlaps, sums without the bias; `overlap_cache` stays as it is."""
    compute, reach = compute_dtype(x.dtype), dilation * (weight.shape[2] - 1) + 1
    rows = Rows(x, overlap_cache, cache_indices, has_initial_state, (pad_slot_id, null_slot_id))
    tokens, gap = x if pre is None else transform(x, pre, dtype=x.dtype), max(0, stride - reach)
    sums = F.conv_transpose1d(tokens.to(compute), weight.to(compute), None, stride, 0, gap, groups, dilation)
    length, overlap = x.shape[2] * stride, max(0, reach - stride)
    after = sums.new_zeros(len(x), sums.shape[1], overlap) if overlap_cache is None else overlap_cache.clone()
    for n, slot in enumerate(rows.slots):
        if slot is None:
            continue
        if rows.keeps[n]:
            sums[n, :, :overlap] += after[slot, :, :overlap].to(compute)
        after[slot, :, :overlap] = sums[n, :, length:].to(after.dtype)
    y = sums[..., :length] if bias is None else sums[..., :length] + bias.to(compute)[:, None]
    return rows.finished(y, None, None, post), after
