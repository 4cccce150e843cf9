"""What the raw ops of chunks check of their arguments, and the fake kernels of causal_conv1d_chunk."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ._autocast import register as register_autocast
from ._fake import (
    chain_dtype,
    check_cache,
    check_flags,
    check_floating,
    check_like,
    check_precision,
    check_result,
    empty_like_layout,
    fake_out,
    require,
)
from .conv1d import result_shape
from .pack import check_packed, packed_shape

_OP = "causal_conv1d"
PADDING_MODES = "zeros", "replicate", "reflect"
LIMIT = 2**31  # numbers of convolutions are below it


def check_tensors(op: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """The first checks of both raw ops."""
    check_floating(op, "x", x.dtype)
    require(op, x.dim() == 3, lambda: f"x must have shape (batch, channels, length), got {tuple(x.shape)}")
    check_like(op, "weight", weight, x, x.dtype, "like the input")
    check_like(op, "bias", bias, x, x.dtype, "like the input")


def reach_of(weight: torch.Tensor, dilation: int) -> int:
    """Input positions that one output sees, or outputs of one input; 0 for numbers that the ops refuse."""
    fits = weight.dim() == 3 and 0 < dilation < LIMIT and weight.shape[2] < LIMIT
    return dilation * (weight.shape[2] - 1) + 1 if fits else 0


def result_of(
    op: str,
    x: torch.Tensor,
    shape: tuple[Any, Any, Any],
    chains: dict[str, tuple[str, list[torch.Tensor] | None]],
) -> torch.Tensor:
    """The result of a chunk, after the checks of its chains."""
    chain_dtype(op, "pre", *chains["pre"], x, x.shape, x.dtype)
    chain_dtype(op, "post", *chains["post"], x, shape, x.dtype)
    return empty_like_layout(x, shape, x.dtype)


@torch.library.register_fake("sluice::causal_conv1d_chunk")
def _fake_chunk(
    x: torch.Tensor,
    state_cache: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    packed: torch.Tensor | None = None,
    precision: str = "ieee",
) -> torch.Tensor:
    check_tensors(_OP, x, weight, bias)
    if stride > 0:
        words = f"x must have a multiple of stride = {stride} positions, got {x.shape[2]}"
        require(_OP, x.shape[2] % stride == 0, lambda: words)
    check_precision(_OP, precision)
    history = max(0, reach_of(weight, dilation) - stride)
    shape = result_shape(_OP, "x", x, weight, bias, stride, (history, 0), dilation, groups)
    known = "padding_mode must be zeros, replicate or reflect"
    require(_OP, padding_mode in PADDING_MODES, lambda: f"{known}, got '{padding_mode}'")
    chains = {"pre": (pre, pre_operands), "post": (post, post_operands)}
    result = result_of(_OP, x, shape, chains)
    least = f"(K - 1) * dilation + 1 - stride = {history}"
    check_cache(_OP, "state_cache", x, state_cache, x.shape[1], (history, least), x.shape[0], cache_indices)
    check_flags(_OP, has_initial_state, x, x.shape[0])
    for operand in pre_operands or ():
        found, rule = tuple(operand.shape), "operands of pre must not vary along positions with a state_cache"
        fits = operand.dim() == 0 or operand.shape[-1] == 1
        require(_OP, fits, lambda: f"{rule}, which keeps inputs before pre, got {found}")  # noqa: B023
    if packed is not None:
        check_packed(_OP, packed, weight, x, precision, functools.partial(packed_shape, weight, x.dtype))
    return result


@torch.library.register_fake("sluice::_check_causal_conv1d_chunk")
def _(x: torch.Tensor, *arguments: Any, out: torch.Tensor | None = None, **options: Any) -> None:
    check_result(_OP, out, _fake_chunk(x, *arguments, **options))


torch.library.register_fake("sluice::causal_conv1d_chunk_out")(fake_out)


register_autocast("causal_conv1d_chunk", behind=1)
