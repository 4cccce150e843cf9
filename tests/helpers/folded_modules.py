"""Modules whose convolutions `sluice.replace` folds chains into, and what it says of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import sluice


class ResidualBlock(nn.Module):
    """HiFi-GAN's residual block; depthwise, because on the CPU torch's own kernels compute others."""

    def __init__(self, channels: int = 6, dilations: tuple[int, ...] = (1, 3)) -> None:
        super().__init__()
        self.slope = 0.1
        self.convs1 = nn.ModuleList([nn.Conv1d(channels, channels, 3, 1, d, d, channels) for d in dilations])
        self.convs2 = nn.ModuleList([nn.Conv1d(channels, channels, 3, 1, 1, 1, channels) for d in dilations])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.convs1, self.convs2, strict=True):
            residual = x
            x = F.leaky_relu(x, self.slope)
            x = first(x)
            x = F.leaky_relu(x, self.slope)
            x = second(x)
            x = x + residual
        return x


class Parent(nn.Module):
    """A module of convolutions whose forward is given: a function of the module and its arguments."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv, self.other = (nn.Conv1d(4, 4, 3, padding=1, groups=4) for _ in range(2))
        self.up, self.valid = nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=4), nn.Conv1d(4, 4, 3, groups=4)
        self.act, self.slope = nn.LeakyReLU(0.2), 0.1
        self.gain = nn.Parameter(torch.rand(4, 1) + 0.5)
        for name, value in attributes.items():
            setattr(self, name, value)


def parent(forward: Callable[..., Any], **attributes: Any) -> tuple[nn.Module, nn.Module, sluice.Replacement]:
    """A replaced module with that forward, its twin as it was, and the table."""
    made = type("Made", (Parent,), {"forward": forward})(**attributes).eval()
    twin = copy.deepcopy(made)
    return made, twin, sluice.replace(made)


def folded(replacement: sluice.Replacement) -> dict[str, str]:
    """The chains of convolutions, by name; of calls that were made."""
    return {row.module: row.folded for row in replacement.rows if row.folded}


def assert_twins(model: nn.Module, twin: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Equal results, and inputs that are equal afterwards."""
    ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with torch.no_grad():
        torch.testing.assert_close(model(*ours[0], **ours[1]), twin(*theirs[0], **theirs[1]))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def x_of(length: int = 12, **options: Any) -> torch.Tensor:
    return torch.randn(2, 4, length, **options)
