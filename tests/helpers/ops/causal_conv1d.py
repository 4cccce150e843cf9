"""The registry's row of causal_conv1d: batches, sequences, pages of a cache, and chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import sluice
from planned_calls import Call as PlannedCall
from planned_calls import meta, rows_of
from sluice import stages

from .cast import out_dtype, written
from .causal_chunks import causal_conv1d_chunk, chunk
from .row import Arguments, Call, Draw, Row, View, weights


def _batch(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    weight, states = weights(x, x.shape[1], 3).float(), weights(x, x.shape[0], x.shape[1], 2)
    return Call(torch.ops.sluice.causal_conv1d, (x, weight, None, "silu", states), {"post": chain})


def _final_states(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return Call(torch.ops.sluice.causal_conv1d_final_states, (x, 4), {})


def _refused(device: str) -> list[Call]:
    ops, x, w = torch.ops.sluice, torch.randn(2, 4, 6, device=device), torch.randn(4, 4, 3, device=device)
    integers, states, one = torch.ones_like(x, dtype=torch.int32), x[..., :2].clone(), ops.causal_conv1d_chunk
    return [
        Call(ops.causal_conv1d, (integers, w[:, 0]), {}),
        Call(ops.causal_conv1d, (x, integers[0]), {}),
        Call(ops.causal_conv1d, (x, w), {}),
        Call(ops.causal_conv1d, (x, w[:3, 0]), {}),
        Call(ops.causal_conv1d_final_states, (integers, 3), {}),
        Call(ops.causal_conv1d_final_states, (x[0], 3), {}),
        Call(one, (integers, states, w), {}),
        Call(one, (x, states.int(), w), {}),
        Call(one, (x, states, w.half()), {}),
        Call(one, (x, states, w, w[:, 0, 0].half()), {}),
        Call(one, (x[0], states, w), {}),
        Call(one, (x, states[:1], w), {}),
        Call(one, (x, states[..., :1], w), {}),
        Call(one, (x, states, w[:, :3]), {}),
        Call(one, (x, states, w), {"stride": 4}),
        Call(one, (x, states, w), {"cache_indices": x[:, 0, 0]}),
        Call(one, (x, states, w), {"has_initial_state": x[:, 0, 0]}),
        Call(one, (x, states, w), {"pre": "add($0)", "pre_operands": [x]}),
        Call(one, (x, states, w), {"packed": x}),
        Call(one, (x, states, w), {"precision": "bf16"}),
    ]


def causal_conv1d(draw: Draw) -> Arguments:
    x = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.any_tensor(3, 3))
    channels = x.shape[1] if x.dim() > 1 else 1
    width = draw.choice([0, 1, 3, 4])
    weight = draw.rarely(lambda: draw.any_tensor(0, 3), lambda: draw.tensor(channels, width))
    bias = draw.choice([None, None, draw.tensor(channels), draw.tensor(3)])
    fitting = draw.tensor(x.shape[0], channels, max(0, width - 1))
    states = draw.choice([None, None, fitting, draw.any_tensor(1, 4)])
    activation = draw.rarely(lambda: "gelu", lambda: draw.choice([None, "silu"]))
    return [x, weight, bias, activation, states], draw.options("post")


def _packed(draw: Draw) -> tuple[torch.Tensor, list[Any], dict[str, Any], int, int]:
    """x, then weight, bias and activation, the options of sequences, their number and the columns of their history."""
    form = draw.choice(["rows", "ids", "starts", "starts"])
    x = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.any_tensor(3, 3))
    if form == "starts" and x.dim() == 3:
        x = draw.rarely(lambda: x, lambda: x[:1] if x.shape[0] > 0 else draw.tensor(1, *x.shape[1:]))
    channels, length = x.shape[1] if x.dim() > 1 else 1, x.shape[2] if x.dim() > 2 else 1
    width = draw.rarely(lambda: 0, lambda: draw.choice([1, 2, 3, 4, 4]), 0.03)
    dilation = draw.rarely(lambda: draw.choice([0, -1, 2**31, 2**62]), lambda: draw.choice([1, 1, 1, 2]), 0.05)
    weight = draw.rarely(lambda: draw.any_tensor(0, 3), lambda: draw.tensor(channels, width))
    bias = draw.choice([None, None, draw.rarely(lambda: draw.tensor(3), lambda: draw.tensor(channels))])
    sequences, options = x.shape[0], draw.chains("pre", "post")
    if dilation != 1:
        options["dilation"] = dilation
    if form == "ids" or draw.random() < 0.03:
        options["seq_idx"] = draw.index(x.shape[0], length)
    if form == "starts":
        sequences = draw.choice([0, 1, 3])
        options["cu_seqlens"] = draw.index(sequences + 1)
    activation = draw.rarely(lambda: "gelu", lambda: draw.choice([None, "silu"]))
    return x, [weight, bias, activation], options, sequences, max(0, width - 1) * max(0, min(dilation, 9))


def causal_conv1d_sequences(draw: Draw) -> Arguments:
    x, others, options, sequences, history = _packed(draw)
    fitting = draw.tensor(sequences, x.shape[1] if x.dim() > 1 else 1, history)
    states = draw.choice([None, fitting, draw.rarely(lambda: draw.any_tensor(0, 4), lambda: fitting)])
    if draw.random() < 0.5 and options.get("dilation", 1) < 2**31:
        options["return_final_states"] = True
    return [x, *others, states], options


def causal_conv1d_paged(draw: Draw) -> Arguments:
    x, others, options, sequences, history = _packed(draw)
    slots = sequences + draw.rarely(lambda: 1, lambda: 0)
    if draw.random() < 0.5:
        slots, options["cache_indices"] = draw.choice([1, 2, 5]), draw.index(sequences + draw.choice([0, 0, 2]))
    if draw.random() < 0.3:
        right = draw.rarely(lambda: draw.choices([0, 1, 3], k=draw.randint(0, 2)), lambda: [sequences])
        options["has_initial_state"] = torch.zeros(right, dtype=draw.choice([torch.bool] * 9 + [torch.int32]))
    fitting = draw.tensor(slots, x.shape[1] if x.dim() > 1 else 1, history + draw.choice([-1, 0, 0, 1, 1]) % 99)
    return [x, draw.rarely(lambda: draw.any_tensor(0, 4), lambda: fitting), *others], options


def causal_conv1d_final_states(draw: Draw) -> Arguments:
    states = draw.choice([None, draw.any_tensor(3, 3)])
    return [draw.any_tensor(2, 4), draw.choice([-20, -1, 0, 1, 3]), states], {}


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    ops, w, dense = torch.ops.sluice, torch.ones(4, 3, device=device), torch.ones(6, 4, 3, device=device)

    def one(x: torch.Tensor) -> torch.Tensor:
        return ops.causal_conv1d_chunk(x, x.new_ones(x.shape[0], 4, 2), dense, pre="scale(3)", post="scale(3)")

    return {"causal_conv1d": lambda x: ops.causal_conv1d(x, w, post="scale(3)"), "causal_conv1d of a chunk": one}


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    ops, x, w = torch.ops.sluice, torch.randn(1, 4, 9, device=device), torch.randn(4, 3, device=device)
    dense, states = torch.randn(4, 4, 3, device=device), torch.zeros(1, 4, 2, device=device)
    return {
        "causal_conv1d's post": lambda t: ops.causal_conv1d(x, w, post="add($0)", post_operands=[t]),
        "a chunk's pre": lambda t: ops.causal_conv1d_chunk(x, states, dense, pre="add($0)", pre_operands=[t]),
        "a chunk's post": lambda t: ops.causal_conv1d_chunk(x, states, dense, post="add($0)", post_operands=[t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x, w, causal = torch.randn(2, 4, 10, device=device), torch.randn(4, 3, device=device), sluice.causal_conv1d
    dense, states = torch.randn(6, 4, 3, device=device), x[..., :2].clone()
    result = x.new_empty(2, 6, 10)
    return {
        "causal_conv1d": (torch.empty_like(x), lambda out: causal(x, w, out=out)),
        "final states": (x.new_empty(2, 4, 2), lambda out: causal(x, w, final_states_out=out)),
        "dense causal_conv1d": (result.clone(), lambda out: causal(x, dense, out=out)),
        "a chunk": (result.clone(), lambda out: causal(x, dense, state_cache=states.clone(), out=out)),
        "a chunk with initial states": (result, lambda out: causal(x, dense, initial_states=states, out=out)),
        "dense final states": (x.new_empty(2, 4, 2), lambda out: causal(x, dense, final_states_out=out)),
    }


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w, causal = torch.randn(2, 4, 10, device=device), torch.randn(4, 3, device=device), sluice.causal_conv1d
    dense = torch.randn(6, 4, 3, device=device)
    return {
        "causal_conv1d": lambda t: causal(t, w),
        "initial_states": lambda t: causal(x, w, initial_states=t[..., :2]),
        "residual": lambda t: causal(x, w, residual=t),
        "dense causal_conv1d": lambda t: causal(t, dense),
        "dense initial_states": lambda t: causal(x, dense, initial_states=t[..., :2]),
        "a chunk": lambda t: causal(t, dense, state_cache=x[..., :2].clone()),
        "state_cache": lambda t: causal(x, dense, state_cache=t),
        "a chunk's weight": lambda t: causal(x, t[:, :, :3], state_cache=x[..., :2].clone()),
    }


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x, w, causal = torch.randn(2, 6, 20, device=device), torch.randn(6, 3, device=device), sluice.causal_conv1d
    dense, states, own = torch.randn(5, 6, 3, device=device), x[..., :2].clone(), stages.cpp("x", reference=lambda x: x)
    return {
        "x": lambda t: causal(t, w),
        "causal weight": lambda t: causal(x, t, final_states_out=x[..., :2].clone(), out=torch.empty_like(x)),
        "causal bias": lambda t: causal(x, w, t),
        "states": lambda t: causal(x, w, initial_states=t),
        "residual": lambda t: causal(x, w, residual=t),
        "dense x": lambda t: causal(t, dense),
        "dense states": lambda t: causal(x, dense, initial_states=t),
        "dense final states": lambda t: causal(x, dense, final_states_out=t),
        "a chunk's x": lambda t: causal(t, dense, state_cache=states),
        "a chunk's weight": lambda t: causal(x, t, groups=6, state_cache=states),
        "a chunk's bias": lambda t: causal(x, dense, t, state_cache=states),
        "a chunk's cache": lambda t: causal(x, dense, state_cache=t),
        "a chunk's cache with an own stage": lambda t: causal(x, dense, state_cache=t, pre=own),
        "a chunk's out": lambda t: causal(x, dense, state_cache=states, post=own, out=t),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(4, 3, device=device), torch.randn(4, device=device)
    y, states, causal = torch.randn_like(x), torch.randn(2, 4, 2, device=device), sluice.causal_conv1d
    dense, gain = torch.randn(4, 4, 3, device=device), torch.randn(4, 1, device=device)

    def changed(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return causal(x, dense, b, state_cache=cache), cache

    return {
        "causal": lambda v: causal(v(x), v(w), v(b)),
        "residual": lambda v: causal(x, w, residual=v(y)),
        "states": lambda v: causal(x, w, initial_states=v(states), return_final_states=True),
        "dense causal": lambda v: causal(v(x), v(dense), v(b)),
        "dense states": lambda v: causal(x, dense, initial_states=v(states), return_final_states=True),
        "a chunk": lambda v: causal(v(x), v(dense), v(b), state_cache=states.clone()),
        "a chunk's cache": lambda v: changed(v(states)),
        "a chunk's chains": lambda v: causal(
            x, dense, state_cache=states.clone(), pre=stages.mul(v(gain)), residual=v(y), post=stages.add(v(gain))
        ),
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x, w = torch.randn(2, 4, 9, device=device), torch.randn(4, 3, device=device)
    dense, causal = torch.randn(4, 4, 3, device=device), sluice.causal_conv1d
    return {
        "causal_conv1d": lambda out: sluice.causal_conv1d(x, w, out=out),
        "final states": lambda out: sluice.causal_conv1d(
            torch.cat([x, x], 2), w.repeat(1, 4)[:, :10], return_final_states=True, final_states_out=out
        )[1],
        "dense causal_conv1d": lambda out: causal(x, dense, out=out),
        "dense final states": lambda out: causal(
            torch.cat([x, x], 2), dense.repeat(1, 1, 4)[..., :10], return_final_states=True, final_states_out=out
        )[1],
        "a chunk": lambda out: causal(x, dense, state_cache=x.new_ones(2, 4, 2), out=out),
    }


def _cast(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]]:
    ops, causal = torch.ops.sluice, sluice.causal_conv1d

    def states(x: torch.Tensor) -> torch.Tensor:
        return torch.ones(2, 4, 2, device=x.device)

    return {
        "causal_conv1d_chunk": (
            lambda x, w, b: ops.causal_conv1d_chunk(x, states(x), w, b, groups=4, pre="silu"),
            lambda x, w, b: causal(x, w, b, groups=4, state_cache=states(x), pre="silu"),
        ),
        "causal_conv1d_chunk_out": (
            lambda x, w, b: written(
                lambda *given, out: ops.causal_conv1d_chunk_out(*given, groups=4, out=out), x, states(x), w, b
            ),
            lambda x, w, b: causal(
                x, w, b, groups=4, state_cache=states(x), pre="", out=torch.empty_like(x, dtype=out_dtype(x))
            ),
        ),
        "dense causal_conv1d": (
            lambda x, w, b: ops.conv1d(x, w, b, 1, 2, 1, 4, padding_right=0),
            lambda x, w, b: causal(x, w, b, groups=4),
        ),
        "causal_conv1d": (
            lambda x, w, b: ops.causal_conv1d(x, w[:, 0], b, "silu"),
            lambda x, w, b: sluice.causal_conv1d(x, w[:, 0], b, activation="silu"),
        ),
        "causal_conv1d_out": (
            lambda x, w, b: written(ops.causal_conv1d_out, x, w[:, 0], b),
            lambda x, w, b: sluice.causal_conv1d(x, w[:, 0], b, out=torch.empty_like(x, dtype=out_dtype(x))),
        ),
    }


def _planned(dtype: torch.dtype) -> Iterator[PlannedCall]:
    for rows in rows_of(dtype):
        for taps in (1, 4, 15, 64, 255, 4000) if rows.dim() == 3 else ():
            yield "causal_conv1d", (rows, meta(512, taps, dtype=dtype)), {"activation": "silu"}
            yield "causal_conv1d", (rows, meta(512, 1, taps, dtype=dtype)), {"groups": 512, "stride": 2}


CAUSAL_CONV1D = Row(
    op="causal_conv1d",
    benchmark="bench_conv1d_depthwise.py",
    variants={
        "causal_conv1d": (3, _batch),
        "causal_conv1d final states": (3, _final_states),
        "causal_conv1d chunk": (3, chunk(lambda channels: 1, 3, 1)),
        "causal_conv1d chunk without states": (3, chunk(lambda channels: 1, 1, 1, pre="relu")),
        "causal_conv1d strided chunk": (
            3,
            chunk(lambda channels: 1 if channels % 2 else 2, 3, 2, pre="elu", padding_mode="replicate"),
        ),
        "causal_conv1d depthwise chunk": (3, chunk(lambda channels: channels, 4, 1, pre="relu")),
    },
    plain="causal_conv1d",
    broken_chains={"post": "silu||relu"},
    refused=_refused,
    drawn=(
        causal_conv1d,
        causal_conv1d_sequences,
        causal_conv1d_paged,
        causal_conv1d_final_states,
        causal_conv1d_chunk,
    ),
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
