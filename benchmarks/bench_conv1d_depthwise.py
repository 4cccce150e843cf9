"""Suite `conv1d_depthwise`: causal depthwise convolution with SiLU, in both layouts.

Cases from other libraries are in `depthwise_cases`, states and sequences in `sequence_cases`.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

import sluice
from depthwise_cases import ISSUES, LAYERS, activations, package_call
from sequence_cases import SEQUENCES
from sluice.bench import DTYPES, Case, Suite, Workload, compiled, fresh


def _torch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The code that users write today. `weight` is (C, 1, K)."""
    channels, _, taps = weight.shape
    return F.silu(F.conv1d(x, weight, padding=taps - 1, groups=channels)[..., : x.shape[-1]])


def _make(
    shape: tuple[int, int, int],
    taps: int,
    dtype: str,
    layout: str,
    schedule: str,
    depth: int | None,
    device: torch.device,
) -> Workload:
    batch, channels, length = shape
    x = activations(shape, dtype, layout, device)
    # Scaled so that results have variance 1: SiLU is nonlinear there, and its error shows.
    weight = fresh(channels, taps, dtype=dtype, device=device) * taps**-0.5
    torch_weight = weight[:, None]

    def ours(out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.causal_conv1d(x, weight, activation="silu", schedule=schedule, depth=depth, out=out)

    peers = {
        "torch": lambda: _torch(x, torch_weight),
        "torch_compile": compiled(_torch, x, torch_weight),
        "causal_conv1d": package_call(x, weight, None, activation="silu"),
    }
    elements = batch * channels * length
    return Workload(
        ours=ours,
        write=ours,
        reference=lambda: sluice.reference.causal_conv1d(x.double(), weight.double(), activation="silu")[0],
        plan=sluice.plan("causal_conv1d", x, weight, schedule=schedule, depth=depth),
        traffic=(2 * elements + channels * taps) * DTYPES[dtype].itemsize,
        flops=2 * elements * taps,
        peers=peers if schedule == "auto" else {},  # a forced schedule's peers are in the row of "auto"
    )


def depthwise_case(
    shape: tuple[int, int, int],
    taps: int,
    dtype: str,
    layout: str,
    *,
    schedule: str = "auto",
    depth: int | None = None,
) -> Case:
    """`shape` is (B, C, L)."""
    batch, channels, length = shape
    name = f"{batch}x{channels}x{length} K={taps} {dtype} {layout}"
    return Case(
        name=name if schedule == "auto" else f"{name} {schedule}" + ("" if depth is None else f" {depth}"),
        params={
            "B": batch,
            "C": channels,
            "L": length,
            "K": taps,
            "dtype": dtype,
            "layout": layout,
            "op": "causal_conv1d",
            "fn": "silu",
        },
        make=functools.partial(_make, shape, taps, dtype, layout, schedule, depth),
        auto=schedule == "auto",
    )


_MAIN = (8, 5120, 2048)

SUITE = Suite(
    "conv1d_depthwise",
    [
        depthwise_case(_MAIN, 4, "bf16", "cf"),
        depthwise_case(_MAIN, 4, "bf16", "cl"),
        depthwise_case((2, 8192, 4096), 4, "bf16", "cf"),
        depthwise_case((2, 8192, 4096), 4, "bf16", "cl"),
        depthwise_case((1, 2304, 131072), 3, "bf16", "cf"),
        depthwise_case((1, 2304, 131072), 3, "bf16", "cl"),
        depthwise_case(_MAIN, 4, "fp16", "cf"),
        depthwise_case(_MAIN, 4, "fp16", "cl"),
        depthwise_case((8, 4096, 2048), 4, "fp32", "cf"),
        depthwise_case((8, 4096, 2048), 4, "fp32", "cl"),
        depthwise_case((16, 512, 1000), 7, "fp16", "cf"),
        depthwise_case((16, 512, 1000), 31, "fp16", "cf"),
        depthwise_case((8, 768, 8192), 128, "bf16", "cf"),
        depthwise_case((16, 2, 480000), 511, "fp32", "cf"),
        *ISSUES,
        *LAYERS,
        # References for sequences: the same bytes without states, and as batches of equal lengths.
        depthwise_case((1, 8192, 16384), 4, "bf16", "cf"),
        depthwise_case((1, 8192, 16384), 4, "bf16", "cl"),
        depthwise_case((32, 8192, 512), 4, "bf16", "cf"),
        depthwise_case((32, 8192, 512), 4, "bf16", "cl"),
        depthwise_case((1024, 8192, 16), 4, "bf16", "cf"),
        depthwise_case((1024, 8192, 16), 4, "bf16", "cl"),
        *SEQUENCES,
    ],
)
