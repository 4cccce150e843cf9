"""Exact sums of conv1d's methods, and the errors of results."""

from __future__ import annotations

import torch

from common import error_of_sums, relative_error
from dense_problems import Problem
from fourier_problems import exact


def transformed_sums(problem: Problem, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """The sums of a depthwise convolution with thousands of taps."""
    return exact(x, w, b, problem.padding)


def error_of_results(result: torch.Tensor, wanted: torch.Tensor, *operands: object) -> float:
    return relative_error(result, wanted)


def error_of_one_tap_after_another(
    result: torch.Tensor, wanted: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *numbers: int
) -> float:
    """What rounding adds up to grows with the root of the taps' number; float32 shows it."""
    growth = max(1.0, (w.shape[2] / 128) ** 0.5) if x.dtype == torch.float32 else 1.0
    return error_of_sums(result, wanted, x, w, *numbers) / growth
