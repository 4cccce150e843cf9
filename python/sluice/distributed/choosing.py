"""The split that a call of DTensors takes over each dimension of their mesh: it moves the fewest bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard

from .shapes import Described
from .splits import REPLICATED, Split, dimension_of


class Argument(NamedTuple):
    """A DTensor of a call: the argument's name, the tensor's number in a list, and where the tensor is."""

    name: str
    number: int | None
    tensor: Described
    placements: tuple[Placement, ...]


def placement_for(split: Split, name: str, index: int | None, outs: Collection[str]) -> Placement:
    """The placement that a split gives an argument; the arguments in `outs` are placed as results."""
    dim = split.result if name in outs else dimension_of(split, name, index)
    return Replicate() if dim is None else Shard(dim)


def choose(
    mesh: DeviceMesh,
    arguments: Sequence[Argument],
    candidates: Sequence[Split],
    written: Collection[str],
    outs: Collection[str],
    may_exchange: bool,
) -> tuple[Split, ...]:
    """A split for each dimension of the mesh. All ranks choose the same.

    Args:
        mesh: of the DTensors.
        arguments: the DTensors of the call.
        candidates: the op's splits; replication is always possible.
        written: the arguments that the op writes.
        outs: the written arguments whose old values the op does not read.
        may_exchange: whether a halo can be sent; compilers trace with tensors without memory.
    """
    chosen: list[Split] = []

    def fits(split: Split, dim: int) -> bool:
        parts = mesh.size(dim)
        for before, other in enumerate(chosen):
            parts *= mesh.size(before) if other is split else 1
        if split.units is not None and split.units % parts != 0:
            return False
        return not split.has_halo or (may_exchange and split not in chosen)

    for dim in range(mesh.ndim):
        fitting = [split for split in (REPLICATED, *candidates) if fits(split, dim)]
        costs = [_cost(split, dim, mesh.size(dim), arguments, written, outs) for split in fitting]
        chosen.append(fitting[costs.index(min(costs))])
    return tuple(chosen)


def _cost(
    split: Split,
    dim: int,
    size: int,
    arguments: Sequence[Argument],
    written: Collection[str],
    outs: Collection[str],
) -> tuple[float, int]:
    """Bytes that a rank receives, and changes of placements, over one dimension of the mesh."""
    moved, changes = 0.0, 0
    for name, number, tensor, placements in arguments:
        now, then = placements[dim], placement_for(split, name, number, outs)
        others = tensor.nbytes * (size - 1) / size
        moved += 0 if name in outs else others * _moves(now, then, size)
        moved += others * _moves(then, now, size) if name in written else 0
        changes += now != then
    return moved, changes


def _moves(now: Placement, then: Placement, size: int) -> float:
    """The part of a tensor on other ranks that a rank receives."""
    if now == then or isinstance(now, Replicate):
        return 0.0
    if type(now) is not Shard:
        return 2.0
    return 1.0 if isinstance(then, Replicate) else 1 / size
