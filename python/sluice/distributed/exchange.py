"""Ranks of a group: their pieces' lengths, and one batch of sends and receives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._arguments import integer
from .halo import Positions


def rank_and_size(op: str, group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This process's rank in the group, and the group's size.

    Raises:
        RuntimeError: torch was built without torch.distributed.
        ValueError: torch's own, where there is no default group or the group has not this process.
    """
    if not dist.is_available():
        raise RuntimeError(f"{op}: torch.distributed must be available, got a torch that was built without it")
    asked = dist.group.WORLD if group is None else group
    if isinstance(asked, dist.ProcessGroup):  # whose own methods cost a tenth of torch.distributed's functions
        return asked.rank(), asked.size()
    rank = dist.get_rank()
    return rank if group is None else dist.get_group_rank(group, rank), dist.get_world_size(group)


def gather_lengths(
    length: int, group: dist.ProcessGroup | None = None, *, device: torch.device | str = "cpu"
) -> tuple[int, ...]:
    """The `length` of every rank of the group: what the convolutions take as `lengths`.

    A collective: every rank of the group calls it. The host waits for its result.

    Args:
        length: positions of this rank's piece.
        group: a process group; the default group if None.
        device: where the group communicates: "cpu" for gloo, a CUDA device for NCCL.

    Returns:
        A length for each rank, in the order of ranks.

    Raises:
        TypeError: `length` is no int.
        ValueError: `length` is negative.

    Example:
        >>> import torch.distributed as dist
        >>> from sluice.distributed import gather_lengths
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> gather_lengths(5)
        (5,)
        >>> dist.destroy_process_group()
    """
    op = "gather_lengths"
    if integer(op, "length", length) < 0:
        raise ValueError(f"{op}: length must not be negative, got {length}")
    rank_and_size(op, group)
    return tuple(row[0] for row in _gathered([length], group, torch.device(device)))


def agreed_lengths(
    op: str,
    x: torch.Tensor,
    agreed: Callable[[], dict[str, int]],
    lengths: Sequence[int] | None,
    group: dist.ProcessGroup | None,
) -> tuple[int, ...]:
    """The pieces' lengths, gathered unless they are given.

    Args:
        op: for messages.
        x: (B, C, n), this rank's piece.
        agreed: gives what must be equal on all ranks, by name; asked only if lengths are gathered.
        lengths: of all ranks, as the caller has them.
        group: the ranks.

    Raises:
        TypeError: a length is no int.
        ValueError: given lengths do not fit the group or the piece, or ranks do not agree. Ranks that
            disagree raise it everywhere.
    """
    length = x.shape[-1]
    if lengths is not None:
        found = tuple(integer(op, "lengths", one, rule="hold ints") for one in lengths)
        return _fitting(op, found, length, *rank_and_size(op, group))
    numbers = agreed()
    rows = _gathered([length, *numbers.values()], group, x.device)
    for other, row in enumerate(rows):
        for name, first, one in zip(numbers, rows[0][1:], row[1:], strict=True):
            if one != first:
                raise ValueError(f"{op}: {name} must be the same on all ranks, got {first} on rank 0 "
                                 f"and {one} on rank {other}")  # fmt: skip
    return tuple(row[0] for row in rows)


@functools.lru_cache(maxsize=256)
def _fitting(op: str, found: tuple[int, ...], length: int, rank: int, size: int) -> tuple[int, ...]:
    """Given lengths, if they fit the group and this rank's piece."""
    if len(found) != size:
        raise ValueError(f"{op}: lengths must have one number for each of the {size} ranks, got {len(found)}")
    if min(found) < 0:
        raise ValueError(f"{op}: lengths must not be negative, got {found}")
    if found[rank] != length:
        raise ValueError(f"{op}: lengths must be {length} for rank {rank}, whose piece it is, got {found[rank]}")
    return found


def _gathered(numbers: list[int], group: dist.ProcessGroup | None, device: torch.device) -> list[list[int]]:
    mine = torch.tensor(numbers, dtype=torch.int64, device=device)
    rows = mine.new_empty((dist.get_world_size(group), len(numbers)))
    dist.all_gather(list(rows.unbind()), mine, group=group)
    found: list[list[int]] = rows.tolist()
    return found


class Exchange:
    """A batch of sends and receives that is under way; tensors are (..., positions).

    Every message between two ranks is a contiguous tensor, whatever the layouts on either side.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._operations: list[Any] = []
        self._works: list[Any] = []
        self.received: list[tuple[Positions, torch.Tensor]] = []

    def send(self, peer: int, tensor: torch.Tensor) -> None:
        """Adds a message; `peer` is a rank of the group. The order of messages to a peer is that of its receives."""
        self._add(dist.isend, peer, tensor.contiguous())

    def receive(self, peer: int, positions: Positions, like: torch.Tensor) -> None:
        """Adds a message of the shape of `like` but for its positions; it will be in `received` then."""
        shape = (*like.shape[:-1], positions.count)
        tensor = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.received.append((positions, tensor))
        self._add(dist.irecv, peer, tensor)

    def _add(self, function: Any, peer: int, tensor: torch.Tensor) -> None:
        if tensor.numel() > 0:  # no message without elements, on either side
            self._operations.append(dist.P2POp(function, tensor, group=self._group, group_peer=peer))

    def start(self) -> None:
        """Starts all messages."""
        if self._operations:
            self._works = dist.batch_isend_irecv(self._operations)

    def wait(self) -> None:
        """Waits for all messages: on the host for gloo, on the current stream for NCCL. Raises torch's own errors."""
        for work in self._works:
            work.wait()
        self._operations, self._works = [], []
