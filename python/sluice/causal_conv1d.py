"""`causal_conv1d`: convolution that looks only backwards, with states."""

from __future__ import annotations

from typing import Any

import torch

from ._apply import check_forward_only
from ._arguments import check_tensor, integer
from ._autocast import cast_arguments
from ._autocast import register as register_autocast
from ._autograd import check_out
from ._call import is_plain_call
from ._causal_rows import Rows, has_history_in_front_of_own_stages, suits_sequences
from ._chunks import Dense, refuse_sequences, with_activation
from ._fake import (
    chain_dtype,
    check_activation,
    check_floating,
    check_schedule,
    check_states,
    check_taps,
    dtype_name,
    empty_like_layout,
    fake_out,
    is_strided,
    require,
)
from ._modes import current_mode
from ._sequences import (
    check_flat,
    of_cache,
    of_sequences,
)
from .chain import Chain, given_chain
from .pack import PackedWeight, packed_for
from .stages import add

_OP = "causal_conv1d"

ACTIVATIONS: dict[object, str | None] = {
    None: None,
    False: None,
    True: "silu",
    "identity": None,
    "silu": "silu",
    "swish": "silu",
}


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor | PackedWeight,
    bias: torch.Tensor | None = None,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: str | bool | None = None,
    residual: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    state_cache: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    padding_mode: str = "zeros",
    dilation: int = 1,
    pre: Chain | str | None = None,
    post: Chain | str | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Convolution that looks only backwards: depthwise for a weight (C, K), over all channels for (C_out, C/groups, K).

    Depthwise, over a batch of sequences or over packed sequences, with H = (K-1) * dilation columns before a sequence's
    first position and v = pre(x):
    `y[b, c, t] = act(bias[c] + sum_k weight[c, k] v[b, c, t - (K-1-k) * dilation])`, then `+ residual`, then `post`.
    Sums are float32 (float64 for float64), float32 never uses TF32.

    A weight of three dimensions is conv1d's, with H = dilation * (K-1) + 1 - stride (0 if negative) positions before
    the first: `y[b, c, t] = act(bias[c] + sum_ik weight[c, i, k] v[b, i, t * stride + k * dilation - H])` for
    t < L / stride. It has conv1d's kernels, dtypes and precision. Its states are the last H inputs before `pre`, and it
    takes no `seq_idx` and no `cu_seqlens`. With a `state_cache` a stream comes chunk by chunk: its results
    together are the whole row's, if `pre` leaves zeros as they are.

    Args:
        x: (B, C, L), any strides; float32, float16, bfloat16 or float64. With `cu_seqlens` (1, C, T) or (C, T).
        weight: (C, K), any floating dtype; or (C_out, C / groups, K) of x's dtype, or a `PackedWeight`.
        bias: (C,), any floating dtype; or (C_out,) of x's dtype.
        stride: positions from one result to the next, which divides L; 1 for a depthwise weight.
        groups: of a weight of three dimensions.
        activation: None, "identity", "silu" or "swish"; True means silu, False none.
        residual: broadcast to x's shape, added after the activation.
        initial_states: (N, C, H), any strides: the columns before each of N sequences, B without `cu_seqlens`; zeros if
            absent.
        return_final_states: also return the last H columns of (initial_states, v) of each sequence.
        final_states_out: (N, C, H); written and returned as the final states.
        seq_idx: (B, L) int32 or int64: a change of id begins a sequence within a row. A negative id is padding: it
            gives 0 and is in no sequence, so equal ids on both sides of it are two sequences. A row's first sequence
            has its initial states, its last one leaves its final states, however much padding is around them; a row
            of padding keeps its initial states.
        cu_seqlens: (N + 1,) int32 or int64: sequence n has the positions from cu_seqlens[n] on. Empty sequences are
            allowed. Positions of no sequence have the result 0.
        state_cache: (slots, C, columns >= H), any strides, any floating dtype: a row's last H columns are the initial
            states of the sequence whose slot it is. Changed in place: the row becomes the last columns of (row, v).
        cache_indices: (N or more,) int32 or int64, the slot of each sequence; else sequence n has row n. At most
            one sequence uses a slot. A sequence without a valid slot has the result 0, and no state is changed.
        has_initial_state: (N,) bool: where it is false the row of `state_cache` counts as zeros.
        pad_slot_id: an index that names no slot of `state_cache`.
        null_slot_id: another index that names no slot.
        padding_mode: of a weight of three dimensions, what is before rows without a state: "zeros", "replicate" for the
            first input, or "reflect" for the inputs after the first, with zeros where x has none.
        dilation: positions from one tap to the next.
        pre: a chain on x, applied before the convolution and before the states are kept; rounded to x's dtype. Text, if
            it has no tensors.
        post: a chain on the result, before it is rounded to x's dtype; text, if it has no tensors.
        schedule: "auto", or one of "direct", "sync", "cooperative", "barrier", "single_stage", "two_stage",
            "multi_stage", "producer_consumer", "thread_scope", "primitives" or "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.
        out: written and returned as that object: x's shape and dtype, any strides, apart from the inputs.

    Returns:
        A tensor of x's shape and dtype, channels-last if x is (stride(1) == 1, C > 1, L > 1, stride(2) >= C), else
        contiguous; with `return_final_states` or `final_states_out` a tuple of it and the final states, contiguous
        (N, C, H) of x's dtype.

    Raises:
        TypeError: an unsupported dtype, or an argument that is no tensor.
        ValueError: a shape, a device, an activation, an `out` or a schedule that does not fit, or arguments that
            exclude each other.
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> x, w = torch.ones(1, 2, 4), torch.ones(2, 3)
        >>> sluice.causal_conv1d(x, w)
        tensor([[[1., 2., 3., 3.],
                 [1., 2., 3., 3.]]])
        >>> sluice.causal_conv1d(x, w, cu_seqlens=torch.tensor([0, 1, 4]))
        tensor([[[1., 1., 2., 3.],
                 [1., 1., 2., 3.]]])

    Source: the short convolution of Mamba (Gu and Dao, 2023), and the interfaces of causal_conv1d and vLLM.
    """
    handle = None
    if isinstance(weight, PackedWeight):
        handle, weight = weight, weight.weight
    check_tensor(_OP, "x", x)
    check_tensor(_OP, "weight", weight)
    named = raw_activation(_OP, activation)
    for name, tensor in (
        ("bias", bias),
        ("residual", residual),
        ("initial_states", initial_states),
        ("state_cache", state_cache),
    ):
        if tensor is not None:
            check_tensor(_OP, name, tensor)
    before = None if pre is None else given_chain(_OP, "pre", pre, x.dim())
    behind = None if post is None else given_chain(_OP, "post", post, x.dim())
    if residual is not None:
        behind = add(residual) if behind is None else add(residual) | behind
    tensors = x, weight, bias, initial_states, state_cache
    is_plain = is_plain_call(*tensors)
    if not is_plain or before or behind:
        check_forward_only(_OP, tensors, before, behind)
    if not is_plain:
        x, weight, bias = cast_arguments(x, weight, bias)
    options: dict[str, Any] = {}
    if dilation != 1:
        options["dilation"] = integer(_OP, "dilation", dilation)
    for name, index in (
        ("seq_idx", seq_idx),
        ("cu_seqlens", cu_seqlens),
        ("cache_indices", cache_indices),
        ("has_initial_state", has_initial_state),
    ):
        if index is not None:
            check_tensor(_OP, name, index)
            options[name] = index
    if state_cache is None and (pad_slot_id != -1 or null_slot_id is not None):
        name = "null_slot_id" if pad_slot_id == -1 else "pad_slot_id"
        raise ValueError(f"{_OP}: {name} must be given with a state_cache, got none")
    for name, slot, usual in (("pad_slot_id", pad_slot_id, -1), ("null_slot_id", null_slot_id, None)):
        if slot != usual:
            options[name] = integer(_OP, name, slot)
    wants_states = return_final_states or final_states_out is not None
    if not weight.is_nested and weight.dim() == 3:
        refuse_sequences(options)
        call = Dense(
            _OP, x, weight, None if handle is None else packed_for(handle, weight.dtype), bias, before,
            with_activation(named, behind), out, integer(_OP, "stride", stride), options.pop("dilation", 1),
            integer(_OP, "groups", groups), padding_mode,
        )  # fmt: skip
        return call.run(options, initial_states, state_cache, (wants_states, final_states_out), schedule, depth)
    if (stride != 1 or groups != 1 or padding_mode != "zeros") and not weight.is_nested:
        raise ValueError(f"{_OP}: weight must have three dimensions with a stride, groups or a padding_mode, got "
                         f"{tuple(weight.shape)}")  # fmt: skip
    if state_cache is None and len(options) == ("dilation" in options):
        is_usual = schedule == "auto" and depth is None and not current_mode.action
        if not is_usual or not (
            (wants_states and suits_sequences(x, weight, dilation, before, behind))
            or has_history_in_front_of_own_stages(x, initial_states, before, behind)
        ):
            rows = Rows(x, (weight, bias, named, initial_states), options, before, behind, schedule, depth, out)
            return rows.with_states(final_states_out) if wants_states else rows.result()
    elif current_mode.action:
        given = ", ".join([name for name in options if name != "dilation"] or ["state_cache"])
        raise ValueError(f"{current_mode.action}: {_OP} must have no seq_idx, cu_seqlens or state_cache, because their "
                         f"kernels have no choice of schedule and no linked form, got {given}")  # fmt: skip
    elif schedule != "auto" or depth is not None:
        raise ValueError(f"{_OP}: schedule must be auto and depth None with sequences or a state_cache, "
                         f"got {schedule!r} and {depth}")  # fmt: skip
    is_flat = cu_seqlens is not None and x.dim() == 2 and is_strided(x)
    batched, target = x, out
    if is_flat:
        check_flat(x, out, before, behind)
        batched = x[None]
        target = out[None] if out is not None and is_strided(out) else out
    states: torch.Tensor | None = None
    if state_cache is None:
        for name in ("cache_indices", "has_initial_state"):
            if name in options:
                raise ValueError(f"{_OP}: {name} must be given with a state_cache, got none")
        if final_states_out is not None:
            check_out(_OP, "final_states_out", final_states_out)
        others = (weight, bias, named, initial_states)
        result, states = of_sequences(
            batched, others, options, before, behind, wants_states=wants_states, states_out=final_states_out, out=target
        )
    else:
        if initial_states is not None or wants_states:
            raise ValueError(
                f"{_OP}: initial_states and final states must be omitted when state_cache is given, which holds both"
            )
        result = of_cache(batched, state_cache, (weight, bias, named), options, before, behind, target)
    if out is not None:
        result = out
    elif is_flat:
        result = result[0]
    return result if states is None else (result, states)


def raw_activation(op: str, activation: Any) -> str | None:
    """The raw ops' name of an activation."""
    if not isinstance(activation, (str, bool, type(None))):
        rule = "must be None, a bool or a string"
        raise TypeError(f"{op}: activation {rule}, got {type(activation).__name__}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{op}: activation must be None, identity, silu or swish, got {activation!r}")
    return ACTIVATIONS[activation]


@torch.library.register_fake("sluice::causal_conv1d")
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    initial_states: torch.Tensor | None = None,
    *,
    dilation: int = 1,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    check_floating(_OP, "x", x.dtype)
    require(_OP, x.dim() == 3, lambda: f"x must have shape (batch, channels, length), got {tuple(x.shape)}")
    check_taps(_OP, x, weight, bias, dilation)
    chain_dtype(_OP, "pre", pre, pre_operands, x, x.shape, x.dtype)
    check_activation(_OP, activation)
    chain_dtype(_OP, "post", post, post_operands, x, x.shape, x.dtype)
    check_states(_OP, "initial_states", initial_states, x, x.shape[0], (weight.shape[1] - 1) * dilation)
    check_schedule(_OP, schedule, depth)
    if initial_states is not None and initial_states.dtype != x.dtype and initial_states.shape[2] > 0:
        words = f"initial_states must have x's dtype with a schedule or a depth, got {dtype_name(initial_states.dtype)}"
        require(_OP, schedule == "auto" and depth is None, lambda: words)
    return empty_like_layout(x, x.shape, x.dtype)


torch.library.register_fake("sluice::causal_conv1d_out")(fake_out)


@torch.library.register_fake("sluice::causal_conv1d_final_states")
def _(x: torch.Tensor, width: int, initial_states: torch.Tensor | None = None) -> torch.Tensor:
    check_floating(_OP, "x", x.dtype)
    require(_OP, x.dim() == 3, lambda: f"x must have shape (batch, channels, length), got {tuple(x.shape)}")
    require(_OP, width >= 0, lambda: f"width must not be negative, got {width}")
    check_states(_OP, "initial_states", initial_states, x, x.shape[0], width)
    return x.new_empty((x.shape[0], x.shape[1], width))


torch.library.register_fake("sluice::causal_conv1d_final_states_out")(fake_out)


torch.library.register_fake("sluice::_check_causal_conv1d_final_states_out")(fake_out)


register_autocast("causal_conv1d")
