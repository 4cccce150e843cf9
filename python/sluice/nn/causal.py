"""`CausalConv1d`: the short convolution of Mamba and similar models, and its decoding, as a module."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .. import reference
from .._autocast import is_autocast_on
from .._skipped import skipped_tokens
from ..causal_conv1d import causal_conv1d, raw_activation
from ..causal_conv1d_update import causal_conv1d_update
from ..chain import Chain
from .chained import Chained, chains_of, is_torchs, is_traced, set_chain, shown_chains, with_gradients
from .state import State


class CausalConv1d(Chained, torch.nn.Conv1d):
    """A depthwise convolution whose outputs see no later inputs: `post(act(conv(pre(x))) + residual)` in one op.

    It has the parameters of the `torch.nn.Conv1d(C, C, K, padding=K - 1, groups=C)` that Mamba, Jamba, Bamba,
    Falcon-H1 or Qwen3-Next have, so their `state_dict` fits. If grad mode is on and an input or a parameter requires
    grad, torch's code runs.

    Args:
        channels: C.
        kernel_size: K, taps.
        dilation: positions from one tap to the next.
        bias: whether there is one.
        activation: as of `sluice.causal_conv1d`.
        pre, post: as in `sluice.nn.Conv1d`; states keep the results of `pre`.
        device, dtype: of the parameters.

    Shape:
        x: (B, C, L), or (1, C, T) and (C, T) with `cu_seqlens`; the result: as x; states: (B, C, (K - 1) * dilation).

    Raises:
        TypeError: `pre` or `post` is no chain, text or known module, or a dtype does not fit.
        ValueError: a shape, a number or an activation does not fit.

    Example:
        >>> import torch, sluice
        >>> layer = sluice.nn.CausalConv1d(4, 3, activation="silu")
        >>> x, state = torch.randn(1, 4, 6), torch.zeros(1, 4, 2)
        >>> with torch.no_grad():
        ...     whole = layer(x)
        ...     steps = torch.cat([layer.step(token, state) for token in x.split(1, dim=-1)], dim=-1)
        >>> torch.testing.assert_close(steps, whole)

    Source: `causal_conv1d_fn` of Dao-AILab's causal_conv1d.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        dilation: int = 1,
        bias: bool = True,
        *,
        activation: str | bool | None = None,
        pre: Chain | str | torch.nn.Module | None = None,
        post: Chain | str | torch.nn.Module | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        padding = (kernel_size - 1) * dilation
        super().__init__(
            channels, channels, kernel_size, 1, padding, dilation, channels, bias, device=device, dtype=dtype
        )
        self.activation = raw_activation("CausalConv1d", activation)
        self._sluice = State(("pre", "post"))
        set_chain(self, "pre", pre)
        set_chain(self, "post", post)

    def forward(  # type: ignore[override]
        self,
        x: torch.Tensor,
        *,
        residual: torch.Tensor | None = None,
        initial_states: torch.Tensor | None = None,
        return_final_states: bool = False,
        seq_idx: torch.Tensor | None = None,
        cu_seqlens: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """The result, and with `return_final_states` the states, as `sluice.causal_conv1d` has them."""
        weight, bias = self.weight.squeeze(1), self.bias
        tensors = x, weight, bias, residual, initial_states
        if is_torchs(self, *tensors) or (chains := chains_of(self)) is None:
            y, states = self._with_gradients(x, residual, initial_states, seq_idx, cu_seqlens)
            return (y, states) if return_final_states else y
        return causal_conv1d(
            x,
            weight,
            bias,
            activation=self.activation,
            residual=residual,
            initial_states=initial_states,
            return_final_states=return_final_states,
            seq_idx=seq_idx,
            cu_seqlens=cu_seqlens,
            dilation=self.dilation[0],
            pre=chains["pre"],
            post=chains["post"],
        )

    def step(self, x: torch.Tensor, conv_state: torch.Tensor, **options: Any) -> torch.Tensor:
        """The results of new tokens after `conv_state`, which is changed in place. It has no gradients.

        Args:
            x: (B, C) or (B, C, S).
            conv_state: (B, C, state_len), state_len at least (K - 1) * dilation.
            options: arguments of `sluice.causal_conv1d_update` that are not the module's own.

        Raises:
            RuntimeError: a module of `pre` or `post` has no stage in training mode, such as a Dropout.
        """
        if (chains := chains_of(self)) is None:
            rule = "the modules of pre and post must have stages in step"
            raise RuntimeError(f"CausalConv1d: {rule}, got one without; call eval() if it is in training mode")
        return causal_conv1d_update(
            x,
            conv_state,
            self.weight.squeeze(1),
            self.bias,
            self.activation,
            dilation=self.dilation[0],
            pre=chains["pre"],
            post=chains["post"],
            **options,
        )

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        shown = f"{self.in_channels}, kernel_size={self.kernel_size[0]}"
        if self.dilation[0] != 1:
            shown += f", dilation={self.dilation[0]}"
        if self.bias is None:
            shown += ", bias=False"
        if self.activation is not None:
            shown += f", activation={self.activation}"
        return ", ".join([shown, *shown_chains(self)])

    def _with_gradients(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        initial_states: torch.Tensor | None,
        seq_idx: torch.Tensor | None,
        cu_seqlens: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = with_gradients(self, "pre", x)
        if seq_idx is not None or cu_seqlens is not None:
            y, states = reference.causal_conv1d(
                tokens,
                self.weight.squeeze(1),
                self.bias,
                activation=self.activation,
                residual=residual,
                initial_states=initial_states,
                seq_idx=seq_idx,
                cu_seqlens=cu_seqlens,
                dilation=self.dilation[0],
            )
            # The results of positions without a sequence are zeros, whatever `post` makes of zeros.
            zeros = None if seq_idx is None else (seq_idx < 0)[:, None]
            if cu_seqlens is not None:
                zeros = skipped_tokens(cu_seqlens, x.shape[-1], None)
            assert zeros is not None
            return with_gradients(self, "post", y).masked_fill(zeros, 0), states
        history = (self.kernel_size[0] - 1) * self.dilation[0]
        if initial_states is None:
            columns = F.pad(tokens, (history, 0))
        else:
            columns = torch.cat([initial_states.to(tokens.dtype), tokens], dim=-1)
        states = columns[..., columns.shape[-1] - history :]
        weight, bias = self.weight, self.bias
        is_mixed = not is_traced(x) and x.dtype != weight.dtype and not is_autocast_on(x.device.type)
        if is_mixed:
            wide = torch.promote_types(x.dtype, weight.dtype)
            columns, weight, bias = columns.to(wide), weight.to(wide), None if bias is None else bias.to(wide)
        y = F.conv1d(columns, weight, bias, dilation=self.dilation, groups=self.groups)
        if self.activation == "silu":
            y = F.silu(y)
        if residual is not None:
            y = y + residual
        y = with_gradients(self, "post", y)
        return y.to(x.dtype) if is_mixed else y, states
