"""Dense convolutions with all of their numbers, for the tests of strides and of groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

import sluice
from common import contiguous, double_chain

Layout = Callable[[torch.Tensor], torch.Tensor]


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

    def make(self, device: str, dtype: torch.dtype, layout: Layout = contiguous) -> tuple[torch.Tensor, ...]:
        """Input, weight and bias; results have variance 1."""
        x = layout(torch.randn(self.shape, device=device, dtype=dtype))
        inputs = self.shape[1] // self.groups
        w = torch.randn(self.outputs, inputs, self.taps, device=device, dtype=dtype) / (inputs * self.taps) ** 0.5
        return x, w, torch.randn(self.outputs, device=device, dtype=dtype)

    def meta(self, last: bool = False) -> tuple[torch.Tensor, ...]:
        """The same without memory, the input (B, C, L) or channels-last."""
        batch, inputs, length = self.shape
        x = torch.empty(batch, length, inputs, dtype=torch.float16, device="meta").transpose(1, 2)
        w = x.new_empty(self.outputs, inputs // self.groups, self.taps)
        return x if last else x.contiguous(), w, x.new_empty(self.outputs)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return self.stride, self.padding, self.dilation, self.groups

    def expected(self, x, w, b, pre=None, post=None) -> torch.Tensor:
        """In float64, with `pre` rounded to the input's dtype as the op rounds it."""
        x = sluice.reference.transform(x, pre) if pre is not None else x
        chain = None if post is None else double_chain(post)
        arguments = (x.double(), w.double(), b.double(), *self.numbers)
        return sluice.reference.conv1d(*arguments, post=chain, dtype=torch.float64)
