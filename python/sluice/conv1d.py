"""`conv1d`: one-dimensional convolution with a chain before and after it."""

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
    require,
    whose,
)
from ._precision import add_precision
from .chain import Chain, given_chain
from .pack import PackedWeight, check_packed, packed_for, packed_shape


def conv1d(
    input: torch.Tensor,
    weight: torch.Tensor | PackedWeight,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] | str = 0,
    dilation: int | tuple[int] = 1,
    groups: int = 1,
    *,
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    """`post(F.conv1d(pre(input), weight, bias, stride, padding, dilation, groups))` in one op.

    Depthwise convolutions (groups equal to the channels) run sluice's own kernels. Convolutions of one group, or of
    groups whose output channels are a multiple of 8, run on the tensor cores of a GPU of compute capability 8.x, 9.0 or
    12.x: of half types, and of float32, in TF32 where torch's settings allow it
    (`torch.backends.cudnn.conv.fp32_precision`), else at full precision as sums of split products. Other convolutions,
    shapes for which cuDNN is faster, and sums of fewer than 16 products at full precision run torch's code and then one
    in-place pass of the chain. Sums are kept in float32 (float64 for float64).

    Args:
        input: (B, C, L) or (C, L), any strides; float32, float16, bfloat16 or float64.
        weight: (C_out, C / groups, K), of the input's dtype, or a `PackedWeight` (`sluice.pack`).
        bias: (C_out,), of the input's dtype.
        stride: positions from one output to the next, at least 1.
        padding: zeros on both sides of each row, or "valid" (none), or "same" (stride 1 only).
        dilation: positions from one tap to the next, at least 1.
        groups: divides C and C_out.
        pre: a chain on the input, before zeros are added; rounded to the input's dtype. A chain without tensors may be
            its text, as "scale(2)|gelu".
        post: a chain on the biased result, before it is rounded. Its operands broadcast to the result's shape.
        dtype: the result's dtype; by default that of a last `cast` of `post`, else the input's.
        out: written and returned; of the result's shape and dtype, any strides, not overlapping the inputs.
        schedule: "auto", or for depthwise convolutions one of "direct", "sync", "cooperative", "barrier",
            "single_stage", "two_stage", "multi_stage", "producer_consumer", "thread_scope", "primitives" or
            "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.

    Returns:
        (B, C_out, L_out), or (C_out, L_out) for an unbatched input. Channels-last where the input is (stride(1) == 1,
        C > 1, L > 1, stride(2) >= C), else contiguous. Under autocast inputs are cast as F.conv1d's are. As in torch,
        an input without channels has a result without channels, and an input without positions is refused, unless B or
        C is 0.

    Raises:
        TypeError: an unsupported dtype, or one that differs between input, weight and bias.
        ValueError: a shape, a number, a device, an `out`, a schedule or a chain that does not fit.
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> from sluice import stages
        >>> x, w = torch.ones(1, 2, 5), torch.ones(2, 1, 3)
        >>> sluice.conv1d(x, w, groups=2, post=stages.scale(0.5))
        tensor([[[1.5000, 1.5000, 1.5000],
                 [1.5000, 1.5000, 1.5000]]])

    Source: `torch.nn.functional.conv1d`, whose arguments and results these are.
    """
    handle = None
    if isinstance(weight, PackedWeight):
        handle, weight = weight, weight.weight
    check_tensors("conv1d", input, weight, bias)
    before = None if pre is None else given_chain("conv1d", "pre", pre, input.dim())
    after = None if post is None else given_chain("conv1d", "post", post, input.dim())
    is_plain = is_plain_call(input, weight, bias)
    if not is_plain or before or after:
        check_forward_only("conv1d", (input, weight, bias), before, after)
    if not is_plain:
        input, weight, bias = cast_arguments(input, weight, bias)
    right = None
    if are_integers(stride, padding, dilation, groups):
        step, left, spread = stride, padding, dilation
    else:
        step, spread = single("conv1d", "stride", stride), single("conv1d", "dilation", dilation)
        left, right = sides(padding, weight, step, spread)
        groups = integer("conv1d", "groups", groups)
    if (before or after) and needs_references(input, before, after):
        compute = functools.partial(
            conv1d, weight=handle or weight, bias=bias, stride=step, padding=padding, dilation=spread, groups=groups,
            schedule=schedule, depth=depth,
        )  # fmt: skip
        return with_references("conv1d", compute, input, pre=before, post=after, out=out, dtype=dtype)
    options: dict[str, Any] = {}
    if before or after or dtype is not None or depth is not None or schedule != "auto":
        options = given_options("conv1d", input, schedule, depth, dtype, pre=before, post=after)
    if right is not None:
        options["padding_right"] = right
    if input.dtype == torch.float32:
        add_precision(options, input, is_plain)
    if handle is not None and (packed := packed_for(handle, weight.dtype)) is not None:
        options["packed"] = packed
    return run("conv1d", (input, weight, bias, step, left, spread, groups), options, out, is_plain=is_plain)


def sides(padding: int | tuple[int] | str, weight: torch.Tensor, stride: int, dilation: int) -> tuple[int, int | None]:
    """Zeros on the left, and on the right where they differ."""
    if not isinstance(padding, str):
        return single("conv1d", "padding", padding), None
    if padding == "valid":
        return 0, None
    if padding != "same":
        raise ValueError(f"conv1d: padding must be a number, 'same' or 'valid', got {padding!r}")
    if stride != 1:
        raise ValueError(f"conv1d: padding='same' must have stride 1, got {stride}")
    total = dilation * (weight.shape[-1] - 1) if weight.dim() == 3 else 0
    return total // 2, total - total // 2


@torch.library.register_fake("sluice::conv1d")
def _(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
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
    check_floating("conv1d", "input", input.dtype)
    x = input.unsqueeze(0) if input.dim() == 2 else input
    shape = result_shape("conv1d", "input", x, weight, bias, stride, (padding, padding_right), dilation, groups)
    check_like("conv1d", "weight", weight, input, input.dtype, "like the input")
    check_like("conv1d", "bias", bias, input, input.dtype, "like the input")
    chains = {"pre": (pre, pre_operands), "post": (post, post_operands)}
    result = convolution_result("conv1d", x, shape, chains, dtype, schedule, depth, precision)
    if packed is not None:
        shape_with = functools.partial(packed_shape, weight, input.dtype)
        check_packed("conv1d", packed, weight, input, precision, shape_with)
    return result.squeeze(0) if input.dim() == 2 else result


def result_shape(
    op: str,
    argument: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int,
    paddings: tuple[int, int | None],
    dilation: int,
    groups: int,
) -> tuple[int, int, int]:
    """The rules of ops/convolution/shapes.cpp, on sizes that may be symbolic. `argument` is the op's name for x."""
    check = functools.partial(require, op)
    left, right = paddings[0], paddings[0] if paddings[1] is None else paddings[1]
    check(
        x.dim() == 3,
        lambda: f"{argument} must have shape (batch, channels, length) or (channels, length), got {tuple(x.shape)}",
    )
    check(
        weight.dim() == 3,
        lambda: f"weight must have shape (out_channels, in_channels / groups, taps), got {tuple(weight.shape)}",
    )
    check(stride > 0, lambda: f"stride must be at least 1, got {stride}")
    check(left >= 0, lambda: f"padding must not be negative, got {left}")
    check(right >= 0, lambda: f"padding_right must not be negative, got {right}")
    check(dilation > 0, lambda: f"dilation must be at least 1, got {dilation}")
    check(groups > 0, lambda: f"groups must be at least 1, got {groups}")
    (batch, channels, length), (outputs, inputs, taps) = x.shape, weight.shape
    check(channels % groups == 0, lambda: f"groups must divide {whose(argument)} {channels} channels, got {groups}")
    check(outputs > 0, lambda: f"weight must have at least one output channel, got {tuple(weight.shape)}")
    check(outputs % groups == 0, lambda: f"groups must divide the weight's {outputs} output channels, got {groups}")
    check(
        inputs == channels // groups,
        lambda: (
            f"weight must have shape (out_channels, {channels // groups}, taps) for {channels} channels in "
            f"{groups} groups, got {tuple(weight.shape)}"
        ),
    )
    check(taps > 0, lambda: f"weight must have at least one tap, got {tuple(weight.shape)}")
    check_bias_and_numbers(op, bias, outputs, stride, left, dilation, taps)
    check(right < 2**31, lambda: f"padding_right must be less than 2^31, got {right}")
    reach, padded = dilation * (taps - 1) + 1, length + left + right
    check(
        padded >= reach,
        lambda: f"{argument} must have at least {reach} positions with padding, the kernel's reach, got {padded}",
    )
    nothing = holds(length == 0) and not holds(batch * channels == 0)
    check(not nothing, lambda: f"{argument} must have at least one position, got {tuple(x.shape)}")
    # torch's rule: without input channels there are no output channels.
    return batch, 0 if holds(channels == 0) else outputs, (padded - reach) // stride + 1


torch.library.register_fake("sluice::conv1d_out")(fake_out)


register_autocast("conv1d")
