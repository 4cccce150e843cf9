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

    def start(self, convolution: CausalConvolution, ids: torch.Tensor | None = None) -> None:
        """Sends columns to the ranks behind; with them the ids (B, n) of the same positions, if there are any."""
        for message in self._sends:
            self._exchange.send(message.peer, self._columns_at(message, convolution))
            if ids is not None:
                self._exchange.send(message.peer, self._ids_at(message, ids))
        for message in self._receives:
            self._exchange.receive(message.peer, message.positions, self.x)
            if ids is not None:
                self._exchange.receive(message.peer, message.positions, ids)
        self._exchange.start()

    def _columns_at(self, message: Message, convolution: CausalConvolution) -> torch.Tensor:
        tensors = []
        if states := message.positions & Positions(-self.columns, 0):  # which the first rank has
            tensors.append(self._first()[..., states - (-self.columns)])
        if own := message.positions & self.piece:
            tensors.append(convolution.before(self.x[..., own - self.piece.start], own))
        return joined(tensors, self.x)

    def _ids_at(self, message: Message, ids: torch.Tensor) -> torch.Tensor:
        """Ids of the positions; those before position 0 are not read."""
        own = message.positions & self.piece
        before = ids.new_zeros((ids.shape[0], message.positions.count - own.count))
        return torch.cat([before, ids[..., own - self.piece.start]] if own else [before], dim=-1)

    def _first(self) -> torch.Tensor:
        """The first rank's history."""
        if self.initial_states is None:
            return self.x.new_zeros((*self.x.shape[:2], self.columns))
        return self.initial_states

    def wait(self, ids: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The columns before the piece and their ids, after all messages have come.

        The ids before position 0 are that of position 0, which `ids` has if no other piece has.
        """
        self._exchange.wait()
        if self.rank == 0 or not self._exchange.received:
            is_read = self.rank > 0 or self._wants_states  # the first rank's are read for final states alone
            columns = self._first() if is_read else self.x[..., :0]
            found = None if ids is None else ids.new_zeros((ids.shape[0], self.columns))
        else:
            parts = [tensor for _, tensor in self._exchange.received]
            step = 1 if ids is None else 2
            columns = joined(parts[::step], self.x)
            found = None if ids is None else torch.cat(parts[1::step], dim=-1)
        if found is None or ids is None:
            return columns, None
        missing = min(max(self.columns - self.piece.start, 0), self.columns)
        following = torch.cat([found, ids], dim=-1)[:, missing : missing + 1]
        if missing > 0 and following.shape[1] > 0:
            found[:, :missing] = following
        return columns, found


def convolve_causally(
    history: History,
    out: torch.Tensor,
    convolution: CausalConvolution,
    ids: torch.Tensor | None = None,
    ids_before: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Computes a rank's outputs; returns the columns before its piece and their ids.

    Args:
        history: not started.
        out: of the piece's shape, written.
        convolution: launches.
        ids: (B, n), the sequences' within the piece.
        ids_before: (B, columns), those before the piece; exchanged like the columns if None.
    """
    x, piece = history.x, history.piece
    exchanged = ids if ids_before is None else None
    history.start(convolution, exchanged)
    is_first = history.rank == 0
    head = Positions(piece.start, min(piece.start + history.columns, piece.stop))
    if x.numel() > 0 and (is_first or head != piece):
        convolution.launch(x, out, piece, history.initial_states if is_first else None, False)
    columns, found = history.wait(exchanged)
    before = found if ids_before is None else ids_before
    if x.numel() > 0 and head and not is_first:
        part = head - piece.start
        known = columns
        if ids is not None and before is not None:
            continues = last_run(torch.cat([before, ids[:, :1]], dim=-1))[:, :-1]
            known = columns.masked_fill(~continues[:, None], 0)
        convolution.launch(convolution.before(x[..., part], head), out[..., part], head, known, True)
    return columns, before


def last_run(ids: torch.Tensor) -> torch.Tensor:
    """Whether each column of (B, n) belongs to the run of equal ids that ends at the last one."""
    is_last = (ids == ids[:, -1:]).to(torch.int8)
    return is_last.flip(-1).cumprod(-1).flip(-1).bool()
