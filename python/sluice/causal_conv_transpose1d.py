"""`causal_conv_transpose1d`: transposed convolution that is trimmed on the right, whole or chunk by chunk."""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import reference
from ._apply import check_forward_only
from ._arguments import check_tensor, integer
from ._arguments import check_tensors as check_types
from ._autocast import cast_arguments
from ._autocast import register as register_autocast
from ._call import is_plain_call
from ._chunk_fakes import check_tensors, reach_of, result_of
from ._chunks import ChunkCall, check_positions, refuse_nested
from ._fake import (
    check_cache,
    check_flags,
    check_precision,
    check_result,
    dtype_name,
    fake_out,
    is_channels_last,
    require,
)
from .chain import Chain, given_chain
from .conv_transpose1d import result_shape
from .pack import PackedWeight, check_packed, packed_for, packed_shape_transposed

_OP = "causal_conv_transpose1d"


def causal_conv_transpose1d(
    x: torch.Tensor,
    weight: torch.Tensor | PackedWeight,
    bias: torch.Tensor | None = None,
    *,
    stride: int,
    groups: int = 1,
    dilation: int = 1,
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    overlap_cache: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The first S * stride results of `conv_transpose1d`, which see no later inputs, whole or chunk by chunk.

    Results after them depend on later inputs too. R = dilation * (K - 1) + 1 - stride of them (0 if negative) already
    have a part of their sums: the overlap, which a chunk leaves for the next chunk.

    Args:
        x: (B, C, S), any strides; float32, float16, bfloat16 or float64.
        weight: (C, C_out / groups, K), of x's dtype, or a `PackedWeight`.
        bias: (C_out,), of x's dtype. Results without a tap are the bias alone.
        stride: results of one input, at least 1. K may be smaller.
        groups: divides C and C_out.
        dilation: results from one tap to the next, at least 1.
        pre: a chain on x, rounded to x's dtype; text, if it has no tensors.
        post: a chain on the biased result, before it is rounded; text, if it has no tensors. Overlaps are without it.
        overlap_cache: (slots, C_out, columns >= R), any strides, float32 (float64 for float64): a row's first R columns
            are sums without the bias, added to the chunk's first results. Changed in place: they become the sums that
            the chunk leaves.
        cache_indices: (B or more,) int32 or int64, the slot of each row; else row n has slot n. At most one row uses a
            slot. A row without a valid slot has the result 0, and no overlap is changed.
        has_initial_state: (B,) bool: where it is false the overlap counts as zeros.
        pad_slot_id: an index that names no slot of `overlap_cache`.
        null_slot_id: another index that names no slot.
        schedule: "auto"; or without an `overlap_cache`, and where `conv_transpose1d` takes it, one of "direct", "sync",
            "cooperative", "barrier", "single_stage", "two_stage", "multi_stage", "producer_consumer", "thread_scope",
            "primitives" or "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.
        out: written and returned as that object: the result's shape and dtype, any strides, apart from the inputs.

    Returns:
        (B, C_out, S * stride) of x's dtype, channels-last if x is, else contiguous.

    Raises:
        TypeError: an unsupported dtype, or one that differs between x, weight and bias, or an argument that is no
            tensor.
        ValueError: a shape, a number, a device, an `out` or a schedule that does not fit.
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> x, w = torch.ones(1, 1, 2), torch.ones(1, 1, 4)
        >>> sluice.causal_conv_transpose1d(x, w, stride=2)
        tensor([[[1., 1., 2., 2.]]])
        >>> overlaps = torch.zeros(1, 1, 2)
        >>> [sluice.causal_conv_transpose1d(chunk, w, stride=2, overlap_cache=overlaps) for chunk in x.split(1, -1)]
        [tensor([[[1., 1.]]]), tensor([[[2., 2.]]])]

    Source: the decoders of SoundStream (Zeghidour et al., 2021) and EnCodec (Defossez et al., 2022).
    """
    handle = None
    if isinstance(weight, PackedWeight):
        handle, weight = weight, weight.weight
    check_tensor(_OP, "x", x)
    check_types(_OP, x, weight, bias)
    if overlap_cache is not None:
        check_tensor(_OP, "overlap_cache", overlap_cache)
    refuse_nested(_OP, x, weight)
    before = None if pre is None else given_chain(_OP, "pre", pre, x.dim())
    behind = None if post is None else given_chain(_OP, "post", post, x.dim())
    tensors = x, weight, bias, overlap_cache
    is_plain = is_plain_call(*tensors)
    if not is_plain or before or behind:
        check_forward_only(_OP, tensors, before, behind)
    if not is_plain:
        x, weight, bias = cast_arguments(x, weight, bias)
    step, spread = integer(_OP, "stride", stride), integer(_OP, "dilation", dilation)
    parts, packed = integer(_OP, "groups", groups), None
    check_positions(_OP, x, 0)
    if handle is not None and handle.numbers is not None:
        packed = packed_for(handle, weight.dtype, (step, spread, is_channels_last(x)))
    call = ChunkCall(_OP, x, weight, packed, bias, before, behind, out)
    slots: dict[str, Any] = {}
    for name, tensor in (("cache_indices", cache_indices), ("has_initial_state", has_initial_state)):
        if tensor is not None:
            check_tensor(_OP, name, tensor)
            slots[name] = tensor
    for name, number, usual in (("pad_slot_id", pad_slot_id, -1), ("null_slot_id", null_slot_id, None)):
        if number != usual:
            slots[name] = integer(_OP, name, number)
    if overlap_cache is None:
        if slots:
            raise ValueError(f"{_OP}: {next(iter(slots))} must be given with an overlap_cache, got none")
        overlap, gap = _overlap(weight, step, spread)
        return call.of_rows(
            "conv_transpose1d", (step, 0, gap, parts, spread), {"padding_right": overlap}, schedule, depth
        )
    if schedule != "auto" or depth is not None:
        rule = "schedule must be auto and depth None with an overlap_cache"
        raise ValueError(f"{_OP}: {rule}, got {schedule!r} and {depth}")
    numbers = {"stride": step, "groups": parts, "dilation": spread}
    definition = functools.partial(reference.causal_conv_transpose1d, overlap_cache=overlap_cache)
    return call.of_cache("causal_conv_transpose1d_chunk", overlap_cache, {**slots, **numbers}, definition)


def _overlap(weight: torch.Tensor, stride: int, dilation: int) -> tuple[int, int]:
    """Columns of the overlap, and results after the last tap; zeros for numbers that the op refuses."""
    reach = reach_of(weight, dilation)
    return (0, 0) if reach < 1 or stride < 1 else (max(0, reach - stride), max(0, stride - reach))


@torch.library.register_fake("sluice::causal_conv_transpose1d_chunk")
def _fake_chunk(
    x: torch.Tensor,
    overlap_cache: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    packed: torch.Tensor | None = None,
    precision: str = "ieee",
) -> torch.Tensor:
    check_tensors(_OP, x, weight, bias)
    check_precision(_OP, precision)
    overlap, gap = _overlap(weight, stride, dilation)
    batch, channels, length = result_shape(_OP, "x", x, weight, bias, stride, (0, 0), gap, groups, dilation)
    chains = {"pre": (pre, pre_operands), "post": (post, post_operands)}
    result = result_of(_OP, x, (batch, channels, length - overlap), chains)
    least = f"dilation * (K - 1) + 1 - stride = {overlap}"
    check_cache(_OP, "overlap_cache", x, overlap_cache, channels, (overlap, least), x.shape[0], cache_indices)
    check_flags(_OP, has_initial_state, x, x.shape[0])
    wanted = torch.float64 if x.dtype == torch.float64 else torch.float32
    kind = f"{dtype_name(wanted)}, in which overlaps are summed, got {dtype_name(overlap_cache.dtype)}"
    require(_OP, overlap_cache.dtype == wanted, lambda: f"overlap_cache must have dtype {kind}")
    if packed is not None:
        rank = packed.dim()
        check_packed(
            _OP, packed, weight, x, precision,
            lambda own: packed_shape_transposed(weight, x.dtype, own, stride, dilation, rank),
            "sluice.nn.ConvTranspose1d",
        )  # fmt: skip
    return result


@torch.library.register_fake("sluice::_check_causal_conv_transpose1d_chunk")
def _(x: torch.Tensor, *arguments: Any, out: torch.Tensor | None = None, **options: Any) -> None:
    check_result(_OP, out, _fake_chunk(x, *arguments, **options))


torch.library.register_fake("sluice::causal_conv_transpose1d_chunk_out")(fake_out)


register_autocast("causal_conv_transpose1d_chunk", behind=1)
