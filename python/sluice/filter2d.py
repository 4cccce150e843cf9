"""`filter2d`: a depthwise two-dimensional stencil with a chain before and after it."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from ._apply import check_forward_only, given_options, needs_references, with_references
from ._arguments import check_string, check_tensor, integer
from ._call import is_plain_call, run
from ._fake import (
    FLOATING,
    chain_dtype,
    check_floating,
    check_like,
    check_schedule,
    dtype_name,
    empty_like_layout,
    fake_out,
    holds,
    require,
)
from .chain import Chain, given_chain

Kernel = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def filter2d(
    image: torch.Tensor,
    kernel: Kernel,
    bias: torch.Tensor | None = None,
    padding: str | tuple[int, int] = "same",
    *,
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    padding_mode: str = "zeros",
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    """`post(F.conv2d(pre(image), kernel[:, None], bias, stride, padding, dilation, C))` for each image of a batch.

    A correlation, like `F.conv2d`: the kernel is not flipped. Sums are float32 (float64 for float64); float32
    never uses TF32. Padding is with zeros, or as `F.pad` pads in another `padding_mode`.

    Args:
        image: (..., H, W), any strides; float32, float16, bfloat16 or float64, or uint8, which is computed in float32
            and read as bytes (converted first with a ring, or with over 25 taps at stride and dilation 1).
        kernel: (kh, kw), or (C, kh, kw) with one for each of the channels in dimension -3. A separable kernel is a
            tuple of its column (kh,) and its row (kw,), or of (C, kh) and (C, kw): their outer product.
            The dtype is the image's (float32 for uint8); sizes may be odd or even.
        bias: (C,), or (1,) for one kernel for all channels; of the kernel's dtype.
        padding: "same" (the result has the image's size; for an even kernel the extra pixels are at the bottom and on
            the right, as in torch; stride 1 only), "valid" (none), or two numbers: pixels above and below, pixels on
            the left and right.
        stride: of the windows, a number or two: down and across.
        dilation: of a window's taps, likewise.
        padding_mode: the padding's values: "zeros", "replicate" (the nearest pixel), "reflect" (the image mirrored at
            its outermost pixels, fewer pixels than its size), or "circular" (the image again, at most once).
        pre: a chain on the image, before padding is added; rounded to the image's dtype (float32 for uint8). A chain
            without tensors may be text: "scale(2)|gelu".
        post: a chain on the biased result, before it is rounded. Its operands broadcast to the result's shape.
        dtype: the result's dtype; by default that of a last `cast` of `post`, else the image's, float32 for uint8.
        out: written and returned as that object: the result's shape and dtype, any strides, apart from the inputs.
        schedule: "auto", or one of "direct", "sync", "cooperative", "barrier", "single_stage", "two_stage",
            "multi_stage", "producer_consumer", "thread_scope", "primitives" or "bulk" (docs/pipeline.md). A
            stride, a dilation or a padding_mode is allowed with the first two only.
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.

    Returns:
        (..., H_out, W_out). Channels-last if the image is (stride(-3) == 1, C > 1, stride(-1) >= C, or stride(-2)
        if W is 1 and H is not), else contiguous. Nothing is cast under autocast.

    Raises:
        TypeError: an unsupported dtype, one that differs between image, kernel and bias, or one that is no tensor.
        ValueError: a shape, a number, a device, an `out`, a schedule or a chain that does not fit; an image that is
            smaller than the kernel with its padding, or has no pixels (F.conv2d refuses both).
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> image = torch.ones(3, 4)
        >>> sluice.filter2d(image, (torch.ones(3), torch.ones(3)))
        tensor([[4., 6., 6., 4.],
                [6., 9., 9., 6.],
                [4., 6., 6., 4.]])

    Source: `torch.nn.functional.conv2d` with `groups` equal to the channels, and `torch.nn.functional.pad`.
    """
    check_tensor("filter2d", "image", image)
    column, row, zeros = raw_arguments(kernel, padding)
    sampling = raw_sampling(stride, dilation, padding_mode)
    if bias is not None:
        check_tensor("filter2d", "bias", bias)
    before = None if pre is None else given_chain("filter2d", "pre", pre, image.dim())
    after = None if post is None else given_chain("filter2d", "post", post, image.dim())
    is_plain = is_plain_call(image, column, row, bias)
    if not is_plain or before or after:
        check_forward_only("filter2d", (image, column, row, bias), before, after)
    if (before or after) and needs_references(image, before, after):
        compute = functools.partial(
            filter2d, kernel=kernel, bias=bias, padding=padding, stride=stride, dilation=dilation,
            padding_mode=padding_mode, schedule=schedule, depth=depth,
        )  # fmt: skip
        floating = image.to(_floating(image.dtype))
        return with_references("filter2d", compute, floating, pre=before, post=after, out=out, dtype=dtype)
    options = given_options("filter2d", image, schedule, depth, dtype, pre=before, post=after)
    options.update(sampling)
    if row is not None:
        options["row_kernel"] = row
    arguments = (image, column, bias) if zeros is None else (image, column, bias, zeros)
    return run("filter2d", arguments, options, out, is_plain=is_plain)


def raw_arguments(
    kernel: Kernel, padding: str | tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor | None, list[int] | None]:
    """The raw op's kernel, row_kernel and padding."""
    return *_parts(kernel), _padding(padding)


def raw_sampling(stride: int | tuple[int, int], dilation: int | tuple[int, int], padding_mode: str) -> dict[str, Any]:
    """The raw op's stride, dilation and padding_mode, if they differ from its defaults."""
    sampling: dict[str, Any] = {}
    for argument, given in (("stride", stride), ("dilation", dilation)):
        if given != 1:
            sampling[argument] = _pair(argument, given)
    if padding_mode != "zeros":
        check_string("filter2d", "padding_mode", padding_mode)
        sampling["padding_mode"] = padding_mode
    return sampling


def _pair(argument: str, given: int | tuple[int, int]) -> list[int]:
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise ValueError(f"filter2d: {argument} must be one number or two, got {len(given)}")
        return [integer("filter2d", argument, number) for number in given]
    return [integer("filter2d", argument, given)] * 2


def _parts(kernel: Kernel) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A non-separable kernel, or the column and the row of a separable one."""
    if not isinstance(kernel, (tuple, list)):
        check_tensor("filter2d", "kernel", kernel)
        return kernel, None
    if len(kernel) != 2:
        raise ValueError(f"filter2d: kernel must be a tensor or a column and a row, got {len(kernel)} parts")
    for part in kernel:
        check_tensor("filter2d", "kernel", part)
    return kernel[0], kernel[1]


def _padding(padding: str | tuple[int, int]) -> list[int] | None:
    """The raw op's padding: None means "same"."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"filter2d: padding must be 'same', 'valid' or two numbers, got {padding!r}")
        return None if padding == "same" else [0, 0]
    if not isinstance(padding, (tuple, list)):
        raise TypeError(f"filter2d: padding must be a string or two ints, got {type(padding).__name__}")
    return [integer("filter2d", "padding", zeros, rule="be a string or two ints") for zeros in padding]


def _floating(dtype: torch.dtype) -> torch.dtype:
    """The dtype that an image of `dtype` is computed in."""
    return torch.float32 if dtype == torch.uint8 else dtype


def _check_kernel(image: torch.Tensor, kernel: torch.Tensor, row: torch.Tensor | None) -> tuple[int, int]:
    """The kernel's height and width."""
    channels = image.shape[-3] if image.dim() > 2 else 1
    found = str(tuple(kernel.shape)) if row is None else f"{tuple(kernel.shape)} and {tuple(row.shape)}"
    taps = 2 if row is None else 1
    shapes = (
        f"shape (kh, kw) or (C, kh, kw) with C = {channels}"
        if row is None
        else f"two vectors of shapes (kh,) and (kw,), or (C, kh) and (C, kw) with C = {channels}"
    )

    def check(condition: bool | torch.SymBool, rule: str) -> None:
        require("filter2d", condition, lambda: f"kernel must {rule}, got {found}")

    parts = [kernel] if row is None else [kernel, row]
    for part in parts:
        check(part.dim() == taps or (part.dim() == taps + 1 and image.dim() > 2), f"have {shapes}")
        if part.dim() > taps:
            check(part.shape[0] == channels, f"have {shapes}")
        check(part.dim() == kernel.dim(), f"have {shapes}")
    height, width = kernel.shape[-taps], parts[-1].shape[-1]
    for extent in (height, width):
        check(extent > 0, "have at least one tap")
    found = str(tuple(kernel.shape))
    for extent in (height, width):
        check(extent < 2**24, "be smaller than 2^24 in each dimension")
    return height, width


def _padded(padding: list[int] | None, height: int, width: int, stride: list[int]) -> tuple[int, int]:
    """Rows and columns of padding in all. `height` and `width` are a window's."""
    if padding is None:
        for step in stride:
            require("filter2d", step == 1, lambda: f"padding='same' must have stride 1, got ({stride[0]}, {stride[1]})")
        return height - 1, width - 1
    require("filter2d", len(padding) == 2, lambda: f"padding must be two numbers, got {len(padding)}")
    for number in padding:
        for fits in (number >= 0, number < 2**31):
            words = functools.partial("padding must be at least 0 and less than 2^31, got {}".format, number)
            require("filter2d", fits, words)
    return 2 * padding[0], 2 * padding[1]


def _check_sampling(stride: list[int], dilation: list[int], padding_mode: str) -> None:
    for argument, given in (("stride", stride), ("dilation", dilation)):
        require("filter2d", len(given) == 2, f"{argument} must be two numbers, got {len(given)}".format)
        for number in given:
            for fits in (number >= 1, number < 2**31):
                words = functools.partial((argument + " must be at least 1 and less than 2^31, got {}").format, number)
                require("filter2d", fits, words)
    rule = "padding_mode must be 'zeros', 'replicate', 'reflect' or 'circular'"
    known = padding_mode in ("zeros", "replicate", "reflect", "circular")
    require("filter2d", known, lambda: f"{rule}, got '{padding_mode}'")


def _check_border(image: torch.Tensor, padded: tuple[int, int], mode: str) -> None:
    """A border's pixels are the image's. The larger half of an odd number is below, or on the right."""
    if mode not in ("reflect", "circular"):
        return
    for what, pixels, extent in zip(("rows", "columns"), padded, image.shape[-2:], strict=True):
        most, found = extent - 1 if mode == "reflect" else extent, pixels - pixels // 2
        words = functools.partial(
            "padding must be at most {} {} with padding_mode='{}' for an image of {}, got {}".format,
            most, what, mode, extent, found,
        )  # fmt: skip
        require("filter2d", found <= torch.sym_max(most, 0), words)


@torch.library.register_fake("sluice::filter2d")
def _(
    image: torch.Tensor,
    kernel: torch.Tensor,
    bias: torch.Tensor | None = None,
    padding: list[int] | None = None,
    *,
    row_kernel: torch.Tensor | None = None,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    stride: list[int] = (1, 1),  # type: ignore[assignment]
    dilation: list[int] = (1, 1),  # type: ignore[assignment]
    padding_mode: str = "zeros",
) -> torch.Tensor:
    check = functools.partial(require, "filter2d")
    computed = _floating(image.dtype)
    known = "float32, float16, bfloat16, float64 or uint8"
    check(computed in FLOATING, lambda: f"image must have dtype {known}, got {dtype_name(image.dtype)}")
    check(image.dim() >= 2, lambda: f"image must have shape (..., H, W), got {tuple(image.shape)}")
    height, width = _check_kernel(image, kernel, row_kernel)
    reason = "for a uint8 image" if image.dtype == torch.uint8 else "like the image"
    for argument, tensor in (("kernel", kernel), ("kernel", row_kernel), ("bias", bias)):
        check_like("filter2d", argument, tensor, image, computed, reason)
    if bias is not None:
        found, shared = tuple(bias.shape), kernel.dim() == (2 if row_kernel is None else 1)
        offsets = 1 if shared or image.dim() < 3 else image.shape[-3]
        for fits in (bias.dim() == 1, bias.numel() == offsets):
            check(fits, lambda: f"bias must have shape ({offsets},), got {found}")
    _check_sampling(stride, dilation, padding_mode)
    height, width = dilation[0] * (height - 1) + 1, dilation[1] * (width - 1) + 1  # a window's extents
    padded = _padded(padding, height, width, stride)
    check_schedule("filter2d", schedule, depth)
    rows, columns = image.shape[-2] + padded[0], image.shape[-1] + padded[1]
    for fits in (rows >= height, columns >= width):
        check(
            fits,
            lambda: (
                f"image must be at least {height} x {width} with padding, the kernel's size, got {rows} x {columns}"
            ),
        )
    planes = math.prod(image.shape[:-2])
    nothing = holds(image.numel() == 0) and not holds(planes == 0)
    check(not nothing, lambda: f"image must have at least one pixel, got {tuple(image.shape)}")
    _check_border(image, padded, padding_mode)
    shape = (*image.shape[:-2], (rows - height) // stride[0] + 1, (columns - width) // stride[1] + 1)
    chain_dtype("filter2d", "pre", pre, pre_operands, image, image.shape, computed)
    last = chain_dtype("filter2d", "post", post, post_operands, image, shape, computed)
    check_floating("filter2d", "dtype", dtype or computed)
    return empty_like_layout(image, shape, dtype or last, spatial=2)


torch.library.register_fake("sluice::filter2d_out")(fake_out)
