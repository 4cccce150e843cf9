"""`Conv1d` and `ConvTranspose1d`: torch's modules, computed by sluice if no gradient is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .. import reference
from .._library import has_mesh
from ..chain import Chain
from ..conv1d import conv1d, sides
from ..conv_transpose1d import conv_transpose1d
from ..transform import transform
from .chained import Chained, is_traced
from .packing import PackedParameter
from .repeated import LastCall


class Conv1d(Chained, torch.nn.Conv1d):
    """`torch.nn.Conv1d` with a chain before and after: `post(conv1d(pre(input)))` in one op.

    Constructor, attributes, `state_dict` and results are torch's, for every `padding_mode`. If grad mode is on and the
    input or a parameter requires grad, or if sluice has no kernels for the tensors, torch's code runs. In half
    types on a GPU with tensor-core kernels the weight is packed once, and again after its version, memory or device
    changes.

    Args:
        pre, post: each a chain, the text of one without tensors, or a module that `sluice.stages.from_module` knows,
            whose parameters then belong to this module.
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

    pre: Chain | torch.nn.Module | None
    post: Chain | torch.nn.Module | None

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
        self.set_chain("pre", pre)
        self.set_chain("post", post)
        self._packed, self._last = PackedParameter(), LastCall()

    def forward(  # type: ignore[override]
        self, input: torch.Tensor, *, pre: Chain | None = None, post: Chain | None = None
    ) -> torch.Tensor:
        """`post(conv1d(pre(input)))`; a call's chains go around the module's: `pre` before, `post` after."""
        is_alone = pre is None and post is None and not torch.compiler.is_compiling()
        if is_alone and (repeated := self._last.repeat(self, input)) is not None:
            return repeated
        weight, bias = self.weight, self.bias
        has_chains = not (pre is post is None and self.pre is self.post is None)
        if not has_chains and is_torchs_kernel(self, weight, input):
            result: torch.Tensor = self._conv_forward(input, weight, bias)
            return result
        if self.is_torchs(input, weight, bias, *operands_of(pre), *operands_of(post)):
            result = self._conv_forward(self.with_gradients("pre", after(pre, input)), weight, bias)
            return after(post, self.with_gradients("post", result))
        before, behind, padding = None, None, self.padding
        if has_chains:
            before, behind = joined(pre, self.chain("pre")), joined(self.chain("post"), post)
        if self.padding_mode != "zeros":
            if before is not None and before.operands:  # which broadcast to the input without its padding
                input, before = transform(input, before, dtype=input.dtype), None
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,)
        result = conv1d(
            input,
            self._packed.of(self, weight),
            bias,
            self.stride,  # type: ignore[arg-type]
            padding,  # type: ignore[arg-type]
            self.dilation,  # type: ignore[arg-type]
            self.groups,
            pre=before,
            post=behind,
        )
        if is_alone:
            self._last.keep(None, self, input, {}, {})
        return result

    def raw_call(self, weight: torch.Tensor | None) -> tuple[str, tuple[int, ...]] | None:
        """The raw op of a call and its numbers; None if the padding is not just as many zeros on both sides.

        `weight` is the module's parameter, None if a parametrisation computes it.
        """
        if self.padding_mode != "zeros" or (weight is None and isinstance(self.padding, str)):
            return None
        left, right = sides(self.padding, weight, self.stride[0], self.dilation[0])  # type: ignore[arg-type]
        if right is not None and right != left:
            return None
        return "conv1d", (self.stride[0], left, self.dilation[0], self.groups)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Conv1d:
        # It must not stay on a device that the module leaves.
        self._packed, self._last = PackedParameter(), LastCall()
        super()._apply(fn, recurse)
        return self


class ConvTranspose1d(Chained, torch.nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` with a chain before and after: `post(conv_transpose1d(pre(input)))` in one op.

    Constructor, attributes, `state_dict` and results are torch's. If grad mode is on and the input or a parameter
    requires grad, or if sluice has no kernels for the tensors, torch's code runs.

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

    pre: Chain | torch.nn.Module | None
    post: Chain | torch.nn.Module | None

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
        self.set_chain("pre", pre)
        self.set_chain("post", post)
        self._last = LastCall()

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
        is_alone = pre is None and post is None and output_size is None and not torch.compiler.is_compiling()
        if is_alone and (repeated := self._last.repeat(self, input)) is not None:
            return repeated
        weight, bias = self.weight, self.bias
        more: Any = self.output_padding
        if output_size is not None:
            more = self._output_padding(
                input,
                output_size,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                self.kernel_size,  # type: ignore[arg-type]
                1,
                self.dilation,  # type: ignore[arg-type]
            )
        has_chains = not (pre is post is None and self.pre is self.post is None)
        if not has_chains and is_torchs_kernel(self, weight, input):
            return self._by_torch(input, weight, bias, more)
        if self.is_torchs(input, weight, bias, *operands_of(pre), *operands_of(post)):
            result = self._by_torch(self.with_gradients("pre", after(pre, input)), weight, bias, more)
            return after(post, self.with_gradients("post", result))
        before, behind = None, None
        if has_chains:
            before, behind = joined(pre, self.chain("pre")), joined(self.chain("post"), post)
        computed = conv_transpose1d(
            input,
            weight,
            bias,
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            tuple(more),  # type: ignore[arg-type]
            self.groups,
            self.dilation,  # type: ignore[arg-type]
            pre=before,
            post=behind,
        )
        if is_alone:
            self._last.keep(None, self, input, {}, {})
        return computed

    def raw_call(self, weight: torch.Tensor | None) -> tuple[str, tuple[int, ...]]:
        """The raw op of a call and its numbers."""
        numbers = self.stride[0], self.padding[0], self.output_padding[0], self.groups, self.dilation[0]
        return "conv_transpose1d", numbers  # type: ignore[return-value]

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> ConvTranspose1d:
        self._last = LastCall()
        super()._apply(fn, recurse)
        return self

    def _by_torch(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, more: Any) -> torch.Tensor:
        return F.conv_transpose1d(
            x,
            weight,
            bias,
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            more,
            self.groups,
            self.dilation,  # type: ignore[arg-type]
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
