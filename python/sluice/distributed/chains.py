"""Chains of a piece: their tensors are split as the piece is, and a launch gets its positions' parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .._apply import operand_list
from .._apply import transform as apply_chain
from .._errors import checked
from .._fake import chain_dtype
from ..chain import Chain
from .halo import Positions


def check_operands(
    op: str, argument: str, chain: Chain | None, x: torch.Tensor, shape: Sequence[int], dtype: torch.dtype
) -> torch.dtype:
    """The dtype of a chain's result for values of `dtype`; raises the op's errors about its text and tensors.

    Args:
        op: for messages.
        argument: the chain's name.
        chain: or None.
        x: the input, on whose device the tensors must be.
        shape: of the chain's result on this rank.
        dtype: of the values.
    """
    if chain is None:
        return dtype
    operands = operand_list(op, x, chain.operands)
    return checked(op, x, chain_dtype, op, argument, chain.text, operands, x, shape, dtype)


def named_operands(pre: Chain | None, post: Chain | None) -> list[tuple[str, torch.Tensor]]:
    """The tensors of both chains with their names in messages."""
    chains = (("pre", pre), ("post", post))
    return [
        (f"{name} operand {k}", operand)
        for name, chain in chains
        if chain is not None
        for k, operand in enumerate(chain.operands)
    ]


def narrowed(operand: torch.Tensor, part: slice, length: int) -> torch.Tensor:
    """An operand for some of `length` positions; one that broadcasts over them stays as it is."""
    if operand.dim() == 0 or operand.shape[-1] != length or length == 1:
        return operand
    return operand[..., part]


def of_positions(chain: Chain | None, positions: Positions, piece: Positions) -> Chain | None:
    """The chain for some positions of a piece, or outputs of a rank."""
    if chain is None or not chain.operands or positions == piece:
        return chain
    part = positions - piece.start
    return _with_operands(chain, lambda operand: narrowed(operand, part, piece.count))


def _with_operands(chain: Chain, changed: Callable[[torch.Tensor], torch.Tensor]) -> Chain:
    # The same tensor twice stays one operand.
    parts = {id(operand): changed(operand) for operand in chain.operands}
    return chain.with_values(lambda value: parts[id(value)] if isinstance(value, torch.Tensor) else value)


def at_index(chain: Chain | None, index: torch.Tensor, length: int) -> Chain | None:
    """The chain for some of `length` positions of each row: `index` is (B, positions)."""

    def gathered(operand: torch.Tensor) -> torch.Tensor:
        if operand.dim() == 0 or operand.shape[-1] != length or length == 1:
            return operand
        rows = operand[(None,) * (3 - operand.dim())].expand(index.shape[0], -1, -1)
        return rows.gather(2, index[:, None].expand(-1, rows.shape[1], -1))

    return None if chain is None else _with_operands(chain, gathered)


def run_at_index(x: torch.Tensor, chain: Chain | None, index: torch.Tensor) -> torch.Tensor:
    """The chain's result, of x's dtype, at positions of each row of x (B, C, n): `index` is (B, positions)."""
    own = at_index(chain, index, x.shape[2])
    rows = x.gather(2, index[:, None].expand(-1, x.shape[1], -1))
    return rows if own is None else apply_chain(rows, own, dtype=x.dtype)


def run_at(x: torch.Tensor, chain: Chain | None, positions: Positions, piece: Positions) -> torch.Tensor:
    """The chain's result, of x's dtype, for x: these positions of a piece."""
    own = of_positions(chain, positions, piece)
    return x if own is None else apply_chain(x, own, dtype=x.dtype)
