"""cuDNN's causal convolution: `cudnn.ops` of its front end 1.32."""

from __future__ import annotations

import torch

from .. import stages
from .._arguments import check_tensor
from ..causal_conv1d import causal_conv1d as convolve
from ..causal_conv1d_update import causal_conv1d_update as update
from ._activation import check_activation

__all__ = ["b2b_causal_conv1d", "causal_conv1d", "causal_conv1d_nwh", "causal_conv1d_update"]


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    *,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`sluice.causal_conv1d` under the arguments of cuDNN's front end.

    Args:
        final_states_out: needs `return_final_states`.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`; a lone `final_states_out`.

    Example:
        >>> import torch
        >>> from sluice.compat.cudnn import causal_conv1d
        >>> causal_conv1d(torch.ones(1, 1, 4), torch.ones(1, 3), activation="identity")
        tensor([[[1., 2., 3., 3.]]])

    Source: `cudnn.ops.causal_conv1d` of cuDNN's front end 1.32.
    """
    check_activation("causal_conv1d", activation)
    if final_states_out is not None and not return_final_states:
        raise ValueError("causal_conv1d: return_final_states must be True with final_states_out, got False")
    return convolve(
        x,
        weight,
        bias,
        activation=activation,
        initial_states=initial_states,
        return_final_states=return_final_states,
        final_states_out=final_states_out,
        seq_idx=seq_idx,
        cu_seqlens=cu_seqlens,
    )


def causal_conv1d_nwh(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "identity"
) -> torch.Tensor:
    """`sluice.causal_conv1d` of (B, L, C) with the taps as the rows of `weight`, (K, C). The result is (B, L, C).

    Raises:
        ValueError: an activation other than "identity" and "silu".
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`.

    Example:
        >>> import torch
        >>> from sluice.compat.cudnn import causal_conv1d_nwh
        >>> causal_conv1d_nwh(torch.ones(1, 3, 1), torch.ones(2, 1)).flatten()
        tensor([1., 2., 2.])

    Source: `cudnn.ops.causal_conv1d_nwh` of cuDNN's front end 1.32.
    """
    op = "causal_conv1d_nwh"
    if activation not in ("identity", "silu"):
        raise ValueError(f"{op}: activation must be identity or silu, got {activation!r}")
    for name, given in (("x", x), ("weight", weight)):
        check_tensor(op, name, given)
    if x.dim() != 3 or weight.dim() != 2:
        shapes = f"{tuple(x.shape)} and {tuple(weight.shape)}"
        raise ValueError(
            f"{op}: x and weight must have shapes (batch, length, channels) and (K, channels), got {shapes}"
        )
    result = convolve(x.mT, weight.mT, bias, activation=activation)
    return result.mT  # type: ignore[union-attr]


def b2b_causal_conv1d(
    x: torch.Tensor, weights_proj: torch.Tensor, weights_mixer: torch.Tensor, skip_bias: torch.Tensor
) -> torch.Tensor:
    """`g * (conv(v, weights_mixer) + skip_bias[:, None] * v)`, v = a * b, with (g, a, b) from `conv(x, weights_proj)`.

    g, a and b are every third channel, starting at channels 0, 1 and 2. There are two launches: `skip_bias` is added to
    the last tap of `weights_mixer`, and the products are chains of the second convolution. Projected and gated values
    are rounded to x's dtype.

    Args:
        x: (B, 3 C, L), any strides.
        weights_proj: (3 C, K), any floating dtype.
        weights_mixer: (C, K), any floating dtype; its K may differ.
        skip_bias: (C,), any floating dtype.

    Returns:
        (B, C, L) of x's dtype.

    Raises:
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`; shapes that do not fit.

    Example:
        >>> import torch
        >>> from sluice.compat.cudnn import b2b_causal_conv1d
        >>> b2b_causal_conv1d(torch.ones(1, 3, 3), torch.ones(3, 1), torch.ones(1, 2), torch.ones(1))
        tensor([[[2., 3., 3.]]])

    Source: `cudnn.ops.b2b_causal_conv1d` of cuDNN's front end 1.32.
    """
    op = "b2b_causal_conv1d"
    for name, given in (("x", x), ("weights_mixer", weights_mixer), ("skip_bias", skip_bias)):
        check_tensor(op, name, given)
    if weights_mixer.dim() != 2 or weights_mixer.shape[1] == 0:
        raise ValueError(f"{op}: weights_mixer must have shape (C, K) with K >= 1, got {tuple(weights_mixer.shape)}")
    channels = weights_mixer.shape[0]
    if x.dim() != 3 or x.shape[1] != 3 * channels:
        raise ValueError(f"{op}: x must have shape (B, 3 C, L) with C = {channels}, got {tuple(x.shape)}")
    if skip_bias.shape != (channels,):
        raise ValueError(f"{op}: skip_bias must have shape (C,) with C = {channels}, got {tuple(skip_bias.shape)}")
    projected = convolve(x, weights_proj)
    assert isinstance(projected, torch.Tensor)
    gate, left, right = (projected[:, first::3] for first in range(3))
    wide = torch.promote_types(weights_mixer.dtype, torch.float32)
    last = weights_mixer[:, -1:].to(wide) + skip_bias[:, None].to(wide)
    mixer = torch.cat([weights_mixer[:, :-1].to(wide), last], dim=-1)
    return convolve(left, mixer, pre=stages.mul(right), post=stages.mul(gate))  # type: ignore[return-value]


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    *,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """`sluice.causal_conv1d_update` of one token, (B, C), under the arguments of cuDNN's front end.

    Args:
        conv_state: may have more slots than sequences.

    Raises:
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d_update`; x of more than one token.

    Example:
        >>> import torch
        >>> from sluice.compat.cudnn import causal_conv1d_update
        >>> causal_conv1d_update(torch.ones(1, 2), torch.ones(1, 2, 2), torch.ones(2, 3))
        tensor([[3., 3.]])

    Source: `cudnn.ops.causal_conv1d_update` of cuDNN's front end 1.32.
    """
    op = "causal_conv1d_update"
    for name, given in (("x", x), ("conv_state", conv_state)):
        check_tensor(op, name, given)
    if x.dim() != 2:
        raise ValueError(f"{op}: x must have shape (B, C), got {tuple(x.shape)}")
    if conv_state_indices is None and conv_state.shape[0] > x.shape[0]:
        conv_state = conv_state[: x.shape[0]]
    return update(
        x,
        conv_state,
        weight,
        bias,
        activation,
        cache_seqlens=cache_seqlens,
        conv_state_indices=conv_state_indices,
    )
