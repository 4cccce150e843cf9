"""FLA's causal convolution: `fla/modules/causal_conv1d` of flash-linear-attention 0.6.

Its states have K columns, one more than a convolution reads:

    state      |. h h h|         K = 4
    window       |h h h x|       of a sequence's first token
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from .._arguments import check_tensor
from ..causal_conv1d import causal_conv1d as convolve
from ..causal_conv1d_update import causal_conv1d_update as update
from ._activation import check_activation

__all__ = [
    "ShortConvolution",
    "causal_conv1d",
    "causal_conv1d_update",
    "causal_conv1d_update_states",
    "fast_causal_conv1d_fn",
]


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool | None = False,
    activation: str | None = None,
    backend: str | None = "triton",
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    chunk_indices: torch.Tensor | None = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`sluice.causal_conv1d` of (B, T, C), with states of K columns.

    Args:
        x: (B, T, C) or (B, T, heads, C / heads); B = 1 with `cu_seqlens`.
        weight: (C, K). None is refused, as it is by FLA.
        residual: x's shape, added after the activation.
        initial_state: (N, C, K), the columns before each of N sequences, B without `cu_seqlens`; zeros if absent.
        output_final_state: also return the last K columns of (initial_state, x) of each sequence.
        backend: "triton", "mix" or "cuda"; the kernel is the same.
        cu_seqlens_cpu: ignored.
        chunk_indices: ignored.
        cp_context: must be None.
        **kwargs: the backends "mix" and "cuda" read `seq_idx`, (B, T) int32, if there is no `cu_seqlens`. The final
            state does not depend on ids. Others are ignored.

    Returns:
        A contiguous tensor of x's shape and dtype; and the final state, contiguous (N, C, K) of x's dtype, or None.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks, or a `cp_context`.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`; ValueError also for another backend.

    Example:
        >>> import torch
        >>> from sluice.compat.fla import causal_conv1d
        >>> y, state = causal_conv1d(torch.ones(1, 2, 1), torch.ones(1, 3), output_final_state=True)
        >>> y.flatten()
        tensor([1., 2.])
        >>> state
        tensor([[[0., 1., 1.]]])

    Source: the function of this name in flash-linear-attention 0.6.
    """
    op = "causal_conv1d"
    check_activation(op, activation)
    if cp_context is not None:
        raise NotImplementedError(f"{op}: cp_context must be None, use sluice.distributed.causal_conv1d")
    if backend not in ("triton", "mix", "cuda"):
        raise ValueError(f"{op}: backend must be triton, mix or cuda, got {backend!r}")
    weight = _tensor(op, "weight", weight)
    tokens = _with_channels(op, x)
    if tokens.dim() != 3 or weight.dim() != 2:
        shapes = f"{tuple(x.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"{op}: x and weight must have shapes (batch, tokens, channels) and (C, K), got {shapes}")
    count = tokens.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    width = weight.shape[1]
    _check_state(op, initial_state, (count, tokens.shape[2], width))
    run = functools.partial(
        convolve,
        tokens.mT,
        weight,
        bias,
        activation=activation,
        residual=None if residual is None else residual.reshape(tokens.shape).mT,
        cu_seqlens=cu_seqlens,
    )
    seq_idx = None if backend == "triton" or cu_seqlens is not None else kwargs.get("seq_idx")
    state = None
    if output_final_state and seq_idx is None:
        state = _first_state(tokens, count, width, initial_state)
        result = run(state_cache=state)  # all of its columns move left
        state = state.to(x.dtype)
    else:
        history = None if initial_state is None else initial_state[..., 1:]
        result = run(initial_states=history, seq_idx=seq_idx)
        if output_final_state:
            state = causal_conv1d_update_states(tokens, width, initial_state)
    assert isinstance(result, torch.Tensor)
    return result.mT.contiguous().view(x.shape), state


def fast_causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool | None = False,
    activation: str | None = None,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_cpu: torch.Tensor | None = None,
    chunk_indices: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`causal_conv1d` with the backend "mix": its arguments, result and errors.

    Source: the function of this name in flash-linear-attention 0.6.
    """
    return causal_conv1d(
        x, weight, bias, residual, initial_state, output_final_state, activation, "mix", cu_seqlens, seq_idx=seq_idx
    )


def causal_conv1d_update(
    x: torch.Tensor,
    cache: torch.Tensor,
    residual: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`sluice.causal_conv1d_update` of one token of each sequence, with states of K columns.

    Args:
        x: (N, C), (N, 1, C) or (1, N, C); the latter two also with heads, as (N, 1, heads, C / heads).
        cache: (N, C, K); the token becomes its last column.
        residual: x's shape, added after the activation.
        weight: (C, K). None is refused, as it is by FLA.

    Returns:
        A contiguous tensor of x's shape and dtype; and `cache`.

    Raises:
        NotImplementedError: an activation that `sluice.causal_conv1d` lacks.
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d_update`.

    Example:
        >>> import torch
        >>> from sluice.compat.fla import causal_conv1d_update
        >>> y, cache = causal_conv1d_update(torch.ones(1, 1, 2), torch.zeros(1, 2, 3), weight=torch.ones(2, 3))
        >>> cache
        tensor([[[0., 0., 1.],
                 [0., 0., 1.]]])

    Source: the function of this name in flash-linear-attention 0.6.
    """
    op = "causal_conv1d_update"
    check_activation(op, activation)
    weight = _tensor(op, "weight", weight)
    tokens = _with_channels(op, x)
    if tokens.dim() == 3 and 1 in tokens.shape[:2]:
        tokens = tokens[0] if tokens.shape[0] == 1 else tokens[:, 0]
    if tokens.dim() != 2:
        rule = "(sequences, channels), (sequences, 1, channels) or (1, sequences, channels)"
        raise ValueError(f"{op}: x must have shape {rule}, got {tuple(x.shape)}")
    added = None if residual is None else residual.reshape(tokens.shape)
    return update(tokens, cache, weight, bias, activation, residual=added).view(x.shape), cache


def causal_conv1d_update_states(
    x: torch.Tensor,
    state_len: int,
    initial_state: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
) -> torch.Tensor:
    """The last `state_len` columns of (initial_state, x) of each sequence.

    Args:
        x: (B, T, C); with `cu_seqlens` (1, T, C) or (T, C). Any strides, any dtype.
        state_len: columns of a state.
        initial_state: (N, C, state_len), any strides; zeros if absent.
        cu_seqlens: (N + 1,) int32 or int64: sequence n has the tokens from cu_seqlens[n] on.

    Returns:
        (N, C, state_len) of x's dtype, contiguous.

    Raises:
        TypeError: an argument that is not a tensor.
        ValueError: a shape that does not fit.

    Example:
        >>> import torch
        >>> from sluice.compat.fla import causal_conv1d_update_states
        >>> x, starts = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 1, 4])
        >>> causal_conv1d_update_states(x, 2, cu_seqlens=starts)
        tensor([[[0., 1.]],
        <BLANKLINE>
                [[3., 4.]]])

    Source: the function of this name in flash-linear-attention 0.6.
    """
    op = "causal_conv1d_update_states"
    check_tensor(op, "x", x)
    if cu_seqlens is not None and x.dim() == 2:
        x = x[None]
    if x.dim() != 3 or (cu_seqlens is not None and x.shape[0] != 1):
        rule = "(batch, tokens, channels), batch = 1 with cu_seqlens"
        raise ValueError(f"{op}: x must have shape {rule}, got {tuple(x.shape)}")
    count = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    _check_state(op, initial_state, (count, x.shape[2], state_len))
    before = _first_state(x, count, state_len, initial_state).to(x.dtype)
    if x.shape[1] == 0:
        return before
    if cu_seqlens is None:
        kept = before[..., min(x.shape[1], state_len) :]
        return torch.cat([kept, x[:, max(x.shape[1] - state_len, 0) :].mT], dim=-1).contiguous()
    starts, ends = cu_seqlens[:-1, None], cu_seqlens[1:, None]
    columns = torch.arange(state_len, device=x.device)
    places = ends - state_len + columns
    new = x[0][places.clamp(0, x.shape[1] - 1)].mT
    moved = (columns + (ends - starts)).clamp(max=max(state_len - 1, 0))
    old = before.gather(2, moved[:, None].expand_as(before))
    return torch.where((places >= starts)[:, None], new, old).contiguous()


class ShortConvolution(torch.nn.Conv1d):
    """A depthwise causal convolution of (B, T, hidden_size), with the parameters and the cache of FLA's module.

    Args:
        hidden_size: channels.
        kernel_size: taps.
        bias: whether there is a bias.
        activation: None, "silu" or "swish".
        backend: "triton" or "cuda"; the kernel is the same. The environment variable FLA_CONV_BACKEND replaces it.
        device: of the parameters.
        dtype: of the parameters.
        **kwargs: ignored.

    Raises:
        NotImplementedError: another activation.
        ValueError: another backend.

    Example:
        >>> import torch
        >>> from sluice.compat.fla import ShortConvolution
        >>> layer = ShortConvolution(8, 4)
        >>> with torch.no_grad():
        ...     y, cache = layer(torch.randn(2, 5, 8), output_final_state=True)
        ...     y, cache = layer(torch.randn(2, 1, 8), cache=cache, output_final_state=True)
        >>> y.shape, cache.shape
        (torch.Size([2, 1, 8]), torch.Size([2, 8, 4]))

    Source: the module of this name in flash-linear-attention 0.6.
    """

    def __init__(
        self,
        hidden_size: int,
        kernel_size: int,
        bias: bool = False,
        activation: str | None = "silu",
        backend: str | None = "triton",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        check_activation("ShortConvolution", activation)
        backend = os.environ.get("FLA_CONV_BACKEND", backend)
        if backend not in ("triton", "cuda"):
            raise ValueError(f"ShortConvolution: backend must be triton or cuda, got {backend!r}")
        super().__init__(
            hidden_size, hidden_size, kernel_size, padding=kernel_size - 1, groups=hidden_size, bias=bias,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.hidden_size = hidden_size
        self.activation = activation
        self.backend = backend

    @property
    def state_size(self) -> int:
        """Elements of a sequence's cache."""
        return self.hidden_size * self.kernel_size[0]

    def forward(  # type: ignore[override]
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        cache: torch.Tensor | None = None,
        output_final_state: bool = False,
        cu_seqlens: torch.Tensor | None = None,
        chunk_indices: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`causal_conv1d` of x, or `step` if each sequence has one token and grad mode is off.

        Args:
            x: (B, T, C), any strides; B = 1 with `cu_seqlens`.
            residual: (B, T, C), added after the activation.
            mask: (B, T), multiplied with x; not with `cu_seqlens`.
            cache: (N, C, K), the initial state; changed in place only if each sequence has one token and grad mode is
                off.
            output_final_state: also return the final state.
            cu_seqlens: (N + 1,) int32 or int64: sequence n has the tokens from cu_seqlens[n] on.
            chunk_indices: ignored.
            **kwargs: as in `causal_conv1d`.

        Returns:
            (B, T, C); and the final state (N, C, K), which is `cache` after a `step`, or None.

        Raises:
            ValueError: a mask with `cu_seqlens`, and as `causal_conv1d`.
            RuntimeError: grad mode is on, and an input or a parameter requires grad.
        """
        if mask is not None:
            if cu_seqlens is not None:
                raise ValueError("ShortConvolution: mask must be None with cu_seqlens")
            x = x * mask.unsqueeze(-1).to(x.dtype)
        decodes = not torch.is_grad_enabled()
        if decodes and cu_seqlens is None and x.shape[1] == 1:
            return self.step(x, residual, cache, output_final_state)
        # Packed sequences may have one token each, but only the device knows their lengths.
        decodes = decodes and cu_seqlens is not None and cache is not None and x.shape[1] == cu_seqlens.shape[0] - 1
        result, state = causal_conv1d(
            x, self.weight[:, 0], self.bias, residual, cache, output_final_state or decodes, self.activation,
            self.backend, cu_seqlens, **kwargs,
        )  # fmt: skip
        if decodes and cache is not None and cu_seqlens is not None and state is not None:
            cache.copy_(torch.where((cu_seqlens.diff() == 1).all(), state, cache))
        return result, state if output_final_state else None

    def step(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        cache: torch.Tensor | None,
        output_final_state: bool = False,
        cu_seqlens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`causal_conv1d_update` of (N, 1, C), or of (1, N, C) with `cu_seqlens`; cache None: zeros."""
        if cache is None:
            count = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
            cache = x.new_zeros(count, self.hidden_size, self.kernel_size[0])
        result, cache = causal_conv1d_update(x, cache, residual, self.weight[:, 0], self.bias, self.activation)
        return result, cache if output_final_state else None


def _tensor(op: str, name: str, given: torch.Tensor | None) -> torch.Tensor:
    check_tensor(op, name, given)  # type: ignore[arg-type]
    assert given is not None
    return given


def _with_channels(op: str, x: torch.Tensor) -> torch.Tensor:
    """Merges heads and their channels into one dimension."""
    return x.flatten(2) if _tensor(op, "x", x).dim() > 3 else x


def _check_state(op: str, state: torch.Tensor | None, shape: tuple[int, int, int]) -> None:
    if state is not None and _tensor(op, "initial_state", state).shape != shape:
        words = f"initial_state must have shape (sequences, channels, K) = {shape}"
        raise ValueError(f"{op}: {words}, got {tuple(state.shape)}")


def _first_state(x: torch.Tensor, count: int, width: int, initial_state: torch.Tensor | None) -> torch.Tensor:
    """A contiguous copy of the initial state, or zeros."""
    if initial_state is None:
        return x.new_zeros(max(count, 0), x.shape[2], width)
    return initial_state.clone(memory_format=torch.contiguous_format)
