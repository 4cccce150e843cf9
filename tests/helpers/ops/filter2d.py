"""The registry's row of filter2d, with a kernel and with a column and a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import sluice
from common import DTYPES
from planned_calls import Call as PlannedCall
from planned_calls import meta
from sluice import stages

from .row import Arguments, Call, Draw, Row, View, weights, with_post


def _kernel(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.filter2d, (x, weights(x, x.shape[-3], 3, 2)), with_post(chain, dtype))


def _separable(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    padding = None if 0 in x.shape else [2, 1]
    options = with_post(chain, dtype, row_kernel=weights(x, 1))
    return Call(torch.ops.sluice.filter2d, (x, weights(x, 3), None, padding), options)


def _refused(device: str) -> list[Call]:
    image, op = torch.randn(2, 4, 5, 6, device=device), torch.ops.sluice.filter2d
    taps, row = torch.ones(3, 3, device=device), torch.ones(3, device=device)
    return [
        Call(op, (image.int(), taps), {}),
        Call(op, (image, taps.half()), {}),
        Call(op, (image.to(torch.uint8), taps.half()), {}),
        Call(op, (image, row), {"row_kernel": row.half()}),
        Call(op, (image, taps), {"dtype": torch.int64}),
        Call(op, (image, row), {}),
        Call(op, (image, taps.expand(3, 3, 3)), {}),
        Call(op, (image, row), {"row_kernel": row.expand(4, 3)}),
    ]


def filter2d(draw: Draw) -> Arguments:
    image = draw.rarely(lambda: draw.any_tensor(1, 1), lambda: draw.any_tensor(2, 4))
    channels = [image.shape[-3]] if image.dim() > 2 and draw.random() < 0.4 else []
    size = draw.choice([0, 1, 1, 3, 3, 5])
    options = draw.options("pre", "post")
    if draw.random() < 0.3:
        kernel = draw.tensor(*channels, size)
        options["row_kernel"] = draw.rarely(lambda: draw.any_tensor(1, 3), lambda: draw.tensor(*channels, 3))
    else:
        kernel = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.tensor(*channels, size, 3))
    bias = draw.choice([None, None, None, draw.tensor(1), draw.tensor(3)])
    if draw.random() < 0.4:
        options["stride"] = draw.choice([[1, 1], [2, 1], [1, 3], [0, 1], [2], [1, 2**31]])
        options["dilation"] = draw.choice([[1, 1], [1, 1], [2, 1], [1, -1], [1, 1, 1]])
        options["padding_mode"] = draw.choice(["zeros", "replicate", "reflect", "circular", "edge"])
    return [image, kernel, bias, draw.choice([None, None, [0, 0], [1, 1], [3], [0, -1], [2**31, 0]])], options


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    kernel = torch.ones(3, 3, device=device)
    return {"filter2d": lambda x: torch.ops.sluice.filter2d(x, kernel, post="scale(3)")}


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w, op = torch.randn(1, 4, 9, device=device), torch.randn(1, 3, device=device), torch.ops.sluice.filter2d
    return {
        "filter2d's pre": lambda t: op(x, w, pre="add($0)", pre_operands=[t]),
        "filter2d's post": lambda t: op(x, w, post="add($0)", post_operands=[t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x, kernel = torch.randn(2, 4, 10, device=device), torch.randn(1, 3, device=device)
    return {"filter2d": (torch.empty_like(x), lambda out: sluice.filter2d(x, kernel, out=out))}


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    kernel = torch.randn(4, 3, device=device)
    return {"filter2d": lambda t: sluice.filter2d(t, kernel)}


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x, w = torch.randn(2, 6, 20, device=device), torch.randn(1, 3, device=device)
    return {
        "image": lambda t: sluice.filter2d(t, w),
        "kernel": lambda t: sluice.filter2d(x, t),
        "row": lambda t: sluice.filter2d(x, (w[0], t)),
        "image's bias": lambda t: sluice.filter2d(x, w, t),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(1, 3, device=device), torch.randn(1, device=device)
    y, gain, taps = torch.randn_like(x), torch.randn(4, 1, device=device), torch.randn(3, device=device)
    stencil = sluice.filter2d
    return {
        "image": lambda v: stencil(v(x), w[:, :2]),
        "separable": lambda v: stencil(x, (v(taps), v(taps)), v(b)),
        "stencil's chains": lambda v: stencil(x, w, pre=stages.mul(v(gain)), post=stages.add(v(y))),
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x, w = torch.randn(2, 4, 9, device=device), torch.randn(1, 3, device=device)
    return {"filter2d": lambda out: sluice.filter2d(x, w, out=out)}


def _planned(dtype: torch.dtype) -> Iterator[PlannedCall]:
    image = meta(64, 3, 1080, 1920, dtype=dtype)
    pixels = meta(64, 1080, 1920, 3, dtype=dtype).movedim(-1, -3)
    for size in (3, 5, 11, 31, 200):
        kernel = meta(3, size, size, dtype=dtype)
        for frames in (image, pixels):
            yield "filter2d", (frames, kernel), {}
            yield "filter2d", (frames, (kernel[:, 0], kernel[:, 0])), {"post": stages.silu()}


FILTER2D = Row(
    op="filter2d",
    benchmark="bench_filter2d.py",
    variants={"filter2d": (4, _kernel), "filter2d separable": (4, _separable)},
    plain="filter2d",
    dtypes=[*DTYPES, torch.uint8],
    broken_chains={"pre": "relu|", "post": "clamp(a)"},
    refused=_refused,
    drawn=(filter2d,),
    raw=_raw,
    operands=_operands,
    written=_written,
    places=_places,
    arguments=_arguments,
    viewed=_viewed,
    viewed_outs=_viewed_outs,
    planned=_planned,
)
