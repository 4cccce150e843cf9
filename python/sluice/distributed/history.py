"""A rank's piece of a causal convolution: the history before it travels while the piece is computed without it.

    current stream   pack | the whole piece, history 0 | its first outputs again, with the history
    communication         | history ..... |
                          start                          wait

The first launch is as aligned as the piece is. The columns are sent after `pre`, as states are kept.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist

from .exchange import Exchange
from .halo import Message, Positions, history_of
from .pieces import joined


class CausalConvolution(Protocol):
    """How a causal convolution is launched on the first positions of a piece."""

    def before(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        """`pre` of these positions of the piece, of x's dtype."""

    def launch(
        self, x: torch.Tensor, out: torch.Tensor, positions: Positions, history: torch.Tensor | None, has_run: bool
    ) -> None:
        """Writes the outputs of x's positions; `has_run` says whether `pre` has run."""


class History:
    """The columns before a rank's piece.

    Args:
        x: (B, C, n), the piece.
        pieces: of all ranks.
        rank: this process's.
        columns: of a history, (K - 1) * dilation.
        group: the ranks.
        initial_states: (B, C, columns) of x's dtype, the first rank's history; zeros if None.
        wants_states: whether the last rank computes final states.
    """

    def __init__(
        self,
        x: torch.Tensor,
        pieces: tuple[Positions, ...],
        rank: int,
        columns: int,
        group: dist.ProcessGroup | None,
        initial_states: torch.Tensor | None,
        wants_states: bool = False,
    ) -> None:
        self.x = x
        self.piece = pieces[rank]
        self.rank = rank
        self.columns = columns
        self.initial_states = initial_states if rank == 0 else None
        self._wants_states = wants_states
        self._exchange = Exchange(group)
        self._sends, self._receives = history_of(pieces, columns, rank, wants_states)

    def start(self, convolution: CausalConvolution) -> None:
        """Sends columns to the ranks behind."""
        for message in self._sends:
            self._exchange.send(message.peer, self._columns_at(message, convolution))
        for message in self._receives:
            self._exchange.receive(message.peer, message.positions, self.x)
        self._exchange.start()

    def _columns_at(self, message: Message, convolution: CausalConvolution) -> torch.Tensor:
        tensors = []
        if states := message.positions & Positions(-self.columns, 0):  # which the first rank has
            tensors.append(self._first()[..., states - (-self.columns)])
        if own := message.positions & self.piece:
            tensors.append(convolution.before(self.x[..., own - self.piece.start], own))
        return joined(tensors, self.x)

    def _first(self) -> torch.Tensor:
        """The first rank's history."""
        if self.initial_states is None:
            return self.x.new_zeros((*self.x.shape[:2], self.columns))
        return self.initial_states

    def wait(self) -> torch.Tensor:
        """The columns before the piece, after all messages have come."""
        self._exchange.wait()
        if self.rank == 0 or not self._exchange.received:
            is_read = self.rank > 0 or self._wants_states  # the first rank's are read for final states alone
            return self._first() if is_read else self.x[..., :0]
        return joined([tensor for _, tensor in self._exchange.received], self.x)


def convolve_causally(
    history: History,
    out: torch.Tensor,
    convolution: CausalConvolution,
    ids: torch.Tensor | None = None,
    ids_before: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes a rank's outputs; returns the columns before its piece.

    Args:
        history: not started.
        out: of the piece's shape, written.
        convolution: launches.
        ids: (B, n), the sequences' within the piece, negative for none; rows without a state.
        ids_before: (B, columns), the ids before the piece.
    """
    x, piece = history.x, history.piece
    history.start(convolution)
    is_first = history.rank == 0
    head = Positions(piece.start, min(piece.start + history.columns, piece.stop))
    if x.numel() > 0 and (is_first or head != piece):
        convolution.launch(x, out, piece, history.initial_states if is_first else None, False)
    columns = history.wait()
    if x.numel() > 0 and head and not is_first:
        part = head - piece.start
        known = columns
        if ids is not None and ids_before is not None:
            continues = last_run(torch.cat([ids_before, ids[:, :1]], dim=-1))[:, :-1] & (ids[:, :1] >= 0)
            known = columns.masked_fill(~continues[:, None], 0)
        convolution.launch(convolution.before(x[..., part], head), out[..., part], head, known, True)
    return columns


def last_run(ids: torch.Tensor) -> torch.Tensor:
    """Whether each column of (B, n) belongs to the run of equal ids that ends at the last column."""
    is_last = (ids == ids[:, -1:]).to(torch.int8)
    return is_last.flip(-1).cumprod(-1).flip(-1).bool()
