"""`causal_conv1d`: depthwise convolution that looks only backwards, with states."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ._apply import check_forward_only, given_options, needs_references, run, with_references
from ._autocast import cast_arguments
from ._autocast import register as register_autocast
from ._fake import (
    chain_dtype,
    check_device,
    check_floating,
    check_schedule,
    check_taps,
    empty_like_layout,
    fake_out,
    require,
)
from ._library import call, check_out, check_tensor
from .chain import Chain, given_chain
from .stages import add

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
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
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
    post: Chain | str | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`y[b, c, t] = act(bias[c] + sum_k weight[c, k] x[b, c, t - (K-1) + k])`, then `+ residual`, then `post`.

    Sums are float32 (float64 for float64), float32 never uses TF32.

    Args:
        x: (B, C, L), any strides; float32, float16, bfloat16 or float64.
        weight: (C, K), any floating dtype.
        bias: (C,), any floating dtype.
        activation: None, "identity", "silu" or "swish"; True means silu, False none.
        residual: broadcast to (B, C, L), added after the activation.
        initial_states: (B, C, K-1), any strides: the columns before x; zeros if absent.
        return_final_states: also return the last K-1 columns of (initial_states, x).
        final_states_out: (B, C, K-1); written and returned as the final states.
        seq_idx: not supported yet.
        cu_seqlens: not supported yet.
        state_cache: not supported yet.
        cache_indices: not supported yet.
        has_initial_state: not supported yet.
        pad_slot_id: has a meaning only with `state_cache`.
        post: a chain on the result, before it is rounded to x's dtype; its text, if it has no tensors.
        schedule: "auto", or one of "direct", "sync", "cooperative", "barrier", "single_stage", "two_stage",
            "multi_stage", "producer_consumer", "thread_scope", "primitives" or "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.
        out: written and returned as that object: x's shape and dtype, any strides, apart from the inputs.

    Returns:
        (B, C, L) of x's dtype, channels-last where x is (stride(1) == 1, C > 1, L > 1, stride(2) >= C), else
        contiguous; with `return_final_states` or `final_states_out` a tuple of it and the final states, contiguous
        (B, C, K-1).

    Raises:
        TypeError: an unsupported dtype, or an argument that is no tensor.
        ValueError: a shape, a device, an activation, an `out` or a schedule that does not fit.
        NotImplementedError: an argument that is not supported yet.
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> x, w = torch.ones(1, 2, 4), torch.ones(2, 3)
        >>> sluice.causal_conv1d(x, w)
        tensor([[[1., 2., 3., 3.],
                 [1., 2., 3., 3.]]])

    Source: the short convolution of Mamba (Gu and Dao, 2023), and the causal_conv1d package's interface.
    """
    check_tensor("causal_conv1d", "x", x)
    check_tensor("causal_conv1d", "weight", weight)
    _refuse_what_comes_later(
        seq_idx=seq_idx,
        cu_seqlens=cu_seqlens,
        state_cache=state_cache,
        cache_indices=cache_indices,
        has_initial_state=has_initial_state,
    )
    named = raw_activation("causal_conv1d", activation)
    for name, tensor in (("bias", bias), ("residual", residual), ("initial_states", initial_states)):
        if tensor is not None:
            check_tensor("causal_conv1d", name, tensor)
    chain = None if post is None else given_chain("causal_conv1d", "post", post)
    if residual is not None:
        chain = add(residual) if chain is None else add(residual) | chain
    check_forward_only("causal_conv1d", (x, weight, bias, initial_states), chain)
    x, weight, bias = cast_arguments(x, weight, bias)
    if final_states_out is not None and weight.dim() == 2 and not weight.is_nested:  # else the op refuses the weight
        _check_final_states_out(x, weight.shape[-1] - 1, initial_states, final_states_out, out)
    others = (weight, bias, named, initial_states)
    if needs_references(x, chain):
        compute = functools.partial(_compute, others=others, schedule=schedule, depth=depth)
        result = with_references("causal_conv1d", compute, x, post=chain, out=out, dtype=x.dtype)
    else:
        options = given_options("causal_conv1d", x, schedule, depth, post=chain)
        result = run("causal_conv1d", (x, *others), options, out)
    if not return_final_states and final_states_out is None:
        return result
    return result, _final_states(x, weight.shape[-1] - 1, initial_states, final_states_out)


def _compute(
    x: torch.Tensor,
    *,
    others: tuple[Any, ...],
    schedule: str,
    depth: int | None,
    pre: None,
    post: Chain,
    out: None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The op for `with_references`: its result has the dtype of its input."""
    options = given_options("causal_conv1d", x, schedule, depth, post=post)
    with torch.autocast(x.device.type, enabled=False):  # which has cast x already, and would round it again
        return run("causal_conv1d", (x.to(dtype), *others), options)


def raw_activation(op: str, activation: Any) -> str | None:
    """The raw ops' name of an activation."""
    if not isinstance(activation, (str, bool, type(None))):
        rule = "must be None, a bool or a string"
        raise TypeError(f"{op}: activation {rule}, got {type(activation).__name__}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{op}: activation must be None, identity, silu or swish, got {activation!r}")
    return ACTIVATIONS[activation]


def _refuse_what_comes_later(**arguments: torch.Tensor | None) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"causal_conv1d: {name} is not supported yet")


def _check_final_states_out(
    x: torch.Tensor, width: int, initial_states: torch.Tensor | None, states: torch.Tensor, out: torch.Tensor | None
) -> None:
    """All that is asked of `final_states_out`, before the first of two ops writes into `out`."""
    check_out("causal_conv1d", "final_states_out", states)
    if out is None or torch.compiler.is_compiling():
        return
    check_tensor("causal_conv1d", "out", out)
    check = torch.ops.sluice._check_causal_conv1d_final_states_out
    call("causal_conv1d", x, check, x, width, initial_states, states, out)


def _final_states(
    x: torch.Tensor, width: int, initial_states: torch.Tensor | None, out: torch.Tensor | None
) -> torch.Tensor:
    return run(
        "causal_conv1d", (x, width, initial_states), {}, out,
        raw="causal_conv1d_final_states", argument="final_states_out",
    )  # fmt: skip


@torch.library.register_fake("sluice::causal_conv1d")
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    initial_states: torch.Tensor | None = None,
    *,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    check = functools.partial(require, "causal_conv1d")
    check_floating("causal_conv1d", "x", x.dtype)
    check_floating("causal_conv1d", "weight", weight.dtype)
    check(x.dim() == 3, lambda: f"x must have shape (batch, channels, length), got {tuple(x.shape)}")
    check_taps("causal_conv1d", x, weight, bias)
    _check_states(initial_states, x, weight.shape[1] - 1)
    check_schedule("causal_conv1d", schedule, depth)
    check(
        activation in ACTIVATIONS,
        lambda: f"activation must be None, identity, silu or swish, got '{activation}'",
    )
    chain_dtype("causal_conv1d", "post", post, post_operands, x, x.shape, x.dtype)
    return empty_like_layout(x, x.shape, x.dtype)


def _check_states(states: torch.Tensor | None, x: torch.Tensor, width: int) -> None:
    if states is None:
        return
    check_floating("causal_conv1d", "initial_states", states.dtype)
    check_device("causal_conv1d", "initial_states", states, x)
    shape, found = (x.shape[0], x.shape[1], width), tuple(states.shape)
    words = f"initial_states must have shape (batch, channels, width - 1) = {shape}, got {found}"
    require("causal_conv1d", len(found) == 3, lambda: words)
    for extent, size in zip(found, shape, strict=True):
        require("causal_conv1d", extent == size, lambda: words)


torch.library.register_fake("sluice::causal_conv1d_out")(fake_out)


@torch.library.register_fake("sluice::causal_conv1d_final_states")
def _(x: torch.Tensor, width: int, initial_states: torch.Tensor | None = None) -> torch.Tensor:
    check = functools.partial(require, "causal_conv1d")
    check_floating("causal_conv1d", "x", x.dtype)
    check(x.dim() == 3, lambda: f"x must have shape (batch, channels, length), got {tuple(x.shape)}")
    check(width >= 0, lambda: f"width must not be negative, got {width}")
    _check_states(initial_states, x, width)
    return x.new_empty((x.shape[0], x.shape[1], width))


torch.library.register_fake("sluice::causal_conv1d_final_states_out")(fake_out)


torch.library.register_fake("sluice::_check_causal_conv1d_final_states_out")(fake_out)


register_autocast("causal_conv1d")
