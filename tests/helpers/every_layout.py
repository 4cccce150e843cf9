"""Every op and every layout of its input, for the tests that compare what is promised with what is returned."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

SHAPES = {3: (2, 4, 6), 4: (2, 3, 5, 6)}
# Sides of one element and of none: of the batch, the channels and the positions.
DEGENERATE = {
    3: [(1, 4, 6), (2, 1, 6), (2, 4, 1), (1, 1, 1), (0, 4, 6), (2, 4, 0)],
    4: [(1, 3, 5, 6), (2, 1, 5, 6), (2, 3, 1, 6), (2, 3, 5, 1), (2, 3, 1, 1), (0, 3, 5, 6), (2, 3, 0, 6), (2, 3, 5, 0)],
}


def layouts(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """A float32 tensor of `shape` on the CPU in every layout, by name; place it by `laid_out_like`."""
    rank = len(shape)
    found: dict[str, torch.Tensor] = {}
    for order in itertools.permutations(range(rank)):
        back = [order.index(d) for d in range(rank)]
        found[f"dense {order}"] = torch.empty([shape[d] for d in order]).permute(back)
    wide = [size * 3 + 1 for size in shape]
    for d in range(rank):
        whole = torch.empty([*shape[:d], wide[d], *shape[d + 1 :]])
        found[f"sliced {d}"] = whole.narrow(d, 1, shape[d])
        found[f"stepped {d}"] = whole.movedim(d, -1)[..., 1::3].movedim(-1, d).narrow(d, 0, shape[d])
        found[f"expanded {d}"] = torch.empty([*shape[:d], 1, *shape[d + 1 :]]).expand(shape)
    # Channels-last, its rows of channels part of longer ones; and all of one element.
    longer = torch.empty([*shape[: 1 - rank], *shape[2:], shape[1] + 14])[..., 11 : 11 + shape[1]]
    found["part of channels-last"] = longer.movedim(-1, 1)
    found["one element"] = torch.empty(()).expand(shape)
    found["offset"] = torch.empty(max(1, torch.Size(shape).numel()) + 1)[1 : 1 + torch.Size(shape).numel()].view(shape)
    if 1 in shape:
        # Strides of dimensions of one element are free.
        strides = [stride if size != 1 else 99 for size, stride in zip(shape, torch.empty(shape).stride(), strict=True)]
        found["free strides"] = torch.empty(400).as_strided(shape, strides)
    return found


def laid_out_like(layout: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random numbers (a uint8's from 0 to 255) in the layout of a tensor that `layouts` made."""
    reach = 1 + sum(max(0, size - 1) * stride for size, stride in zip(layout.shape, layout.stride(), strict=True))
    storage = torch.randn(layout.storage_offset() + reach, device=device)
    storage = (storage * 50).abs().to(dtype) if dtype == torch.uint8 else storage.to(dtype)
    return storage.as_strided(layout.shape, layout.stride(), layout.storage_offset())


class Call(NamedTuple):
    op: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def run(call: Call) -> list[torch.Tensor]:
    op, arguments, options = call
    result = op(*arguments, **options)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _weights(x: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float32 if x.dtype == torch.uint8 else x.dtype, device=x.device)


def _transform(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.transform, (x, chain), {} if dtype is None else {"dtype": dtype})


def _transform_many(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    chains = ["relu", f"mul($0)|{chain}"]
    options = {} if dtype is None else {"dtype": dtype}
    return Call(torch.ops.sluice.transform_many, (x, chains, [_weights(x, 1)]), options)


def _conv1d(results: int, groups: Callable[[int], int]) -> Callable[..., Call]:
    """`results` outputs for each channel; padded by a tap more than the kernel reaches."""

    def make(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
        channels = x.shape[-2]
        parts = groups(channels)
        weight = _weights(x, results * channels, channels // parts, 3)
        options: dict[str, Any] = {"post": chain, **({} if dtype is None else {"dtype": dtype})}
        return Call(torch.ops.sluice.conv1d, (x, weight, _weights(x, results * channels), 1, 2, 1, parts), options)

    return make


def _unbatched(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return _conv1d(2, lambda channels: 1)(x[0] if len(x) else x.sum(0), chain, dtype)


def _filter_bank(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    options: dict[str, Any] = {"post": chain, **({} if dtype is None else {"dtype": dtype})}
    return Call(torch.ops.sluice.conv1d, (x[:, :1], _weights(x, 16, 1, 3), None, 1, 2), options)


def _one_position(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    options: dict[str, Any] = {"post": chain, **({} if dtype is None else {"dtype": dtype})}
    return Call(torch.ops.sluice.conv1d, (x, _weights(x, 4, x.shape[1], x.shape[2])), options)


def _transposed(groups: Callable[[int], int], *numbers: int) -> Callable[..., Call]:
    """Two outputs for each channel; `numbers`: stride, padding and output padding."""

    def make(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
        channels = x.shape[-2]
        parts = groups(channels)
        weight, bias = _weights(x, channels, 2 * channels // parts, 3), _weights(x, 2 * channels)
        options: dict[str, Any] = {"post": chain, **({} if dtype is None else {"dtype": dtype})}
        return Call(torch.ops.sluice.conv_transpose1d, (x, weight, bias, *numbers, parts), options)

    return make


def _unbatched_transposed(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return _transposed(lambda channels: 1, 2, 1, 1)(x[0] if len(x) else x.sum(0), chain, dtype)


def _causal_conv1d(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    weight, states = _weights(x, x.shape[1], 3).float(), _weights(x, x.shape[0], x.shape[1], 2)
    return Call(torch.ops.sluice.causal_conv1d, (x, weight, None, "silu", states), {"post": chain})


def _update(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    weight, state = _weights(x, x.shape[1], 3).float(), _weights(x, x.shape[0], x.shape[1], 4)
    return Call(torch.ops.sluice.causal_conv1d_update, (x, state, weight, None, "silu"), {"post": chain})


def _update_of_one_token(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return _update(x[..., 0] if x.shape[2] > 0 else x.sum(2), chain, dtype)


def _update_of_packed_tokens(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    op, (tokens, _, *others), options = _update_of_one_token(x, chain, dtype)
    starts = torch.zeros(3, dtype=torch.int64, device=x.device)
    return Call(op, (tokens, _weights(x, 2, x.shape[1], 2), *others), {**options, "query_start_loc": starts})


def _final_states(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.causal_conv1d_final_states, (x, 4), {})


def _filter2d(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    options: dict[str, Any] = {"post": chain, **({} if dtype is None else {"dtype": dtype})}
    return Call(torch.ops.sluice.filter2d, (x, _weights(x, x.shape[-3], 3, 2)), options)


def _separable(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    options: dict[str, Any] = {"post": chain, **({} if dtype is None else {"dtype": dtype})}
    options |= {"row_kernel": _weights(x, 1)}
    padding = None if 0 in x.shape else [2, 1]
    return Call(torch.ops.sluice.filter2d, (x, _weights(x, 3), None, padding), options)


# Name -> (rank of the input, what makes the call from an input, a chain and a dtype).
OPS: dict[str, tuple[int, Callable[..., Call]]] = {
    "transform": (3, _transform),
    "transform_many": (4, _transform_many),
    "conv1d dense": (3, _conv1d(1, lambda channels: 1)),
    "conv1d grouped": (3, _conv1d(1, lambda channels: 1 if channels % 2 else 2)),
    "conv1d depthwise": (3, _conv1d(2, lambda channels: channels)),
    "conv1d unbatched": (3, _unbatched),
    "conv1d filter bank": (3, _filter_bank),
    "conv1d to one position": (3, _one_position),
    "conv_transpose1d dense": (3, _transposed(lambda channels: 1, 2, 1, 1)),
    "conv_transpose1d dense, stride 1": (3, _transposed(lambda channels: 1, 1, 1, 0)),
    "conv_transpose1d grouped": (3, _transposed(lambda channels: 1 if channels % 2 else 2, 3, 0, 0)),
    "conv_transpose1d depthwise": (3, _transposed(lambda channels: channels, 2, 1, 1)),
    "conv_transpose1d unbatched": (3, _unbatched_transposed),
    "causal_conv1d": (3, _causal_conv1d),
    "causal_conv1d final states": (3, _final_states),
    "causal_conv1d_update": (3, _update),
    "causal_conv1d_update of one token": (3, _update_of_one_token),
    "causal_conv1d_update of packed tokens": (3, _update_of_packed_tokens),
    "filter2d": (4, _filter2d),
    "filter2d separable": (4, _separable),
}
