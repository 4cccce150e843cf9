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
        final_states_out: ignored without `return_final_states`.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
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

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
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
