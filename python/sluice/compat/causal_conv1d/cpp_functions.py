"""The functions below the interface. mamba-ssm imports all three in one try."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from ...causal_conv1d import causal_conv1d as convolve
from ...causal_conv1d_update import causal_conv1d_update as update

__all__ = ["causal_conv1d_bwd_function", "causal_conv1d_fwd_function", "causal_conv1d_update_function"]


def causal_conv1d_fwd_function(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    seq_idx: torch.Tensor | None,
    initial_states: torch.Tensor | None,
    final_states_out: torch.Tensor | None,
    silu_activation: bool,
) -> torch.Tensor:
    """`causal_conv1d_fn` that writes final states to `final_states_out`, if given, and does not return them.

    Args:
        silu_activation: True for silu, False for no activation.

    Raises:
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d.cpp_functions import causal_conv1d_fwd_function
        >>> causal_conv1d_fwd_function(torch.ones(1, 1, 4), torch.ones(1, 3), None, None, None, None, False)
        tensor([[[1., 2., 3., 3.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    result = convolve(
        x,
        weight,
        bias,
        activation=bool(silu_activation),
        seq_idx=seq_idx,
        initial_states=initial_states,
        final_states_out=final_states_out,
    )
    return result[0] if isinstance(result, tuple) else result


def causal_conv1d_bwd_function(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    dout: torch.Tensor,
    seq_idx: torch.Tensor | None,
    initial_states: torch.Tensor | None,
    dfinal_states: torch.Tensor | None,
    dx: torch.Tensor | None,
    return_dinitial_states: Any,
    silu_activation: bool,
) -> NoReturn:
    """Raises `NotImplementedError`. It exists because mamba-ssm imports it along with the other two.

    Example:
        >>> from sluice.compat.causal_conv1d.cpp_functions import causal_conv1d_bwd_function
        >>> causal_conv1d_bwd_function(*[None] * 10)
        Traceback (most recent call last):
        NotImplementedError: causal_conv1d_bwd_function: sluice is forward-only, ...

    Source: the function of this name in causal_conv1d 1.7.
    """
    raise NotImplementedError(
        "causal_conv1d_bwd_function: sluice is forward-only, train with causal_conv1d itself "
        "(sluice.compat.causal_conv1d.uninstall())"
    )


def causal_conv1d_update_function(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu_activation: bool,
    cache_seqlens: torch.Tensor | None,
    conv_state_indices: torch.Tensor | None,
) -> torch.Tensor:
    """`causal_conv1d_update` with a bool for the activation.

    Args:
        silu_activation: True for silu, False for no activation.

    Raises:
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d_update`.

    Example:
        >>> import torch
        >>> from sluice.compat.causal_conv1d.cpp_functions import causal_conv1d_update_function
        >>> state = torch.ones(1, 2, 2)
        >>> causal_conv1d_update_function(torch.ones(1, 2, 1), state, torch.ones(2, 3), None, False, None, None)
        tensor([[[3.],
                 [3.]]])

    Source: the function of this name in causal_conv1d 1.7.
    """
    return update(
        x,
        conv_state,
        weight,
        bias,
        bool(silu_activation),
        cache_seqlens=cache_seqlens,
        conv_state_indices=conv_state_indices,
    )
