"""`conv1d` of a sequence that is split among ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._apply import check_forward_only
from .._arguments import integer, single
from .._autocast import cast_arguments
from .._errors import checked
from .._fake import FLOATING, chain_cast, empty_like_layout
from ..chain import Chain, given_chain
from ..conv1d import conv1d as convolve
from ..conv1d import sides
from ..pack import PackedWeight
from .arguments import Accepted, check_devices, check_dim, check_plain, check_target, key_of
from .chains import check_operands, named_operands, of_positions, run_at
from .exchange import agreed_lengths, rank_and_size
from .halo import NOWHERE, Positions, Windows, outputs_of, pieces_of, share_of
from .pieces import convolve as convolve_piece
from .shapes import Described, results_of

_OP = "conv1d"


def conv1d(
    x_local: torch.Tensor,
    weight: torch.Tensor | PackedWeight,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] | str = 0,
    dilation: int | tuple[int] = 1,
    groups: int = 1,
    *,
    group: dist.ProcessGroup | None = None,
    dim: str = "sequence",
    lengths: Sequence[int] | None = None,
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    """This rank's piece of `sluice.conv1d` of the whole sequence: the ranks' pieces in their order.

    Output o belongs to the rank that has input position o * stride, or the last position if there are fewer. The other
    positions that a rank's outputs read, its halo, come from other ranks in one batch of sends and receives that
    travels while the outputs that need none are computed. Pieces may differ in length, be shorter than the halo, and
    be empty.

    Args:
        x_local: (B, C, n) or (C, n), this rank's piece, any strides.
        weight: (C_out, C / groups, K), the same on all ranks, as are the other arguments unless they say otherwise.
        bias: (C_out,).
        stride: positions from one output to the next.
        padding: zeros on both sides of the whole sequence, or "valid" (none), or "same" (stride 1 only).
        dilation: positions from one tap to the next.
        groups: divides C and C_out.
        group: the ranks that the sequence is split among, the default group if None. All of them call.
        dim: "sequence", the only dimension whose split needs communication.
        lengths: the pieces' n on all ranks (`gather_lengths`). If None they are gathered, and the host waits for that.
        pre: a chain on x; its tensors broadcast to x_local's shape.
        post: a chain on the result; its tensors broadcast to the shape of this rank's result.
        dtype: the result's dtype, as in `sluice.conv1d`.
        out: written and returned as that object: the shape of this rank's result, any strides, apart from the inputs.
        schedule: of the interior's launch.
        depth: likewise.

    Returns:
        (B, C_out, m) or (C_out, m), this rank's outputs; the ranks' results in their order are the unsplit one.

    Raises:
        TypeError, ValueError, RuntimeError: as `sluice.conv1d`, before anything is sent (what depends on the whole
            length, on all ranks); ValueError also for `lengths` that do not fit and, if lengths are gathered, for
            arguments that differ between ranks. Errors of communication are torch's own: other ranks wait for one
            that raises until the group's timeout.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> import sluice.distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> sluice.distributed.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 3), padding="same")
        tensor([[[2., 3., 3., 2.]]])
        >>> dist.destroy_process_group()

    Source: `torch.nn.functional.conv1d`; halo exchange as in distributed stencil codes (MPI's ghost cells).
    """
    rank, _ = rank_and_size(_OP, group)
    taps = weight.weight if isinstance(weight, PackedWeight) else weight
    key = key_of(x_local, taps, bias, stride, padding, dilation, groups, dim, pre, post, dtype, schedule, depth)
    found = _ACCEPTED.find(key)
    if found is None:
        check_dim(_OP, dim)
        check_plain(_OP, "x_local", x_local)
        check_plain(_OP, "weight", taps)
        if bias is not None:
            check_plain(_OP, "bias", bias)
    before = None if pre is None else given_chain(_OP, "pre", pre, x_local.dim())
    after = None if post is None else given_chain(_OP, "post", post, x_local.dim())
    check_forward_only(_OP, (x_local, taps, bias), before, after)
    x, taps, bias = cast_arguments(x_local.resolve_neg(), taps, bias)
    step, spread = single(_OP, "stride", stride), single(_OP, "dilation", dilation)
    left, right = sides(padding, taps, step, spread)
    numbers = {"stride": step, "padding": left, "dilation": spread, "groups": integer(_OP, "groups", groups)}
    if right is not None:
        numbers["padding_right"] = right
    options: dict[str, Any] = {"dtype": dtype, "schedule": schedule, "depth": depth}
    piece = _Piece(x if x.dim() == 3 else x[None], weight, bias, numbers, before, after, options)
    if found is None:
        found = piece.check(x, taps)
        _ACCEPTED.add(key, found)
    shape, result_dtype = found
    windows = Windows(step, (taps.shape[2] - 1) * spread, left, left if right is None else right)
    pieces = pieces_of(agreed_lengths(_OP, piece.x, lambda: piece.agreed(taps, windows), lengths, group))
    length = pieces[-1].stop
    if length == 0 or windows.outputs(length) < 1:
        whole = Described((*x.shape[:-1], length), tuple(x.stride()), x.dtype)
        results_of(_OP, _OP, {"input": whole, "weight": taps, "bias": bias, **numbers}, x)  # the op's own words
    share = share_of(pieces, outputs_of(pieces, windows), windows, rank)
    shape = (*shape[:-1], share.outputs.count)
    check_operands(_OP, "post", after, x, shape, x.dtype)
    if out is not None:
        read = [("x_local", x), ("weight", taps), ("bias", bias), *named_operands(before, after)]
        check_target(_OP, out, x, shape, result_dtype, read)
    if share.piece.count == length:  # all of the sequence: one launch
        return convolve(
            x_local, weight, bias, step, padding, spread, groups, pre=before, post=after, out=out, **options
        )
    piece.piece, piece.outputs = share.piece, share.outputs
    result = empty_like_layout(x, shape, result_dtype) if out is None else out
    convolve_piece(piece.x, result if x.dim() == 3 else result[None], share, group, piece)
    return result


# A result's shape and dtype, of calls that were checked.
_ACCEPTED: Accepted[tuple[tuple[int, ...], torch.dtype]] = Accepted()


@dataclasses.dataclass
class _Piece:
    """A rank's piece and how its parts are launched."""

    x: torch.Tensor
    weight: torch.Tensor | PackedWeight
    bias: torch.Tensor | None
    numbers: dict[str, int]
    pre: Chain | None
    post: Chain | None
    options: dict[str, Any]
    piece: Positions = NOWHERE
    outputs: Positions = NOWHERE

    def check(self, x: torch.Tensor, taps: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        """The shape of a result of one output and its dtype. Raises what the op refuses in this rank's arguments.

        Args:
            x: the piece as it was given, with or without a batch.
            taps: the weight.
        """
        check_devices(_OP, x, [("weight", taps), ("bias", self.bias), *named_operands(self.pre, self.post)])
        window = 1 if taps.dim() < 3 else max((taps.shape[2] - 1) * self.numbers["dilation"] + 1, 1)
        shape = (*x.shape[:-1], window) if x.dim() in (2, 3) else tuple(x.shape)
        one = Described(shape, tuple(x.stride()), x.dtype)
        values = {"input": one, "weight": taps, "bias": self.bias, **self.numbers, **self.options}
        found = results_of(_OP, _OP, values, x)[0]
        check_operands(_OP, "pre", self.pre, x, x.shape, x.dtype)
        dtype = found.dtype
        if self.post is not None:
            cast = checked(_OP, x, chain_cast, _OP, "post", self.post.text, len(self.post.operands))
            dtype = self.options["dtype"] or (getattr(torch, cast) if cast else x.dtype)
        return found.shape, dtype

    def agreed(self, taps: torch.Tensor, windows: Windows) -> dict[str, int]:
        """What must be equal on all ranks."""
        batch, channels, _ = self.x.shape
        return {
            "the batch": batch, "the number of channels": channels, "the dtype's number": FLOATING.index(self.x.dtype),
            "the number of taps": taps.shape[2], **self.numbers, "padding_right": windows.right,
        }  # fmt: skip

    def before(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        """`pre` of these positions of the piece."""
        return run_at(x, self.pre, positions, self.piece)

    def launch(self, x: torch.Tensor, out: torch.Tensor, outputs: Positions, positions: Positions | None) -> None:
        """Writes outputs of the windows of x; `pre` has run unless x's positions are given."""
        is_interior = positions is not None
        convolve(
            x, self.weight, self.bias, self.numbers["stride"], 0, self.numbers["dilation"], self.numbers["groups"],
            pre=None if positions is None else of_positions(self.pre, positions, self.piece),
            post=of_positions(self.post, outputs, self.outputs), dtype=self.options["dtype"],
            schedule=self.options["schedule"] if is_interior else "auto",
            depth=self.options["depth"] if is_interior else None, out=out,
        )  # fmt: skip
