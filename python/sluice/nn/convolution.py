"""`Conv1d` and `ConvTranspose1d`: torch's modules, computed by sluice if no gradient is wanted."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .. import reference
from .._library import has_mesh
from ..chain import Chain
from ..conv1d import conv1d
from ..conv_transpose1d import conv_transpose1d
from ..transform import transform
from .chained import (
    Chained,
    chains_of,
    has_chains,
    is_patched,
    is_torchs,
    is_traced,
    set_chain,
    stands_for,
    with_gradients,
)
from .layout import channels_last, returns_channels_last, without_channels_last
from .repeated import CONV_FORWARD, OUTPUT_PADDING, like, tensors_of
from .state import State


class Conv1d(Chained, torch.nn.Conv1d):
    """`torch.nn.Conv1d` with a chain before and after: `post(conv1d(pre(input)))` in one op.

    Constructor, attributes, `state_dict`, results and their strides are torch's, for every `padding_mode`. If grad
    mode is on and the input or a parameter requires grad, or if sluice has no kernels for the tensors, torch's code
    runs. In half types on a GPU with tensor-core kernels the weight is packed once, and again after its version, memory
    or device changes.

    Args:
        pre, post: each a chain, the text of one without tensors, or a module that `sluice.stages.from_module` knows,
            whose parameters then belong to this module. If a module has no stage in its current state, as a Dropout
            in training, torch's code runs.
        others: as `torch.nn.Conv1d`.

    Shape:
        input: (B, C, L) or (C, L); the result: (B, C_out, L_out) or (C_out, L_out).

    Raises:
        TypeError: `pre` or `post` is none of those, or a dtype does not fit.
        ValueError: a shape does not fit.

    Example:
        >>> import torch, sluice
        >>> layer = sluice.nn.Conv1d(2, 2, 3, groups=2, bias=False, post=torch.nn.ReLU())
        >>> with torch.no_grad():
        ...     layer(torch.zeros(1, 2, 5))
        tensor([[[0., 0., 0.],
                 [0., 0., 0.]]])

    Source: `torch.nn.Conv1d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: str | int | tuple[int] = 0,
        dilation: int | tuple[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        pre: Chain | str | torch.nn.Module | None = None,
        post: Chain | str | torch.nn.Module | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,  # type: ignore[arg-type]
            device,
            dtype,
        )
        self._sluice = State(("pre", "post"))
        set_chain(self, "pre", pre)
        set_chain(self, "post", post)

    @stands_for(torch.nn.Conv1d.forward)
    def forward(  # type: ignore[override]
        self, input: torch.Tensor, *, pre: Chain | None = None, post: Chain | None = None
    ) -> torch.Tensor:
        """`post(conv1d(pre(input)))`; a call's chains go around the module's: `pre` before, `post` after."""
        state = getattr(self, "_sluice", None)
        is_alone = pre is None and post is None and not torch.compiler.is_compiling()
        call = state.last.call if state is not None and is_alone else None
        if call is None or not call.is_like(None, self, input):
            weight, bias = self.weight, self.bias
        else:
            weight, bias = tensors_of(self)
            if (repeated := call.repeat(self, input, weight, bias, {})) is not None:
                return repeated  # type: ignore[no-any-return]
        if pre is None and post is None and not has_chains(self) and is_torchs_kernel(self, weight, input):
            result: torch.Tensor = self._conv_forward(input, weight, bias)
            return result
        is_others = is_patched(self, "_conv_forward", CONV_FORWARD)
        tensors = input, weight, bias, *operands_of(pre), *operands_of(post)
        if state is None or is_others or is_torchs(self, *tensors) or (chains := chains_of(self)) is None:
            result = self._conv_forward(with_gradients(self, "pre", after(pre, input)), weight, bias)
            return after(post, with_gradients(self, "post", result))
        before, behind, padding = joined(pre, chains.get("pre")), joined(chains.get("post"), post), self.padding
        if self.padding_mode != "zeros":
            if before is not None and before.operands:  # which broadcast to the input without its padding
                input, before = transform(input, before, dtype=input.dtype), None
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,)
        is_last = returns_channels_last(input, weight)
        plain = input if is_last else without_channels_last(input, 1)
        read = None
        if not torch.compiler.is_compiling():
            read = state.last.weight = like(weight) if plain is input and not is_last else None
        result = conv1d(
            plain,
            state.packed.of(self, weight),
            bias,
            self.stride,  # type: ignore[arg-type]
            padding,  # type: ignore[arg-type]
            self.dilation,  # type: ignore[arg-type]
            self.groups,
            pre=before,
            post=behind,
        )
        if is_last:
            result = channels_last(result, 1)
        if is_alone:
            state.last.keep(None, self, input, read, {}, {})
        return result


class ConvTranspose1d(Chained, torch.nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` with a chain before and after: `post(conv_transpose1d(pre(input)))` in one op.

    Constructor, attributes, `state_dict`, results and their strides are torch's. If grad mode is on and the input or a
    parameter requires grad, or if sluice has no kernels for the tensors, torch's code runs.

    Args:
        pre, post: as those of `sluice.nn.Conv1d`.
        others: as `torch.nn.ConvTranspose1d`.

    Shape:
        input: (B, C, L) or (C, L); the result: (B, C_out, L_out) or (C_out, L_out).

    Raises:
        TypeError: `pre` or `post` is none of those, or a dtype does not fit.
        ValueError: a shape or an `output_size` does not fit.

    Example:
        >>> import torch, sluice
        >>> layer = sluice.nn.ConvTranspose1d(4, 2, 4, stride=2, padding=1, pre=torch.nn.LeakyReLU(0.1))
        >>> with torch.no_grad():
        ...     layer(torch.zeros(1, 4, 8)).shape
        torch.Size([1, 2, 16])

    Source: `torch.nn.ConvTranspose1d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: int | tuple[int] = 0,
        output_padding: int | tuple[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int] = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        pre: Chain | str | torch.nn.Module | None = None,
        post: Chain | str | torch.nn.Module | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias,
            dilation,  # type: ignore[arg-type]
            padding_mode,  # type: ignore[arg-type]
            device,
            dtype,
        )
        self._sluice = State(("pre", "post"))
        set_chain(self, "pre", pre)
        set_chain(self, "post", post)

    @stands_for(torch.nn.ConvTranspose1d.forward)
    def forward(  # type: ignore[override]
        self,
        input: torch.Tensor,
        output_size: list[int] | None = None,
        *,
        pre: Chain | None = None,
        post: Chain | None = None,
    ) -> torch.Tensor:
        """`post(conv_transpose1d(pre(input)))`; `output_size` is that of the result's positions.

        A call's chains go around the module's: `pre` before, `post` after.
        """
        state = getattr(self, "_sluice", None)
        is_alone = pre is None and post is None and output_size is None and not torch.compiler.is_compiling()
        call = state.last.call if state is not None and is_alone else None
        if call is None or not call.is_like(None, self, input):
            weight, bias = self.weight, self.bias
        else:
            weight, bias = tensors_of(self)
            if (repeated := call.repeat(self, input, weight, bias, {})) is not None:
                return repeated  # type: ignore[no-any-return]
        more: Any = self.output_padding
        if output_size is not None or is_patched(self, "_output_padding", OUTPUT_PADDING):
            more = self._output_padding(
                input,
                output_size,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                self.kernel_size,  # type: ignore[arg-type]
                1,
                self.dilation,  # type: ignore[arg-type]
            )
        if pre is None and post is None and not has_chains(self) and is_torchs_kernel(self, weight, input):
            return _by_torch(self, input, weight, bias, more)
        tensors = input, weight, bias, *operands_of(pre), *operands_of(post)
        if state is None or is_torchs(self, *tensors) or (chains := chains_of(self)) is None:
            result = _by_torch(self, with_gradients(self, "pre", after(pre, input)), weight, bias, more)
            return after(post, with_gradients(self, "post", result))
        is_last = returns_channels_last(input, weight)
        plain = input if is_last else without_channels_last(input, 1)
        read = None
        if not torch.compiler.is_compiling():
            read = state.last.weight = like(weight) if plain is input and not is_last else None
        computed = conv_transpose1d(
            plain,
            weight,
            bias,
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            tuple(more),  # type: ignore[arg-type]
            self.groups,
            self.dilation,  # type: ignore[arg-type]
            pre=joined(pre, chains.get("pre")),
            post=joined(chains.get("post"), post),
        )
        if is_last:
            computed = channels_last(computed, 1)
        if is_alone:
            state.last.keep(None, self, input, read, {}, {})
        return computed


def _by_torch(
    module: ConvTranspose1d, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, more: Any
) -> torch.Tensor:
    return F.conv_transpose1d(
        x,
        weight,
        bias,
        module.stride,  # type: ignore[arg-type]
        module.padding,  # type: ignore[arg-type]
        more,
        module.groups,
        module.dilation,  # type: ignore[arg-type]
    )


# Below this number of positions torch's convolution of one channel is as fast on the CPU: 16 take 3.4 us, sluice's 5.4.
_FEW_POSITIONS = 1024


def is_torchs_kernel(
    module: torch.nn.Conv1d | torch.nn.ConvTranspose1d, weight: torch.Tensor, input: torch.Tensor
) -> bool:
    """Whether torch's kernel is best for a call without chains: then the module calls it directly."""
    if is_traced(weight) or is_traced(input):
        return True
    if has_mesh(weight):  # torch's rule takes weight, bias and sequence for whole
        return False
    if module.groups == module.in_channels:  # depthwise convolutions run sluice's kernels
        if module.groups > 1 or weight.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        return module.out_channels > 1 or input.shape[-1] < _FEW_POSITIONS
    if weight.device.type == "cpu":
        return True
    is_wide = weight.dtype == torch.float32 or weight.dtype == torch.float64
    return is_wide and not torch.is_autocast_enabled("cuda")


def operands_of(chain: Chain | None) -> tuple[torch.Tensor, ...]:
    """The chain's tensors."""
    return () if chain is None else chain.operands


def joined(first: Chain | None, second: Chain | None) -> Chain | None:
    """`first`, then `second`."""
    if first is None or second is None:
        return first or second
    return first | second


def after(chain: Chain | None, x: torch.Tensor) -> torch.Tensor:
    """The chain of x by torch's functions, which have gradients."""
    return x if chain is None else reference.transform(x, chain)
