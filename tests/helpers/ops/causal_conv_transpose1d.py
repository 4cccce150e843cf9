"""The registry's row of causal_conv_transpose1d: rows by conv_transpose1d, and chunks that change overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import sluice
from planned_calls import Call as PlannedCall
from planned_calls import meta, rows_of
from sluice import stages

from .cast import out_dtype, written
from .causal_chunks import causal_conv_transpose1d_chunk, sums_like, transposed_chunk
from .row import Call, Row, View


def _refused(device: str) -> list[Call]:
    op, x, w = torch.ops.sluice.causal_conv_transpose1d_chunk, torch.randn(2, 4, 6, device=device), torch.ones(4, 3, 3)
    w, sums = w.to(device), torch.zeros(2, 3, 2, device=device)
    return [
        Call(op, (torch.ones_like(x, dtype=torch.int32), sums, w), {}),
        Call(op, (x, sums.int(), w), {}),
        Call(op, (x, sums.half(), w), {}),
        Call(op, (x, sums.double(), w), {}),
        Call(op, (x, sums, w.half()), {}),
        Call(op, (x, sums, w, w[0, :, 0].half()), {}),
        Call(op, (x[0], sums, w), {}),
        Call(op, (x, sums[:1], w), {}),
        Call(op, (x, sums[..., :1], w), {}),
        Call(op, (x, sums, w[:3]), {}),
        Call(op, (x, sums, w), {"stride": 0}),
        Call(op, (x, sums, w), {"cache_indices": x[:, 0, 0]}),
        Call(op, (x, sums, w), {"has_initial_state": x[:, 0, 0]}),
        Call(op, (x, sums, w), {"packed": x}),
        Call(op, (x, sums, w), {"packed": x.flatten(), "stride": 2}),
        Call(op, (x, sums, w), {"precision": "bf16"}),
    ]


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    op, w = torch.ops.sluice.causal_conv_transpose1d_chunk, torch.ones(4, 3, 3, device=device)
    return {
        "causal_conv_transpose1d_chunk": lambda x: op(
            x, x.new_zeros(x.shape[0], 3, 2), w, pre="scale(3)", post="scale(3)"
        ),
    }


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w = torch.randn(1, 4, 9, device=device), torch.randn(4, 4, 3, device=device)
    op, sums = torch.ops.sluice.causal_conv_transpose1d_chunk, torch.zeros(1, 4, 2, device=device)
    return {
        "causal_conv_transpose1d's pre": lambda t: op(x, sums, w, pre="mul($0)", pre_operands=[t]),
        "causal_conv_transpose1d's post": lambda t: op(x, sums, w, post="mul($0)", post_operands=[t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x, w, upsample = torch.randn(2, 4, 10), torch.randn(4, 3, 4), sluice.causal_conv_transpose1d
    x, w = x.to(device), w.to(device)
    return {
        "causal_conv_transpose1d": (x.new_empty(2, 3, 20), lambda out: upsample(x, w, stride=2, out=out)),
        "causal_conv_transpose1d with a cache": (
            x.new_empty(2, 3, 20),
            lambda out: upsample(x, w, stride=2, overlap_cache=x.new_zeros(2, 3, 2), out=out),
        ),
    }


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w, upsample = torch.randn(2, 4, 10), torch.randn(4, 3, 12), sluice.causal_conv_transpose1d
    x, w = x.to(device), w.to(device)
    return {
        "causal_conv_transpose1d": lambda t: upsample(t, w, stride=2),
        "a chunk for causal_conv_transpose1d": lambda t: upsample(t, w, stride=2, overlap_cache=x.new_zeros(2, 3, 10)),
        "overlap_cache": lambda t: upsample(x, w.repeat(1, 2, 1)[:, :4], stride=2, overlap_cache=t),
        "causal_conv_transpose1d's weight": lambda t: upsample(x, t.mT[0, :4, None], stride=2, groups=4),
    }


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x, w, upsample = torch.randn(2, 6, 20), torch.randn(6, 5, 3), sluice.causal_conv_transpose1d
    x, w = x.to(device), w.to(device)
    sums, own = torch.zeros(2, 5, 2, device=device), stages.cpp("x", reference=lambda x: x)
    return {
        "causal_conv_transpose1d's x": lambda t: upsample(t, w, stride=1),
        "causal_conv_transpose1d's weight": lambda t: upsample(x, t, stride=1),
        "causal_conv_transpose1d's bias": lambda t: upsample(x, w, t, stride=1),
        "causal_conv_transpose1d's out": lambda t: upsample(x, w, stride=1, out=t),
        "a chunk's x, transposed": lambda t: upsample(t, w, stride=1, overlap_cache=sums, post=own),
        "a chunk's weight, transposed": lambda t: upsample(x, t, stride=1, overlap_cache=sums),
        "a chunk's bias, transposed": lambda t: upsample(x, w, t, stride=1, overlap_cache=sums),
        "a chunk's overlaps": lambda t: upsample(x, w, stride=1, overlap_cache=t),
        "a chunk's overlaps with an own stage": lambda t: upsample(x, w, stride=1, overlap_cache=t, pre=own),
        "a chunk's out, transposed": lambda t: upsample(x, w, stride=1, overlap_cache=sums, post=own, out=t),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(4, 3, 4, device=device), torch.randn(3, device=device)
    gain, sums, upsample = torch.randn(3, 1, device=device), torch.randn(2, 3, 2), sluice.causal_conv_transpose1d
    sums = sums.to(device)

    def changed(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return upsample(x, w, b, stride=2, overlap_cache=cache), cache

    return {
        "causal_conv_transpose1d": lambda v: upsample(v(x), v(w), v(b), stride=2, post=stages.mul(v(gain))),
        "a transposed chunk": lambda v: upsample(v(x), v(w), v(b), stride=2, overlap_cache=sums.clone()),
        "overlaps": lambda v: changed(v(sums)),
        "a transposed chunk's chains": lambda v: upsample(
            x, w, stride=2, overlap_cache=sums.clone(), pre=stages.mul(v(x)), post=stages.add(v(gain))
        ),
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x, w, upsample = torch.randn(2, 4, 9), torch.randn(4, 4, 3), sluice.causal_conv_transpose1d
    x, w = x.to(device), w.to(device)
    return {
        "causal_conv_transpose1d": lambda out: upsample(x, w, stride=1, out=out),
        "a transposed chunk": lambda out: upsample(x, w, stride=1, overlap_cache=x.new_ones(2, 4, 2), out=out),
    }


def _cast(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]]:
    ops, upsample = torch.ops.sluice, sluice.causal_conv_transpose1d

    def sums(x: torch.Tensor) -> torch.Tensor:
        return sums_like(x, 2, 4, 2)

    return {
        "causal_conv_transpose1d_chunk": (
            lambda x, w, b: ops.causal_conv_transpose1d_chunk(x, sums(x), w, b, groups=4, post="silu"),
            lambda x, w, b: upsample(x, w, b, stride=1, groups=4, overlap_cache=sums(x), post=stages.silu()),
        ),
        "causal_conv_transpose1d_chunk_out": (
            lambda x, w, b: written(
                lambda *given, out: ops.causal_conv_transpose1d_chunk_out(*given, groups=4, out=out), x, sums(x), w, b
            ),
            lambda x, w, b: upsample(
                x, w, b, stride=1, groups=4, overlap_cache=sums(x), out=torch.empty_like(x, dtype=out_dtype(x))
            ),
        ),
        "causal_conv_transpose1d": (
            lambda x, w, b: ops.conv_transpose1d(x, w, b, 1, 0, 0, 4, padding_right=2),
            lambda x, w, b: upsample(x, w, b, stride=1, groups=4),
        ),
    }


def _planned(dtype: torch.dtype) -> Iterator[PlannedCall]:
    for rows in rows_of(dtype):
        for taps in (1, 4, 15, 64, 255, 4000) if rows.dim() == 3 else ():
            weight = meta(512, 1, taps + 1, dtype=dtype)
            yield "causal_conv_transpose1d", (rows, weight), {"groups": 512, "stride": 2}


CAUSAL_CONV_TRANSPOSE1D = Row(
    op="causal_conv_transpose1d",
    benchmark="bench_codecs.py",
    bad_calls="causal_conv1d/test_chunk_errors.py",
    kernels="causal_conv1d",
    entry="causal_conv_transpose1d_chunk",
    results="test_chunks.py",
    variants={
        "causal_conv_transpose1d": (3, transposed_chunk(lambda channels: 1, 4, 2)),
        "causal_conv_transpose1d without overlaps": (3, transposed_chunk(lambda channels: 1, 1, 2)),
        "causal_conv_transpose1d grouped": (
            3,
            transposed_chunk(lambda channels: 1 if channels % 2 else 2, 3, 1, dilation=2, pre="relu"),
        ),
        "causal_conv_transpose1d depthwise": (3, transposed_chunk(lambda channels: channels, 4, 2)),
    },
    plain="causal_conv_transpose1d",
    broken_chains={"pre": "cast(int8)", "post": "add($1)"},
    refused=_refused,
    drawn=(causal_conv_transpose1d_chunk,),
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
