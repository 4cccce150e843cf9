"""Autocast: convolutions cast as torch casts the arguments of F.conv1d, nothing else is cast.

An autocast kernel calls its op again with the key excluded from dispatch. The stable ABI has no guard for that,
so these kernels are in Python: a program without Python casts the arguments of raw ops itself.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ._modes import current_mode

_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
_EXCLUDED = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)
_library = torch.library.Library("sluice", "IMPL")


def is_autocast_on(device: str) -> bool:
    """Whether autocast is on for that type of device; torch raises for types that have none, such as meta."""
    return (device in _KEYS or torch.amp.is_autocast_available(device)) and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    """Inside it nothing is cast on that type of device."""
    return torch.autocast(device, enabled=False) if device in _KEYS else contextlib.nullcontext()


def cast_arguments(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, device: str | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Input, weight and bias as autocast on `device`, by default the input's, passes them to a convolution."""
    if not torch.compiler.is_dynamo_compiling() and not torch._C._is_any_autocast_enabled():
        return input, weight, bias
    if device is None:
        device = _device_of(input)
    if device not in _KEYS or not torch.is_autocast_enabled(device):
        return input, weight, bias
    dtype, device_type = torch.get_autocast_dtype(device), input.device.type

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        eligible = tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == device_type
        return tensor.to(dtype) if eligible else tensor

    return cast(input), cast(weight), None if bias is None else cast(bias)


def _device_of(input: torch.Tensor) -> str:
    """The type of device whose autocast counts: the input's, or a GPU's for the tensors of a plan."""
    return "cuda" if current_mode.action and input.device.type == "meta" else input.device.type


def register(name: str, behind: int = 0) -> None:
    """Makes the raw op, and its out variant, cast their input, weight and bias.

    Args:
        name: the raw op's.
        behind: arguments between the input and the weight, which keep their dtypes.
    """
    for variant in (name, name + "_out"):
        for device in _KEYS:
            _register(variant, device, behind)


def _register(name: str, device: str, behind: int) -> None:
    op = getattr(torch.ops.sluice, name).default

    def kernel(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        between, weight, rest = args[:behind], args[behind], args[behind + 1 :]  # bias first, where it is given
        cast = cast_arguments(input, weight, rest[0] if rest else None, device)
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):  # autocast counts as off inside
            return op(cast[0], *between, *cast[1:], *rest[1:], **kwargs)

    _library.impl(name, kernel, _KEYS[device])
