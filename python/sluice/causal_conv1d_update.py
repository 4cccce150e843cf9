"""`causal_conv1d_update`: new tokens for sequences whose last columns are in a state, which is changed in place."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ._apply import check_forward_only, compute_dtype, given_options
from ._apply import transform as apply_chain
from ._arguments import check_string, check_tensor, integer
from ._autocast import cast_arguments, without_autocast
from ._autocast import register as register_autocast
from ._autograd import check_out, innermost_transform
from ._call import is_negated, is_plain_call, run, with_its_memory
from ._errors import checked
from ._fake import (
    chain_dtype,
    check_activation,
    check_device,
    check_floating,
    check_index,
    check_result,
    check_taps,
    empty_like_layout,
    fake_out,
    is_strided,
    require,
)
from ._memory import check_no_overlap, check_written_once
from ._sequences import has_own_stages
from ._skipped import skipped_sequences, skipped_tokens
from .causal_conv1d import raw_activation
from .chain import Chain, given_chain
from .stages import add

_OP = "causal_conv1d_update"


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    *,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    query_start_loc: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    state_at: str = "end",
    null_slot_id: int | None = None,
    dilation: int = 1,
    pre: Chain | str | None = None,
    residual: torch.Tensor | None = None,
    post: Chain | str | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`causal_conv1d` of new tokens after the history in `conv_state`, which takes the tokens in place.

    With H = (K-1) * dilation columns of history before token 0 and v = pre(x):
    `y[b, c, t] = act(bias[c] + sum_k weight[c, k] v[b, c, t - (K-1-k) * dilation])`, then `+ residual`, then `post`.
    Sums are float32 (float64 for float64). One launch, and no allocation but the result.

    Args:
        x: (B, C), a token of each sequence, or (B, C, S); with `query_start_loc` (tokens, C). Any strides; float32,
            float16, bfloat16 or float64.
        conv_state: (slots, C, state_len >= H), any strides, any floating dtype; changed in place. Without
            `conv_state_indices` row b belongs to sequence b.
        weight: (C, K), any floating dtype.
        bias: (C,), any floating dtype.
        activation: None, "identity", "silu" or "swish"; True means silu, False none.
        cache_seqlens: (B,) int32 or int64, tokens before this call. The state is circular then: token t goes to
            column (cache_seqlens + t) % state_len, later tokens win.
        conv_state_indices: (B,) int32 or int64, the slot of each sequence; (B, blocks): the last valid slot. At most
            one sequence uses a slot. A sequence without a valid slot has the result 0, and no state is changed.
        pad_slot_id: an index that names no slot.
        query_start_loc: (sequences + 1,) int32 or int64: sequence n has the tokens from query_start_loc[n] on. Tokens
            of no sequence have the result 0.
        num_accepted_tokens: (sequences,) int32 or int64, a >= 1: the history begins at column a - 1, and the row
            becomes what follows the history's first column, then the new tokens. Needs `state_at="front"`.
        state_at: "end": the history is the row's last H columns, and the whole row moves left. "front": its first H,
            and other columns are left alone.
        null_slot_id: another index that names no slot.
        dilation: columns from one tap to the next.
        pre: a chain on x, applied before the convolution and before the state is kept; rounded to x's dtype. Text, if
            it has no tensors.
        residual: broadcast to x's shape, added after the activation.
        post: a chain on the result, before it is rounded to x's dtype; text, if it has no tensors.
        out: written and returned as that object: x's shape and dtype, any strides; may be x.

    Returns:
        A tensor of x's shape and dtype; for (B, C, S) channels-last if x is (stride(1) == 1, C > 1, S > 1,
        stride(2) >= C), else contiguous.

    Raises:
        TypeError: an unsupported dtype, or an argument that is no tensor.
        ValueError: a shape, a device, an activation, an `out` or a state layout that does not fit.
        RuntimeError: grad mode is on and an input requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> state, w = torch.zeros(1, 2, 2), torch.ones(2, 3)
        >>> for _ in range(3):
        ...     y = sluice.causal_conv1d_update(torch.ones(1, 2), state, w)
        >>> y
        tensor([[3., 3.]])
        >>> state
        tensor([[[1., 1.],
                 [1., 1.]]])

    Source: the decoding step of Mamba's short convolution (Gu and Dao, 2023); causal_conv1d's and vLLM's interfaces.
    """
    for name, tensor in (("x", x), ("conv_state", conv_state), ("weight", weight)):
        check_tensor(_OP, name, tensor)
    indices = {
        "cache_seqlens": cache_seqlens,
        "conv_state_indices": conv_state_indices,
        "query_start_loc": query_start_loc,
        "num_accepted_tokens": num_accepted_tokens,
    }
    for name, given in (("bias", bias), ("residual", residual), *indices.items()):
        if given is not None:
            check_tensor(_OP, name, given)
    before = None if pre is None else given_chain(_OP, "pre", pre, x.dim())
    behind = None if post is None else given_chain(_OP, "post", post, x.dim())
    if residual is not None:
        behind = add(residual) if behind is None else add(residual) | behind
    is_plain = is_plain_call(x, conv_state, weight, bias)
    if not is_plain or before or behind:
        check_forward_only(_OP, (x, conv_state, weight, bias), before, behind)
    options: dict[str, Any] = {name: index for name, index in indices.items() if index is not None}
    if pad_slot_id != -1:
        options["pad_slot_id"] = integer(_OP, "pad_slot_id", pad_slot_id)
    if null_slot_id is not None:
        options["null_slot_id"] = integer(_OP, "null_slot_id", null_slot_id)
    if state_at != "end":
        check_string(_OP, "state_at", state_at)
        options["state_at"] = state_at
    if dilation != 1:
        options["dilation"] = integer(_OP, "dilation", dilation)
    named = raw_activation(_OP, activation)
    if not is_plain:
        x, weight, bias = cast_arguments(x, weight, bias)
    others, negated = (weight, bias, named), is_negated(conv_state)
    if negated or (out is not None and is_negated(out)) or has_own_stages(before, behind):
        _check_call((x, conv_state, *others), options, before, behind, out)
    state = conv_state.resolve_neg() if negated else conv_state
    if before is not None and before.has_cpp:
        x, before = apply_chain(x, before, dtype=x.dtype), None
    if behind is None or not behind.has_cpp:
        options |= given_options(_OP, x, "auto", None, pre=before, post=behind)
        result = run(_OP, (x, state, *others), options, out, is_plain=is_plain)
    else:
        options |= given_options(_OP, x, "auto", None, pre=before)
        state = state.clone()  # if the chain fails, the states do not change
        result = _of_sums(x, state, others, options, behind, out)
    if state is not conv_state:
        conv_state.copy_(state)
    return result


def _of_sums(
    x: torch.Tensor,
    state: torch.Tensor,
    others: tuple[Any, ...],
    options: dict[str, Any],
    behind: Chain,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """The result if no kernel is linked: the chain runs after the kernel, on unrounded sums."""
    with without_autocast(x.device.type):
        sums = run(_OP, (x.to(compute_dtype(x.dtype)), state, *others), options)
    result = apply_chain(sums, behind, out=out, dtype=x.dtype)
    numbers = options.get("pad_slot_id", -1), options.get("null_slot_id")
    skipped = skipped_sequences(options.get("conv_state_indices"), state.shape[0], *numbers)
    if (starts := options.get("query_start_loc")) is not None:
        skipped = skipped_tokens(starts, x.shape[0], skipped)
    return result if skipped is None else result.masked_fill_(skipped.view(-1, *[1] * (x.dim() - 1)), 0)


def _check_call(
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    before: Chain | None,
    behind: Chain | None,
    out: torch.Tensor | None,
) -> None:
    """Raises what the raw op refuses, before anything is allocated, computed or written.

    It is for calls that pass other tensors to the op than they were given: the op would refuse less, or with another
    message.
    """
    if torch.compiler.is_compiling() or innermost_transform() is not None:
        return
    x = arguments[0]
    options = {**options, **given_options(_OP, x, "auto", None, pre=before, post=behind)}
    if out is not None:
        check_out(_OP, "out", out)
    given = (*arguments, *options.values(), out)
    if not all(is_strided(tensor) for tensor in given if isinstance(tensor, torch.Tensor)):
        run(_OP, arguments, options, out)  # which torch's dispatcher refuses
    checked(_OP, x, _check_tensors, *arguments, **options, out=out)


def _check_tensors(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    *,
    out: torch.Tensor | None,
    **options: Any,
) -> None:
    """The checks of ops/causal_conv1d_update.cpp, for memory as it is."""
    _check_arguments(x, conv_state, weight, bias, activation, **options)
    state = with_its_memory(conv_state)
    check_written_once(_OP, "conv_state", state)
    read = {"x": x, "weight": weight, "bias": bias, **options}
    _check_written("conv_state", state, read)
    if out is None:
        return
    written = with_its_memory(out)
    check_result(_OP, written, x)
    check_written_once(_OP, "out", written)
    _check_written("out", written, read)
    check_no_overlap(_OP, "out", written, "conv_state", state)


def _check_written(name: str, written: torch.Tensor, arguments: dict[str, Any]) -> None:
    """Raises if written memory overlaps an argument or an operand; `out` may be x."""
    for argument, value in arguments.items():
        if isinstance(value, torch.Tensor):
            may_be_same = (name, argument) == ("out", "x")
            check_no_overlap(_OP, name, written, argument, value, may_be_same=may_be_same)
        elif argument.endswith("_operands"):
            for operand in value:
                check_no_overlap(_OP, name, written, "an operand", operand)


@torch.library.register_fake("sluice::causal_conv1d_update")
def _(x: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    _check_arguments(x, *arguments, **options)
    return empty_like_layout(x, x.shape, x.dtype) if x.dim() == 3 else x.new_empty(x.shape)


def _check_arguments(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    *,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    query_start_loc: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    state_at: str = "end",
    null_slot_id: int | None = None,
    dilation: int = 1,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
) -> None:
    check = functools.partial(require, _OP)
    check_floating(_OP, "x", x.dtype)
    if query_start_loc is not None:
        rule = "(tokens, channels) with query_start_loc"
        check(x.dim() == 2, lambda: f"x must have shape {rule}, got {tuple(x.shape)}")
    else:
        rule = "(batch, channels) or (batch, channels, tokens)"
        check(x.dim() in (2, 3), lambda: f"x must have shape {rule}, got {tuple(x.shape)}")
    check_taps(_OP, x, weight, bias, dilation)
    check(state_at in ("end", "front"), lambda: f"state_at must be end or front, got '{state_at}'")
    front = state_at == "front"
    check(
        front or num_accepted_tokens is None,
        lambda: "state_at must be front with num_accepted_tokens, got 'end'",
    )
    check(not front or cache_seqlens is None, lambda: "state_at must be end with cache_seqlens, got 'front'")
    sequences = x.shape[0]
    if query_start_loc is not None:
        check_index(_OP, "query_start_loc", query_start_loc, x)
        shape = tuple(query_start_loc.shape)
        for fits in (len(shape) == 1, query_start_loc.numel() >= 1):
            check(fits, lambda: f"query_start_loc must have shape (sequences + 1,), got {shape}")
        sequences = query_start_loc.shape[0] - 1
    for name, index in (("cache_seqlens", cache_seqlens), ("num_accepted_tokens", num_accepted_tokens)):
        if index is not None:
            _check_one_each(name, index, sequences, x)
    if conv_state_indices is not None:
        _check_slots(conv_state_indices, sequences, x)
    tokens = None if query_start_loc is not None or num_accepted_tokens is None else x.shape[2] if x.dim() == 3 else 1
    rows = sequences if conv_state_indices is None else None
    _check_state(conv_state, x, (weight.shape[1] - 1) * dilation, rows, tokens)
    chain_dtype(_OP, "pre", pre, pre_operands, x, x.shape, x.dtype)
    check_activation(_OP, activation)
    chain_dtype(_OP, "post", post, post_operands, x, x.shape, x.dtype)


def _check_one_each(name: str, index: torch.Tensor, sequences: int, x: torch.Tensor) -> None:
    check_index(_OP, name, index, x)
    found = tuple(index.shape)
    for fits in (len(found) == 1, index.numel() == sequences):
        require(_OP, fits, lambda: f"{name} must have shape ({sequences},), got {found}")


def _check_slots(index: torch.Tensor, sequences: int, x: torch.Tensor) -> None:
    check_index(_OP, "conv_state_indices", index, x)
    found, rule = tuple(index.shape), f"({sequences},) or ({sequences}, blocks)"
    words = f"conv_state_indices must have shape {rule}, got {found}"
    require(_OP, len(found) in (1, 2), lambda: words)
    require(_OP, index.shape[0] == sequences, lambda: words)


def _check_state(state: torch.Tensor, x: torch.Tensor, history: int, rows: int | None, tokens: int | None) -> None:
    """`rows`: the required number of slots; `tokens`: each sequence's tokens, if they follow accepted tokens."""
    check, channels, found = functools.partial(require, _OP), x.shape[1], tuple(state.shape)
    check_floating(_OP, "conv_state", state.dtype)
    check_device(_OP, "conv_state", state, x)
    words = f"conv_state must have shape (slots, {channels}, state_len), got {found}"
    check(len(found) == 3, lambda: words)
    check(state.shape[1] == channels, lambda: words)
    columns = state.shape[2]
    few = f"conv_state must have at least (K - 1) * dilation = {history} columns, got {columns}"
    check(columns >= history, lambda: few)
    if rows is not None:
        each = f"{rows} slots, one per sequence, when conv_state_indices is None, got {found[0]}"
        check(state.shape[0] == rows, lambda: f"conv_state must have {each}")
    if tokens is not None:
        needed = max(history - 1, 0) + tokens
        behind = f"{needed} columns for {tokens} tokens after the accepted ones, got {columns}"
        check(columns >= needed, lambda: f"conv_state must have at least {behind}")


torch.library.register_fake("sluice::causal_conv1d_update_out")(fake_out)


register_autocast("causal_conv1d_update", behind=1)
