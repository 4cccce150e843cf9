"""What the fake kernels share: the layout and the dtype of a result, found without its values.

Sizes and strides may be symbolic. A condition on them becomes a guard of the compiled graph, so each asks only what
decides the result; where a size is known at run time alone, it counts as more than one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def fake_out(*_: Any, **__: Any) -> None:
    """The fake kernel of every out variant: what it writes is there already."""


@functools.lru_cache(maxsize=1024)
def _chain_cast(op: str, argument: str, text: str, operands: int) -> str:
    return str(torch.ops.sluice._chain_cast(op, argument, text, operands))


def chain_dtype(
    op: str, argument: str, text: str, operands: Sequence[torch.Tensor] | None, dtype: torch.dtype
) -> torch.dtype:
    """The dtype of a chain's result for an input of `dtype`, from the parser that the op itself asks.

    Raises:
        RuntimeError: the text is no chain, in the words of the op.
    """
    name = _chain_cast(op, argument, text, len(operands or ()))
    return getattr(torch, name) if name else dtype  # type: ignore[no-any-return]


def check_floating(op: str, argument: str, dtype: torch.dtype) -> None:
    """Raises what the op raises where `dtype` is none that it computes with."""
    if dtype not in FLOATING:
        raise RuntimeError(
            f"{op}: {argument} must have dtype float32, float16, bfloat16 or float64, got {dtype_name(dtype)}"
        )


def check_same_dtype(op: str, argument: str, tensor: torch.Tensor | None, dtype: torch.dtype, reason: str) -> None:
    """Raises what the op raises where a tensor that is given has another dtype than it must."""
    if tensor is not None and tensor.dtype != dtype:
        raise RuntimeError(
            f"{op}: {argument} must have dtype {dtype_name(dtype)} {reason}, got {dtype_name(tensor.dtype)}"
        )


def dtype_name(dtype: torch.dtype) -> str:
    """The name that the ops' messages give a dtype."""
    return str(dtype).removeprefix("torch.")


def is_channels_last(x: torch.Tensor, spatial: int = 1) -> bool:
    """Whether x counts as channels-last; its channels stand in front of the last `spatial` dimensions."""
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
    """An empty tensor of `shape` in x's layout: channels-last where x is, else contiguous."""
    if not is_channels_last(x, spatial):
        return x.new_empty(shape, dtype=dtype)
    channel = len(shape) - spatial - 1
    moved = (*shape[:channel], *shape[channel + 1 :], shape[channel])
    return x.new_empty(moved, dtype=dtype).movedim(-1, channel)


def is_dense(x: torch.Tensor) -> bool:
    """Whether some order of the dimensions is contiguous."""
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
    """An empty tensor of x's shape, with x's strides where it is dense, else contiguous."""
    if holds(x.numel() == 0) or not is_dense(x):
        return x.new_empty(x.shape, dtype=dtype)
    return torch.empty_strided(x.shape, x.stride(), dtype=dtype, device=x.device)


def holds(condition: bool | torch.SymBool) -> bool:
    """The condition; False where it depends on a size that is known at run time alone."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # loads sympy, which eager calls do without

    return guard_or_false(condition)
