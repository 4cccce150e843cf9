"""Suite `overhead`: the host time of a call from Python, beside torch's call for the same result.

Tensors are tiny and warm, so the GPU is never the limit. The floor of a row is the torch peer's time, because a call's
cost does not follow from its bytes; `floor_kind` has no name for that and says "bytes". An efficiency of 1 means as
cheap as torch; the targets are 0.5 for `transform`, where one call replaces at least two of torch's, and 1 for the
convolutions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from sluice.bench import DTYPES, Case, HostClock, Suite, Workload, fresh
from sluice.compat import causal_conv1d as package

_DTYPE = "bf16"
_ELEMENTS = 1024
_SHAPE = (1, 64, 64)
_TAPS = 4
_SEQUENCES = 4  # sequences of an update
_PACKAGE = "sluice.compat.causal_conv1d.causal_conv1d_"  # in front of the functions' names

# One kernel serves every update: there is no choice of schedule, and `sluice.plan` has no plan for it.
_UPDATE_PLAN = sluice.Plan(schedule="direct", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="one kernel")

_CHAINS = {
    "silu(x)": stages.silu(),
    "silu(1.5*x + 0.25) * 0.7": stages.scale(1.5) | stages.shift(0.25) | stages.silu() | stages.scale(0.7),
}


def _make_transform(text: str, raw: bool, device: torch.device) -> Workload:
    x = fresh(_ELEMENTS, dtype=_DTYPE, device=device)
    chain = _CHAINS[text]
    program = chain.text
    return Workload(
        ours=(lambda: torch.ops.sluice.transform(x, program)) if raw else (lambda: sluice.transform(x, chain)),
        write=(
            (lambda out: torch.ops.sluice.transform_out(x, program, out=out))
            if raw
            else (lambda out: sluice.transform(x, chain, out=out))
        ),
        reference=lambda: sluice.reference.transform(x.double(), chain),
        plan=sluice.plan("transform", x, chain),
        traffic=2 * _ELEMENTS * DTYPES[_DTYPE].itemsize,
        peers={"torch": lambda: F.silu(x)},  # one call of torch's, for the chain of four too
        floor_peer="torch",
    )


def _make_conv1d(fn: str, device: torch.device) -> Workload:
    raw, channels = fn == "torch.ops.sluice.conv1d", _SHAPE[1]
    x = fresh(*_SHAPE, dtype=_DTYPE, device=device)
    weight = fresh(channels, 1, _TAPS, dtype=_DTYPE, device=device)
    pad = _TAPS - 1

    def write(out: torch.Tensor) -> None:
        if raw:
            torch.ops.sluice.conv1d_out(x, weight, None, 1, pad, 1, channels, out=out)
        else:
            sluice.conv1d(x, weight, padding=pad, groups=channels, out=out)

    return Workload(
        ours=(
            (lambda: torch.ops.sluice.conv1d(x, weight, None, 1, pad, 1, channels))
            if raw
            else (lambda: sluice.conv1d(x, weight, padding=pad, groups=channels))
        ),
        write=write,
        reference=lambda: sluice.reference.conv1d(x.double(), weight.double(), padding=pad, groups=channels),
        plan=sluice.plan("conv1d", x, weight, padding=pad, groups=channels),
        traffic=2 * x.nbytes + weight.nbytes,
        peers={"torch": lambda: F.conv1d(x, weight, padding=pad, groups=channels)},
        floor_peer="torch",
    )


def _make_causal_conv1d(fn: str, device: torch.device) -> Workload:
    channels = _SHAPE[1]
    x = fresh(*_SHAPE, dtype=_DTYPE, device=device)
    weight = fresh(channels, _TAPS, dtype=_DTYPE, device=device)
    torch_weight, pad = weight[:, None], _TAPS - 1
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "sluice.causal_conv1d": lambda: sluice.causal_conv1d(x, weight, activation="silu"),
        "torch.ops.sluice.causal_conv1d": lambda: torch.ops.sluice.causal_conv1d(x, weight, None, "silu"),
        _PACKAGE + "fn": lambda: package.causal_conv1d_fn(x, weight, None, activation="silu"),
    }
    writes: dict[str, Callable[[torch.Tensor], object]] = {
        "sluice.causal_conv1d": lambda out: sluice.causal_conv1d(x, weight, activation="silu", out=out),
        "torch.ops.sluice.causal_conv1d": lambda out: torch.ops.sluice.causal_conv1d_out(
            x, weight, None, "silu", out=out
        ),
        _PACKAGE + "fn": lambda out: out.copy_(calls[fn]()),  # it has no `out`
    }
    return Workload(
        ours=calls[fn],
        write=writes[fn],
        reference=lambda: sluice.reference.causal_conv1d(x.double(), weight.double(), activation="silu")[0],
        plan=sluice.plan("causal_conv1d", x, weight),
        traffic=2 * x.nbytes + weight.nbytes,
        # torch's convolution alone: with its slice and SiLU the comparison would favour sluice.
        peers={"torch": lambda: F.conv1d(x, torch_weight, padding=pad, groups=channels)},
        floor_peer="torch",
    )


def _make_update(fn: str, device: torch.device) -> Workload:
    """One token of each of a few sequences: the call of every layer for every generated token."""
    channels = _SHAPE[1]
    x = fresh(_SEQUENCES, channels, dtype=_DTYPE, device=device)
    weight = fresh(channels, _TAPS, dtype=_DTYPE, device=device)
    before = fresh(_SEQUENCES, channels, _TAPS - 1, dtype=_DTYPE, device=device)
    columns, torch_weight = torch.cat([before, x[..., None]], dim=-1), weight[:, None]

    def call_of(state: torch.Tensor) -> Callable[[], torch.Tensor]:
        calls: dict[str, Callable[[], torch.Tensor]] = {
            "sluice.causal_conv1d_update": lambda: sluice.causal_conv1d_update(x, state, weight, None, "silu"),
            "torch.ops.sluice.causal_conv1d_update": lambda: torch.ops.sluice.causal_conv1d_update(
                x, state, weight, None, "silu"
            ),
            _PACKAGE + "update": lambda: package.causal_conv1d_update(x, state, weight, None, "silu"),
        }
        return calls[fn]

    def reference() -> torch.Tensor:
        wide = x.double(), before.double(), weight.double()
        return sluice.reference.causal_conv1d_update(*wide, None, "silu")[0]

    return Workload(
        ours=call_of(before.clone()),
        write=lambda out: out.copy_(call_of(before.clone())()),
        reference=reference,
        plan=_UPDATE_PLAN,
        traffic=2 * (x.nbytes + before.nbytes) + weight.nbytes,
        # torch's convolution alone, on states and tokens that are already concatenated.
        peers={"torch": lambda: F.conv1d(columns, torch_weight, groups=channels)},
        floor_peer="torch",
    )


def _transform_case(text: str, raw: bool) -> Case:
    fn = _function("transform", raw)
    return Case(
        name=f"{fn} {text}",
        params={"n": _ELEMENTS, "dtype": _DTYPE, "op": text, "fn": fn},
        make=functools.partial(_make_transform, text, raw),
    )


def _conv_case(fn: str, make: Callable[[str, torch.device], Workload]) -> Case:
    batch, channels, length = (_SEQUENCES, _SHAPE[1], 1) if make is _make_update else _SHAPE
    return Case(
        name=f"{fn} depthwise K={_TAPS}",
        params={
            "B": batch,
            "C": channels,
            "L": length,
            "K": _TAPS,
            "dtype": _DTYPE,
            "layout": "cf",
            "op": _OPS[make],
            "fn": fn,
        },
        make=functools.partial(make, fn),
    )


def _function(op: str, raw: bool) -> str:
    return f"torch.ops.sluice.{op}" if raw else f"sluice.{op}"


_OPS = {_make_conv1d: "conv1d", _make_causal_conv1d: "causal_conv1d", _make_update: "causal_conv1d_update"}

SUITE = Suite(
    "overhead",
    [
        *(_transform_case(text, raw) for text in _CHAINS for raw in (False, True)),
        *(_conv_case(_function(op, raw), make) for make, op in _OPS.items() for raw in (False, True)),
        _conv_case(_PACKAGE + "fn", _make_causal_conv1d),
        _conv_case(_PACKAGE + "update", _make_update),
    ],
    clock=HostClock,
)
