"""`pack`: the weight of a dense convolution, packed for the tensor-core kernels ahead of its calls."""

from __future__ import annotations

import dataclasses

import torch
from torch.compiler import is_compiling

from ._apply import check_forward_only
from ._arguments import check_dtype, check_tensor
from ._call import run
from ._fake import FLOATING, dtype_name, require
from ._modes import current_mode
from ._precision import settings

# Dtypes of packed weights; float32 is packed for one of two precisions, TF32 or its own.
PACKED_TYPES = (torch.float32, torch.float16, torch.bfloat16)
# Whether a GPU has tensor-core kernels, by its index: torch takes microseconds to tell its properties.
_known: dict[int, bool] = {}


@dataclasses.dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight and its packed copy; `conv1d` takes it instead of the weight.

    Attributes:
        weight: (C_out, C_in / groups, K), as given to `pack`.
        packed: a copy of its values in the kernels' layout; None where no kernel would read it.

    Example:
        >>> import torch, sluice
        >>> sluice.pack(torch.ones(8, 4, 3)).packed is None  # on the CPU
        True
    """

    weight: torch.Tensor
    packed: torch.Tensor | None


def pack(weight: torch.Tensor, dtype: torch.dtype | None = None) -> PackedWeight:
    """Packs a weight once: `conv1d` calls with it are faster, and their results are bit for bit the same.

    The tensor-core kernels (compute capability 9.0; float16, bfloat16 and float32) read weights in their own layout.
    Otherwise every call packs its weight first: a small kernel, and memory as large as the weight while the call runs.
    A packed weight saves both, but is in memory twice. Float32 is packed for the precision of torch's settings at this
    call (`torch.backends.cudnn.conv.fp32_precision`): rounded to TF32 where they allow it, else as high and low parts,
    which together are twice as large as the weight. Calls of the other precision read the weight.

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
        rule = "(out_channels, in_channels, taps), none of them 0"
        raise ValueError(f"pack: weight must have shape {rule}, got {tuple(weight.shape)}")
    if wanted not in PACKED_TYPES or not has_kernels(weight.device):
        return PackedWeight(weight, None)
    options = {"precision": "tf32"} if packs_for_tf32(wanted) else {}
    packed = run("pack", (weight, wanted), options, raw="_pack_conv1d_weight")
    return PackedWeight(weight, packed)


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
    return (properties.major, properties.minor) == (9, 0)


def packed_for(weight: PackedWeight, dtype: torch.dtype) -> torch.Tensor | None:
    """The packed values if a call with weights of `dtype` can use them."""
    return weight.packed if weight.packed is not None and weight.packed.dtype == dtype else None


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


def packed_shape(weight: torch.Tensor, dtype: torch.dtype, precision: str) -> list[int]:
    """The shape of a weight's values packed in `dtype`. A weight's sizes are constants of a compiled graph."""
    return list(torch.ops.sluice._packed_conv1d_shape(*(int(size) for size in weight.shape), dtype, precision))
