"""The registry's row of conv_transpose1d: dense, grouped and depthwise."""

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


def _doubled(groups: Callable[[int], int], *numbers: int) -> Callable[..., Call]:
    """Two outputs for each channel; `numbers`: stride, padding and output padding."""

    def make(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
        channels = x.shape[-2]
        parts = groups(channels)
        weight, bias = weights(x, channels, 2 * channels // parts, 3), weights(x, 2 * channels)
        return Call(torch.ops.sluice.conv_transpose1d, (x, weight, bias, *numbers, parts), with_post(chain, dtype))

    return make


def _unbatched(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return _doubled(lambda channels: 1, 2, 1, 1)(x[0] if len(x) else x.sum(0), chain, dtype)


def _refused(device: str) -> list[Call]:
    x, w = torch.randn(2, 4, 6, device=device), torch.randn(4, 4, 3, device=device)
    op = torch.ops.sluice.conv_transpose1d
    return [
        Call(op, (torch.ones_like(x, dtype=torch.int32), w), {}),
        Call(op, (x, w.half()), {}),
        Call(op, (x, w, w[:, 0, 0].half()), {}),
        Call(op, (x, w), {"dtype": torch.int64}),
        Call(op, (x, w[:, 0]), {}),
        Call(op, (x, w[:3]), {}),
        Call(op, (x, w[:, :0]), {}),
        Call(op, (x, w, None, 1, 0, 1), {}),
        Call(op, (x, w, None, 1, 5), {}),
        Call(op, (x, w), {"padding_right": 9}),
        Call(op, (x, w), {"padding_right": -1}),
        Call(op, (x, w), {"padding_right": 2**31}),
        Call(op, (x, w, None, 1, 0, 0, 3), {}),
        *(
            Call(op, (x, w, None, stride), {"packed": packed, "precision": precision})
            for stride, packed in ((1, x[:1, :1, :1]), (3, x[:1, :1, :1]), (2, x.flatten()))
            for precision in ("ieee", "tf32")
        ),
        Call(op, (x, w), {"packed": x.half()}),
    ]


def conv_transpose1d(draw: Draw) -> Arguments:
    channels = draw.choice([0, 1, 2, 4, 4])
    groups = draw.choice([1, 1, max(1, channels), 2, 0, -1])
    batch = draw.rarely(list, lambda: [draw.choice(EXTENTS)], 0.2)
    x = draw.rarely(lambda: draw.any_tensor(1, 5), lambda: draw.tensor(*batch, channels, draw.choice(EXTENTS)))
    taps = draw.choice([0, 1, 2, 3, 3, 9])
    weight = draw.rarely(
        lambda: draw.any_tensor(1, 4), lambda: draw.tensor(channels, draw.choice([0, 1, 2, 4, 4]), taps), 0.1
    )
    outputs = weight.shape[1] * max(1, groups) if weight.dim() > 1 else 1
    bias = draw.choice([None, None, draw.tensor(outputs), draw.tensor(3)])
    numbers = (
        draw.choice([1, 1, 2, 2, 3, 0, -1, 2**40]),
        draw.choice([0, 0, 1, 1, 3, -1, 2**33]),
        draw.choice([0, 0, 0, 1, 2, -1]),
        groups,
        draw.choice([1, 1, 1, 2, 0, 2**31]),
    )
    options = draw.options("pre", "post")
    if draw.random() < 0.1:
        options["dtype"] = draw.choice([torch.float16, torch.int64])
    if draw.random() < 0.05:
        options["precision"] = draw.choice(["ieee", "tf32", "bf16"])
    if draw.random() < 0.3:
        options["padding_right"] = draw.rarely(lambda: draw.choice([-1, 2**33]), lambda: draw.choice([0, 0, 1, 2, 5]))
    return [x, weight, bias, *numbers], options


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    ops, w, chain = torch.ops.sluice, torch.ones(4, 1, 3, device=device), "scale(3)"
    return {
        "conv_transpose1d": lambda x: ops.conv_transpose1d(x, w, None, 2, 1, 0, 4, post=chain),
        "dense conv_transpose1d": lambda x: ops.conv_transpose1d(x, w, None, 2, pre=chain, post=chain),
    }


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w = torch.randn(1, 4, 9, device=device), torch.randn(4, 1, 3, device=device)
    op = torch.ops.sluice.conv_transpose1d
    return {
        "conv_transpose1d's pre": lambda t: op(x, w, None, 1, 1, 0, 4, pre="mul($0)", pre_operands=[t]),
        "conv_transpose1d's post": lambda t: op(x, w, None, 1, 1, 0, 4, post="mul($0)", post_operands=[t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x, w = torch.randn(2, 4, 10, device=device), torch.randn(4, 1, 3, device=device)
    return {
        "conv_transpose1d": (
            x.new_empty(2, 4, 21),
            lambda out: sluice.conv_transpose1d(x, w, None, 2, groups=4, out=out),
        ),
        "dense conv_transpose1d": (
            x.new_empty(2, 1, 21),
            lambda out: sluice.conv_transpose1d(x, w, None, 2, out=out),
        ),
    }


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w = torch.randn(2, 4, 10, device=device), torch.randn(4, 1, 3, device=device)
    return {
        "conv_transpose1d": lambda t: sluice.conv_transpose1d(t, w, None, 2),
        "transposed weight": lambda t: sluice.conv_transpose1d(x, t[0, :, None, :3], groups=4),
    }


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x, w = torch.randn(2, 6, 20, device=device), torch.randn(6, 1, 3, device=device)
    return {
        "transposed input": lambda t: sluice.conv_transpose1d(t, w, groups=6),
        "transposed weight": lambda t: sluice.conv_transpose1d(x, t, groups=6),
        "transposed bias": lambda t: sluice.conv_transpose1d(x, w, t, groups=6),
        "conv_transpose1d's out": lambda t: sluice.conv_transpose1d(x, w, groups=6, padding=1, out=t),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(4, 1, 3, device=device), torch.randn(4, device=device)
    gain = torch.randn(4, 1, device=device)
    return {
        "transposed": lambda v: sluice.conv_transpose1d(
            v(x), v(w), v(b), 2, groups=4, pre=stages.mul(v(gain)), post=stages.scale(v(b[0]))
        ),
        "dense and transposed": lambda v: sluice.conv_transpose1d(v(x), v(w[:, :, :2]), post=stages.add(v(b[0]))),
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x, w = torch.randn(2, 4, 9, device=device), torch.randn(4, 1, 3, device=device)
    return {"conv_transpose1d": lambda out: sluice.conv_transpose1d(x, w, groups=4, padding=1, out=out)}


def _cast(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]]:
    ops = torch.ops.sluice
    return {
        "conv_transpose1d": (
            lambda x, w, b: ops.conv_transpose1d(x, w, b, 1, 1, 0, 4, post="silu"),
            lambda x, w, b: sluice.conv_transpose1d(x, w, b, padding=1, groups=4, post=stages.silu()),
        ),
        "conv_transpose1d_out": (
            lambda x, w, b: written(ops.conv_transpose1d_out, x, w, b, 1, 1, 0, 4),
            lambda x, w, b: sluice.conv_transpose1d(
                x, w, b, padding=1, groups=4, out=torch.empty_like(x, dtype=out_dtype(x))
            ),
        ),
    }


def _planned(dtype: torch.dtype) -> Iterator[PlannedCall]:
    for rows in rows_of(dtype):
        for taps in (1, 4, 15, 64, 255, 4000):
            yield "conv_transpose1d", (rows, meta(512, 1, taps + 1, dtype=dtype)), {"groups": 512, "stride": 2}


CONV_TRANSPOSE1D = Row(
    op="conv_transpose1d",
    benchmark="bench_conv_transpose1d.py",
    variants={
        "conv_transpose1d dense": (3, _doubled(lambda channels: 1, 2, 1, 1)),
        "conv_transpose1d dense, stride 1": (3, _doubled(lambda channels: 1, 1, 1, 0)),
        "conv_transpose1d grouped": (3, _doubled(lambda channels: 1 if channels % 2 else 2, 3, 0, 0)),
        "conv_transpose1d depthwise": (3, _doubled(lambda channels: channels, 2, 1, 1)),
        "conv_transpose1d unbatched": (3, _unbatched),
    },
    plain="conv_transpose1d dense",
    broken_chains={"pre": "cast(int8)", "post": "add($1)"},
    refused=_refused,
    drawn=(conv_transpose1d,),
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
