"""The registry's row of causal_conv1d_update, which changes a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import sluice
from sluice import stages

from .cast import out_dtype, written
from .row import Arguments, Call, Draw, Row, View, weights


def _tokens(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    weight, state = weights(x, x.shape[1], 3).float(), weights(x, x.shape[0], x.shape[1], 4)
    return Call(torch.ops.sluice.causal_conv1d_update, (x, state, weight, None, "silu"), {"post": chain})


def _one_token(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    return _tokens(x[..., 0] if x.shape[2] > 0 else x.sum(2), chain, dtype)


def _packed_tokens(x: torch.Tensor, chain: str, dtype: torch.dtype | None) -> Call:
    op, (tokens, _, *others), options = _one_token(x, chain, dtype)
    starts = torch.zeros(3, dtype=torch.int64, device=x.device)
    return Call(op, (tokens, weights(x, 2, x.shape[1], 2), *others), {**options, "query_start_loc": starts})


def _refused(device: str) -> list[Call]:
    op, x, w = torch.ops.sluice.causal_conv1d_update, torch.randn(2, 4, 6, device=device), torch.ones(4, 3)
    w, integers = w.to(device), torch.ones_like(x, dtype=torch.int32)
    accepted = {"state_at": "front", "num_accepted_tokens": integers[:, 0, 0]}  # two rules are broken: the first counts
    return [
        Call(op, (integers, x, w), {}),
        Call(op, (x, integers, w), {}),
        Call(op, (x, x, integers[0]), {}),
        Call(op, (x, x.clone(), w), {"cache_seqlens": x[:, 0, 0]}),
        Call(op, (x, x[0], w), {}),
        Call(op, (x, x[:1], w), accepted),
    ]


def causal_conv1d_update(draw: Draw) -> Arguments:
    is_packed = draw.random() < 0.3
    x = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.any_tensor(2, 2 if is_packed else 3))
    channels, tokens = x.shape[1] if x.dim() > 1 else 1, x.shape[2] if x.dim() > 2 else 1
    width = draw.rarely(lambda: 0, lambda: draw.choice([1, 2, 3, 4, 4]), 0.03)
    dilation = draw.rarely(lambda: draw.choice([0, -1, 2**31]), lambda: draw.choice([1, 1, 1, 2]), 0.05)
    weight = draw.rarely(lambda: draw.any_tensor(0, 3), lambda: draw.tensor(channels, width))
    bias = draw.choice([None, None, draw.rarely(lambda: draw.tensor(3), lambda: draw.tensor(channels))])
    sequences, options = x.shape[0], draw.chains("pre", "post")

    if is_packed:
        sequences = draw.choice([0, 1, 3])
        options["query_start_loc"] = draw.index(sequences + 1)
    form = draw.choice(["end", "end", "circular", "front", "accepted", "accepted"])
    form = draw.rarely(lambda: "any", lambda: form, 0.05)
    if form in ("circular", "any"):
        options["cache_seqlens"] = draw.index(sequences)
    if form in ("front", "accepted"):
        options["state_at"] = draw.rarely(lambda: "back", lambda: "front", 0.05)
    if form in ("accepted", "any"):
        options["num_accepted_tokens"] = draw.index(sequences)
    slots = sequences
    if draw.random() < 0.3:
        options["conv_state_indices"] = draw.index(*draw.choice([(sequences,), (sequences,), (sequences, 2), (2, 2)]))
        slots = draw.choice([1, 2, 5])
    columns = draw.choice([0, 3, 6, 7, tokens + 2, tokens + 6])
    right = slots + draw.rarely(lambda: 1, lambda: 0)
    state = draw.rarely(lambda: draw.any_tensor(2, 4), lambda: draw.tensor(right, channels, columns))
    if dilation != 1:
        options["dilation"] = dilation
    activation = draw.rarely(lambda: "gelu", lambda: draw.choice([None, "silu"]))
    return [x, state, weight, bias, activation], options


def _raw(device: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    return {
        "causal_conv1d_update": lambda x: torch.ops.sluice.causal_conv1d_update(
            x, torch.ones(*x.shape[:2], 2, device=device), torch.ones(x.shape[1], 3, device=device), post="scale(3)"
        )
    }


def _operands(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w = torch.randn(1, 4, 9, device=device), torch.randn(4, 3, device=device)
    op, state = torch.ops.sluice.causal_conv1d_update, x[..., :2].clone()
    return {
        "causal_conv1d_update's pre": lambda t: op(x, state, w, pre="add($0)", pre_operands=[t]),
        "causal_conv1d_update's post": lambda t: op(x, state, w, post="add($0)", post_operands=[t]),
    }


def _written(device: str) -> dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], object]]]:
    x, w = torch.randn(2, 4, 10, device=device), torch.randn(4, 3, device=device)
    return {
        "causal_conv1d_update": (
            torch.empty_like(x),
            lambda out: sluice.causal_conv1d_update(x, x.new_zeros(2, 4, 2), w, out=out),
        )
    }


def _places(device: str) -> dict[str, Callable[[torch.Tensor], object]]:
    x, w, update = torch.randn(2, 4, 10, device=device), torch.randn(4, 3, device=device), sluice.causal_conv1d_update
    return {
        "causal_conv1d_update": lambda t: update(t, x[..., :2].clone(), w),
        "conv_state": lambda t: update(x[..., 0], t, w),
        "an update's residual": lambda t: update(x, x[..., :2].clone(), w, residual=t),
    }


def _arguments(device: str) -> dict[str, Callable[[Any], object]]:
    x, w, update = torch.randn(2, 6, 20, device=device), torch.randn(6, 3, device=device), sluice.causal_conv1d_update
    state, own = x[..., :2].clone(), stages.cpp("x", reference=lambda x: x)
    return {
        "an update's x": lambda t: update(t, state, w, pre=own),
        "an update's state": lambda t: update(x, t, w, pre=own),
        "an update's residual": lambda t: update(x, state, w, residual=t, post=own),
        "an update's out": lambda t: update(x, state, w, post=own, out=t),
    }


def _viewed(device: str) -> dict[str, Callable[[View], Any]]:
    x, w, b = torch.randn(2, 4, 9, device=device), torch.randn(4, 3, device=device), torch.randn(4, device=device)
    y, states, gain = torch.randn_like(x), torch.randn(2, 4, 2, device=device), torch.randn(4, 1, device=device)
    update = sluice.causal_conv1d_update

    def updated(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return update(x, state, w, b, "silu"), state

    return {
        "update": lambda v: update(v(x), states.clone(), v(w), v(b)),
        "conv_state": lambda v: updated(v(states)),
        "an update's chains": lambda v: update(
            x, states.clone(), w, pre=stages.mul(v(gain)), residual=v(y), post=stages.add(v(gain))
        ),
    }


def _viewed_outs(device: str) -> dict[str, Callable[[torch.Tensor | None], torch.Tensor]]:
    x, w = torch.randn(2, 4, 9, device=device), torch.randn(4, 3, device=device)
    return {"causal_conv1d_update": lambda out: sluice.causal_conv1d_update(x, x[..., :2].clone(), w, out=out)}


def _cast(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]]:
    ops = torch.ops.sluice
    return {
        "causal_conv1d_update": (
            lambda x, w, b: ops.causal_conv1d_update(x, torch.ones_like(x), w[:, 0], b, "silu"),
            lambda x, w, b: sluice.causal_conv1d_update(x, torch.ones_like(x), w[:, 0], b, "silu"),
        ),
        "causal_conv1d_update_out": (
            lambda x, w, b: written(ops.causal_conv1d_update_out, x, torch.ones_like(x), w[:, 0], b),
            lambda x, w, b: sluice.causal_conv1d_update(
                x, torch.ones_like(x), w[:, 0], b, out=torch.empty_like(x, dtype=out_dtype(x))
            ),
        ),
    }


CAUSAL_CONV1D_UPDATE = Row(
    op="causal_conv1d_update",
    benchmark="bench_decode.py",
    bad_calls="causal_conv1d_update/test_errors.py",
    kernels="causal_conv1d",
    variants={
        "causal_conv1d_update": (3, _tokens),
        "causal_conv1d_update of one token": (3, _one_token),
        "causal_conv1d_update of packed tokens": (3, _packed_tokens),
    },
    plain="causal_conv1d_update",
    broken_chains={"pre": "cast(int8)", "post": "silu||relu"},
    refused=_refused,
    drawn=(causal_conv1d_update,),
    raw=_raw,
    operands=_operands,
    written=_written,
    places=_places,
    arguments=_arguments,
    viewed=_viewed,
    viewed_outs=_viewed_outs,
    cast=_cast,
    planned=None,  # one kernel, no schedules
)
