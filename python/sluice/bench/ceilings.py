"""The device's upper limits, measured in the same run and by the same clock as the cases compared with them."""

from __future__ import annotations

import dataclasses
import statistics

import torch

from .timing import Call, Clock

# float32 FMA outside the tensor cores on an H200, measured once: no torch call reaches this rate, so a run cannot
# measure it again.
FMA_TFLOPS = 60.0

# Half types on its tensor cores, used if a run does not measure them.
MATMUL_TFLOPS = 780.0

# The time of a float32 product on tensor cores over a half type's. TF32 has half of the rate, and a product at full
# precision is a sum of three products of TF32.
TF32_TIME, SPLIT_TIME = 2, 6

_SAMPLES = 25


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """Measured rates of the device.

    Attributes:
        copy_tbps: a large copy on the device, read and write together, in TB/s.
        matmul_tflops: a matmul of square random matrices, in TFLOP/s: bfloat16 on a GPU, float32 on the CPU.
    """

    copy_tbps: float
    matmul_tflops: float


def copy_of(traffic: int, device: torch.device) -> Call:
    """A device copy that moves `traffic` bytes: half of them read, half of them written."""
    half = (traffic + 1) // 2
    source = torch.zeros(half, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def measure_ceilings(
    clock: Clock, device: torch.device, *, traffic: int | None = None, side: int | None = None
) -> Ceilings:
    """Measures the rates.

    Args:
        clock: takes the samples.
        device: where.
        traffic: bytes of the copy, read and write together; by default as many as are large for the device.
        side: rows and columns of the matrices; by default as many as are large for the device.
    """
    on_gpu = device.type == "cuda"
    traffic = traffic or (2**31 if on_gpu else 2**28)
    side = side or (8192 if on_gpu else 1024)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    # Random data: zeros toggle no wires, draw less power and so run at a higher clock than real work.
    a, b = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    copy_us = _median(clock, copy_of(traffic, device))
    matmul_us = _median(clock, lambda: a @ b)
    return Ceilings(traffic / copy_us / 1e6, 2 * side**3 / matmul_us / 1e6)


def _median(clock: Clock, call: Call) -> float:
    clock.measure(call, 4)
    return statistics.median(clock.measure(call, _SAMPLES))
