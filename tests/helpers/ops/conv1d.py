"""The registry's row of conv1d: dense, grouped and depthwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import sluice
from planned_calls import Call as PlannedCall
from planned_calls import meta, rows_of
from sluice import stages

from .cast import out_dtype, written
from .row import EXTENTS, Arguments, Call, Draw, Row, View, weights, with_post


def _padded(results: int, groups: Callable[[int], int]) -> Callable[..., Call]:
    """`results` outputs for each channel; padded by a tap more than the kernel reaches."""

    def make(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
        channels = x.shape[-2]
        parts = groups(channels)
        weight, bias = weights(x, results * channels, channels // parts, 3), weights(x, results * channels)
        return Call(torch.ops.sluice.conv1d, (x, weight, bias, 1, 2, 1, parts), with_post(chain, dtype))

    return make


def _unbatched(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return _padded(2, lambda channels: 1)(x[0] if len(x) else x.sum(0), chain, dtype)


def _filter_bank(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.conv1d, (x[:, :1], weights(x, 16, 1, 3), None, 1, 2), with_post(chain, dtype))


def _one_position(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.conv1d, (x, weights(x, 4, x.shape[1], x.shape[2])), with_post(chain, dtype))


def _refused(device: str) -> list[Call]:
    x, w = torch.randn(2, 4, 6, device=device), torch.randn(4, 4, 3, device=device)
    op = torch.ops.sluice.conv1d
    return [
        Call(op, (torch.ones_like(x, dtype=torch.int32), w), {}),
        Call(op, (x, w.half()), {}),
        Call(op, (x, w, w[:, 0, 0].half()), {}),
        Call(op, (x, w), {"dtype": torch.int64}),
        Call(op, (x, w[:, 0]), {}),
        Call(op, (x, w[:, :3]), {}),
        Call(op, (x, w, None, 1, 0, 1, 3), {}),
        Call(op, (x, w, None, 1, 0, 1, 0), {}),
        Call(op, (x, w[:3, :2], None, 1, 0, 1, 2), {}),
        *(
            Call(op, (x, w), {"packed": x[:1, :1, :1], "precision": precision, **options})
            for precision in ("ieee", "tf32", "bf16")
            for options in ({}, {"post": "no stage"})
        ),
        Call(op, (x, w), {"packed": x.half()}),
    ]


def conv1d(draw: Draw) -> Arguments:
    channels = draw.choice([0, 1, 2, 4])
    groups = draw.choice([1, 1, channels, channels, 2, 0, -1])
    taps = draw.choice([0, 1, 2, 3, 9])
    each = channels // groups if groups > 0 else 1
    batch = draw.rarely(list, lambda: [draw.choice(EXTENTS)], 0.2)
    x = draw.rarely(lambda: draw.any_tensor(1, 5), lambda: draw.tensor(*batch, channels, draw.choice(EXTENTS)))
    weight = draw.rarely(
        lambda: draw.any_tensor(1, 4), lambda: draw.tensor(draw.choice([0, 1, 2, 4, 4]), each, taps), 0.1
    )
    bias = draw.choice([None, None, draw.tensor(weight.shape[0]), draw.tensor(3)])
    stride, padding, dilation = (
        draw.choice([1, 1, 1, 2, 0, -1, 2**40]),
        draw.choice([0, 1, 3, 3, -1, 2**33]),
        draw.choice([1, 1, 1, 2, 0, 2**31]),
    )
    options = draw.options("pre", "post")
    if draw.random() < 0.2:
        options["padding_right"] = draw.choice([0, 1, -1, 2**31])
    if draw.random() < 0.1:
        options["dtype"] = draw.choice([torch.float16, torch.int64])
    if draw.random() < 0.05:
        options["precision"] = draw.choice(["ieee", "tf32", "bf16"])
    return [x, weight, bias, stride, padding, dilation, groups], options


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    ops, chain = torch.ops.sluice, "scale(3)"
    depthwise, dense = torch.ones(4, 1, 3, device=device), torch.ones(2, 4, 3, device=device)
    return {
        "conv1d": lambda x: ops.conv1d(x, depthwise, None, 1, 1, 1, 4, post=chain),
        "dense conv1d": lambda x: ops.conv1d(x, dense, None, 1, 1, pre=chain, post=chain),
    }


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w, op = torch.randn(1, 4, 9, device=device), torch.randn(4, 1, 3, device=device), torch.ops.sluice.conv1d
    return {
        "conv1d's pre": lambda t: op(x, w, None, 1, 1, 1, 4, pre="mul($0)", pre_operands=[t]),
        "conv1d's post": lambda t: op(x, w, None, 1, 1, 1, 4, post="mul($0)", post_operands=[t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x, w = torch.randn(2, 4, 10, device=device), torch.randn(4, 1, 3, device=device)
    dense = torch.randn(2, 4, 3, device=device)
    return {
        "conv1d": (x.new_empty(2, 4, 8), lambda out: sluice.conv1d(x, w, groups=4, out=out)),
        "dense conv1d": (x.new_empty(2, 2, 8), lambda out: sluice.conv1d(x, dense, out=out)),
        "unbatched conv1d": (x.new_empty(2, 8), lambda out: sluice.conv1d(x[0], dense, out=out)),
    }


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w = torch.randn(2, 4, 10, device=device), torch.randn(4, 1, 3, device=device)
    return {
        "conv1d": lambda t: sluice.conv1d(t, w, groups=4),
        "weight": lambda t: sluice.conv1d(x, t[0, :, None, :3], groups=4),
        "post": lambda t: sluice.conv1d(x, w, groups=4, padding=1, post=stages.mul(t)),
    }


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x, w = torch.randn(2, 6, 20, device=device), torch.randn(6, 1, 3, device=device)
    return {
        "input": lambda t: sluice.conv1d(t, w, groups=6),
        "weight": lambda t: sluice.conv1d(x, t, groups=6),
        "bias": lambda t: sluice.conv1d(x, w, t, groups=6),
        "conv1d's out": lambda t: sluice.conv1d(x, w, groups=6, padding=1, out=t),
        "post": lambda t: sluice.conv1d(x, w, groups=6, post=t),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(4, 1, 3, device=device), torch.randn(4, device=device)
    y, gain, dense = torch.randn_like(x), torch.randn(4, 1, device=device), torch.randn(3, 4, 2, device=device)
    conv = sluice.conv1d
    return {
        "input": lambda v: conv(v(x), w, b, groups=4),
        "weight": lambda v: conv(x, v(w), b, groups=4),
        "bias": lambda v: conv(x, w, v(b), groups=4),
        "pre": lambda v: conv(x, w, groups=4, pre=stages.mul(v(gain))),
        "post": lambda v: conv(x, w, groups=4, padding=1, post=stages.add(v(y))),
        "dense": lambda v: conv(v(x), v(dense), pre=stages.mul(v(gain)), post=stages.scale(v(b[0]))),
        "unbatched": lambda v: conv(v(x[0]), w, groups=4, post=stages.mul(v(gain))),
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x, w = torch.randn(2, 4, 9, device=device), torch.randn(4, 1, 3, device=device)
    return {"conv1d": lambda out: sluice.conv1d(x, w, groups=4, padding=1, out=out)}


def _cast(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]]:
    ops = torch.ops.sluice
    return {
        "conv1d": (
            lambda x, w, b: ops.conv1d(x, w, b, 1, 1, 1, 4, post="silu"),
            lambda x, w, b: sluice.conv1d(x, w, b, padding=1, groups=4, post=stages.silu()),
        ),
        "conv1d_out": (
            lambda x, w, b: written(ops.conv1d_out, x, w, b, 1, 1, 1, 4),
            lambda x, w, b: sluice.conv1d(x, w, b, padding=1, groups=4, out=torch.empty_like(x, dtype=out_dtype(x))),
        ),
    }


def _planned(dtype: torch.dtype) -> Iterator[PlannedCall]:
    for rows in rows_of(dtype):
        for taps in (1, 4, 15, 64, 255, 4000):
            yield "conv1d", (rows, meta(512, 1, taps, dtype=dtype)), {"groups": 512, "padding": taps - 1}


CONV1D = Row(
    op="conv1d",
    benchmark="bench_conv1d_dense.py",
    variants={
        "conv1d dense": (3, _padded(1, lambda channels: 1)),
        "conv1d grouped": (3, _padded(1, lambda channels: 1 if channels % 2 else 2)),
        "conv1d depthwise": (3, _padded(2, lambda channels: channels)),
        "conv1d unbatched": (3, _unbatched),
        "conv1d filter bank": (3, _filter_bank),
        "conv1d to one position": (3, _one_position),
    },
    plain="conv1d dense",
    broken_chains={"pre": "cast(int8)", "post": "add($1)"},
    refused=_refused,
    drawn=(conv1d,),
    raw=_raw,
    operands=_operands,
    written=_written,
    places=_places,
    arguments=_arguments,
    viewed=_viewed,
    viewed_outs=_viewed_outs,
    cast=_cast,
    planned=_planned,
)
