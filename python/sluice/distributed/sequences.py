"""DTensors whose sequence is sharded: raw convolutions of local pieces with a halo."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.distributed as dist

from .chains import narrowed
from .exchange import rank_and_size
from .halo import Positions, Windows, chunks_of, share_of
from .history import History, convolve_causally
from .pieces import convolve as convolve_piece


@dataclasses.dataclass(frozen=True)
class RawPiece:
    """A rank's piece and the raw op's arguments by name; tensors of chains are the piece's."""

    op: str
    values: dict[str, Any]
    piece: Positions
    outputs: Positions

    def before(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        """`pre` of these positions of the piece."""
        if not (text := self.values.get("pre", "")):
            return x
        operands = self._operands("pre_operands", positions, self.piece)
        result: torch.Tensor = torch.ops.sluice.transform(x, text, operands, dtype=x.dtype)
        return result

    def call(self, outputs: Positions, positions: Positions | None, **changed: Any) -> None:
        """Runs the op with some of its arguments changed; `pre` has run unless the positions are given."""
        values = {**self.values, "post_operands": self._operands("post_operands", outputs, self.outputs), **changed}
        if positions is None:
            values |= {"pre": "", "pre_operands": None, "schedule": "auto", "depth": None}
        else:
            values["pre_operands"] = self._operands("pre_operands", positions, self.piece)
        getattr(torch.ops.sluice, f"{self.op}_out")(**values)

    def _operands(self, name: str, positions: Positions, whole: Positions) -> list[torch.Tensor] | None:
        operands, part = self.values.get(name), positions - whole.start
        return operands and [narrowed(operand, part, whole.count) for operand in operands]


class _Rows(RawPiece):
    def launch(self, x: torch.Tensor, out: torch.Tensor, outputs: Positions, positions: Positions | None) -> None:
        self.call(outputs, positions, input=x, out=out, padding=0, padding_right=None)


class _CausalRows(RawPiece):
    def launch(
        self, x: torch.Tensor, out: torch.Tensor, positions: Positions, history: torch.Tensor | None, has_run: bool
    ) -> None:
        self.call(positions, None if has_run else positions, x=x, out=out, initial_states=history)


def run_piece(
    op: str,
    values: dict[str, Any],
    length: int,
    outputs: int,
    out: torch.Tensor,
    group: dist.ProcessGroup,
) -> None:
    """Computes a rank's chunk of the outputs from its chunk of the sequence.

    Args:
        op: "conv1d" or "causal_conv1d".
        values: the raw op's arguments by name, tensors local.
        length: of the whole sequence.
        outputs: of the whole sequence.
        out: the local result, written.
        group: the ranks.
    """
    rank, size = rank_and_size(op, group)
    pieces, shares = chunks_of(length, size), chunks_of(outputs, size)
    if op == "causal_conv1d":
        x, weight = values["x"], values["weight"]
        columns = (weight.shape[1] - 1) * values.get("dilation", 1)
        states = values.get("initial_states")
        history = History(x, pieces, rank, columns, group, states)
        convolve_causally(history, out, _CausalRows(op, values, pieces[rank], shares[rank]))
        return
    x, weight = values["input"], values["weight"]
    left, right = values.get("padding", 0), values.get("padding_right")
    reach = (weight.shape[2] - 1) * values.get("dilation", 1)
    windows = Windows(values.get("stride", 1), reach, left, left if right is None else right)
    share = share_of(pieces, shares, windows, rank)
    piece = _Rows(op, values, share.piece, share.outputs)
    batched, target = (x, out) if x.dim() == 3 else (x[None], out[None])
    convolve_piece(batched, target, share, group, piece)
