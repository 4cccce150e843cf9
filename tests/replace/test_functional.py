"""sluice.replace beyond convolution modules: convolutions called as functions, and Snakes that stand alone."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

import sluice
from common import DTYPES, ROOT, assert_close
from sluice.pack import has_kernels

sys.path.append(str(ROOT / "benchmarks"))
parts = importlib.import_module("model_parts")


class Snake(nn.Module):
    """Snake as in transformers' DAC."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        shape = hidden_states.shape
        hidden_states = hidden_states.reshape(shape[0], shape[1], -1)
        hidden_states = hidden_states + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * hidden_states).pow(2)
        hidden_states = hidden_states.reshape(shape)
        return hidden_states  # noqa: RET504


class Smoothed(parts.Smoothed):
    """BigVGAN's filtered Snake: up by two, the activation, down by two, one filter for all channels."""

    def __init__(self) -> None:
        super().__init__(6)
        self.activation = Snake()


def calls(module: nn.Module, x: torch.Tensor) -> list[str]:
    """Sluice's ops that a call runs, in their order."""
    with torch.no_grad():
        module(x)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as recorded:
        module(x)
    found = [event.name.removeprefix("sluice::") for event in recorded.events() if event.name.startswith("sluice::")]
    return [name for name in found if not name.startswith("_")]


def replaced(module: nn.Module, device: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    """The module, and a replaced copy of it."""
    module = module.to(device, dtype).eval()
    return module, sluice.replace(copy.deepcopy(module)).model


# --- functions --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_smoothed(device: str, dtype: torch.dtype) -> None:
    module, ours = replaced(Smoothed(), device, dtype)
    assert calls(ours, torch.randn(2, 6, 20, device=device, dtype=dtype)) == ["conv_transpose1d", "conv1d"]
    with torch.no_grad():
        for shape in ((2, 6, 20), (1, 6, 7), (3, 6, 64)):
            x = torch.randn(shape, device=device, dtype=dtype)
            exact = copy.deepcopy(module).double()(x.double())
            assert_close(ours(x), exact, factor=40)
            assert ours(x).stride() == module(x).stride()


FORWARDS: list[tuple[Callable[..., Any], list[str]]] = [
    (lambda self, x: F.relu(F.conv1d(F.silu(x), self.wide, self.bias, 1, 1, 1, 6)), ["conv1d"]),
    (lambda self, x: F.conv1d(x, self.wide, padding="same", groups=6) + x, ["conv1d"]),
    (lambda self, x: torch.conv1d(x, self.wide, None, (2,), (1,), (1,), 6), ["conv1d"]),
    (lambda self, x: F.conv_transpose1d(x, self.wide, None, 2, 1, 1, groups=6).tanh(), ["conv_transpose1d"]),
    (lambda self, x: F.conv1d(x, self.dense), ["dense conv1d"]),
    (lambda self, x: F.conv1d(F.conv1d(x, self.wide, groups=x.shape[-2]), self.wide, groups=6), ["conv1d"]),
    (lambda self, x: F.conv1d(input=x, weight=self.wide, groups=6), ["conv1d"]),
    (
        lambda self, x: self.snake(torch.cumsum(F.conv1d(x, self.dense), -1).repeat(1, 2, 1)[:, :6]),
        ["dense conv1d", "transform"],
    ),
]


def made(forward: Callable[..., Any]) -> nn.Module:
    torch.manual_seed(3)
    module = type("Made", (nn.Module,), {"forward": forward})()
    module.wide = nn.Parameter(torch.randn(6, 1, 3))
    module.snake = Snake()
    module.dense, module.bias = nn.Parameter(torch.randn(4, 6, 3)), nn.Parameter(torch.randn(6))
    return module


@pytest.mark.parametrize("case", FORWARDS, ids=range(len(FORWARDS)))
def test_functions(case: tuple[Callable[..., Any], list[str]], device: str) -> None:
    forward, wanted = case
    module, ours = replaced(made(forward), device)
    x = torch.randn(2, 6, 17, device=device)
    if not has_kernels(x.device):  # then torch computes dense convolutions
        wanted = [name for name in wanted if not name.startswith("dense")]
    assert calls(ours, x) == [name.removeprefix("dense ") for name in wanted]
    with torch.no_grad():
        for given in (x, x[:1, :, :9], x[0]):
            torch.testing.assert_close(ours(given), module(given), rtol=1e-4, atol=1e-4)
            assert ours(given).stride() == module(given).stride()
        with torch.autocast(device, dtype=torch.bfloat16):
            assert ours(x).dtype == module(x).dtype
        with pytest.raises((RuntimeError, ValueError)):
            ours(x[:, :5])
    for one in (module, ours):
        one(x).square().sum().backward()
    gradients = [[p.grad for p in one.parameters() if p.grad is not None] for one in (module, ours)]
    assert len(gradients[0]) > 0
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_the_table_undo_and_only(device: str) -> None:
    module, x = Smoothed().to(device).eval(), torch.randn(2, 6, 20, device=device)
    with torch.no_grad():
        wanted = module(x)
        replacement = sluice.replace(module).trace(x)
        assert {(row.module, row.was, row.folded) for row in replacement.rows} == {
            ("up", "function", "post: scale(2.0)"), ("down", "function", "pre: snake($0,$0,1e-09)")
        }  # fmt: skip
        replacement.undo()
        assert torch.equal(module(x), wanted)
        assert sluice.replace(module, only=lambda name, part: False).trace(x).rows == []
        assert torch.equal(module(x), wanted)


class Both(nn.Module):
    """A convolution of its own with an activation, and one that is called as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.taps = nn.Conv1d(6, 6, 3, groups=6), nn.Parameter(torch.randn(6, 1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(F.relu(self.conv(x)), self.taps, groups=6)


def test_only_picks_modules_beside_functions(device: str) -> None:
    module = Both().to(device).eval()
    for picks, folded in ((True, "post: relu()"), (False, None)):
        ours = copy.deepcopy(module)
        replacement = sluice.replace(ours, only=lambda name, part, picks=picks: picks)
        with torch.no_grad():
            x = torch.randn(2, 6, 20, device=device)
            torch.testing.assert_close(ours(x), module(x), rtol=1e-4, atol=1e-4)
        assert [row.folded for row in replacement.rows if row.module == "conv" and row.folded] == [folded] * picks
