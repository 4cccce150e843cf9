"""`CausalConvTranspose1d`: the upsampling of codecs' decoders, whole or chunk by chunk, as a module."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .._chunks import check_positions
from ..causal_conv_transpose1d import causal_conv_transpose1d
from ..chain import Chain
from .causal import check_without_state
from .chained import Chained, chains_of, is_torchs, is_traced, set_chain, with_gradients
from .packing import packed_weight
from .state import State


class CausalConvTranspose1d(Chained, torch.nn.ConvTranspose1d):
    """A transposed convolution whose results see no later inputs: `post(conv(pre(x)))`, trimmed on the right.

    It has the parameters of `torch.nn.ConvTranspose1d(C, C_out, K, stride, ...)`. If grad mode is on and an input or a
    parameter requires grad, torch's code runs.

    Args:
        in_channels: C.
        out_channels: C_out.
        kernel_size: K, taps.
        stride: results of one input.
        groups: divides C and C_out.
        bias: whether there is one.
        dilation: results from one tap to the next.
        pre, post: as in `sluice.nn.Conv1d`.
        device, dtype: of the parameters.

    Shape:
        x: (B, C, S); the result: (B, C_out, S * stride); overlaps: (B, C_out, R), R = (K - 1) * dilation + 1 - stride.

    Raises:
        TypeError: `pre` or `post` is no chain, text or known module, or a dtype does not fit.
        ValueError: a shape or a number does not fit.

    Example:
        >>> import torch, sluice
        >>> layer = sluice.nn.CausalConvTranspose1d(4, 2, 8, stride=4)
        >>> x, state = torch.randn(1, 4, 6), torch.zeros(1, 2, 4)
        >>> with torch.no_grad():
        ...     whole = layer(x)
        ...     chunks = torch.cat([layer(chunk, state=state) for chunk in x.split(2, dim=-1)], dim=-1)
        >>> torch.testing.assert_close(chunks, whole)

    Source: the decoders of SoundStream (Zeghidour et al., 2021) and EnCodec (Defossez et al., 2022).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        groups: int = 1,
        bias: bool = True,
        dilation: int = 1,
        *,
        pre: Chain | str | torch.nn.Module | None = None,
        post: Chain | str | torch.nn.Module | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            groups=groups,
            bias=bias,
            dilation=dilation,
            device=device,
            dtype=dtype,
        )
        self._sluice = State(("pre", "post"))
        set_chain(self, "pre", pre)
        set_chain(self, "post", post)

    def forward(  # type: ignore[override]
        self,
        x: torch.Tensor,
        *,
        state: torch.Tensor | None = None,
        slots: torch.Tensor | None = None,
        has_initial_state: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The result, as `sluice.causal_conv_transpose1d` has it.

        With `state`, (slots, C_out, columns >= R) of float32 (float64 for float64), x is a chunk of a stream and the
        state is changed in place: it is the function's `overlap_cache`, `slots` are its `cache_indices`. It has no
        gradients.
        """
        if state is None:
            check_without_state("CausalConvTranspose1d", slots, has_initial_state)
        chains = None if state is None and is_torchs(self, x, self.weight, self.bias) else chains_of(self)
        if chains is None and state is not None:
            rule = "the modules of pre and post must have stages with a state"
            raise RuntimeError(f"CausalConvTranspose1d: {rule}, got one without; call eval() if it is in training mode")
        if chains is None:
            return self._with_gradients(x)
        return causal_conv_transpose1d(
            x,
            packed_weight(self._sluice.packed, self, self.weight),
            self.bias,
            stride=self.stride[0],
            groups=self.groups,
            dilation=self.dilation[0],
            overlap_cache=state,
            cache_indices=slots,
            has_initial_state=has_initial_state,
            pre=chains["pre"],
            post=chains["post"],
        )

    def _with_gradients(self, x: torch.Tensor) -> torch.Tensor:
        if not is_traced(x):
            check_positions("causal_conv_transpose1d", x, 0)
        gap = max(0, self.stride[0] - self.dilation[0] * (self.kernel_size[0] - 1) - 1)
        tokens, stride = with_gradients(self, "pre", x), self.stride[0]
        y = F.conv_transpose1d(tokens, self.weight, self.bias, stride, 0, gap, self.groups, self.dilation)
        return with_gradients(self, "post", y[..., : x.shape[-1] * stride])
