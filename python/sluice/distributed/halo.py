"""Which positions of a split sequence each rank needs, and from whom: pure functions of the pieces' lengths.

    rank                 0             1            2          3
    piece         |-------------|-------------|----------|-----------|
    rank 1 needs            hhhh|             |hhhh                     the halo: positions of other pieces
    rank 1 computes             |ee iiiiiii ee|                         interior: outputs that need no halo; edges

The halo reaches over several pieces where they are short. Ranks without a piece take part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Positions:
    """The positions from `start` to `stop - 1` of a sequence; none if `stop` is not greater."""

    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many there are."""
        return max(self.stop - self.start, 0)

    def __bool__(self) -> bool:
        return self.stop > self.start

    def __and__(self, other: Positions) -> Positions:
        return Positions(max(self.start, other.start), min(self.stop, other.stop))

    def __sub__(self, origin: int) -> slice:
        """The slice of a tensor whose first position is `origin`."""
        return slice(self.start - origin, self.stop - origin)


NOWHERE = Positions(0, 0)


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of a convolution.

    Attributes:
        stride: positions from one window to the next.
        reach: positions from a window's first tap to its last, (K - 1) * dilation.
        left: zeros before the sequence.
        right: zeros after it.
    """

    stride: int
    reach: int
    left: int
    right: int

    def outputs(self, length: int) -> int:
        """The number of outputs of a sequence; not positive if it is too short."""
        return (length + self.left + self.right - self.reach - 1) // self.stride + 1

    def inputs(self, outputs: Positions) -> Positions:
        """The positions that the outputs read; zeros are before position 0 and after the last position."""
        first, last = (output * self.stride - self.left for output in (outputs.start, outputs.stop - 1))
        return Positions(first, last + self.reach + 1)

    def within(self, positions: Positions) -> Positions:
        """The outputs that read nothing but these positions."""
        first = -(-(positions.start + self.left) // self.stride)
        return Positions(first, (positions.stop - self.reach - 1 + self.left) // self.stride + 1)


@dataclasses.dataclass(frozen=True)
class Message:
    """Positions that go to another rank, or come from it."""

    peer: int
    positions: Positions


@dataclasses.dataclass(frozen=True)
class Edge:
    """Outputs of one launch that needs a halo or zeros, and the positions that it reads."""

    outputs: Positions
    inputs: Positions


@dataclasses.dataclass(frozen=True)
class Share:
    """One rank's part of a convolution.

    Attributes:
        windows: the convolution's.
        length: of the whole sequence.
        piece: the rank's positions.
        outputs: the rank's outputs.
        interior: its outputs that read nothing but its piece.
        edges: its other outputs.
        sends: what it sends, in the order in which it is received.
        receives: what it receives.
    """

    windows: Windows
    length: int
    piece: Positions
    outputs: Positions
    interior: Positions
    edges: tuple[Edge, ...]
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


@functools.lru_cache(maxsize=256)
def pieces_of(lengths: tuple[int, ...]) -> tuple[Positions, ...]:
    """Adjacent pieces of those lengths."""
    bounds = [0, *itertools.accumulate(lengths)]
    return tuple(itertools.starmap(Positions, itertools.pairwise(bounds)))


def chunks_of(length: int, parts: int) -> tuple[Positions, ...]:
    """The pieces of `torch.chunk`, which `torch.distributed.tensor.Shard` has too; the last pieces may be empty."""
    size = -(-length // parts)
    return tuple(Positions(min(i * size, length), min((i + 1) * size, length)) for i in range(parts))


def outputs_of(pieces: Sequence[Positions], windows: Windows) -> tuple[Positions, ...]:
    """The outputs of each rank: output o belongs to the rank that has position min(o * stride, length - 1)."""
    length = pieces[-1].stop
    outputs = windows.outputs(length)

    def bound(position: int) -> int:
        return outputs if position >= length else min(-(-position // windows.stride), outputs)

    return tuple(Positions(bound(piece.start), bound(piece.stop)) for piece in pieces)


def messages(
    pieces: Sequence[Positions], needs: Sequence[Sequence[Positions]], rank: int
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What a rank sends and what it receives.

    Args:
        pieces: of all ranks.
        needs: the positions that each rank needs; nobody sends positions that no other piece has.
        rank: the rank that is asked about.
    """
    sends = [
        Message(peer, part)
        for peer, needed in enumerate(needs)
        for positions in needed
        if peer != rank and (part := positions & pieces[rank])
    ]
    receives = [
        Message(peer, part)
        for positions in needs[rank]
        for peer, piece in enumerate(pieces)
        if peer != rank and (part := positions & piece)
    ]
    return tuple(sends), tuple(receives)


@functools.lru_cache(maxsize=256)
def share_of(pieces: tuple[Positions, ...], outputs: tuple[Positions, ...], windows: Windows, rank: int) -> Share:
    """A rank's share of a convolution with these windows.

    Args:
        pieces: of all ranks, adjacent.
        outputs: of all ranks; any outputs, wherever their inputs are.
        windows: the convolution's.
        rank: the rank that is asked about.
    """
    divided = [_divided(*pair, windows) for pair in zip(pieces, outputs, strict=True)]
    needs = [
        [needed for edge in edges for needed in _outside(edge.inputs, piece)]
        for piece, (_, edges) in zip(pieces, divided, strict=True)
    ]
    sends, receives = messages(pieces, needs, rank)
    interior, edges = divided[rank]
    return Share(windows, pieces[-1].stop, pieces[rank], outputs[rank], interior, edges, sends, receives)


def _divided(piece: Positions, outputs: Positions, windows: Windows) -> tuple[Positions, tuple[Edge, ...]]:
    """A rank's interior and edges."""
    interior = windows.within(piece) & outputs
    if not interior:
        interior, rest = Positions(outputs.start, outputs.start), [outputs]
    else:
        rest = [Positions(outputs.start, interior.start), Positions(interior.stop, outputs.stop)]
    return interior, tuple(Edge(edge, windows.inputs(edge)) for edge in rest if edge)


def _outside(positions: Positions, piece: Positions) -> tuple[Positions, Positions]:
    """The positions before a piece, and the positions after it."""
    before = Positions(positions.start, min(positions.stop, piece.start))
    return before, Positions(max(positions.start, piece.stop), positions.stop)


@functools.lru_cache(maxsize=256)
def history_of(
    pieces: tuple[Positions, ...], history: int, rank: int, wants_states: bool
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What a rank of a causal convolution sends and receives: the history before each piece.

    The first rank has the initial states too, at the positions before 0. Ranks without positions need no history,
    except for the last rank if final states are wanted.

    Args:
        pieces: of all ranks, adjacent.
        history: (K - 1) * dilation positions.
        rank: the rank that is asked about.
        wants_states: whether the last rank computes final states.
    """
    last = len(pieces) - 1
    needs = [
        [Positions(piece.start - history, piece.start)] if r > 0 and (piece or (wants_states and r == last)) else []
        for r, piece in enumerate(pieces)
    ]
    return messages([Positions(-history, pieces[0].stop), *pieces[1:]], needs, rank)
