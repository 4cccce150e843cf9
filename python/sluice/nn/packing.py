"""The weight of a module in the order of the tensor-core kernels: packed once, and again after a change."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..pack import PackedWeight, pack

_HALF_TYPES = (torch.float16, torch.bfloat16)


class _Kept(NamedTuple):
    handle: PackedWeight
    version: int
    address: int
    dtype: torch.dtype

    def is_of(self, weight: torch.Tensor, dtype: torch.dtype) -> bool:
        return (
            self.handle.weight is weight
            and self.version == weight._version
            and self.address == weight.data_ptr()
            and self.dtype == dtype
        )


class PackedParameter:
    """A module's packed weights.

    A CUDA graph neither fills nor reads it: it would replay the values of its capture, whose memory is freed when the
    weight changes. Its kernels pack the weight at each replay.
    """

    def __init__(self) -> None:
        # By stream: a kernel of another stream might read the values before they are written or after they are freed.
        self._kept: dict[int, _Kept] = {}

    def of(self, module: torch.nn.Module, weight: torch.Tensor) -> torch.Tensor | PackedWeight:
        """The weight that a convolution of the module takes.

        A weight that is no parameter of the module, as with weight_norm, is another tensor at each call: it is not
        kept, and the kernels pack it themselves. A change through `weight.data` is not seen unless it moves the weight,
        because torch does not count its version.
        """
        if weight.device.type != "cuda" or weight.shape[1] == 1:  # depthwise
            return weight
        dtype = _dtype_of_calls(weight)
        if dtype not in _HALF_TYPES:
            return weight
        if torch.compiler.is_compiling():
            return pack(weight, dtype)  # frozen weights are packed at compile time
        is_its_own = module._parameters.get("weight") is weight
        if not is_its_own or weight.is_inference() or torch.cuda.is_current_stream_capturing():
            return weight
        stream = torch._C._cuda_getCurrentRawStream(weight.device.index)
        kept = self._kept.get(stream)
        if kept is None or not kept.is_of(weight, dtype):
            kept = _Kept(pack(weight, dtype), weight._version, weight.data_ptr(), dtype)
            others = {place: one for place, one in self._kept.items() if one.is_of(weight, dtype)}
            self._kept = {**others, stream: kept}
        return kept.handle


def _dtype_of_calls(weight: torch.Tensor) -> torch.dtype:
    """The dtype in which a call uses this weight: autocast's if autocast is on."""
    if torch.is_autocast_enabled("cuda") and weight.dtype != torch.float64:
        return torch.get_autocast_dtype("cuda")
    return weight.dtype
