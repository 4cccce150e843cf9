"""Checks of arguments that `stream_map` and `stream_iter` share, before any work, with sluice's wording of messages."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from .. import _library

_MAX_DEPTH = 256
MAX_RANK = 16  # StridedCopy::kMaxRank


def integer(op: str, name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value`, an int of at least `least`."""
    if type(value) is int and value >= least and (most is None or value <= most):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")
    if value < least or (most is not None and value > most):
        rule = f"be at least {least}" if most is None else f"be {least} to {most}"
        raise ValueError(f"{op}: {name} must {rule}, got {value}")
    return int(value)


def check_depth(op: str, depth: Any) -> int:
    """Slots per device."""
    return integer(op, "depth", depth, 1, _MAX_DEPTH)


def check_budget(op: str, name: str, value: Any) -> int | None:
    """Bytes, or None."""
    return None if value is None else integer(op, name, value, 0)


def one_of(op: str, name: str, value: Any, choices: Sequence[str]) -> str:
    """`value`, one of the names."""
    if value not in choices:
        raise ValueError(f"{op}: {name} must be one of {', '.join(choices)}, got {value!r}")
    return str(value)


_has_cuda: bool | None = None


def has_cuda() -> bool:
    """Whether GPUs can be used; asked once, because torch asks the driver each time."""
    global _has_cuda
    if _has_cuda is None:  # not `functools.cache`, of which torch.compile warns
        _has_cuda = torch.cuda.is_available() and _library.cuda_unavailable_reason is None
    return _has_cuda


def parse_device(op: str, value: Any, name: str = "devices") -> torch.device:
    """A device to compute chunks on: a GPU with its index, or the CPU."""
    try:
        device = torch.device("cuda", int(value)) if isinstance(value, numbers.Integral) else torch.device(value)
    except (RuntimeError, TypeError):
        raise ValueError(f"{op}: {name} must be CUDA devices or the CPU, got {value!r}") from None
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(f"{op}: {name} must be CUDA devices or the CPU, got {device}")
    if not torch.cuda.is_available():
        raise ValueError(f"{op}: {name} must exist, got {device} on a machine without CUDA devices")
    if _library.cuda_unavailable_reason is not None:
        raise RuntimeError(f"{op}: no CUDA kernels, because {_library.cuda_unavailable_reason}")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise ValueError(f"{op}: {name} must exist, got {device} of {torch.cuda.device_count()}")
    return torch.device("cuda", index)


def parse_devices(op: str, devices: Any) -> list[torch.device]:
    """One device or several different devices; None is the current GPU, else the CPU."""
    if devices is None:
        return [torch.device("cuda", torch.cuda.current_device()) if has_cuda() else torch.device("cpu")]
    if isinstance(devices, (str, numbers.Integral, torch.device)):
        devices = [devices]
    if not isinstance(devices, (list, tuple)):
        raise TypeError(f"{op}: devices must be a device or a list of devices, got {type(devices).__name__}")
    parsed = [parse_device(op, device) for device in devices]
    if not parsed or len(set(parsed)) != len(parsed):
        raise ValueError(f"{op}: devices must be different devices, got {[str(d) for d in parsed]}")
    return parsed


def parse_functions(op: str, fn: Any, devices: Sequence[torch.device]) -> dict[torch.device, Callable[..., Any]]:
    """The callable of each device."""
    if fn is None:
        return dict.fromkeys(devices, identity)
    if isinstance(fn, Mapping):
        given = {parse_device(op, device): function for device, function in fn.items()}
        if missing := [str(device) for device in devices if device not in given]:
            raise ValueError(f"{op}: fn must have a callable for each device, got none for {', '.join(missing)}")
    else:
        given = dict.fromkeys(devices, fn)
    for function in given.values():
        if not callable(function):
            raise TypeError(f"{op}: fn must be callable, got {type(function).__name__}")
    return {device: given[device] for device in devices}


def identity(*chunks: torch.Tensor) -> Any:
    """What `fn=None` stands for: a plain transfer."""
    return chunks[0] if len(chunks) == 1 else chunks


def as_tensor(op: str, name: str, value: Any) -> torch.Tensor:
    """A tensor whose bytes can be streamed. A NumPy array, read-only or not, becomes one without a copy."""
    if not isinstance(value, torch.Tensor):
        if type(value).__module__.partition(".")[0] != "numpy" or not hasattr(value, "__array_interface__"):
            raise TypeError(f"{op}: {name} must be a torch.Tensor or a NumPy array, got {type(value).__name__}")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable.*")  # nothing here writes to a source
            try:
                value = torch.from_numpy(value)
            except ValueError as error:
                raise ValueError(f"{op}: {name} must be an array that torch can share, got {error}") from None
    if value.layout != torch.strided or value.is_nested or value.device.type not in ("cpu", "cuda"):
        got = "a nested one" if value.is_nested else f"layout {value.layout} on {value.device}"
        raise ValueError(f"{op}: {name} must be a strided tensor on the host or a GPU, got {got}")
    if value.dim() > MAX_RANK:
        raise ValueError(f"{op}: {name} must have at most {MAX_RANK} dimensions, got {value.dim()}")
    check_memory(op, name, value)
    return cast("torch.Tensor", value)


def check_memory(op: str, name: str, tensor: torch.Tensor, where: str = "") -> None:
    """Raises if a tensor has no memory of its own: DTensor and other wrappers, fake tensors."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ and has_memory(tensor):
        return
    rule = "be a tensor with memory of its own, which a wrapper lacks"
    raise TypeError(f"{op}: {name} must {rule}, got {kind.__qualname__}{where}")


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor without a dispatch of its own has memory, or needs none."""
    try:
        return tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:  # torch.func's transforms raise it
        return False


def check_modes(op: str) -> None:
    """Raises under a mode that makes tensors without memory, as FakeTensorMode does."""
    made = torch.empty(0, device="cpu")
    if type(made) is not torch.Tensor:
        rule = "not be under a mode that makes tensors without memory"
        raise RuntimeError(f"{op}: the call must {rule}, got one that makes a {type(made).__qualname__}")
