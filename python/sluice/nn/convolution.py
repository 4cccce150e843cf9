"""`Conv1d` and `ConvTranspose1d`: torch's modules, computed by sluice if no gradient is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .._autocast import is_autocast_on
from .._call import has_mesh
from ..chain import Chain
from ..conv1d import conv1d
from ..conv_transpose1d import conv_transpose1d
from ..pack import on_tensor_cores
from ..transform import transform
from .chained import (
    Chained,
    chains_of,
    has_chains,
    is_left_to_torch,
    is_patched,
    is_torchs,
    is_traced,
    set_chain,
    stands_for,
    with_gradients,
)
from .layout import channels_last, returns_channels_last, without_channels_last
from .packing import packed_weight
from .repeated import CONV_FORWARD, OUTPUT_PADDING, like, tensors_of
from .state import State

# Torch's own forwards: code of others in their place runs.
_CONV1D, _CONV_TRANSPOSE1D = torch.nn.Conv1d.forward, torch.nn.ConvTranspose1d.forward


class Conv1d(Chained, torch.nn.Conv1d):
    """`torch.nn.Conv1d` with a chain before and after: `post(conv1d(pre(input)))` in one op.

    Constructor, attributes, `state_dict`, results and their strides are torch's, for every `padding_mode`. If grad
    mode is on and the input or a parameter requires grad, or if sluice has no kernels for the tensors, torch's code
    runs. On a GPU with tensor-core kernels for the weight's dtype the weight is packed once, and again after its
    version, memory or device changes, in float32 also after torch's TF32 setting does.

    Args:
        pre, post: each a chain, the text of a chain without tensors, or a module that `sluice.stages.from_module`
            knows, whose parameters then belong to this module. If a module has no stage in its current state, as a
            Dropout in training, torch's code runs.
        others: as `torch.nn.Conv1d`.

    Shape:
        input: (B, C, L) or (C, L); the result: (B, C_out, L_out) or (C_out, L_out).

    Raises:
        TypeError: `pre` or `post` is no chain, text or known module, or a dtype does not fit.
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
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`post(conv1d(pre(input)))`."""
        if torch.nn.Conv1d.forward is not _CONV1D or (is_left_to_torch() and not has_chains(self)):
            return torch.nn.Conv1d.forward(self, input)
        state, weight, bias, repeated = again(self, input)
        if repeated is not None:
            return repeated
        chains = (
            None if is_patched(self, "_conv_forward", CONV_FORWARD) else chains_for(self, state, input, weight, bias)
        )
        if chains is None:
            plain = self._conv_forward(with_gradients(self, "pre", input), weight, bias)
            return with_gradients(self, "post", plain)
        padding, pre, x = self.padding, chains.get("pre"), input
        if self.padding_mode != "zeros":
            if pre is not None and pre.operands:  # which broadcast to the input without its padding
                x, pre = transform(x, pre, dtype=x.dtype), None
            x, padding = F.pad(x, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,)

        def compute(x: torch.Tensor) -> torch.Tensor:
            return conv1d(
                x,
                packed_weight(state.packed, self, weight),
                bias,
                self.stride,  # type: ignore[arg-type]
                padding,  # type: ignore[arg-type]
                self.dilation,  # type: ignore[arg-type]
                self.groups,
                pre=pre,
                post=chains.get("post"),
            )

        return _in_torchs_layout(self, state, x, weight, compute, is_whole=x is input)


class ConvTranspose1d(Chained, torch.nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` with a chain before and after: `post(conv_transpose1d(pre(input)))` in one op.

    Constructor, attributes, `state_dict`, results and their strides are torch's. If grad mode is on and the input or a
    parameter requires grad, or if sluice has no kernels for the tensors, torch's code runs. The weight of one group is
    packed as by `sluice.nn.Conv1d`, also again after a change of `stride` or `dilation`.

    Args:
        pre, post: as in `sluice.nn.Conv1d`.
        others: as `torch.nn.ConvTranspose1d`.

    Shape:
        input: (B, C, L) or (C, L); the result: (B, C_out, L_out) or (C_out, L_out).

    Raises:
        TypeError: `pre` or `post` is no chain, text or known module, or a dtype does not fit.
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
    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """`post(conv_transpose1d(pre(input)))`; `output_size` is that of the result's positions."""
        if torch.nn.ConvTranspose1d.forward is not _CONV_TRANSPOSE1D or (is_left_to_torch() and not has_chains(self)):
            return torch.nn.ConvTranspose1d.forward(self, input, output_size)
        state, weight, bias, repeated = again(self, input, is_new=output_size is not None)
        if repeated is not None:
            return repeated
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
        chains = chains_for(self, state, input, weight, bias)
        if chains is None:
            plain = _by_torch(self, with_gradients(self, "pre", input), weight, bias, more)
            return with_gradients(self, "post", plain)

        def compute(x: torch.Tensor) -> torch.Tensor:
            return conv_transpose1d(
                x,
                packed_weight(state.packed, self, weight),
                bias,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                tuple(more),  # type: ignore[arg-type]
                self.groups,
                self.dilation,  # type: ignore[arg-type]
                pre=chains.get("pre"),
                post=chains.get("post"),
            )

        return _in_torchs_layout(self, state, input, weight, compute, is_whole=output_size is None)


def again(
    module: Any, input: torch.Tensor, is_new: bool = False
) -> tuple[Any, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The module's state, weight and bias, and the result if the call is like the last call."""
    state = getattr(module, "_sluice", None)  # none after `undo`, if a wrapper of the forward is left
    call = None if state is None or is_new or torch.compiler.is_compiling() else state.last.call
    if call is None or not call.is_like(module, input):
        return state, module.weight, module.bias, None
    weight, bias = tensors_of(module)
    return state, weight, bias, call.repeat(module, input, weight, bias)


def chains_for(
    module: Any, state: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> dict[str, Chain | None] | None:
    """The module's chains if sluice's op computes the call, None if torch's code does."""
    if state is None or (not has_chains(module) and is_torchs_kernel(module, weight, input)):
        return None
    if not state.chains and not _fits(module, input, weight, bias):
        return None
    return None if is_torchs(module, input, weight, bias) else chains_of(module)


def _fits(module: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether torch takes the input. Else it has errors of its own, which code around swapped modules may expect."""
    is_even = input.dtype == weight.dtype and (bias is None or bias.dtype == weight.dtype)
    if input.device != weight.device or not (is_even or is_autocast_on(input.device.type)):
        return False
    return input.dim() in (2, 3) and input.shape[-2] == module.in_channels and input.numel() > 0


def _in_torchs_layout(
    module: Any,
    state: Any,
    input: torch.Tensor,
    weight: torch.Tensor,
    compute: Callable[[torch.Tensor], torch.Tensor],
    is_whole: bool,
) -> torch.Tensor:
    """The result with the strides of torch's module. The state keeps the call unless it is a part of one."""
    if returns_channels_last(input, weight):
        return channels_last(compute(input), 1)
    plain = without_channels_last(input, 1)
    if torch.compiler.is_compiling():
        return compute(plain)
    result = compute(plain)
    state.last.keep(module, input, like(weight) if is_whole and plain is input else None)
    return result


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
    return not (on_tensor_cores(weight.dtype, weight.device) or torch.is_autocast_enabled("cuda"))
