"""What the rows of causal_conv1d and causal_conv_transpose1d have in common: raw calls of chunks with a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .row import EXTENTS, Arguments, Call, Draw, weights

Groups = Callable[[int], int]


def sums_like(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """Overlaps that are all 1, of the dtype that sums of x's dtype have."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return torch.ones(shape, dtype=dtype, device=x.device)


def chunk(groups: Groups, taps: int, stride: int, **numbers: Any) -> Callable[..., Call]:
    """Two outputs for each channel of causal_conv1d; a row is repeated as often as the stride wants."""

    def make(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
        x = x if stride == 1 else x.repeat(1, 1, stride)
        channels = x.shape[1]
        parts = groups(channels)
        weight, bias = weights(x, 2 * channels, channels // parts, taps), weights(x, 2 * channels)
        states = weights(x, x.shape[0], channels, _columns(stride, numbers.get("dilation", 1), taps))
        options = {"stride": stride, "groups": parts, "post": chain, **numbers}
        return Call(torch.ops.sluice.causal_conv1d_chunk, (x, states, weight, bias), options)

    return make


def transposed_chunk(groups: Groups, taps: int, stride: int, **numbers: Any) -> Callable[..., Call]:
    """Two outputs for each channel of causal_conv_transpose1d."""

    def make(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
        channels = x.shape[1]
        parts = groups(channels)
        weight, bias = weights(x, channels, 2 * channels // parts, taps), weights(x, 2 * channels)
        sums = sums_like(x, x.shape[0], 2 * channels, _columns(stride, numbers.get("dilation", 1), taps))
        options = {"stride": stride, "groups": parts, "post": chain, **numbers}
        return Call(torch.ops.sluice.causal_conv_transpose1d_chunk, (x, sums, weight, bias), options)

    return make


def _input(draw: Draw, stride: int) -> tuple[torch.Tensor, int, int]:
    """x, its channels and its positions, mostly a multiple of the stride."""
    step = draw.rarely(lambda: 1, lambda: stride if 0 < stride < 9 else 1, 0.05)
    fitting = draw.choice([1, 2, 2, *EXTENTS]), draw.choice([0, 1, 2, 4, 4, 4]), step * draw.choice([1, 2, *EXTENTS])
    x = draw.rarely(lambda: draw.any_tensor(0, 5), lambda: draw.tensor(*fitting), 0.05)
    return x, *(x.shape[d] if x.dim() > d else 1 for d in (1, 2))


def _numbers(draw: Draw, channels: int) -> tuple[int, int, int, int]:
    """Stride, groups, dilation and taps."""
    stride = draw.rarely(lambda: draw.choice([0, -1, 2**31, 2**40]), lambda: draw.choice([1, 1, 2, 3]), 0.05)
    groups = draw.rarely(lambda: draw.choice([0, -1, 3, 4]), lambda: draw.choice([1, 1, 2, max(1, channels)]), 0.05)
    dilation = draw.rarely(lambda: draw.choice([0, -1, 2**31, 2**62]), lambda: draw.choice([1, 1, 1, 2]), 0.05)
    taps = draw.rarely(lambda: 0, lambda: draw.choice([1, 2, 3, 4, 9]), 0.03)
    return stride, groups, dilation, taps


def _columns(stride: int, dilation: int, taps: int) -> int:
    """Columns of a state or of an overlap; a few for numbers that are refused."""
    return max(0, min(dilation * (taps - 1) + 1 - stride, 40))


def _slots(draw: Draw, rows: int) -> tuple[int, dict[str, Any]]:
    """The slots of a cache, and the options that name them."""
    slots, options = rows + draw.rarely(lambda: 1, lambda: 0, 0.05), dict[str, Any]()
    if draw.random() < 0.5:
        slots, options["cache_indices"] = draw.choice([1, 2, 5]), draw.index(rows + draw.choice([0, 0, 2]))
    if draw.random() < 0.3:
        right = draw.rarely(lambda: draw.choices([0, 1, 3], k=draw.randint(0, 2)), lambda: [rows])
        options["has_initial_state"] = torch.zeros(right, dtype=draw.choice([torch.bool] * 9 + [torch.int32]))
    for name, number in (("pad_slot_id", -2), ("null_slot_id", 0)):
        if draw.random() < 0.1:
            options[name] = number
    return slots, options


def _named(draw: Draw, options: dict[str, Any], weight: torch.Tensor, **numbers: int) -> dict[str, Any]:
    """The options with these numbers, mostly without a number that is 1, with chains and sometimes a precision."""
    given = {name: number for name, number in numbers.items() if number != 1 or draw.random() < 0.3}
    options = {**options, **given, **draw.chains("pre", "post")}
    if draw.random() < 0.05:
        options["precision"] = draw.choice(["ieee", "tf32", "bf16"])
    if draw.random() < 0.05 and weight.numel() > 0:
        options["packed"] = draw.any_tensor(1, 4)
    return options


def _bias(draw: Draw, outputs: int) -> torch.Tensor | None:
    return draw.choice([None, None, draw.rarely(lambda: draw.tensor(3), lambda: draw.tensor(outputs))])


def causal_conv1d_chunk(draw: Draw) -> Arguments:
    channels = draw.choice([1, 2, 4, 4])
    stride, groups, dilation, taps = _numbers(draw, channels)
    x, channels, _ = _input(draw, stride)
    parts = max(1, groups)
    fitting = draw.tensor(parts * draw.choice([1, 2, 2]), channels // parts, taps)
    weight = draw.rarely(lambda: draw.any_tensor(0, 4), lambda: fitting, 0.05)
    rows = x.shape[0] if x.dim() > 0 else 1
    slots, options = _slots(draw, rows)
    columns = _columns(stride, dilation, taps) + draw.choice([-1, 0, 0, 0, 1, 3]) % 99
    cache = draw.rarely(lambda: draw.any_tensor(0, 4), lambda: draw.tensor(slots, channels, columns), 0.05)
    options = _named(draw, options, weight, stride=stride, groups=groups, dilation=dilation)
    if draw.random() < 0.3:
        options["padding_mode"] = draw.choice(["zeros", "replicate", "reflect", "circular"])
    return [x, cache, weight, _bias(draw, weight.shape[0] if weight.dim() > 0 else 1)], options


def causal_conv_transpose1d_chunk(draw: Draw) -> Arguments:
    channels = draw.choice([1, 2, 4, 4])
    stride, groups, dilation, taps = _numbers(draw, channels)
    x, channels, _ = _input(draw, 1)
    weight = draw.rarely(
        lambda: draw.any_tensor(0, 4), lambda: draw.tensor(channels, draw.choice([0, 1, 2, 2, 4]), taps), 0.05
    )
    outputs = weight.shape[1] * max(1, groups) if weight.dim() > 1 else 1
    rows = x.shape[0] if x.dim() > 0 else 1
    slots, options = _slots(draw, rows)
    columns = _columns(stride, dilation, taps) + draw.choice([-1, 0, 0, 0, 1, 3]) % 99
    cache = draw.rarely(lambda: draw.any_tensor(0, 4), lambda: draw.tensor(slots, outputs, columns), 0.05)
    options = _named(draw, options, weight, stride=stride, groups=groups, dilation=dilation)
    return [x, cache, weight, _bias(draw, outputs)], options
