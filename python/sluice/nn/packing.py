"""The weight of a module in the order of the tensor-core kernels: packed once, and again after a change."""

from __future__ import annotations

import torch

from ..pack import PACKED_TYPES, PackedWeight, has_kernels, on_tensor_cores, pack, pack_transposed, packs_for_tf32
from .kept import Kept

Convolution = torch.nn.Conv1d | torch.nn.ConvTranspose1d
HALF_TYPES = (torch.float16, torch.bfloat16)


def packed_weight(kept: Kept, module: Convolution, weight: torch.Tensor) -> torch.Tensor | PackedWeight:
    """The weight that a convolution of the module takes: in float32 packed for the precision of torch's settings.

    A weight that is no parameter of the module, as with weight_norm, is another tensor at each call: it is not
    kept, and the kernels pack it themselves. So do the kernels of a CUDA graph at each replay. The packed order of a
    transposed convolution depends on its stride and dilation: after a change of either the weight is packed again.
    """
    if weight.device.type != "cuda" or not has_packed_form(weight, module.groups if module.transposed else None):
        return weight
    dtype = _dtype_of_calls(weight)
    if not on_tensor_cores(dtype, weight.device):
        return weight
    if torch.compiler.is_compiling():
        return _pack(module, weight, dtype)  # frozen weights are packed at compile time
    is_its_own = module._parameters.get("weight") is weight
    if not is_its_own or weight.is_inference() or torch.cuda.is_current_stream_capturing():
        return weight
    key = (dtype, packs_for_tf32(dtype), *(_steps(module) if module.transposed else ()))
    handle: PackedWeight = kept.of((weight,), lambda: _pack(module, weight, dtype), key)
    return handle


def may_be_packed(weight: torch.Tensor | None, groups: int | None = None) -> bool:
    """Whether a tensor-core kernel may take the weight of a convolution without autocast; `groups` if transposed."""
    if weight is None or weight.dtype not in PACKED_TYPES:
        return False
    return has_packed_form(weight, groups) and has_kernels(weight.device)


def has_packed_form(weight: torch.Tensor, groups: int | None) -> bool:
    """Whether dense kernels compute the convolution; `groups` of a transposed one, else None."""
    if groups is None:
        return weight.shape[1] > 1
    return groups == 1 and weight.shape[0] > 1


def _steps(module: Convolution) -> tuple[int, int]:
    return module.stride[0], module.dilation[0]


def _pack(module: Convolution, weight: torch.Tensor, dtype: torch.dtype) -> PackedWeight:
    if not module.transposed:
        return pack(weight, dtype)
    return pack_transposed(weight, dtype, *_steps(module), channels_last=False)


def _dtype_of_calls(weight: torch.Tensor) -> torch.dtype:
    """The dtype in which a call uses this weight: autocast's if autocast is on."""
    if torch.is_autocast_enabled("cuda") and weight.dtype != torch.float64:
        return torch.get_autocast_dtype("cuda")
    return weight.dtype
