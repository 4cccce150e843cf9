"""The arguments of one call of `map`, checked before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from ... import _library
from ..arguments import MAX_RANK, as_tensor, check_modes, integer, one_of
from ..device.layout import overlap, same_elements
from ..device.pipeline import ORDERS
from ..structure import describe, flatten

STAGINGS = ("auto", "register", "ring", "pageable")

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
    on_device: bool  # the inputs are on a GPU

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
) -> MapArguments:
    """Checks everything that can be checked before `fn` has run."""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{op}: the call must not be inside the capture of a CUDA graph; capture fn instead")
    check_modes(op)
    if not inputs:
        raise ValueError(f"{op}: inputs must hold at least one tensor, got none")
    tensors = [as_tensor(op, f"inputs[{i}]", value) for i, value in enumerate(inputs)]
    _library.require_forward_only(op, tensors)
    dim = integer(op, "dim", dim, -MAX_RANK, MAX_RANK - 1)
    dims = [normal_dim(op, f"inputs[{i}]", tensor, dim) for i, tensor in enumerate(tensors)]
    extents = [tensor.shape[d] for tensor, d in zip(tensors, dims, strict=True)]
    if len(set(extents)) != 1:
        raise ValueError(f"{op}: inputs must have one extent in dimension {dim}, got {', '.join(map(str, extents))}")
    if len({tensor.device for tensor in tensors}) != 1:
        devices = ", ".join(str(tensor.device) for tensor in tensors)
        raise ValueError(f"{op}: inputs must all be on the host or all on one GPU, got {devices}")
    if chunk_size is not None:
        chunk_size = integer(op, "chunk_size", chunk_size, 1)
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
            raise ValueError(
                f"{op}: {name} must not have two elements at one address, got strides {tuple(tensor.stride())}"
            )
        for j, source in enumerate(inputs):
            if overlap(tensor, source) and not same_elements(tensor, source):
                rule = f"must not overlap inputs[{j}] unless it is that tensor"
                raise ValueError(f"{op}: {name} {rule}, got memory in common")
        for j, other in enumerate(outs[:i]):
            if overlap(tensor, other):
                raise ValueError(f"{op}: {name} must not overlap out{structure.name(j)}, got memory in common")
    return outs
