"""`conv_transpose1d`: one-dimensional transposed convolution with a chain before and after it."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ._apply import check_forward_only, given_options, needs_references, with_references
from ._arguments import are_integers, check_tensors, integer, single
from ._autocast import cast_arguments
from ._autocast import register as register_autocast
from ._call import is_plain_call, run
from ._fake import (
    check_bias_and_numbers,
    check_floating,
    check_like,
    convolution_result,
    fake_out,
    holds,
    is_channels_last,
    require,
    whose,
)
from ._precision import add_precision
from .chain import Chain, given_chain
from .pack import PackedWeight, check_packed, packed_for, packed_shape_transposed


def conv_transpose1d(
    input: torch.Tensor,
    weight: torch.Tensor | PackedWeight,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] = 0,
    output_padding: int | tuple[int] = 0,
    groups: int = 1,
    dilation: int | tuple[int] = 1,
    *,
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    """`post(F.conv_transpose1d(pre(input), weight, bias, stride, padding, output_padding, groups, dilation))`, one op.

    Results that are `stride` apart (a polyphase component) take the same taps: they are a convolution of stride 1.
    Depthwise transposed convolutions (groups equal to the channels, up to 16 components) run sluice's own kernels, once
    for each component; of half types on a GPU only where there are enough results for that many launches. Dense
    convolutions (one group) run on the tensor cores of a GPU of compute capability 8.x, 9.0 or 12.x, components with
    equally many taps in one launch, unless the stride and the dilation have a common divisor greater than 4: of half
    types, and of float32, in TF32 where torch's settings allow it (`torch.backends.cudnn.conv.fp32_precision`), else at
    full precision as sums of split products. Others, shapes for which cuDNN is faster, and sums of fewer than 16
    products at full precision run torch's transposed convolution and then one in-place pass of the chain. Sums are kept
    in float32 (float64 for float64).

    Args:
        input: (B, C, L) or (C, L), any strides; float32, float16, bfloat16 or float64.
        weight: (C, C_out / groups, K), of the input's dtype, or a `PackedWeight`. The packed values of `sluice.pack`
            are in conv1d's order and unused.
        bias: (C_out,), of the input's dtype.
        stride: positions of the result from one input to the next, at least 1.
        padding: positions that are cropped from both sides of the result.
        output_padding: positions that are added on the right; less than the stride or the dilation.
        groups: divides C and C_out.
        dilation: positions from one tap to the next, at least 1.
        pre: a chain on the input, rounded to the input's dtype. A chain without tensors may be its text, as
            "scale(2)|gelu".
        post: a chain on the biased result, before it is rounded. Its operands broadcast to the result's shape.
        dtype: the result's dtype; by default that of a last `cast` of `post`, else the input's.
        out: written and returned; of the result's shape and dtype, any strides, not overlapping the inputs.
        schedule: "auto", or for depthwise convolutions whose results all have a tap one of "direct", "sync",
            "cooperative", "barrier", "single_stage", "two_stage", "multi_stage", "producer_consumer", "thread_scope",
            "primitives" or "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.

    Returns:
        (B, C_out, L_out), or (C_out, L_out) for an unbatched input, with L_out = (L - 1) stride - 2 padding +
        dilation (K - 1) + output_padding + 1. Channels-last where the input is (stride(1) == 1, C > 1, L > 1,
        stride(2) >= C), else contiguous. Under autocast inputs are cast as F.conv_transpose1d's are. L_out may be 0. As
        in torch, an input without channels is refused, and so is an input without positions, unless B is 0.

    Raises:
        TypeError: an unsupported dtype, or one that differs between input, weight and bias.
        ValueError: a shape, a number, a device, an `out`, a schedule or a chain that does not fit.
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> from sluice import stages
        >>> x, w = torch.ones(1, 2, 3), torch.ones(2, 1, 4)
        >>> sluice.conv_transpose1d(x, w, stride=2, padding=1, post=stages.scale(0.5))
        tensor([[[1., 2., 2., 2., 2., 1.]]])

    Source: `torch.nn.functional.conv_transpose1d`, whose arguments and results these are.
    """
    handle = None
    if isinstance(weight, PackedWeight):
        handle, weight = weight, weight.weight
    check_tensors("conv_transpose1d", input, weight, bias)
    before = None if pre is None else given_chain("conv_transpose1d", "pre", pre, input.dim())
    after = None if post is None else given_chain("conv_transpose1d", "post", post, input.dim())
    is_plain = is_plain_call(input, weight, bias)
    if not is_plain or before or after:
        check_forward_only("conv_transpose1d", (input, weight, bias), before, after)
    if not is_plain:
        input, weight, bias = cast_arguments(input, weight, bias)
    numbers = stride, padding, output_padding, groups, dilation
    if not (are_integers(stride, padding, output_padding, dilation) and type(groups) is int):
        numbers = (
            single("conv_transpose1d", "stride", stride),
            single("conv_transpose1d", "padding", padding),
            single("conv_transpose1d", "output_padding", output_padding),
            integer("conv_transpose1d", "groups", groups),
            single("conv_transpose1d", "dilation", dilation),
        )
    if (before or after) and needs_references(input, before, after):
        compute = functools.partial(
            conv_transpose1d, weight=handle or weight, bias=bias, stride=numbers[0], padding=numbers[1],
            output_padding=numbers[2], groups=numbers[3], dilation=numbers[4], schedule=schedule, depth=depth,
        )  # fmt: skip
        return with_references("conv_transpose1d", compute, input, pre=before, post=after, out=out, dtype=dtype)
    options: dict[str, Any] = {}
    if before or after or dtype is not None or depth is not None or schedule != "auto":
        options = given_options("conv_transpose1d", input, schedule, depth, dtype, pre=before, post=after)
    if input.dtype == torch.float32:
        add_precision(options, input, is_plain)
    if handle is not None and handle.numbers is not None:
        wanted: Any = numbers[0], numbers[4], is_channels_last(out if isinstance(out, torch.Tensor) else input)
        if (packed := packed_for(handle, weight.dtype, wanted)) is not None:
            options["packed"] = packed
    return run("conv_transpose1d", (input, weight, bias, *numbers), options, out, is_plain=is_plain)


@torch.library.register_fake("sluice::conv_transpose1d")
def _(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
    *,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    padding_right: int | None = None,
    packed: torch.Tensor | None = None,
    precision: str = "ieee",
) -> torch.Tensor:
    check_floating("conv_transpose1d", "input", input.dtype)
    x = input.unsqueeze(0) if input.dim() == 2 else input
    paddings = padding, padding_right
    shape = result_shape(
        "conv_transpose1d", "input", x, weight, bias, stride, paddings, output_padding, groups, dilation
    )
    check_like("conv_transpose1d", "weight", weight, input, input.dtype, "like the input")
    check_like("conv_transpose1d", "bias", bias, input, input.dtype, "like the input")
    chains = {"pre": (pre, pre_operands), "post": (post, post_operands)}
    result = convolution_result("conv_transpose1d", x, shape, chains, dtype, schedule, depth, precision)
    if packed is not None:
        numbers, rank = (stride, dilation), packed.dim()
        check_packed(
            "conv_transpose1d", packed, weight, input, precision,
            lambda own: packed_shape_transposed(weight, input.dtype, own, *numbers, rank),
            "sluice.nn.ConvTranspose1d",
        )  # fmt: skip
    return result.squeeze(0) if input.dim() == 2 else result


def result_shape(
    op: str,
    argument: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int,
    paddings: tuple[int, int | None],
    output_padding: int,
    groups: int,
    dilation: int,
) -> tuple[int, int, int]:
    """The rules of ops/convolution/shapes.cpp, on sizes that may be symbolic. `argument` is the op's name for x."""
    check = functools.partial(require, op)
    left, right = paddings[0], paddings[0] if paddings[1] is None else paddings[1]
    check(
        x.dim() == 3,
        lambda: f"{argument} must have shape (batch, channels, length) or (channels, length), got {tuple(x.shape)}",
    )
    sizes = tuple(weight.shape)
    check(len(sizes) == 3, lambda: f"weight must have shape (in_channels, out_channels / groups, taps), got {sizes}")
    check(stride > 0, lambda: f"stride must be at least 1, got {stride}")
    check(left >= 0, lambda: f"padding must not be negative, got {left}")
    check(right >= 0, lambda: f"padding_right must not be negative, got {right}")
    check(output_padding >= 0, lambda: f"output_padding must not be negative, got {output_padding}")
    check(dilation > 0, lambda: f"dilation must be at least 1, got {dilation}")
    check(groups > 0, lambda: f"groups must be at least 1, got {groups}")
    (batch, channels, length), (inputs, outputs, taps) = x.shape, sizes
    check(channels > 0, lambda: f"{argument} must have at least one channel, got {tuple(x.shape)}")
    check(channels % groups == 0, lambda: f"groups must divide {whose(argument)} {channels} channels, got {groups}")
    check(
        inputs == channels,
        lambda: (
            f"weight must have shape ({channels}, out_channels / groups, taps) for {channels} channels, got {sizes}"
        ),
    )
    check(outputs > 0, lambda: f"weight must have at least one output channel, got {sizes}")
    check(taps > 0, lambda: f"weight must have at least one tap, got {sizes}")
    outputs = outputs * groups
    check_bias_and_numbers(op, bias, outputs, stride, max(left, right), dilation, taps)
    check(
        output_padding < max(stride, dilation),
        lambda: (
            f"output_padding must be less than stride or dilation, got {output_padding} for a stride of {stride} "
            f"and a dilation of {dilation}"
        ),
    )
    nothing = holds(length == 0) and not holds(batch == 0)
    check(not nothing, lambda: f"{argument} must have at least one position, got {tuple(x.shape)}")
    if isinstance(length, int):  # symbolic lengths have guards, and memory is smaller
        check(
            length < 2**62 // stride,
            lambda: f"stride must spread the input over fewer than 2^62 positions, got {stride} for {length}",
        )
    positions = (length - 1) * stride - left - right + dilation * (taps - 1) + output_padding + 1
    check(
        positions >= 0,
        lambda: f"padding must leave a result of at least 0 positions, got {left}, which leaves {positions}",
    )
    return batch, outputs, positions


torch.library.register_fake("sluice::conv_transpose1d_out")(fake_out)


register_autocast("conv_transpose1d")
