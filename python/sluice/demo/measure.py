"""Checks one result and times it: a row of the demo's table."""

from __future__ import annotations

import copy
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}

Compute = Callable[[], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Row:
    """One job in one dtype.

    Attributes:
        job: its name.
        dtype: the dtype that it computed in.
        shape: the input's.
        error: the result's relative L2 distance from torch's in float64; infinite for a wrong shape or dtype.
        tolerance: the largest error of a right result.
        ours: milliseconds of sluice.
        torch: milliseconds of native torch.
        device: where both ran.
    """

    job: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    error: float
    tolerance: float
    ours: float
    torch: float
    device: str

    @property
    def ok(self) -> bool:
        """Whether the result is right; a result with NaN is not."""
        return self.error <= self.tolerance

    @property
    def ratio(self) -> float:
        """How many times faster sluice is than torch."""
        return self.torch / self.ours

    @property
    def dtype_name(self) -> str:
        """The dtype's name without `torch.`."""
        return str(self.dtype).removeprefix("torch.")


def in_float64(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The output of a float64 copy of the model for x, computed by torch."""
    exact = copy.deepcopy(model).double()
    # cuDNN would search algorithms for a second to run a convolution in float64 once.
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        result: torch.Tensor = exact(x.double() if x.is_floating_point() else x)
    return result


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """`|result - expected| / |expected|` in float64, both norms L2; NaN if either has one."""
    if result.shape != expected.shape:
        return float("inf")
    return float((result.double() - expected).norm() / expected.norm())


def _milliseconds(compute: Compute, device: torch.device) -> float:
    if device.type == "cuda":
        event: Any = torch.cuda.Event  # some versions of torch have no types for it
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        compute()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))
    start = time.perf_counter()
    compute()
    return (time.perf_counter() - start) * 1e3


def measure(
    job: str,
    x: torch.Tensor,
    ours: Compute,
    native: Compute,
    expected: Compute,
    *,
    repeats: int,
    tolerance: float = 1.0,
) -> Row:
    """Runs, checks and times one job.

    Args:
        job: its name in the table.
        x: the input; the result must have its dtype.
        ours: the job with sluice.
        native: the job with torch, in x's dtype.
        expected: the job with torch, in float64.
        repeats: timed runs; the row has their medians.
        tolerance: the largest error allowed, in multiples of the dtype's tolerance.
    """
    result = ours()
    error = relative_error(result, expected()) if result.dtype == x.dtype else float("inf")
    del result
    for compute in (ours, native, ours, native):  # first calls allocate and pick algorithms
        compute()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):  # in turns, so that a change of clock or load affects both
        for compute, samples in zip((ours, native), times, strict=True):
            samples.append(_milliseconds(compute, x.device))
    return Row(
        job=job,
        dtype=x.dtype,
        shape=tuple(x.shape),
        error=error,
        tolerance=tolerance * TOLERANCE[x.dtype],
        ours=statistics.median(times[0]),
        torch=statistics.median(times[1]),
        device=torch.cuda.get_device_name(x.device) if x.device.type == "cuda" else "CPU",
    )
