"""The weight of a module in the order of the tensor-core kernels: packed once, and again after a change."""

from __future__ import annotations

import torch

from ..pack import PACKED_TYPES, PackedWeight, has_kernels, on_tensor_cores, pack, packs_for_tf32
from .kept import Kept

HALF_TYPES = (torch.float16, torch.bfloat16)


def packed_weight(kept: Kept, module: torch.nn.Module, weight: torch.Tensor) -> torch.Tensor | PackedWeight:
    """The weight that a convolution of the module takes: in float32 packed for the precision of torch's settings.

    A weight that is no parameter of the module, as with weight_norm, is another tensor at each call: it is not
    kept, and the kernels pack it themselves. So do the kernels of a CUDA graph at each replay.
    """
    if weight.device.type != "cuda" or weight.shape[1] == 1:  # depthwise
        return weight
    dtype = _dtype_of_calls(weight)
    if not on_tensor_cores(dtype, weight.device):
        return weight
    if torch.compiler.is_compiling():
        return pack(weight, dtype)  # frozen weights are packed at compile time
    is_its_own = module._parameters.get("weight") is weight
    if not is_its_own or weight.is_inference() or torch.cuda.is_current_stream_capturing():
        return weight
    handle: PackedWeight = kept.of((weight,), lambda: pack(weight, dtype), (dtype, packs_for_tf32(dtype)))
    return handle


def may_be_packed(weight: torch.Tensor | None) -> bool:
    """Whether a tensor-core kernel may take the weight of a convolution without autocast."""
    if weight is None or weight.dtype not in PACKED_TYPES:
        return False
    return weight.shape[1] > 1 and has_kernels(weight.device)


def _dtype_of_calls(weight: torch.Tensor) -> torch.dtype:
    """The dtype in which a call uses this weight: autocast's if autocast is on."""
    if torch.is_autocast_enabled("cuda") and weight.dtype != torch.float64:
        return torch.get_autocast_dtype("cuda")
    return weight.dtype
