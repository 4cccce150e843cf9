"""sluice.replace beyond convolution modules: convolutions called as functions, and Snakes alone."""

from __future__ import annotations

import copy
import importlib
import pickle
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
    assert calls(ours, torch.randn(2, 6, 20, device=device, dtype=dtype)) == ["conv_transpose1d", "transform", "conv1d"]
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
    (lambda self, x: F.conv1d(x, self.dense), []),  # torch's, on the CPU and in float32
    (lambda self, x: F.conv1d(F.conv1d(x, self.wide, groups=x.shape[-2]), self.wide, groups=6), ["conv1d", "conv1d"]),
    (lambda self, x: F.conv1d(input=x, weight=self.wide, groups=6), []),
]


def made(forward: Callable[..., Any]) -> nn.Module:
    torch.manual_seed(3)
    module = type("Made", (nn.Module,), {"forward": forward})()
    module.wide = nn.Parameter(torch.randn(6, 1, 3))
    module.dense, module.bias = nn.Parameter(torch.randn(4, 6, 3)), nn.Parameter(torch.randn(6))
    return module


@pytest.mark.parametrize("case", FORWARDS, ids=range(len(FORWARDS)))
def test_functions(case: tuple[Callable[..., Any], list[str]], device: str) -> None:
    forward, wanted = case
    module, ours = replaced(made(forward), device)
    x = torch.randn(2, 6, 17, device=device)
    assert calls(ours, x) == wanted
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
    module, x = Smoothed().to(device), torch.randn(2, 6, 20, device=device)
    with torch.no_grad():
        wanted = module(x)
        replacement = sluice.replace(module)
        shown = {row.module: (row.now, row.folded) for row in replacement.rows}
        assert shown == {
            "": ("Smoothed, folded", "conv_transpose1d, post: scale(2); conv1d"),
            "activation": ("Snake, one pass", ""),
        }
        replacement.undo()
        assert (type(module), type(module.activation)) == (Smoothed, Snake)
        assert torch.equal(module(x), wanted)
        sluice.replace(module, only=lambda name, part: False)
        assert (type(module), type(module.activation)) == (Smoothed, Snake)


class Both(nn.Module):
    """A convolution of its own with an activation, and one that is called as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.taps = nn.Conv1d(6, 6, 3, groups=6), nn.Parameter(torch.randn(6, 1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(F.relu(self.conv(x)), self.taps, groups=6)


def test_only_picks_modules_beside_functions(device: str) -> None:
    module = Both().to(device)
    for picks, folded in ((True, "post: relu()"), (False, None)):
        ours = copy.deepcopy(module)
        replacement = sluice.replace(ours, only=lambda name, part, picks=picks: picks)
        assert [row.folded for row in replacement.rows if row.module == "conv" and row.folded] == [folded] * picks
        with torch.no_grad():
            x = torch.randn(2, 6, 20, device=device)
            torch.testing.assert_close(ours(x), module(x), rtol=1e-4, atol=1e-4)


# --- Snakes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_snake_is_one_pass(device: str, dtype: torch.dtype) -> None:
    module, ours = replaced(nn.Sequential(Snake(), nn.Flatten(1)), device, dtype)
    x = torch.randn(2, 6, 30, device=device, dtype=dtype)
    assert calls(ours, x) == ["transform"]
    with torch.no_grad():
        for given in (x, x.transpose(1, 2).contiguous().transpose(1, 2), x[..., :0]):
            assert_close(ours(given), copy.deepcopy(module).double()(given.double()), factor=10)
            assert ours[0](given).stride() == module[0](given).stride()
        for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            again[0].alpha.mul_(2)
            module[0].alpha.mul_(2)
            assert_close(again(x), copy.deepcopy(module).double()(x.double()), factor=10)
            module[0].alpha.div_(2)


def test_calls_that_are_not_one_pass(device: str) -> None:
    module, ours = replaced(nn.Sequential(Snake()), device)
    x = torch.randn(2, 6, 30, device=device)
    for given in (x.double(), torch.randn(2, 6, 5, 5, device=device)):
        assert calls(ours, given) == []
        with torch.no_grad():
            assert ours(given).dtype == module(given).dtype
            torch.testing.assert_close(ours(given), module(given))
    ours(x).sum().backward()
    module(x).sum().backward()
    torch.testing.assert_close(ours[0].alpha.grad, module[0].alpha.grad)
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        assert ours(x).dtype == module(x).dtype
    mapped = torch.func.vmap(lambda y: ours(y))(x[None])[0]
    torch.testing.assert_close(mapped, module(x))
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), module(x))


def test_a_snake_with_hooks_stays(device: str) -> None:
    module = nn.Sequential(Snake()).to(device)
    module[0].register_forward_hook(lambda *given: None)
    assert sluice.replace(module).rows == []
    assert type(module[0]) is Snake
