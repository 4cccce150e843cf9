"""The arguments of one call of `map`, checked before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from ..._autograd import check_out, require_forward_only
from ..arguments import MAX_RANK, as_tensor, check_modes, integer, one_of
from ..device.layout import overlap, same_elements
from ..device.pipeline import ORDERS
from ..structure import Structure, describe, flatten

STAGINGS = ("auto", "register", "ring", "pageable")
RESULTS = ("host", "device")

Progress = Callable[[int, int], object]


def parse_halo(op: str, halo: Any) -> tuple[int, int]:
    """Rows before and after a chunk."""
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


@dataclasses.dataclass(frozen=True)
class MapArguments:
    """The checked arguments of one call of `map`."""

    op: str
    inputs: list[torch.Tensor]
    dims: list[int]  # the dimension of each input, not negative
    dim: int  # as given
    extent: int
    out: Any
    outs: list[torch.Tensor] | None
    out_structure: Structure | None
    chunk_size: int | None
    halo: tuple[int, int]
    order: str
    staging: str
    non_blocking: bool
    progress: Progress | bool | None
    devices: list[torch.device]  # that compute
    to_device: bool  # the result stays on the device

    @property
    def is_in_place(self) -> bool:
        """Whether a result is written over an input."""
        return self.outs is not None and any(same_elements(o, x) for o in self.outs for x in self.inputs)


def normal_dim(op: str, name: str, tensor: torch.Tensor, dim: int) -> int:
    """`dim` of a tensor as a non-negative number."""
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
    result: Any,
    devices: list[torch.device],
    any_device: bool,
) -> MapArguments:
    """Checks everything that can be checked before `fn` has run.

    `devices` are the Streamer's; with `any_device` a tensor's own device replaces them.
    """
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{op}: the call must not be inside the capture of a CUDA graph; capture fn instead")
    check_modes(op)
    if not inputs:
        raise ValueError(f"{op}: inputs must hold at least one tensor, got none")
    tensors = [as_tensor(op, f"inputs[{i}]", value) for i, value in enumerate(inputs)]
    require_forward_only(op, tensors)
    dim = integer(op, "dim", dim, -MAX_RANK, MAX_RANK - 1)
    dims = [normal_dim(op, f"inputs[{i}]", tensor, dim) for i, tensor in enumerate(tensors)]
    extents = [tensor.shape[d] for tensor, d in zip(tensors, dims, strict=True)]
    if len(set(extents)) != 1:
        raise ValueError(f"{op}: inputs must have one extent in dimension {dim}, got {', '.join(map(str, extents))}")
    if chunk_size is not None:
        chunk_size = min(integer(op, "chunk_size", chunk_size, 1), max(extents[0], 1))
    outs, out_structure = (None, None) if out is None else _parse_out(op, out, tensors)
    devices = _choose_devices(op, tensors, outs or [], devices, any_device)
    to_device = _choose_side(op, tensors, outs, result, devices)
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
        out_structure,
        chunk_size,
        parse_halo(op, halo),
        one_of(op, "order", order, tuple(ORDERS)),
        one_of(op, "staging", staging, STAGINGS),
        non_blocking,
        parse_progress(op, progress),
        devices,
        to_device,
    )


def _choose_devices(
    op: str, inputs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], devices: list[torch.device], any_device: bool
) -> list[torch.device]:
    """The devices that compute: the GPU that holds tensors, else the Streamer's devices."""
    gpus = {tensor.device for tensor in (*inputs, *outs) if tensor.is_cuda}
    if not gpus:
        return devices
    names = ", ".join(sorted(map(str, gpus)))
    if len(gpus) > 1:
        raise ValueError(f"{op}: inputs and out must be on the host or on one GPU, got {names}")
    if not any_device and devices != list(gpus):
        given = ", ".join(map(str, devices))
        raise ValueError(f"{op}: devices must be the device {names} of inputs and out, got {given}")
    return list(gpus)


def _choose_side(
    op: str,
    inputs: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor] | None,
    result: Any,
    devices: Sequence[torch.device],
) -> bool:
    """Whether the result stays on the device; `outs` and `result` must agree."""
    asked = None if result is None else one_of(op, "result", result, RESULTS) == "device"
    if asked and len(devices) > 1:
        names = ", ".join(map(str, devices))
        raise ValueError(f'{op}: devices must be one device for result="device", got {names}')
    if outs:
        sides = {out.is_cuda for out in outs}
        if len(sides) > 1:
            raise ValueError(
                f"{op}: out must be all on the host or all on a GPU, got {', '.join(str(o.device) for o in outs)}"
            )
        if asked is not None and sides != {asked} and devices[0].type == "cuda":
            raise ValueError(f"{op}: out must be on the {result}, as result says, got one on {outs[0].device}")
        return sides.pop()
    if asked is None:
        return all(tensor.is_cuda for tensor in inputs)
    return asked and devices[0].type == "cuda"


def _parse_out(op: str, out: Any, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], Structure]:
    taken = flatten(out)
    if taken is None:
        raise TypeError(f"{op}: out must be a tensor or a pytree of tensors, got {describe(out)}")
    outs, structure = taken
    for i, tensor in enumerate(outs):
        name = f"out{structure.names[i]}"
        as_tensor(op, name, tensor)
        check_out(op, name, tensor)
        if torch.ops.sluice._overlaps_itself(tensor):
            raise ValueError(
                f"{op}: {name} must not have two elements at one address, got strides {tuple(tensor.stride())}"
            )
        for j, source in enumerate(inputs):
            if overlap(tensor, source) and not same_elements(tensor, source):
                rule = f"must not overlap inputs[{j}] unless it is that tensor"
                raise ValueError(f"{op}: {name} {rule}, got memory in common")
        for j, other in enumerate(outs[:i]):
            if overlap(tensor, other):
                raise ValueError(f"{op}: {name} must not overlap out{structure.names[j]}, got memory in common")
    return outs, structure
