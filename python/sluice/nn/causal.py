"""`CausalConv1d`: the short convolution of Mamba and similar models, and the convolutions of codecs, as a module."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .. import reference
from .._autocast import is_autocast_on
from .._chunks import PADDING_MODES, check_positions, refuse_sequences
from .._skipped import skipped_tokens
from ..causal_conv1d import causal_conv1d, raw_activation
from ..causal_conv1d_update import causal_conv1d_update
from ..chain import Chain
from .chained import Chained, chains_of, is_torchs, is_traced, set_chain, shown_chains, with_gradients
from .packing import packed_weight
from .state import State


def check_without_state(module: str, slots: object, has_initial_state: object) -> None:
    """Raises if a call without a state has what belongs to a state."""
    for name, given in (("slots", slots), ("has_initial_state", has_initial_state)):
        if given is not None:
            raise ValueError(f"{module}: {name} must be given with a state, got none")


class CausalConv1d(Chained, torch.nn.Conv1d):
    """A convolution whose outputs see no later inputs: `post(act(conv(pre(x))) + residual)` in one op.

    Without `out_channels` it is depthwise. It has the parameters of the
    `torch.nn.Conv1d(C, C, K, padding=K - 1, groups=C)` that Mamba, Jamba, Bamba, Falcon-H1 or Qwen3-Next have, so their
    `state_dict` fits. With `out_channels` it has the parameters of `torch.nn.Conv1d(C, C_out, K, stride, ...)`, as the
    encoders of neural codecs have it. If grad mode is on and an input or a parameter requires grad, torch's code runs.

    Args:
        channels: C.
        kernel_size: K, taps.
        dilation: positions from one tap to the next.
        bias: whether there is one.
        out_channels: C_out of a convolution over all channels of a group.
        stride: positions from one result to the next, with `out_channels`.
        groups: with `out_channels`; 1 by default.
        padding_mode: "zeros", "replicate" or "reflect", with `out_channels`.
        activation: as of `sluice.causal_conv1d`.
        pre, post: as in `sluice.nn.Conv1d`; states keep the results of `pre`, with `out_channels` its inputs.
        device, dtype: of the parameters.

    Shape:
        x: (B, C, L), or (1, C, T) and (C, T) with `cu_seqlens`; the result: as x, with `out_channels`
        (B, C_out, L / stride); states: (B, C, H), H = (K - 1) * dilation + 1 - stride.

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
        out_channels: int | None = None,
        stride: int = 1,
        groups: int | None = None,
        padding_mode: str = "zeros",
        activation: str | bool | None = None,
        pre: Chain | str | torch.nn.Module | None = None,
        post: Chain | str | torch.nn.Module | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if out_channels is None and (stride != 1 or groups is not None or padding_mode != "zeros"):
            raise ValueError("CausalConv1d: out_channels must be given with a stride, groups or a padding_mode")
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"CausalConv1d: padding_mode must be zeros, replicate or reflect, got {padding_mode!r}")
        super().__init__(
            channels,
            channels if out_channels is None else out_channels,
            kernel_size,
            stride,
            max(0, (kernel_size - 1) * dilation + 1 - stride),
            dilation,
            channels if out_channels is None else groups or 1,
            bias,
            padding_mode,  # type: ignore[arg-type]
            device,
            dtype,
        )
        self.is_depthwise = out_channels is None
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
        state: torch.Tensor | None = None,
        slots: torch.Tensor | None = None,
        has_initial_state: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """The result, and with `return_final_states` the states, as `sluice.causal_conv1d` has them.

        With `state`, (slots, C, columns >= H), x is a chunk of a stream and the state is changed in place; `slots` and
        `has_initial_state` are the function's `cache_indices` and `has_initial_state`. It has no gradients.
        """
        if state is None:
            check_without_state("CausalConv1d", slots, has_initial_state)
        elif initial_states is not None or return_final_states:
            rule = "initial_states and final states must be omitted when state is given, which holds both"
            raise ValueError(f"CausalConv1d: {rule}")
        bias = self.bias
        weight: Any = self.weight.squeeze(1) if self.is_depthwise else self.weight
        tensors = x, weight, bias, residual, initial_states
        chains = None if state is None and is_torchs(self, *tensors) else chains_of(self)
        if chains is None and state is not None:
            rule = "the modules of pre and post must have stages with a state"
            raise RuntimeError(f"CausalConv1d: {rule}, got one without; call eval() if it is in training mode")
        if chains is None:
            y, states = self._with_gradients(x, residual, initial_states, seq_idx, cu_seqlens)
            return (y, states) if return_final_states else y
        return causal_conv1d(
            x,
            weight if self.is_depthwise else packed_weight(self._sluice.packed, self, weight),
            bias,
            **self._numbers(),
            activation=self.activation,
            residual=residual,
            initial_states=initial_states,
            return_final_states=return_final_states,
            seq_idx=seq_idx,
            cu_seqlens=cu_seqlens,
            state_cache=state,
            cache_indices=slots,
            has_initial_state=has_initial_state,
            pre=chains["pre"],
            post=chains["post"],
        )

    def _numbers(self) -> dict[str, Any]:
        """The function's numbers."""
        if self.is_depthwise:
            return {"dilation": self.dilation[0]}
        numbers = {"stride": self.stride[0], "dilation": self.dilation[0], "groups": self.groups}
        return {**numbers, "padding_mode": self.padding_mode}

    def step(self, x: torch.Tensor, conv_state: torch.Tensor, **options: Any) -> torch.Tensor:
        """The results of new tokens after `conv_state`, which is changed in place. It has no gradients.

        Args:
            x: (B, C) or (B, C, S).
            conv_state: (B, C, state_len), state_len at least (K - 1) * dilation.
            options: arguments of `sluice.causal_conv1d_update` that are not the module's own.

        Raises:
            RuntimeError: a module of `pre` or `post` has no stage in training mode, such as a Dropout.
        """
        if not self.is_depthwise:
            raise ValueError("CausalConv1d: out_channels must be None for step; pass state= to the module instead")
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
        if not self.is_depthwise:
            shown += f", out_channels={self.out_channels}, stride={self.stride[0]}, groups={self.groups}"
        if self.padding_mode != "zeros":
            shown += f", padding_mode={self.padding_mode}"
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
        if not self.is_depthwise:
            if not is_traced(x):
                self._check_dense(x, initial_states, seq_idx, cu_seqlens)
            return self._dense_with_gradients(x, tokens, residual, initial_states)
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

    def _check_dense(
        self,
        x: torch.Tensor,
        initial_states: torch.Tensor | None,
        seq_idx: torch.Tensor | None,
        cu_seqlens: torch.Tensor | None,
    ) -> None:
        """Raises what the op refuses and torch's code would take."""
        given = {"seq_idx": seq_idx, "cu_seqlens": cu_seqlens}
        refuse_sequences({name: tensor for name, tensor in given.items() if tensor is not None})
        check_positions("causal_conv1d", x, self.stride[0])
        wanted = (*x.shape[:2], int(self.padding[0]))
        if initial_states is not None and tuple(initial_states.shape) != wanted:
            rule = "initial_states must have shape (batch, channels, dilation * (K - 1) + 1 - stride)"
            raise ValueError(f"causal_conv1d: {rule} = {wanted}, got {tuple(initial_states.shape)}")

    def _dense_with_gradients(
        self,
        x: torch.Tensor,
        tokens: torch.Tensor,
        residual: torch.Tensor | None,
        initial_states: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        history = int(self.padding[0])
        if initial_states is not None:
            past, kept = with_gradients(self, "pre", initial_states.to(x.dtype)), initial_states.to(x.dtype)
        elif is_traced(x):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            past, kept = (F.pad(t, (history, 0), mode)[..., :history] for t in (tokens, x))
        else:
            past, kept = (reference.columns_before(t, history, self.padding_mode) for t in (tokens, x))
        columns, inputs = torch.cat([past, tokens], dim=-1), torch.cat([kept, x], dim=-1)
        y = F.conv1d(columns, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        y = F.silu(y) if self.activation == "silu" else y
        y = y if residual is None else y + residual
        return with_gradients(self, "post", y), inputs[..., inputs.shape[-1] - history :]
