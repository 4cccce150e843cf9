"""`pack`: the weight of a dense convolution, packed for the tensor-core kernels ahead of its calls."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable

import torch
from torch.compiler import is_compiling

from ._apply import check_forward_only
from ._arguments import check_dtype, check_tensor
from ._call import run
from ._fake import FLOATING, check_device, dtype_name, require
from ._modes import current_mode
from ._polyphase import has_kernel, may_go_by_positions, polyphase_weights, row_counts
from ._precision import settings

# Dtypes of packed weights; float32 is packed for one of two precisions, TF32 or its own.
PACKED_TYPES = (torch.float32, torch.float16, torch.bfloat16)
# Stride and dilation of a transposed convolution, and whether its result is channels-last.
Numbers = tuple[int, int, bool]
# Whether a GPU has tensor-core kernels, by its index: torch takes microseconds to tell its properties.
_known: dict[int, bool] = {}
_WANTED_DENSE = os.environ.get("SLUICE_DENSE", "")  # which dense convolutions are sluice's


@dataclasses.dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight and its packed copy; `conv1d` takes it instead of the weight.

    Attributes:
        weight: (C_out, C_in / groups, K), as given to `pack`.
        packed: a copy of its values in the kernels' layout; None where no kernel would read it.
        numbers: the transposed convolution that `packed` is for; None for `conv1d`.

    Example:
        >>> import torch, sluice
        >>> sluice.pack(torch.ones(8, 4, 3)).packed is None  # on the CPU
        True
    """

    weight: torch.Tensor
    packed: torch.Tensor | None
    numbers: Numbers | None = None


def pack(weight: torch.Tensor, dtype: torch.dtype | None = None) -> PackedWeight:
    """Packs a weight once: `conv1d` calls with it are faster, and their results are bit for bit the same.

    The tensor-core kernels (compute capability 8.x, 9.0 and 12.x; float16, bfloat16 and float32) read weights in their
    own layout. Otherwise every call packs its weight first: a small kernel, and memory as large as the weight while the
    call runs. A packed weight saves both, but is in memory twice. Float32 is packed for the precision of torch's
    settings at this call (`torch.backends.cudnn.conv.fp32_precision`): rounded to TF32 where they allow it, else as
    high and low parts, which together are twice as large as the weight. Calls of the other precision read the weight.

    The values are copied. After a change of `weight`, pack again; until then tensor-core kernels use the old values and
    other kernels the new values. In a compiled model the call may be part of the model's code: it runs once where torch
    freezes weights (`torch._inductor.config.freezing`) or AOTInductor folds constants
    (`aot_inductor.use_runtime_constant_folding`), else at every call.

    Args:
        weight: (C_out, C_in / groups, K), any strides.
        dtype: the calls' dtype if it is not the weight's: under autocast to bfloat16, `torch.bfloat16`.

    Returns:
        A `PackedWeight`. On the CPU, for other GPUs and for float64 it holds only the weight. Calls that cannot use the
        packed values, because of their length or a wide stride, use the weight as well.

    Raises:
        TypeError: `weight` is not a tensor of one of sluice's dtypes, or `dtype` is not a dtype.
        ValueError: a weight of another shape, or without elements.
        RuntimeError: grad mode is on and the weight requires grad.

    Example:
        >>> import torch, sluice
        >>> x, w = torch.ones(1, 2, 5), torch.ones(2, 2, 3)
        >>> sluice.conv1d(x, sluice.pack(w))
        tensor([[[6., 6., 6.],
                 [6., 6., 6.]]])

    Source: NVIDIA's PTX manual, "wgmma", for the order of a tile in shared memory.
    """
    wanted = _checked_dtype(weight, dtype, "(out_channels, in_channels, taps)")
    if wanted not in PACKED_TYPES or not has_kernels(weight.device):
        return PackedWeight(weight, None)
    return PackedWeight(weight, _packed(weight, wanted, _precision_of(wanted)))


def pack_transposed(
    weight: torch.Tensor, dtype: torch.dtype | None, stride: int, dilation: int, channels_last: bool
) -> PackedWeight:
    """Packs the weight of a `conv_transpose1d` of one group, whose packed order depends on these numbers.

    Args:
        weight: (C_in, C_out, K), any strides.
        dtype: as `pack` has it.
        stride: of the convolution.
        dilation: of the convolution.
        channels_last: whether its result is channels-last.

    Returns:
        A `PackedWeight`; calls with other numbers use only its weight.

    Raises:
        TypeError, ValueError, RuntimeError: as `pack`.
    """
    wanted = _checked_dtype(weight, dtype, "(in_channels, out_channels, taps)")
    numbers = stride, dilation, channels_last
    if wanted not in PACKED_TYPES or not has_kernel(stride, dilation) or not has_kernels(weight.device):
        return PackedWeight(weight, None, numbers)
    return PackedWeight(weight, packed_transposed(weight, wanted, numbers, _precision_of(wanted)), numbers)


def packed_transposed(
    weight: torch.Tensor, dtype: torch.dtype, numbers: Numbers, options: dict[str, str]
) -> torch.Tensor:
    """The packed values of a transposed convolution: (k-blocks, taps, rows, k-block), or by channels a flat tensor.

    Args:
        weight: (C_in, C_out, K).
        dtype: of the packed values.
        numbers: of the convolution.
        options: of `_pack_conv1d_weight`.
    """
    stride, dilation, channels_last = numbers
    _, channels, taps = weight.shape
    by_positions = may_go_by_positions(taps, stride, dilation) and (stride == 1 or channels == 1 or not channels_last)
    parts = [_packed(part, dtype, options) for part in polyphase_weights(weight, stride, dilation, by_positions)]
    return parts[0] if by_positions else torch.cat([part.flatten() for part in parts])


def _checked_dtype(weight: torch.Tensor, dtype: torch.dtype | None, shape: str) -> torch.dtype:
    """The dtype of the packed values. Raises `pack`'s errors; `shape` is the weight's in words."""
    check_tensor("pack", "weight", weight)
    check_forward_only("pack", (weight,))
    if dtype is not None:
        check_dtype("pack", dtype)
    wanted = dtype or weight.dtype
    for argument, given in (("weight", weight.dtype), ("dtype", wanted)):
        if given not in FLOATING:
            known = ", ".join(map(dtype_name, FLOATING))
            raise TypeError(f"pack: {argument} must have dtype {known}, got {dtype_name(given)}")
    if weight.dim() != 3 or weight.numel() == 0:
        rule = f"{shape}, none of them 0"
        raise ValueError(f"pack: weight must have shape {rule}, got {tuple(weight.shape)}")
    return wanted


def _precision_of(dtype: torch.dtype) -> dict[str, str]:
    return {"precision": "tf32"} if packs_for_tf32(dtype) else {}


def _packed(weight: torch.Tensor, dtype: torch.dtype, options: dict[str, str]) -> torch.Tensor:
    return run("pack", (weight, dtype), options, raw="_pack_conv1d_weight")


# Makes it a valid argument of exported functions.
torch.utils._pytree.register_dataclass(PackedWeight, serialized_type_name="sluice.PackedWeight")


def packs_for_tf32(dtype: torch.dtype) -> bool:
    """Whether `pack` packs for TF32 now."""
    return dtype == torch.float32 and settings.allows_tf32


def on_tensor_cores(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether dense convolutions of a dtype are sluice's: half types everywhere, float32 where the kernels are."""
    return dtype in PACKED_TYPES and (dtype != torch.float32 or has_kernels(device))


def has_kernels(device: torch.device) -> bool:
    """Whether a tensor-core kernel may run on the device; always on "meta" for plans."""
    if device.type != "cuda":
        return device.type == "meta" and bool(current_mode.action)
    if is_compiling() or device.index is None:
        return _has_kernels(device)
    found = _known.get(device.index)
    if found is None:
        found = _has_kernels(device)
        if torch.cuda.is_available():
            _known[device.index] = found
    return found


def _has_kernels(device: torch.device) -> bool:
    if not torch.cuda.is_available():  # a fake tensor's GPU need not be there
        return False
    properties = torch.cuda.get_device_properties(device)  # a constant for torch.compile
    if _WANTED_DENSE == "torch":
        return False
    if _WANTED_DENSE == "portable":
        return properties.major >= 8
    return properties.major in (8, 12) or (properties.major, properties.minor) == (9, 0)  # as conv1d's plans


def packed_for(weight: PackedWeight, dtype: torch.dtype, numbers: Numbers | None = None) -> torch.Tensor | None:
    """The packed values if a call with weights of `dtype` can use them; a transposed convolution has `numbers`."""
    if weight.packed is None or weight.packed.dtype != dtype or weight.numbers != numbers:
        return None
    return weight.packed


@torch.library.register_fake("sluice::_pack_conv1d_weight")
def _(weight: torch.Tensor, dtype: torch.dtype | None = None, precision: str = "ieee") -> torch.Tensor:
    wanted = dtype or weight.dtype
    argument = "weight" if dtype is None else "dtype"
    known = dtype_name(wanted)
    rule = f"{argument} must have dtype float32, float16 or bfloat16"
    require("pack", wanted in PACKED_TYPES, lambda: f"{rule}, got {known}")
    sizes = tuple(weight.shape)
    require("pack", len(sizes) == 3, lambda: f"weight must have shape (out_channels, in_channels, taps), got {sizes}")
    return weight.new_empty(packed_shape(weight, wanted, precision), dtype=wanted)


def check_packed(
    op: str,
    packed: torch.Tensor,
    weight: torch.Tensor,
    input: torch.Tensor,
    precision: str,
    shape_with: Callable[[str], list[int]],
    maker: str = "sluice.pack",
) -> None:
    """The rules of ops/pack.cpp: it may be packed for the other precision, and then the call reads the weight.

    Args:
        op: for messages.
        packed: as the op has it.
        weight: as the op has it.
        input: as the op has it.
        precision: as the op has it.
        shape_with: the shape of values that are packed for a precision.
        maker: what packs so, for messages.
    """
    check, found, wanted = functools.partial(require, op), packed.dtype, input.dtype
    rule = "packed must have dtype float32, float16 or bfloat16 like the input, got"
    check(found == wanted and wanted in PACKED_TYPES, lambda: f"{rule} {dtype_name(found)} for {dtype_name(wanted)}")
    check_device(op, "packed", packed, input)
    sizes, shape, got = tuple(weight.shape), shape_with(precision), list(packed.shape)
    other = "tf32" if precision == "ieee" else "ieee"
    check(
        got == shape or got == shape_with(other),
        lambda: f"packed must have shape {tuple(shape)} for a weight of {sizes}, as {maker} makes it, got {tuple(got)}",
    )
    strides = tuple(packed.stride())
    check(packed.is_contiguous(), lambda: f"packed must be contiguous, as {maker} makes it, got strides {strides}")


def packed_shape(weight: torch.Tensor, dtype: torch.dtype, precision: str) -> list[int]:
    """The shape of a weight's values packed in `dtype`. A weight's sizes are constants of a compiled graph."""
    return _shape_of(weight.shape, dtype, precision)


def packed_shape_transposed(
    weight: torch.Tensor, dtype: torch.dtype, precision: str, stride: int, dilation: int, rank: int
) -> list[int]:
    """The same of a weight (C_in, C_out, K), in the form of `rank` if there is one, else in the form of rank 1."""
    inputs, outputs, taps = (int(size) for size in weight.shape)
    if rank > 1 and may_go_by_positions(taps, stride, dilation):
        return _shape_of((outputs * stride, inputs, taps // stride), dtype, precision)
    rows = row_counts(outputs, taps, stride, dilation)
    return [sum(math.prod(_shape_of((each, inputs, taps), dtype, precision)) for each, taps in rows)]


def _shape_of(sizes: Iterable[int], dtype: torch.dtype, precision: str) -> list[int]:
    return list(torch.ops.sluice._packed_conv1d_shape(*(int(size) for size in sizes), dtype, precision))
