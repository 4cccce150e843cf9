"""The arguments of `stream_map` and its kin: checked before any work, in the house's form of message."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from .. import _library
from .device.layout import overlap, same_elements
from .device.pipeline import ORDERS
from .structure import describe, flatten

STAGINGS = ("auto", "register", "ring", "pageable")
_MAX_DEPTH = 256
_MAX_RANK = 16  # StridedCopy::kMaxRank

Progress = Callable[[int, int], object]


def integer(op: str, name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value`, an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")
    if value < least or (most is not None and value > most):
        rule = f"be at least {least}" if most is None else f"be {least} to {most}"
        raise ValueError(f"{op}: {name} must {rule}, got {value}")
    return int(value)


def check_depth(op: str, depth: Any) -> int:
    """Slots a device."""
    return integer(op, "depth", depth, 1, _MAX_DEPTH)


def check_budget(op: str, name: str, value: Any) -> int | None:
    """Bytes, or None."""
    return None if value is None else integer(op, name, value, 0)


def one_of(op: str, name: str, value: Any, choices: Sequence[str]) -> str:
    """`value`, one of the names."""
    if value not in choices:
        raise ValueError(f"{op}: {name} must be one of {', '.join(choices)}, got {value!r}")
    return str(value)


def parse_device(op: str, value: Any) -> torch.device:
    """A device that chunks can be computed on: a GPU with its index, or the CPU."""
    try:
        device = torch.device("cuda", value) if isinstance(value, int) else torch.device(value)
    except (RuntimeError, TypeError):
        raise ValueError(f"{op}: devices must be CUDA devices or the CPU, got {value!r}") from None
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(f"{op}: devices must be CUDA devices or the CPU, got {device}")
    if not torch.cuda.is_available():
        raise ValueError(f"{op}: devices must be there, got {device} on a machine without CUDA devices")
    if _library.cuda_unavailable_reason is not None:
        raise RuntimeError(f"{op}: no CUDA kernels, because {_library.cuda_unavailable_reason}")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise ValueError(f"{op}: devices must be there, got {device} of {torch.cuda.device_count()}")
    return torch.device("cuda", index)


def parse_devices(op: str, devices: Any) -> list[torch.device]:
    """One device or several that differ; None is the current GPU, or the CPU where there is none."""
    if devices is None:
        usable = torch.cuda.is_available() and _library.cuda_unavailable_reason is None
        return [parse_device(op, "cuda" if usable else "cpu")]
    if isinstance(devices, (str, int, torch.device)):
        devices = [devices]
    if not isinstance(devices, (list, tuple)):
        raise TypeError(f"{op}: devices must be a device or a list of devices, got {type(devices).__name__}")
    parsed = [parse_device(op, device) for device in devices]
    if not parsed or len(set(parsed)) != len(parsed):
        raise ValueError(f"{op}: devices must be different devices, got {[str(d) for d in parsed]}")
    return parsed


def parse_functions(op: str, fn: Any, devices: Sequence[torch.device]) -> dict[torch.device, Callable[..., Any]]:
    """The callable of each device."""
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


def parse_halo(op: str, halo: Any) -> tuple[int, int]:
    """Rows before and behind a chunk."""
    if isinstance(halo, (tuple, list)):
        if len(halo) != 2:
            raise ValueError(f"{op}: halo must be an int or (left, right), got {halo!r}")
        left, right = halo
    else:
        left = right = halo
    return integer(op, "halo", left, 0), integer(op, "halo", right, 0)


def parse_progress(op: str, progress: Any) -> Progress | bool | None:
    """True, a callable, or None."""
    if progress is None or isinstance(progress, bool):
        return progress
    if callable(progress):
        return cast("Progress", progress)
    raise TypeError(f"{op}: progress must be a bool or a callable, got {type(progress).__name__}")


def as_tensor(op: str, name: str, value: Any) -> torch.Tensor:
    """A tensor whose bytes can be streamed; a NumPy array becomes one without a copy, read-only ones too."""
    if not isinstance(value, torch.Tensor):
        if type(value).__module__.partition(".")[0] != "numpy" or not hasattr(value, "__array_interface__"):
            raise TypeError(f"{op}: {name} must be a torch.Tensor or a NumPy array, got {type(value).__name__}")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable.*")  # nothing here writes to a source
            try:
                value = torch.from_numpy(value)
            except ValueError as error:
                raise ValueError(f"{op}: {name} must be an array that torch can share, got {error}") from None
    if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
        got = f"layout {value.layout} on {value.device}"
        raise ValueError(f"{op}: {name} must be a strided tensor on the host or a GPU, got {got}")
    if value.dim() > _MAX_RANK:
        raise ValueError(f"{op}: {name} must have at most {_MAX_RANK} dimensions, got {value.dim()}")
    check_memory(op, name, value)
    return cast("torch.Tensor", value)


def check_memory(op: str, name: str, tensor: torch.Tensor, where: str = "") -> None:
    """Raises where the bytes of a tensor are not in memory of its own: DTensor and other wrappers, fake tensors."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        try:
            if tensor.numel() == 0 or tensor.data_ptr() != 0:
                return
        except RuntimeError:  # of torch.func's transforms
            pass
    rule = "be a tensor with memory of its own, which a wrapper has not"
    raise TypeError(f"{op}: {name} must {rule}, got {kind.__qualname__}{where}")


def check_modes(op: str) -> None:
    """Raises under a mode that makes tensors without memory, as FakeTensorMode does."""
    made = torch.empty(0, device="cpu")
    if type(made) is not torch.Tensor:
        rule = "be outside of modes that make tensors without memory"
        raise RuntimeError(f"{op}: the call must {rule}, got one that makes a {type(made).__qualname__}")


@dataclasses.dataclass(frozen=True)
class MapArguments:
    """What one call of `map` asks for."""

    op: str
    inputs: list[torch.Tensor]
    dims: list[int]  # of each input, not negative
    dim: int  # as given
    extent: int
    out: Any
    outs: list[torch.Tensor] | None
    chunk_size: int | None
    halo: tuple[int, int]
    order: str
    staging: str
    non_blocking: bool
    progress: Progress | bool | None
    on_device: bool  # the inputs are on a GPU already

    @property
    def is_in_place(self) -> bool:
        """Whether a result is written over an input."""
        return self.outs is not None and any(same_elements(o, x) for o in self.outs for x in self.inputs)


def normal_dim(op: str, name: str, tensor: torch.Tensor, dim: int) -> int:
    """`dim` of a tensor, counted from the front."""
    if not -tensor.dim() <= dim < tensor.dim():
        raise ValueError(f"{op}: dim must be in range of {name}, which has {tensor.dim()} dimensions, got {dim}")
    return dim % tensor.dim()


def parse_map(
    op: str,
    inputs: Sequence[Any],
    *,
    dim: Any,
    out: Any,
    chunk_size: Any,
    halo: Any,
    order: Any,
    staging: Any,
    non_blocking: Any,
    progress: Any,
) -> MapArguments:
    """Checks everything that can be checked before `fn` has run."""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{op}: the call must not be inside the capture of a CUDA graph; capture fn instead")
    check_modes(op)
    if not inputs:
        raise ValueError(f"{op}: inputs must hold at least one tensor, got none")
    tensors = [as_tensor(op, f"inputs[{i}]", value) for i, value in enumerate(inputs)]
    _library.require_forward_only(op, tensors)
    dim = integer(op, "dim", dim, -_MAX_RANK, _MAX_RANK - 1)
    dims = [normal_dim(op, f"inputs[{i}]", tensor, dim) for i, tensor in enumerate(tensors)]
    extents = [tensor.shape[d] for tensor, d in zip(tensors, dims, strict=True)]
    if len(set(extents)) != 1:
        raise ValueError(f"{op}: inputs must have one extent in dimension {dim}, got {', '.join(map(str, extents))}")
    if len({tensor.device for tensor in tensors}) != 1:
        places = ", ".join(str(tensor.device) for tensor in tensors)
        raise ValueError(f"{op}: inputs must be all on the host or all on one GPU, got {places}")
    if chunk_size is not None:
        integer(op, "chunk_size", chunk_size, 1)
        if chunk_size > max(extents[0], 1) and extents[0] > 0:
            raise ValueError(f"{op}: chunk_size must be at most the extent {extents[0]}, got {chunk_size}")
    outs = None if out is None else _parse_out(op, out, tensors)
    if not isinstance(non_blocking, bool):
        raise TypeError(f"{op}: non_blocking must be a bool, got {type(non_blocking).__name__}")
    return MapArguments(
        op,
        tensors,
        dims,
        dim,
        extents[0],
        out,
        outs,
        chunk_size,
        parse_halo(op, halo),
        one_of(op, "order", order, tuple(ORDERS)),
        one_of(op, "staging", staging, STAGINGS),
        non_blocking,
        parse_progress(op, progress),
        tensors[0].device.type == "cuda",
    )


def _parse_out(op: str, out: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    taken = flatten(out)
    if taken is None:
        raise TypeError(f"{op}: out must be a tensor, or a tuple, list or dict of tensors, got {describe(out)}")
    outs, structure = taken
    for i, tensor in enumerate(outs):
        name = f"out{structure.name(i)}"
        as_tensor(op, name, tensor)
        if tensor.device != inputs[0].device:
            raise ValueError(f"{op}: {name} must be where the inputs are, on {inputs[0].device}, got {tensor.device}")
        _library.check_out(op, name, tensor)
        if torch.ops.sluice._overlaps_itself(tensor):
            raise ValueError(f"{op}: {name} must not hold an element twice, got strides {tuple(tensor.stride())}")
        for j, source in enumerate(inputs):
            if overlap(tensor, source) and not same_elements(tensor, source):
                rule = f"must not overlap inputs[{j}] unless it is that tensor"
                raise ValueError(f"{op}: {name} {rule}, got memory in common")
        for j, other in enumerate(outs[:i]):
            if overlap(tensor, other):
                raise ValueError(f"{op}: {name} must not overlap out{structure.name(j)}, got memory in common")
    return outs
