"""A rank's piece of a causal convolution of rows with ids, where padding may be between a sequence and its states.

    rank               0             1             2             3
    ids         |. . . . . . .|. . . . a a a|a a b b . . .|. . . . . . .|      .: padding
    reads                      the initial   a's columns   b's columns,
                               states                      for final states

    current stream   pack | the whole piece, history 0 | the first outputs again, with the history
    communication         | ends of pieces ..... |
                          start                  wait

The host reads no ids, so it does not know which rank has the columns that another rank reads. Each rank sends all ranks
behind it the end of its last sequences, and the first rank its initial states: the ranks choose by the ids.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import torch
import torch.distributed as dist

from .exchange import Exchange
from .halo import Positions
from .history import last_run


class RowsWithIds(Protocol):
    """How a causal convolution of rows with ids is launched. An index is (B, positions), of positions in the piece."""

    def columns_at(self, index: torch.Tensor) -> torch.Tensor:
        """`pre` of x at positions of each row, of x's dtype."""

    def launch(
        self, x: torch.Tensor, out: torch.Tensor, positions: Positions, history: torch.Tensor | None, has_run: bool
    ) -> None:
        """Writes the outputs of x's positions; `has_run` says whether `pre` has run."""

    def launch_at(self, out: torch.Tensor, index: torch.Tensor, history: torch.Tensor) -> None:
        """Writes the outputs at positions of each row; the history is that of a row's first sequence there."""


@dataclasses.dataclass(frozen=True)
class _End:
    """The end of the last sequence of each row of a piece.

    Attributes:
        columns: (B, C, H), up to the sequence's end.
        marks: (B, H + 2) int64: the ids of these columns, negative outside of the piece; the first position of a
            sequence in the piece, or the whole length; the end of the last sequence in it, or 0.
    """

    columns: torch.Tensor
    marks: torch.Tensor


class Ends:
    """The ends of the pieces up to a rank's own, and the states that follow from them.

    Args:
        convolution: launches.
        x: (B, C, n), the piece.
        ids: (B, n).
        pieces: of all ranks.
        rank: this process's.
        columns: of a state, H = (K - 1) * dilation.
        group: the ranks.
        initial_states: (B, C, H) of x's dtype, read on the first rank; zeros if None.
        wants_states: whether the last rank computes final states.
    """

    def __init__(
        self,
        convolution: RowsWithIds,
        x: torch.Tensor,
        ids: torch.Tensor,
        pieces: tuple[Positions, ...],
        rank: int,
        columns: int,
        group: dist.ProcessGroup | None,
        initial_states: torch.Tensor | None,
        wants_states: bool,
    ) -> None:
        self.convolution = convolution
        self.x = x
        self.ids = ids
        self.piece = pieces[rank]
        self.rank = rank
        self.columns = columns
        self.initial_states = initial_states if rank == 0 else None
        self.has_final_states = wants_states and rank == len(pieces) - 1
        self._pieces = pieces
        self._wants_states = wants_states
        self._exchange = Exchange(group)

    @functools.cached_property
    def own(self) -> _End:
        """The end of this rank's piece."""
        x, ids, piece = self.x, self.ids, self.piece
        steps, length = torch.arange(self.columns, device=x.device), self._pieces[-1].stop
        if piece.count == 0:
            marks = torch.tensor([-1] * self.columns + [length, 0], device=x.device)
            return _End(x.new_zeros((*x.shape[:2], self.columns)), marks.expand(x.shape[0], -1))
        positions, is_token = torch.arange(piece.start, piece.stop, device=x.device), ids >= 0
        first = torch.where(is_token, positions, length).amin(1, keepdim=True)
        end = torch.where(is_token, positions + 1, 0).amax(1, keepdim=True)
        index = end - piece.start - self.columns + steps
        inside = index.clamp(min=0)
        kept = ids.gather(1, inside).long().masked_fill(index < 0, -1)
        return _End(self.convolution.columns_at(inside), torch.cat([kept, first, end], dim=1))

    def start(self) -> None:
        """Sends the end of the piece to the ranks behind, and the initial states."""
        for peer in range(self.rank + 1, len(self._pieces)):
            if self._reads(peer):
                if self.rank == 0:
                    self._exchange.send(peer, self._first())
                if self.piece:
                    self._exchange.send(peer, self.own.columns)
                    self._exchange.send(peer, self.own.marks)
        if self._reads(self.rank):
            self._exchange.receive(0, Positions(0, self.columns), self.x)
            for peer, piece in enumerate(self._pieces[: self.rank]):
                if piece:
                    self._exchange.receive(peer, Positions(0, self.columns), self.x)
                    self._exchange.receive(peer, Positions(0, self.columns + 2), self.own.marks)
        self._exchange.start()

    def _reads(self, rank: int) -> bool:
        """Whether a rank reads the ends of the pieces before its own."""
        is_last = rank == len(self._pieces) - 1
        return rank > 0 and self.columns > 0 and (bool(self._pieces[rank]) or (self._wants_states and is_last))

    def _first(self) -> torch.Tensor:
        """The first rank's initial states."""
        if self.initial_states is None:
            return self.x.new_zeros((*self.x.shape[:2], self.columns))
        return self.initial_states

    def wait(self) -> None:
        """Waits for all messages."""
        self._exchange.wait()

    def index_of_first(self, count: int) -> torch.Tensor:
        """So many positions of each row, from the row's first sequence in the piece on if there are as many."""
        first = self.own.marks[:, -2:-1] - self.piece.start
        return first.clamp(max=self.piece.count - count) + torch.arange(count, device=first.device)

    def history(self) -> torch.Tensor:
        """The columns before the first sequence of each row in the piece."""
        end = torch.full_like(self.own.marks[:, :1], self.piece.start)
        return self._state(end, self.ids[:, :1].long())

    def final_states(self) -> torch.Tensor:
        """The columns at the end of each row's last sequence."""
        if self.columns == 0:
            return self.x.new_empty((*self.x.shape[:2], 0))
        ends = [self.own.marks[:, -1:], *(tensor[:, -1:] for _, tensor in self._exchange.received[2::2])]
        return self._state(torch.stack(ends).amax(0), None)

    def _state(self, end: torch.Tensor, following: torch.Tensor | None) -> torch.Tensor:
        """The last columns of each row's sequence before `end`, with its history before them if it is short.

        They are zeros if no sequence continues to `following`, and the initial states if there is no sequence before.

        Args:
            end: (B, 1), a position.
            following: (B, 1), the id at `end`; None if the sequence ends there.
        """
        received = [tensor for _, tensor in self._exchange.received]
        initial, others = (received[0], received[1:]) if received else (self._first(), [])
        steps = torch.arange(self.columns, device=end.device)
        marks = torch.stack([*others[1::2], self.own.marks], dim=1)
        kept = marks[..., : self.columns].flatten(1)
        positions = (marks[..., -1:] - self.columns + steps).flatten(1)
        is_here = (positions[:, None] == (end - self.columns + steps)[..., None]) & (kept >= 0)[:, None]
        place = is_here.int().argmax(-1)
        ids = kept.gather(1, place).masked_fill(~is_here.any(-1), -1)
        if following is None:
            following = ids[:, -1:]
        continues = last_run(torch.cat([ids, following], dim=1))[:, :-1] & (following >= 0)
        count = continues.sum(1, keepdim=True)
        is_first = marks[..., -2].amin(1, keepdim=True) >= end - count
        moved = (steps + count).clamp(max=self.columns - 1)[:, None].expand(initial.shape)
        before = initial.gather(2, moved).masked_fill(~is_first[..., None], 0)
        columns = torch.cat([*others[::2], self.own.columns], dim=2)
        return torch.where(continues[:, None], columns.gather(2, place[:, None].expand(initial.shape)), before)


def convolve_rows_with_ids(ends: Ends, out: torch.Tensor) -> torch.Tensor | None:
    """Computes a rank's outputs; returns the final states on the last rank if they are wanted.

    Args:
        ends: not started.
        out: of the piece's shape, written.
    """
    x, piece = ends.x, ends.piece
    ends.start()
    # The outputs of a row's first sequence here that look back at other pieces; all others do not depend on them.
    heads = min(ends.columns, piece.count) if ends.rank > 0 else 0
    if x.numel() > 0 and (heads == 0 or heads < piece.count):
        ends.convolution.launch(x, out, piece, ends.initial_states, False)
    ends.wait()
    if x.numel() > 0 and heads > 0:
        ends.convolution.launch_at(out, ends.index_of_first(heads), ends.history())
    return ends.final_states() if ends.has_final_states else None
