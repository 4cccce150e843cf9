"""The functions that models call, and their definitions in plain torch."""

from __future__ import annotations

import torch

from ... import reference
from ...causal_conv1d import causal_conv1d as convolve
from ...causal_conv1d_update import causal_conv1d_update as update
from .._activation import check_activation

__all__ = ["causal_conv1d_fn", "causal_conv1d_ref", "causal_conv1d_update", "causal_conv1d_update_ref"]


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | bool | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`sluice.causal_conv1d` under the arguments of causal_conv1d, without its limits on layouts and widths.

    Args:
        x: (B, C, L), any strides.
        weight: (C, K), any floating dtype.
        bias: (C,), any floating dtype.
        seq_idx: (B, L) int32 or int64: a change of id begins a sequence within a row; a negative id gives 0 and is in
            no sequence, as in `sluice.causal_conv1d`.
        initial_states: (B, C, K-1), any strides: the columns before each row's first sequence; zeros if absent.
        return_final_states: also return the last K-1 columns of each row's last sequence, with what came before it.
        final_states_out: (B, C, K-1); written and returned as the final states. Ignored without `return_final_states`.
        activation: None, "identity", "silu", "swish" or a bool; True means silu.

    Returns:
        A tensor of x's shape and dtype, channels-last where x is, else contiguous; with `return_final_states` a tuple
        of it and the final states.

    Raises:
        NotImplementedError: another activation.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d import causal_conv1d_fn
        >>> y, states = causal_conv1d_fn(torch.ones(1, 1, 4), torch.ones(1, 3), return_final_states=True)
        >>> y
        tensor([[[1., 2., 3., 3.]]])
        >>> states
        tensor([[[1., 1.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    check_activation("causal_conv1d_fn", activation)
    return convolve(
        x,
        weight,
        bias,
        activation=activation,
        seq_idx=seq_idx,
        initial_states=initial_states,
        return_final_states=return_final_states,
        final_states_out=final_states_out if return_final_states else None,
    )


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """`sluice.causal_conv1d_update` under the arguments of causal_conv1d.

    Args:
        x: (B, C), a token of each sequence, or (B, C, S); any strides.
        conv_state: (B or slots, C, state_len >= K-1), any strides, any floating dtype; changed in place. The last K-1
            columns are the state; all columns move left by the new tokens.
        weight: (C, K), any floating dtype.
        bias: (C,), any floating dtype.
        activation: None, "identity", "silu", "swish" or a bool; True means silu.
        cache_seqlens: (B,) int32 or int64, tokens before this call: the state is circular, and token t goes to
            column (cache_seqlens + t) % state_len.
        conv_state_indices: (B,) int32 or int64, the slot of each sequence; -1: the result is 0, and no state is
            changed. Without it sequence b has slot b.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        NotImplementedError: another activation.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d_update`.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d import causal_conv1d_update
        >>> state = torch.ones(1, 2, 3)
        >>> causal_conv1d_update(torch.full((1, 2), 2.0), state, torch.ones(2, 3))
        tensor([[4., 4.]])
        >>> state
        tensor([[[1., 1., 2.],
                 [1., 1., 2.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    check_activation("causal_conv1d_update", activation)
    return update(
        x,
        conv_state,
        weight,
        bias,
        activation,
        cache_seqlens=cache_seqlens,
        conv_state_indices=conv_state_indices,
    )


def causal_conv1d_ref(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | bool | None = None,
    seq_idx: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`causal_conv1d_fn` by `sluice.reference`: slow, and for tests.

    Args:
        x: (B, C, L).
        weight: (C, K).
        bias: (C,).
        initial_states: (B, C, K-1).
        return_final_states: also return the final states.
        final_states_out: (B, C, K-1); written and returned as the final states. Ignored without `return_final_states`.
        activation: as in `causal_conv1d_fn`.
        seq_idx: (B, L).

    Returns:
        The same as `causal_conv1d_fn`.

    Raises:
        NotImplementedError: another activation.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d.causal_conv1d_interface import causal_conv1d_ref
        >>> causal_conv1d_ref(torch.ones(1, 1, 4), torch.ones(1, 3))
        tensor([[[1., 2., 3., 3.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    check_activation("causal_conv1d_ref", activation)
    result, states = reference.causal_conv1d(
        x, weight, bias, activation=activation, initial_states=initial_states, seq_idx=seq_idx
    )
    if not return_final_states:
        return result
    return result, states if final_states_out is None else final_states_out.copy_(states)


def causal_conv1d_update_ref(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    cache_seqlens: torch.Tensor | None = None,
) -> torch.Tensor:
    """`causal_conv1d_update` by `sluice.reference`: slow, and for tests.

    Args:
        x: (B, C) or (B, C, S).
        conv_state: (B, C, state_len >= K-1); changed in place.
        weight: (C, K).
        bias: (C,).
        activation: as in `causal_conv1d_update`.
        cache_seqlens: (B,).

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        NotImplementedError: another activation.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d.causal_conv1d_interface import causal_conv1d_update_ref
        >>> causal_conv1d_update_ref(torch.ones(1, 2), torch.ones(1, 2, 2), torch.ones(2, 3))
        tensor([[3., 3.]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    check_activation("causal_conv1d_update_ref", activation)
    result, state = reference.causal_conv1d_update(x, conv_state, weight, bias, activation, cache_seqlens=cache_seqlens)
    conv_state.copy_(state)
    return result
