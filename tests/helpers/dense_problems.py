"""Convolutions with all numeric arguments, and checks of dense convolutions with strides and with groups."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F

import sluice
from common import (
    LAYOUTS,
    Layout,
    assert_close,
    contiguous,
    ends_of_words,
    in_float64,
    offset_by_one,
    permuted,
    relative_error,
    sliced,
)
from convolution_tensors import convolution
from sluice import stages
from sluice.plan import H200

MOST_PRODUCTS_ON_A_CPU = 2e7
HAS_CODE = "90a" in sluice.info()["build"]
# Layouts of inputs of kernels on tensor cores.
LAYOUTS_AND_ENDS: list[Layout] = [*LAYOUTS, ends_of_words]


@dataclasses.dataclass(frozen=True)
class Problem:
    """F.conv1d's numbers."""

    shape: tuple[int, int, int]
    outputs: int
    taps: int
    stride: int
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    has_bias: bool = True

    def make(self, device: str, dtype: torch.dtype, layout: Layout = contiguous) -> tuple[Any, ...]:
        """Input, weight, and bias or None."""
        options = {"groups": self.groups, "device": device}
        x, w, b = convolution(self.shape, self.outputs, self.taps, dtype, layout, **options)
        return x, w, b if self.has_bias else None

    def meta(self, last: bool = False) -> tuple[torch.Tensor, ...]:
        """The same without memory, the input (B, C, L) or channels-last."""
        batch, inputs, length = self.shape
        x = torch.empty(batch, length, inputs, dtype=torch.float16, device="meta").transpose(1, 2)
        w = x.new_empty(self.outputs, inputs // self.groups, self.taps)
        return x if last else x.contiguous(), w, x.new_empty(self.outputs)

    def is_left_out(self, device: str) -> bool:
        """On a CPU torch computes all problems, and the small problems show what it is given."""
        products = math.prod(self.shape) * self.outputs // self.groups * self.taps // self.stride
        return device == "cpu" and products > MOST_PRODUCTS_ON_A_CPU

    @property
    def span(self) -> int:
        """Positions from the first tap to the last."""
        return (self.taps - 1) * self.dilation

    @property
    def results(self) -> tuple[int, int, int]:
        """The result's shape."""
        batch, _, length = self.shape
        return batch, self.outputs, (length + 2 * self.padding - self.span - 1) // self.stride + 1

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return self.stride, self.padding, self.dilation, self.groups

    def expected(self, x, w, b, pre=None, post=None) -> torch.Tensor:
        """The float64 result, with `pre` rounded to the input's dtype as the op rounds it."""
        return in_float64(sluice.reference.conv1d, x, w, b, *self.numbers, pre=pre, post=post)


def check_results(problem: Problem, device: str, dtype: torch.dtype, layout: Layout) -> None:
    """Compares with float64: the weight plain and packed, results in a new tensor and in every layout."""
    if problem.is_left_out(device):
        return
    x, w, b = problem.make(device, dtype, layout)
    wanted = problem.expected(x, w, b)
    if (
        device == "cpu"
        and dtype == torch.bfloat16
        and relative_error(F.conv1d(x, w, b, *problem.numbers), wanted) > 0.1
    ):
        return  # torch's own result is wrong: oneDNN, bfloat16 and few channels on a CPU with AMX
    assert_close(sluice.conv1d(x, w, b, *problem.numbers), wanted)
    # On a CPU torch computes it, and the result is copied.
    for other in (permuted, sliced) if device == "cpu" else (contiguous, permuted, sliced, offset_by_one):
        out = other(torch.empty(wanted.shape, device=device, dtype=dtype)).fill_(float("nan"))
        assert sluice.conv1d(x, sluice.pack(w), b, *problem.numbers, out=out) is out
        assert_close(out, wanted)


def check_results_with_chains(problem: Problem, device: str, dtype: torch.dtype, layout: Layout) -> None:
    """The same with chains: shift(0.5) shows whether padding is zero after `pre`, parameters by channel show groups."""
    if problem.is_left_out(device):
        return
    x, w, b = problem.make(device, dtype, layout)
    pre = stages.shift(0.5) | stages.snake(torch.rand(x.shape[1], 1, device=device) + 0.5) | stages.leaky_relu(0.1)
    plain = problem.expected(x, w, b, pre)
    residual = layout(torch.randn(plain.shape, device=device, dtype=dtype))
    scale = torch.randn(problem.outputs, 1, device=device)
    for post in (stages.gelu(), stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)):
        wanted = problem.expected(x, w, b, pre, post)
        result = sluice.conv1d(x, w, b, *problem.numbers, pre=pre, post=post)
        assert_close(result, wanted, factor=2)
        assert result.stride() == sluice.conv1d(x, w, b, *problem.numbers).stride()
    wide = sluice.conv1d(x, w, b, *problem.numbers, pre=pre, post=post, dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert_close(wide.to(dtype), wanted, factor=2)


def plan(problem: Problem, last: bool = False, **options: Any) -> sluice.Plan:
    """The plan for an H200, of tensors without memory."""
    x, w, b = problem.meta(last)
    return sluice.plan("conv1d", x, w, b, *problem.numbers, device=H200, **options)
