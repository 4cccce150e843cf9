"""Shared code of the fake kernels: the layout and the dtype of a result, without its values.

Sizes and strides may be symbolic. A condition on them becomes a guard of the compiled graph, so kernels test only what
decides the result; a size that is known only at run time counts as more than one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def fake_out(*_: Any, **__: Any) -> None:
    """The fake kernel of every out variant: its output exists already."""


@functools.lru_cache(maxsize=1024)
def chain_cast(op: str, argument: str, text: str, operands: int) -> str:
    """The dtype that a chain's text casts its result to, by name; empty without a cast."""
    return str(torch.ops.sluice._chain_cast(op, argument, text, operands))


def chain_dtype(
    op: str,
    argument: str,
    text: str,
    operands: Sequence[torch.Tensor] | None,
    input: torch.Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> torch.dtype:
    """The dtype of a chain's result for values of `dtype`, from the op's own parser.

    Raises:
        RuntimeError: the text is no chain, or an operand does not fit the input or a result of `shape`.
    """
    name = chain_cast(op, argument, text, len(operands or ()))
    for k, operand in enumerate(operands or ()):
        check_strided(op, f"{argument} operand {k}", operand)
        check_floating(op, f"{argument} operand {k}", operand.dtype)
        check_device(op, f"{argument} operand {k}", operand, input)
        _check_broadcasts(op, f"{argument} operand {k}", operand, shape)
    return getattr(torch, name) if name else dtype  # type: ignore[no-any-return]


def _check_broadcasts(op: str, argument: str, operand: torch.Tensor, shape: Sequence[int]) -> None:
    def words() -> str:
        return f"{argument} must broadcast to the result's shape {tuple(shape)}, got {tuple(operand.shape)}"

    require(op, operand.dim() <= len(shape), words)
    for extent, size in zip(reversed(operand.shape), reversed(shape), strict=False):
        require(op, _either(extent == size, extent == 1), words)


def require(op: str, condition: bool | torch.SymBool, words: Callable[[], str]) -> None:
    """Raises the op's error, its name and `words`, if the condition does not hold."""
    torch._check(condition, lambda: f"{op}: {words()}")  # type: ignore[arg-type]


def whose(argument: str) -> str:
    """The possessive of an argument in messages."""
    return "the input's" if argument == "input" else f"{argument}'s"


def check_schedule(op: str, schedule: str, depth: int | None) -> None:
    """Raises the op's error about an unknown schedule or depth."""
    if schedule != "auto" or depth is not None:
        torch.ops.sluice._check_schedule(op, schedule, depth)


def check_precision(op: str, precision: str) -> None:
    """Raises the op's error about an unknown precision."""
    rule = 'precision must be "ieee" or "tf32"'
    require(op, precision in ("ieee", "tf32"), lambda: f"{rule}, got {precision}")


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor has sizes and strides."""
    return tensor.layout == torch.strided and not tensor.is_nested


def check_strided(op: str, argument: str, tensor: torch.Tensor) -> None:
    """Raises the op's error about a tensor without strides in a list, which torch's dispatcher does not see."""
    words = f"{argument} must have memory of its own, got a tensor without storage"
    require(op, is_strided(tensor), lambda: words)


def check_floating(op: str, argument: str, dtype: torch.dtype) -> None:
    """Raises the op's error about an unsupported `dtype`."""
    known = "float32, float16, bfloat16 or float64"
    require(op, dtype in FLOATING, lambda: f"{argument} must have dtype {known}, got {dtype_name(dtype)}")


def check_like(
    op: str, argument: str, tensor: torch.Tensor | None, input: torch.Tensor, dtype: torch.dtype, reason: str
) -> None:
    """Raises the op's error about a tensor with another dtype, or another device than the input."""
    if tensor is None:
        return
    found = dtype_name(tensor.dtype)
    words = f"{argument} must have dtype {dtype_name(dtype)} {reason}, got {found}"
    require(op, tensor.dtype == dtype, lambda: words)
    check_device(op, argument, tensor, input)


def check_device(op: str, argument: str, tensor: torch.Tensor, input: torch.Tensor) -> None:
    """Raises the op's error about a tensor that is not on the input's device."""
    require(
        op,
        tensor.device == input.device,
        lambda: f"{argument} must be on the input's device {input.device}, got {tensor.device}",
    )


def check_taps(op: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dilation: int) -> None:
    """Raises the causal ops' errors about a weight (C, K), a bias (C,) or a dilation; x has channels in dimension 1."""
    channels = x.shape[1]
    check_floating(op, "weight", weight.dtype)
    words = f"weight must have shape (C, K) with C = {channels}, got {tuple(weight.shape)}"
    require(op, weight.dim() == 2, lambda: words)
    for fits in (weight.shape[0] == channels, weight.shape[1] > 0):
        require(op, fits, lambda: words)
    check_device(op, "weight", weight, x)
    if bias is not None:
        found = tuple(bias.shape)
        check_floating(op, "bias", bias.dtype)
        check_device(op, "bias", bias, x)
        for fits in (bias.dim() == 1, bias.numel() == channels):
            require(op, fits, lambda: f"bias must have shape (C,) with C = {channels}, got {found}")
    require(op, dilation >= 1, lambda: f"dilation must be at least 1, got {dilation}")
    taps = weight.shape[1]
    numbers = "dilation and taps must be less than 2^31, got {} and {}".format
    for number in (dilation, taps):
        require(op, number < 2**31, lambda: numbers(dilation, taps))


def check_index(op: str, name: str, index: torch.Tensor, x: torch.Tensor) -> None:
    """Raises the causal ops' errors about the dtype or device of an index tensor."""
    words = f"{name} must have dtype int32 or int64, got {dtype_name(index.dtype)}"
    require(op, index.dtype in (torch.int32, torch.int64), lambda: words)
    check_device(op, name, index, x)


def check_sequences(
    op: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    seq_idx: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    dilation: int,
    chains: dict[str, tuple[str, list[torch.Tensor] | None]],
) -> tuple[int | torch.SymInt, int]:
    """Raises the common errors of the ops of sequences. Returns the number of sequences and their history's columns."""
    check = functools.partial(require, op)
    check_floating(op, "x", x.dtype)
    check(x.dim() == 3, lambda: f"x must have shape (batch, channels, length), got {tuple(x.shape)}")
    check_taps(op, x, weight, bias, dilation)
    chain_dtype(op, "pre", *chains["pre"], x, x.shape, x.dtype)
    check_activation(op, activation)
    chain_dtype(op, "post", *chains["post"], x, x.shape, x.dtype)
    sequences = x.shape[0]
    if seq_idx is not None:
        check_index(op, "seq_idx", seq_idx, x)
        check(cu_seqlens is None, lambda: "seq_idx must be None when cu_seqlens is given, got both")
        words = f"seq_idx must have shape ({x.shape[0]}, {x.shape[2]}), got {tuple(seq_idx.shape)}"
        check(seq_idx.dim() == 2, lambda: words)
        for fits in (seq_idx.shape[0] == x.shape[0], seq_idx.shape[1] == x.shape[2]):
            check(fits, lambda: words)
    if cu_seqlens is not None:
        check_index(op, "cu_seqlens", cu_seqlens, x)
        shape = tuple(cu_seqlens.shape)
        for fits in (len(shape) == 1, cu_seqlens.numel() >= 1):
            check(fits, lambda: f"cu_seqlens must have shape (sequences + 1,), got {shape}")
        rule = "(1, channels, tokens) with cu_seqlens"
        check(x.shape[0] == 1, lambda: f"x must have shape {rule}, got {tuple(x.shape)}")
        sequences = cu_seqlens.shape[0] - 1
    return sequences, (weight.shape[1] - 1) * dilation


def check_states(
    op: str,
    name: str,
    states: torch.Tensor | None,
    x: torch.Tensor,
    sequences: int | torch.SymInt,
    history: int | torch.SymInt,
) -> None:
    """Raises the op's errors about states (sequences, channels, history)."""
    if states is None:
        return
    check_floating(op, name, states.dtype)
    check_device(op, name, states, x)
    shape, found = (sequences, x.shape[1], history), tuple(states.shape)
    words = f"{name} must have shape (sequences, channels, (K - 1) * dilation) = {shape}, got {found}"
    require(op, len(found) == 3, lambda: words)
    for extent, size in zip(found, shape, strict=True):
        require(op, extent == size, lambda: words)


def check_cache(
    op: str,
    name: str,
    x: torch.Tensor,
    cache: torch.Tensor,
    channels: int,
    columns: tuple[int, str],
    sequences: int | torch.SymInt,
    slots: torch.Tensor | None,
) -> None:
    """Raises the op's errors about a cache of states, or of overlaps, and its slots.

    Args:
        op: for messages.
        name: the cache's.
        x: the input.
        cache: (slots, channels, columns).
        channels: the cache's.
        columns: at least, as a number and in words.
        sequences: that need a slot.
        slots: of the sequences, if they are given.
    """
    check, found = functools.partial(require, op), tuple(cache.shape)
    check_floating(op, name, cache.dtype)
    check_device(op, name, cache, x)
    words = f"{name} must have shape (slots, {channels}, columns), got {found}"
    check(len(found) == 3, lambda: words)
    check(cache.shape[1] == channels, lambda: words)
    few = f"{name} must have at least {columns[1]} columns, got {found[-1]}"
    check(cache.shape[2] >= columns[0], lambda: few)
    if slots is not None:
        check_index(op, "cache_indices", slots, x)
        shape = tuple(slots.shape)
        for fits in (len(shape) == 1, slots.numel() >= sequences):
            check(fits, lambda: f"cache_indices must have shape ({sequences} or more,), got {shape}")
    else:
        rule = f"{sequences} slots, one per sequence, when cache_indices is None"
        check(cache.shape[0] == sequences, lambda: f"{name} must have {rule}, got {found[0]}")


def check_flags(op: str, flags: torch.Tensor | None, x: torch.Tensor, sequences: int | torch.SymInt) -> None:
    """Raises the op's errors about `has_initial_state`."""
    if flags is None:
        return
    found = tuple(flags.shape)
    kind = f"has_initial_state must have dtype bool, got {dtype_name(flags.dtype)}"
    require(op, flags.dtype == torch.bool, lambda: kind)
    check_device(op, "has_initial_state", flags, x)
    for fits in (len(found) == 1, flags.numel() == sequences):
        require(op, fits, lambda: f"has_initial_state must have shape ({sequences},), got {found}")


def check_result(op: str, out: torch.Tensor | None, x: torch.Tensor) -> None:
    """Raises the op's errors about an `out` with another dtype, device or shape than x."""
    if out is None:
        return
    kind = f"out must have dtype {dtype_name(x.dtype)}, got {dtype_name(out.dtype)}"
    require(op, out.dtype == x.dtype, lambda: kind)
    check_device(op, "out", out, x)
    words = f"out must have shape {tuple(x.shape)}, got {tuple(out.shape)}"
    require(op, out.dim() == x.dim(), lambda: words)
    for extent, size in zip(out.shape, x.shape, strict=True):
        require(op, extent == size, lambda: words)


def check_activation(op: str, activation: str | None) -> None:
    """Raises the causal ops' error about an unknown activation."""
    names = (None, "identity", "silu", "swish")
    require(op, activation in names, lambda: f"activation must be None, identity, silu or swish, got '{activation}'")


def dtype_name(dtype: torch.dtype) -> str:
    """The name that the ops' messages give a dtype."""
    return str(dtype).removeprefix("torch.")


def is_channels_last(x: torch.Tensor, spatial: int = 1) -> bool:
    """Whether x counts as channels-last; its channels precede the last `spatial` dimensions."""
    if x.dim() <= spatial:
        return False
    channels = x.shape[-spatial - 1]
    if not holds(x.stride(-spatial - 1) == 1) or holds(channels < 2):
        return False
    for d in range(-1, -spatial - 1, -1):
        if not holds(x.shape[d] < 2):  # the stride of a dimension of one element decides nothing
            return holds(x.stride(d) >= channels)
    return False


def empty_like_layout(x: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, spatial: int = 1) -> torch.Tensor:
    """An empty tensor of `shape` in x's layout: channels-last if x is, else contiguous."""
    if not is_channels_last(x, spatial):
        return x.new_empty(shape, dtype=dtype)
    channel = len(shape) - spatial - 1
    moved = (*shape[:channel], *shape[channel + 1 :], shape[channel])
    return x.new_empty(moved, dtype=dtype).movedim(-1, channel)


def check_bias_and_numbers(
    op: str, bias: torch.Tensor | None, outputs: int, stride: int, padding: int, dilation: int, taps: int
) -> None:
    """Checks common to convolutions: a bias for each output channel, and no number of 2^31 or more.

    Args:
        op: for messages.
        bias: as the op has it.
        outputs: the result's channels.
        stride: as the op has it, as are padding and dilation.
        padding: zeros, or positions cut away, on the left.
        dilation: positions from one tap to the next.
        taps: of the weight.
    """
    if bias is not None:
        found = tuple(bias.shape)
        words = functools.partial("bias must have shape ({},), got {}".format, outputs, found)
        require(op, bias.dim() == 1, words)
        require(op, bias.shape[0] == outputs, words)
    numbers = "stride, padding, dilation and taps must be less than 2^31, got {}, {}, {}, {}".format
    for number in (stride, padding, dilation, taps):
        require(op, number < 2**31, functools.partial(numbers, stride, padding, dilation, taps))


def convolution_result(
    op: str,
    x: torch.Tensor,
    shape: Sequence[int],
    chains: dict[str, tuple[str, list[torch.Tensor] | None]],
    dtype: torch.dtype | None,
    schedule: str,
    depth: int | None,
    precision: str,
) -> torch.Tensor:
    """The result of a convolution of x, of that shape, after the checks of ops/convolution/call.cpp.

    Args:
        op: for messages.
        x: the input, batched.
        shape: of the result.
        chains: the text and the operands of "pre" and "post".
        dtype: the result's, if given.
        schedule: as the op has it.
        depth: as the op has it.
        precision: as the op has it.
    """
    check_schedule(op, schedule, depth)
    check_precision(op, precision)
    chain_dtype(op, "pre", *chains["pre"], x, x.shape, x.dtype)
    last = chain_dtype(op, "post", *chains["post"], x, shape, x.dtype)
    check_floating(op, "dtype", dtype or x.dtype)
    return empty_like_layout(x, shape, dtype or last)


def is_dense(x: torch.Tensor) -> bool:
    """Whether x is non-overlapping and dense: contiguous in some order of its dimensions."""
    left = [d for d in range(x.dim() - 1, -1, -1) if not holds(x.shape[d] == 1)]
    expected = 1
    while left:
        nearest = next((d for d in left if holds(x.stride(d) == expected)), None)
        if nearest is None:
            return False
        left.remove(nearest)
        expected = expected * torch.sym_max(x.shape[nearest], 1)  # so torch writes the strides of unknown sizes
    return True


def empty_like_dense(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """An empty tensor of x's shape, with x's strides if it is non-overlapping and dense, else contiguous."""
    if holds(x.numel() == 0) or not is_dense(x):
        return x.new_empty(x.shape, dtype=dtype)
    return torch.empty_strided(x.shape, x.stride(), dtype=dtype, device=x.device)


def holds(condition: bool | torch.SymBool) -> bool:
    """The condition; False if it depends on a size that is known only at run time."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # loads sympy, which eager calls do without

    return guard_or_false(condition)


def _either(a: bool | torch.SymBool, b: bool | torch.SymBool) -> bool | torch.SymBool:
    if isinstance(a, bool) and isinstance(b, bool):
        return a or b
    from torch.fx.experimental.symbolic_shapes import sym_or

    return sym_or(a, b)
