"""sluice.replace of modules that pad, convolve and trim: stages of their parents move through pads and trims."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice

MODES = ("constant", "reflect", "replicate")


class Padded(nn.Module):
    """Pads on the left, and on the right up to whole strides."""

    def __init__(self, mode: str = "constant", value: float = 0.0, trim: int = 0, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, stride=stride, groups=6)
        self.mode, self.value, self.trim, self.left = mode, value, trim, 2

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None = None) -> torch.Tensor:
        if cache is not None:
            return self.conv(torch.cat([cache, x], dim=2))
        stride = self.conv.stride[0]
        more = math.ceil(x.shape[-1] / stride) * stride - x.shape[-1]
        y = self.conv(F.pad(x, (self.left, more), self.mode, self.value))
        return y[..., self.trim :].contiguous() if self.trim else y


class Trimmed(nn.Module):
    """A transposed convolution without its ends."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(6, 6, 4, stride=2, groups=6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return y[..., 1 : y.shape[-1] - 1]


class Block(nn.Module):
    """An activation, a module, and what follows it."""

    def __init__(self, part: nn.Module, before: Callable[..., Any], behind: Callable[..., Any]) -> None:
        super().__init__()
        self.part, self.before, self.behind, self.cache = part, before, behind, None
        self.gain = nn.Parameter(torch.rand(6, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self, x, self.part(self.before(x)))


def relu_of(x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(x, 0.1)


def sigmoid_of(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x)


def nothing(block: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y


def scaled(block: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y) * block.gain


def residual(block: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + x


def summed(block: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y).sum(-1)


def doubled(block: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (y + torch.cat([x, x], dim=2)).sum(-1)


CASES: list[tuple[Callable[[], nn.Module], Callable[..., Any], Callable[..., Any], str]] = [
    *((lambda mode=mode: Padded(mode), relu_of, nothing, "pre: leaky_relu(0.1)") for mode in MODES),
    (Padded, sigmoid_of, nothing, ""),  # sigmoid(0) is not 0, but zeros are added
    *((lambda mode=mode: Padded(mode), sigmoid_of, nothing, "pre: sigmoid()") for mode in MODES[1:]),
    (lambda: Padded(value=1.0), relu_of, nothing, ""),
    (Padded, relu_of, residual, "pre: leaky_relu(0.1), post: add($0,1.0)"),
    (lambda: Padded(stride=3), relu_of, nothing, "pre: leaky_relu(0.1)"),
    (lambda: Padded(trim=1), relu_of, summed, "pre: leaky_relu(0.1), post: tanh()"),
    (lambda: Padded(trim=1), relu_of, scaled, "pre: leaky_relu(0.1)"),  # a result has torch's strides
    (Trimmed, sigmoid_of, summed, "pre: sigmoid(), post: tanh()"),
    (Trimmed, sigmoid_of, doubled, "pre: sigmoid()"),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_what_goes_through(case: tuple[Any, ...], device: str) -> None:
    part, before, behind, folded = case
    torch.manual_seed(7)
    module = Block(part(), before, behind).to(device).eval()
    replacement = sluice.replace(copy.deepcopy(module))
    for length in (11, 12, 30, 7):
        x = torch.randn(2, 6, length, device=device)
        with torch.no_grad():
            result, wanted = replacement.model(x), module(x)
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)
        assert result.stride() == wanted.stride()
    [row] = [row for row in replacement.rows if row.module == "part.conv"]
    assert row.folded == folded
