"""`causal_conv1d` of a sequence that is split among ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._apply import check_forward_only
from .._arguments import integer
from .._autocast import cast_arguments
from .._fake import FLOATING, dtype_name, empty_like_layout
from ..causal_conv1d import causal_conv1d as convolve
from ..causal_conv1d import raw_activation
from ..chain import Chain, given_chain
from ..stages import add
from .arguments import Accepted, check_devices, check_dim, check_plain, check_target, key_of
from .chains import at_index, named_operands, of_positions, run_at, run_at_index
from .exchange import agreed_lengths, rank_and_size
from .halo import NOWHERE, Positions, pieces_of
from .history import History, convolve_causally
from .rows_with_ids import Ends, convolve_rows_with_ids
from .shapes import results_of

_OP = "causal_conv1d"


def causal_conv1d(
    x_local: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    dim: str = "sequence",
    lengths: Sequence[int] | None = None,
    activation: str | bool | None = None,
    residual: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    broadcast_final_states: bool = False,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    dilation: int = 1,
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
    """This rank's piece of `sluice.causal_conv1d` of the whole sequence: the ranks' pieces in their order.

    The H = (K-1) * dilation columns before each piece come from the ranks before it, in one batch of sends and
    receives that travels while the piece is computed. Pieces may differ in length, be shorter than H, and be empty.

    Args:
        x_local: (B, C, n), this rank's piece, any strides; with `cu_seqlens` (1, C, n) or (C, n).
        weight: (C, K), the same on all ranks, as are `bias`, `activation`, `dilation` and the flags.
        bias: (C,).
        group: the ranks that the sequence is split among, the default group if None. All of them call.
        dim: "sequence", the only dimension whose split needs communication.
        lengths: the pieces' n on all ranks (`gather_lengths`). If None they are gathered, and the host waits for that.
        activation: as in `sluice.causal_conv1d`.
        residual: broadcast to x_local's shape; this piece's part.
        initial_states: (B, C, H) of x's dtype, the columns before the sequence; read on the first rank only.
        return_final_states: also return the last H columns of (initial_states, pre(x)) on the last rank.
        broadcast_final_states: the last rank sends them to all others.
        seq_idx: (B, n) int32 or int64, this piece's part of the ids, negative for padding. A sequence may begin or
            end on any rank.
        cu_seqlens: (N + 1,), the starts within the whole sequence, the same on all ranks. Excludes initial and final
            states.
        dilation: positions from one tap to the next.
        pre: a chain on x; its tensors broadcast to x_local's shape.
        post: a chain on the result; its tensors broadcast to x_local's shape.
        schedule: of the launch for the whole piece; "auto" with sequences.
        depth: likewise.
        out: written and returned as that object: x_local's shape and dtype, any strides, apart from the inputs.

    Returns:
        A tensor of x_local's shape and dtype; with `return_final_states` a tuple of it and the final states, (B, C, H)
        on the last rank and, with `broadcast_final_states`, on all others, else None there.

    Raises:
        TypeError, ValueError, RuntimeError: as `sluice.causal_conv1d`, before anything is sent; ValueError also for
            `lengths` that do not fit and, if lengths are gathered, for arguments that differ between ranks.
            Errors of communication are torch's own: other ranks wait for one that raises until the group's timeout.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> import sluice.distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> sluice.distributed.causal_conv1d(torch.ones(1, 1, 4), torch.ones(1, 3))
        tensor([[[1., 2., 3., 3.]]])
        >>> dist.destroy_process_group()

    Source: context parallelism in flash-linear-attention's `causal_conv1d` (its `cp_context`).
    """
    rank, size = rank_and_size(_OP, group)
    given = {"x_local": x_local, "weight": weight, "bias": bias, "residual": residual, "seq_idx": seq_idx,
             "cu_seqlens": cu_seqlens, "initial_states": initial_states if rank == 0 else None}  # fmt: skip
    key = key_of(
        *given.values(), initial_states is None, rank, dim, activation, return_final_states, broadcast_final_states,
        dilation, pre, post, schedule, depth,
    )  # fmt: skip
    columns = _ACCEPTED.find(key)
    if columns is None:
        check_dim(_OP, dim)
        for name, tensor in given.items():
            if tensor is not None or name in ("x_local", "weight"):
                check_plain(_OP, name, tensor)
    before = None if pre is None else given_chain(_OP, "pre", pre, x_local.dim())
    behind = None if post is None else given_chain(_OP, "post", post, x_local.dim())
    if residual is not None:
        behind = add(residual) if behind is None else add(residual) | behind
    check_forward_only(_OP, (x_local, weight, bias, given["initial_states"]), before, behind)
    if cu_seqlens is not None:
        _check_packed(seq_idx, initial_states, return_final_states)
    elif broadcast_final_states and not return_final_states:
        raise ValueError(f"{_OP}: return_final_states must be True with broadcast_final_states, got False")
    x, _, _ = cast_arguments(x_local.resolve_neg(), weight, bias)
    is_flat = cu_seqlens is not None and x.dim() == 2
    sequence = _Piece(
        x[None] if is_flat else x, weight, bias, activation, integer(_OP, "dilation", dilation), before, behind,
        schedule, depth, given["initial_states"], seq_idx,
    )  # fmt: skip
    if columns is None:
        columns = sequence.check(cu_seqlens)
        _ACCEPTED.add(key, columns)
    if out is not None:
        read = [*{**given, "x_local": x, "residual": None}.items(), *named_operands(before, behind)]
        check_target(_OP, out, x, tuple(x.shape), x.dtype, read)

    def agreed() -> dict[str, int]:
        return {**sequence.agreed(columns), "return_final_states": int(return_final_states)}

    pieces = pieces_of(agreed_lengths(_OP, sequence.x, agreed, lengths, group))
    sequence.piece = pieces[rank]
    result, states = sequence.run(
        pieces, rank, columns, group, cu_seqlens, out[None] if out is not None and is_flat else out, return_final_states
    )
    result = out if out is not None else result[0] if is_flat else result
    if not return_final_states:
        return result
    if broadcast_final_states:
        states = sequence.x.new_empty((*sequence.x.shape[:2], columns)) if states is None else states
        dist.broadcast(states, group=group, group_src=size - 1)
    return result, states


# The columns of a history, of calls that were checked.
_ACCEPTED: Accepted[int] = Accepted()


@dataclasses.dataclass
class _Piece:
    """A rank's piece and how its parts are launched."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    activation: str | bool | None
    dilation: int
    pre: Chain | None
    post: Chain | None
    schedule: str
    depth: int | None
    initial_states: torch.Tensor | None
    ids: torch.Tensor | None
    piece: Positions = NOWHERE

    def check(self, starts: torch.Tensor | None) -> int:
        """The columns of a history. Raises what the op refuses in this rank's arguments."""
        x, states = self.x, self.initial_states
        given = {"weight": self.weight, "bias": self.bias, "initial_states": states, "seq_idx": self.ids,
                 "cu_seqlens": starts}  # fmt: skip
        check_devices(_OP, x, [*given.items(), *named_operands(self.pre, self.post)])
        values: dict[str, Any] = {
            "x": x, "weight": self.weight, "bias": self.bias, "activation": raw_activation(_OP, self.activation),
            "initial_states": states, "dilation": self.dilation,
        }  # fmt: skip
        for chain, name in ((self.pre, "pre"), (self.post, "post")):
            if chain is not None:
                values |= {name: chain.text, f"{name}_operands": list(chain.operands)}
        if self.ids is None and starts is None:
            results_of(_OP, _OP, {**values, "schedule": self.schedule, "depth": self.depth}, x)
        else:
            if self.schedule != "auto" or self.depth is not None:
                rule = "schedule must be auto and depth None with sequences"
                raise ValueError(f"{_OP}: {rule}, got {self.schedule!r} and {self.depth}")
            results_of(_OP, f"{_OP}_sequences", {**values, "seq_idx": self.ids, "cu_seqlens": starts}, x)
        if states is not None and states.dtype != x.dtype:
            # Columns of other ranks have x's dtype.
            rule = f"initial_states must have dtype {dtype_name(x.dtype)} like x when the sequence is split"
            raise TypeError(f"{_OP}: {rule}, got {dtype_name(states.dtype)}")
        return (self.weight.shape[1] - 1) * self.dilation

    def agreed(self, columns: int) -> dict[str, int]:
        """What must be equal on all ranks."""
        batch, channels, _ = self.x.shape
        return {
            "the batch": batch, "the number of channels": channels, "the dtype's number": FLOATING.index(self.x.dtype),
            "(K - 1) * dilation": columns, "the bytes of an id": 0 if self.ids is None else self.ids.element_size(),
        }  # fmt: skip

    def run(
        self,
        pieces: tuple[Positions, ...],
        rank: int,
        columns: int,
        group: dist.ProcessGroup | None,
        starts: torch.Tensor | None,
        out: torch.Tensor | None,
        wants_states: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The result, and on the last rank the final states if they are wanted."""
        x, call, ids_before = self.x, self, None
        result = empty_like_layout(x, x.shape, x.dtype) if out is None else out
        if self.ids is not None:
            ends = Ends(self, x, self.ids, pieces, rank, columns, group, self.initial_states, wants_states)
            return result, convolve_rows_with_ids(ends, result)
        if starts is not None:
            ids_before, ids = packed_ids(starts, self.piece, columns)
            call = dataclasses.replace(self, ids=ids)
        history = History(x, pieces, rank, columns, group, self.initial_states, wants_states)
        before = convolve_causally(history, result, call, call.ids, ids_before)
        if not wants_states or rank != len(pieces) - 1:
            return result, None
        return result, self.final_states(before, columns)

    def before(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        """`pre` of these positions of the piece."""
        return run_at(x, self.pre, positions, self.piece)

    def launch(
        self, x: torch.Tensor, out: torch.Tensor, positions: Positions, history: torch.Tensor | None, has_run: bool
    ) -> None:
        """Writes the outputs of x's positions."""
        is_whole = positions == self.piece
        convolve(
            x, self.weight, self.bias, activation=self.activation, initial_states=history, dilation=self.dilation,
            seq_idx=None if self.ids is None else self.ids[:, positions - self.piece.start].contiguous(),
            pre=None if has_run else of_positions(self.pre, positions, self.piece),
            post=of_positions(self.post, positions, self.piece),
            schedule=self.schedule if is_whole else "auto", depth=self.depth if is_whole else None, out=out,
        )  # fmt: skip

    def columns_at(self, index: torch.Tensor) -> torch.Tensor:
        """`pre` of x at positions of each row: `index` is (B, positions), of positions in the piece."""
        return run_at_index(self.x, self.pre, index)

    def launch_at(self, out: torch.Tensor, index: torch.Tensor, history: torch.Tensor) -> None:
        """Writes the outputs at positions of each row; the history is that of a row's first sequence there."""
        assert self.ids is not None
        x = self.columns_at(index)
        target = torch.empty_like(x)
        convolve(
            x, self.weight, self.bias, activation=self.activation, initial_states=history, dilation=self.dilation,
            seq_idx=self.ids.gather(1, index), post=at_index(self.post, index, self.piece.count), out=target,
        )  # fmt: skip
        out.scatter_(2, index[:, None].expand(target.shape), target)

    def final_states(self, before: torch.Tensor, columns: int) -> torch.Tensor:
        """The last columns of the history and the piece."""
        last = Positions(max(self.piece.start, self.piece.stop - columns), self.piece.stop)
        part = last - self.piece.start
        both = torch.cat([before, self.before(self.x[..., part], last)], dim=-1) if last else before
        return both[..., both.shape[-1] - columns :].clone(memory_format=torch.contiguous_format)


def packed_ids(starts: torch.Tensor, piece: Positions, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequences of the positions before a piece and of the positions in it, -1 for none; never read on the host."""
    positions = torch.arange(piece.start - columns, piece.stop, dtype=starts.dtype, device=starts.device)
    ids = torch.searchsorted(starts.contiguous(), positions, right=True, out_int32=True) - 1
    ids = torch.where(positions < starts[-1], ids, -1)[None]
    return ids[:, :columns].contiguous(), ids[:, columns:].contiguous()


def _check_packed(seq_idx: torch.Tensor | None, states: torch.Tensor | None, wants_states: bool) -> None:
    """Refuses what a split of packed sequences has not."""
    if seq_idx is not None:
        raise ValueError(f"{_OP}: seq_idx must be None when cu_seqlens is given, got both")
    if states is not None or wants_states:
        rule = "initial_states and final states must be omitted with cu_seqlens when the sequence is split"
        raise ValueError(f"{_OP}: {rule}, because a rank may have neither end of one")
