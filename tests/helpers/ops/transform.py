"""The registry's row of transform, with a chain and with a list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import sluice
from planned_calls import Call as PlannedCall
from planned_calls import rows_of
from sluice import stages

from .row import Arguments, Call, Draw, Row, View, weights

SILU = stages.silu()


def _one(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.transform, (x, chain), {} if dtype is None else {"dtype": dtype})


def _many(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    chains = ["relu", f"mul($0)|{chain}"]
    options = {} if dtype is None else {"dtype": dtype}
    return Call(torch.ops.sluice.transform_many, (x, chains, [weights(x, 1)]), options)


def _refused(device: str) -> list[Call]:
    ops, x = torch.ops.sluice, torch.randn(2, 4, 6, device=device)
    integers = torch.ones(2, 4, 6, device=device, dtype=torch.int32)
    return [
        Call(ops.transform, (integers, "silu"), {}),
        Call(ops.transform, (x, "silu"), {"dtype": torch.int64}),
        Call(ops.transform_many, (integers, ["silu"]), {}),
    ]


def transform(draw: Draw) -> Arguments:
    operands = draw.choice([[draw.any_tensor(0, 3)], None])
    return [draw.any_tensor(1, 4), draw.choice(["silu", "add($0)", "silu|cast(float8)"]), operands], draw.options()


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    return {"transform": lambda x: torch.ops.sluice.transform(x, "scale(3)")}


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, ops = torch.randn(1, 4, 9, device=device), torch.ops.sluice
    return {
        "transform": lambda t: ops.transform(x, "add($0)", [t]),
        "transform_many": lambda t: ops.transform_many(x, ["add($0)", "silu"], [t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x = torch.randn(2, 4, 10, device=device)
    return {
        "transform": (torch.empty_like(x), lambda out: sluice.transform(x, SILU, out=out)),
        "nothing": (x.new_empty(0), lambda out: sluice.transform(x[0, 0, :0], SILU, out=out)),
        "transform_many": (
            torch.empty_like(x),
            lambda out: sluice.transform(x, [SILU, SILU], out=[torch.empty_like(x), out]),
        ),
    }


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x = torch.randn(2, 4, 10, device=device)
    return {
        "transform": lambda t: sluice.transform(t, SILU),
        "operand": lambda t: sluice.transform(x, stages.add(t)),
        "many": lambda t: sluice.transform(x, [SILU, stages.add(t)]),
    }


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x = torch.randn(2, 6, 20, device=device)
    return {
        "transform": lambda t: sluice.transform(t, SILU),
        "many": lambda t: sluice.transform(t, [SILU, SILU]),
        "out": lambda t: sluice.transform(x, SILU, out=t),
        "outs": lambda t: sluice.transform(x, [SILU], out=[t]),
        "operand": lambda t: sluice.transform(x, stages.add(t)),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, y = torch.randn(2, 4, 9, device=device), torch.randn(2, 4, 9, device=device)
    gain, transform = torch.randn(4, 1, device=device), sluice.transform
    cpp = stages.cpp("x + a", a=y, reference=lambda x, a: x + a)
    return {
        "x": lambda v: transform(v(x), stages.scale(2.0) | stages.add(y)),
        "operand": lambda v: transform(x, stages.add(v(y))),
        "number": lambda v: transform(x, stages.scale(v(gain[0, 0]))),
        "operands": lambda v: transform(x, stages.mul(v(gain)) | stages.add(y) | stages.sub(v(y))),
        "operand of a list": lambda v: transform(x, [stages.add(v(y)), stages.mul(gain)]),
        "x of a list": lambda v: transform(v(x), [stages.add(v(y)), stages.mul(gain)]),
        "operand and cpp": lambda v: transform(x, stages.mul(v(gain)) | cpp) if device == "cpu" else x,
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x = torch.randn(2, 4, 9, device=device)
    many = [stages.add(x), stages.neg()]
    return {
        "transform": lambda out: sluice.transform(x, stages.add(x), out=out),
        "list": lambda out: sluice.transform(x, many, out=None if out is None else [torch.empty_like(x), out])[1],
        "cpp": lambda out: sluice.transform(
            x, stages.cpp("x + 1", reference=lambda x: x + 1) if device == "cpu" else stages.shift(1.0), out=out
        ),
    }


def _planned(dtype: torch.dtype) -> Iterator[PlannedCall]:
    for rows in rows_of(dtype):
        yield "transform", (rows, SILU), {}


TRANSFORM = Row(
    op="transform",
    benchmark="bench_transform.py",
    variants={"transform": (3, _one), "transform_many": (4, _many)},
    plain="transform",
    broken_chains={"chain": "sulu"},
    refused=_refused,
    drawn=(transform,),
    raw=_raw,
    operands=_operands,
    written=_written,
    places=_places,
    arguments=_arguments,
    viewed=_viewed,
    viewed_outs=_viewed_outs,
    planned=_planned,
)
