"""Suite `overhead`: what a call from Python costs on the host, beside torch's call for the same thing.

Tensors are tiny and warm, so that the GPU is never what limits. The floor of a row is the torch peer's time: no
number of bytes explains the cost of a call, and torch's is what users have. `floor_kind` has no name for that and
says "bytes". An efficiency of 1 means as cheap as torch; the targets are 0.5 for `transform` (one call replaces at
least two of torch's) and 1 for the convolutions.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from sluice.bench import DTYPES, Case, HostClock, Suite, Workload, fresh

_DTYPE = "bf16"
_ELEMENTS = 1024
_SHAPE = (1, 64, 64)
_TAPS = 4

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


def _make_conv1d(raw: bool, device: torch.device) -> Workload:
    channels = _SHAPE[1]
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


def _make_causal_conv1d(raw: bool, device: torch.device) -> Workload:
    channels = _SHAPE[1]
    x = fresh(*_SHAPE, dtype=_DTYPE, device=device)
    weight = fresh(channels, _TAPS, dtype=_DTYPE, device=device)
    torch_weight, pad = weight[:, None], _TAPS - 1

    def write(out: torch.Tensor) -> None:
        if raw:
            torch.ops.sluice.causal_conv1d_out(x, weight, None, "silu", out=out)
        else:
            sluice.causal_conv1d(x, weight, activation="silu", out=out)

    return Workload(
        ours=(
            (lambda: torch.ops.sluice.causal_conv1d(x, weight, None, "silu"))
            if raw
            else (lambda: sluice.causal_conv1d(x, weight, activation="silu"))
        ),
        write=write,
        reference=lambda: sluice.reference.causal_conv1d(x.double(), weight.double(), activation="silu")[0],
        plan=sluice.plan("causal_conv1d", x, weight),
        traffic=2 * x.nbytes + weight.nbytes,
        # The convolution alone: the slice and the SiLU that torch needs as well would flatter us.
        peers={"torch": lambda: F.conv1d(x, torch_weight, padding=pad, groups=channels)},
        floor_peer="torch",
    )


def _transform_case(text: str, raw: bool) -> Case:
    fn = _function("transform", raw)
    return Case(
        name=f"{fn} {text}",
        params={"n": _ELEMENTS, "dtype": _DTYPE, "op": text, "fn": fn},
        make=functools.partial(_make_transform, text, raw),
    )


def _conv_case(op: str, raw: bool) -> Case:
    batch, channels, length = _SHAPE
    fn = _function(op, raw)
    return Case(
        name=f"{fn} depthwise K={_TAPS}",
        params={
            "B": batch,
            "C": channels,
            "L": length,
            "K": _TAPS,
            "dtype": _DTYPE,
            "layout": "cf",
            "op": op,
            "fn": fn,
        },
        make=functools.partial(_make_conv1d if op == "conv1d" else _make_causal_conv1d, raw),
    )


def _function(op: str, raw: bool) -> str:
    return f"torch.ops.sluice.{op}" if raw else f"sluice.{op}"


SUITE = Suite(
    "overhead",
    [
        *(_transform_case(text, raw) for text in _CHAINS for raw in (False, True)),
        *(_conv_case(op, raw) for op in ("conv1d", "causal_conv1d") for raw in (False, True)),
    ],
    clock=HostClock,
)
