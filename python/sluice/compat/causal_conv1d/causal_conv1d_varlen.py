"""The states of packed sequences."""

from __future__ import annotations

import itertools

import torch

from ..._apply import check_forward_only
from ..._arguments import check_tensor

__all__ = ["causal_conv1d_varlen_states", "causal_conv1d_varlen_states_ref"]


def causal_conv1d_varlen_states(x: torch.Tensor, cu_seqlens: torch.Tensor, state_len: int) -> torch.Tensor:
    """The last `state_len` tokens of each sequence, zeros before a shorter sequence's. Nothing is read on the host.

    Args:
        x: (T, C), any strides, any dtype.
        cu_seqlens: (N + 1,) int32 or int64: sequence n has the tokens from cu_seqlens[n] on. Empty sequences are
            allowed.
        state_len: columns of a state.

    Returns:
        (N, C, state_len) of x's dtype, with contiguous channels.

    Raises:
        TypeError: x or `cu_seqlens` is not a tensor.
        ValueError: a shape that does not fit.
        RuntimeError: grad mode is on and x requires grad.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d import causal_conv1d_varlen_states
        >>> x, starts = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 1, 4])
        >>> causal_conv1d_varlen_states(x, starts, 2)
        tensor([[[0., 1.]],
        <BLANKLINE>
                [[3., 4.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    _check("causal_conv1d_varlen_states", x, cu_seqlens, state_len)
    check_forward_only("causal_conv1d_varlen_states", (x,))
    tokens, channels = x.shape
    if tokens == 0:
        return x.new_zeros(cu_seqlens.shape[0] - 1, state_len, channels).mT
    places = cu_seqlens[1:, None] + torch.arange(-state_len, 0, device=x.device)
    states = x[places.clamp(0, tokens - 1)]
    return states.masked_fill_((places < cu_seqlens[:-1, None])[..., None], 0).mT


def causal_conv1d_varlen_states_ref(x: torch.Tensor, cu_seqlens: torch.Tensor, state_len: int) -> torch.Tensor:
    """`causal_conv1d_varlen_states`, one sequence after the other: slow, and for tests.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d.causal_conv1d_varlen import causal_conv1d_varlen_states_ref
        >>> causal_conv1d_varlen_states_ref(torch.ones(2, 1), torch.tensor([0, 2]), 3)
        tensor([[[0., 1., 1.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    _check("causal_conv1d_varlen_states_ref", x, cu_seqlens, state_len)
    states = x.new_zeros(cu_seqlens.shape[0] - 1, state_len, x.shape[1])
    for state, (first, last) in zip(states, itertools.pairwise(cu_seqlens.tolist()), strict=True):
        count = min(last - first, state_len)
        state[state_len - count :] = x[last - count : last]
    return states.mT


def _check(op: str, x: torch.Tensor, cu_seqlens: torch.Tensor, state_len: int) -> None:
    for name, given in (("x", x), ("cu_seqlens", cu_seqlens)):
        check_tensor(op, name, given)
    if x.dim() != 2:
        raise ValueError(f"{op}: x must have shape (tokens, channels), got {tuple(x.shape)}")
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] == 0:
        raise ValueError(f"{op}: cu_seqlens must have shape (sequences + 1,), got {tuple(cu_seqlens.shape)}")
    if state_len < 0:
        raise ValueError(f"{op}: state_len must not be negative, got {state_len}")
