"""`filter2d`: a depthwise two-dimensional stencil with a chain before and after it."""

from __future__ import annotations

import functools

import torch

from ._apply import check_forward_only, given_options, needs_references, run, with_references
from ._fake import FLOATING, chain_dtype, check_floating, check_same_dtype, dtype_name, empty_like_layout, fake_out
from ._library import check_tensor
from .chain import Chain

Kernel = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def filter2d(
    image: torch.Tensor,
    kernel: Kernel,
    bias: torch.Tensor | None = None,
    padding: str | tuple[int, int] = "same",
    *,
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    """`post(F.conv2d(pre(image), kernel[:, None], bias, padding=padding, groups=C))` for each image of a batch.

    A correlation, as `F.conv2d` is one: the kernel is not flipped. Sums are float32 (float64 for float64); float32
    never uses TF32. Padding is with zeros.

    Args:
        image: (..., H, W), any strides; float32, float16, bfloat16 or float64, or uint8, which is converted to float32
            first.
        kernel: (kh, kw), or (C, kh, kw) with one for each of the channels in dimension -3. A separable kernel is a
            tuple of its column (kh,) and its row (kw,), or of (C, kh) and (C, kw), and stands for their outer product.
            Of the image's dtype (float32 for uint8); odd and even sizes.
        bias: (C,), or (1,) where there is one kernel for all channels; of the kernel's dtype.
        padding: "same" (the result has the image's size; for an even kernel the extra zeros are at the bottom and on
            the right, as in torch), "valid" (none), or two numbers: zeros above and below, zeros on the left and right.
        pre: a chain on the image, before zeros are added; rounded to the image's dtype (float32 for uint8).
        post: a chain on the biased result, before it is rounded. Its operands broadcast to the result's shape.
        dtype: the result's dtype; by default that of a last `cast` of `post`, else the image's, float32 for uint8.
        out: written and returned as that object: the result's shape and dtype, any strides, apart from the inputs.
        schedule: "auto", or one of "direct", "sync", "cooperative", "barrier", "single_stage", "two_stage",
            "multi_stage", "producer_consumer", "thread_scope", "primitives" or "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.

    Returns:
        (..., H_out, W_out). Channels-last where the image is (stride(-3) == 1, C > 1, stride(-1) >= C, or stride(-2)
        where W is 1 and H is not), else contiguous. Nothing is cast under autocast.

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

    Source: `torch.nn.functional.conv2d` with `groups` equal to the channels and a stride of 1.
    """
    check_tensor("filter2d", "image", image)
    column, row, zeros = raw_arguments(kernel, padding)
    check_forward_only("filter2d", (image, column, row, bias), pre=pre, post=post)
    if needs_references(image, pre, post):
        compute = functools.partial(filter2d, kernel=kernel, bias=bias, padding=padding, schedule=schedule, depth=depth)
        floating = image.to(_floating(image.dtype))
        return with_references("filter2d", compute, floating, pre=pre, post=post, out=out, dtype=dtype)
    options = given_options("filter2d", image, schedule, depth, dtype, pre=pre, post=post)
    if row is not None:
        options["row_kernel"] = row
    arguments = (image, column, bias) if zeros is None else (image, column, bias, zeros)
    return run("filter2d", arguments, options, out)


def raw_arguments(
    kernel: Kernel, padding: str | tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor | None, list[int] | None]:
    """The raw op's kernel, row_kernel and padding."""
    return *_parts(kernel), _padding(padding)


def _parts(kernel: Kernel) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A dense kernel, or the column and the row of a separable one."""
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
    for zeros in padding:
        if not isinstance(zeros, (int, torch.SymInt)) or isinstance(zeros, bool):
            raise TypeError(f"filter2d: padding must be a string or two ints, got {type(zeros).__name__} in it")
    return list(padding)


def _floating(dtype: torch.dtype) -> torch.dtype:
    """What an image of `dtype` is computed in."""
    return torch.float32 if dtype == torch.uint8 else dtype


def result_size(image: torch.Tensor, height: int, width: int, padding: list[int] | None) -> tuple[int, int]:
    """The result's last two dimensions, under the raw op's padding."""
    if padding is None:
        return image.shape[-2], image.shape[-1]
    return image.shape[-2] + 2 * padding[0] - height + 1, image.shape[-1] + 2 * padding[1] - width + 1


def empty_result(
    image: torch.Tensor, taps: tuple[int, int], padding: list[int] | None, dtype: torch.dtype
) -> torch.Tensor:
    """What a kernel of `taps` (kh, kw) makes of the image under the raw op's padding, without its values."""
    return empty_like_layout(image, (*image.shape[:-2], *result_size(image, *taps, padding)), dtype, spatial=2)


def _check_kernel(image: torch.Tensor, kernel: torch.Tensor, row_kernel: torch.Tensor | None) -> None:
    channels = image.shape[-3] if image.dim() > 2 else 1

    def fits(part: torch.Tensor, taps: int) -> bool:
        return part.dim() == taps or (part.dim() == taps + 1 and image.dim() > 2 and part.shape[0] == channels)

    if row_kernel is None:
        torch._check(
            fits(kernel, 2),
            lambda: (
                f"filter2d: kernel must have shape (kh, kw) or (C, kh, kw) with C = {channels}, "
                f"got {tuple(kernel.shape)}"
            ),
        )
    else:
        torch._check(
            fits(kernel, 1) and fits(row_kernel, 1) and kernel.dim() == row_kernel.dim(),
            lambda: (
                f"filter2d: kernel must have two vectors of shapes (kh,) and (kw,), or (C, kh) and (C, kw) with C = "
                f"{channels}, got {tuple(kernel.shape)} and {tuple(row_kernel.shape)}"
            ),
        )


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
) -> torch.Tensor:
    torch._check(image.dim() >= 2, lambda: f"filter2d: image must have shape (..., H, W), got {tuple(image.shape)}")
    computed = _floating(image.dtype)
    if computed not in FLOATING:
        known = "float32, float16, bfloat16, float64 or uint8"
        raise RuntimeError(f"filter2d: image must have dtype {known}, got {dtype_name(image.dtype)}")
    check_floating("filter2d", "dtype", dtype or computed)
    reason = "for a uint8 image" if image.dtype == torch.uint8 else "like the image"
    for argument, tensor in (("kernel", kernel), ("kernel", row_kernel), ("bias", bias)):
        check_same_dtype("filter2d", argument, tensor, computed, reason)
    _check_kernel(image, kernel, row_kernel)
    taps = (kernel.shape[-2], kernel.shape[-1]) if row_kernel is None else (kernel.shape[-1], row_kernel.shape[-1])
    rows, columns = result_size(image, *taps, padding)
    torch._check(
        rows > 0 and columns > 0,
        lambda: (
            f"filter2d: image must be at least as large as the kernel, {taps[0]} x {taps[1]}, with its padding, "
            f"got {rows + taps[0] - 1} x {columns + taps[1] - 1}"
        ),
    )
    chain_dtype("filter2d", "pre", pre, pre_operands, computed)
    last = chain_dtype("filter2d", "post", post, post_operands, computed)
    return empty_result(image, taps, padding, dtype or last)


torch.library.register_fake("sluice::filter2d_out")(fake_out)
