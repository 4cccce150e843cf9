"""sluice.replace of modules that pad, convolve and trim: chains of their parents go through them."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice

MODES = ("constant", "reflect", "replicate", "circular")


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


CASES: list[tuple[Callable[[], nn.Module], Callable[..., Any], Callable[..., Any], str]] = [
    *((lambda mode=mode: Padded(mode), relu_of, nothing, "pre: leaky_relu(0.1)") for mode in MODES),
    (Padded, sigmoid_of, nothing, ""),  # sigmoid(0) is not 0, but zeros are added
    *((lambda mode=mode: Padded(mode), sigmoid_of, nothing, "pre: sigmoid()") for mode in MODES[1:]),
    (lambda: Padded(value=1.0), relu_of, nothing, ""),
    (Padded, relu_of, residual, "pre: leaky_relu(0.1), post: add(x)"),
    (lambda: Padded(stride=3), relu_of, nothing, "pre: leaky_relu(0.1)"),
    (lambda: Padded(trim=1), relu_of, nothing, "pre: leaky_relu(0.1)"),
    (Trimmed, sigmoid_of, nothing, "pre: sigmoid()"),
]


def made(case: tuple[Any, ...], device: str) -> tuple[nn.Module, sluice.Replacement, str]:
    part, before, behind, folded = case
    torch.manual_seed(7)
    module = Block(part(), before, behind).to(device).eval()
    return module, sluice.replace(copy.deepcopy(module)), folded


def check(ours: nn.Module, module: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        result, wanted = ours(x), module(x)
    torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)
    assert result.stride() == wanted.stride()


def shown(replacement: sluice.Replacement) -> str:
    [row] = [row for row in replacement.rows if row.module == "part.conv"]
    return row.folded


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_what_goes_through(case: tuple[Any, ...], device: str) -> None:
    module, replacement, folded = made(case, device)
    assert shown(replacement) == folded
    for length in (11, 12, 30, 7):
        for _ in range(2):
            check(replacement.model, module, torch.randn(2, 6, length, device=device))
    replacement.undo()
    assert [type(one) for one in replacement.model.modules()] == [type(one) for one in module.modules()]
    assert replacement.model.__dict__.keys() == module.__dict__.keys()
    assert replacement.model.part.__dict__.keys() == module.part.__dict__.keys()


def test_what_stands_behind_trimmed_results(device: str) -> None:
    """A gain after trimming is folded into the convolution; a residual of the trimmed result is not."""

    def doubled(block: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(y) + torch.cat([x, x], dim=2)

    module, replacement, _ = made((Trimmed, relu_of, doubled, ""), device)
    assert shown(replacement) == "pre: leaky_relu(0.1), post: tanh()"
    check(replacement.model, module, torch.randn(2, 6, 9, device=device))


def test_calls_that_take_another_way(device: str) -> None:
    module, replacement, _ = made((Padded, relu_of, residual, ""), device)
    ours, x = replacement.model, torch.randn(2, 6, 11, device=device)
    seen: list[Any] = []
    for part in ("part", "part.conv"):
        handle = ours.get_submodule(part).register_forward_hook(lambda *given: seen.append(given))
        check(ours, module, x)
        handle.remove()
    assert len(seen) == 2
    for one in (ours, module):
        one.part.left = 4
        one.behind = nothing
    check(ours, module, x)
    for one in (ours, module):
        one.part.conv.dilation = (2,)
    check(ours, module, x)
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        assert ours(x).dtype == module(x).dtype
    for one in (ours, module):
        one(x).square().sum().backward()
    torch.testing.assert_close(ours.part.conv.weight.grad, module.part.conv.weight.grad, rtol=1e-4, atol=1e-4)
    cache = torch.randn(2, 6, 2, device=device)
    with torch.no_grad():
        torch.testing.assert_close(ours.part(x, cache), module.part(x, cache), rtol=1e-4, atol=1e-4)


def test_a_forward_that_is_another_one(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, replacement, _ = made((Padded, relu_of, nothing, ""), device)
    x = torch.randn(2, 6, 11, device=device)
    check(replacement.model, module, x)
    monkeypatch.setattr(Padded, "forward", lambda self, x: self.conv(x) * 3)
    check(replacement.model, module, x)


def test_activations_that_may_be_others_are_not_run_on_zeros(device: str) -> None:
    """A part of a Sequential may become one that changes zero."""
    module, replacement, _ = made((Padded, nn.Sequential(nn.ReLU()), nothing, ""), device)
    assert shown(replacement) == ""
    for one in (module, replacement.model):
        one.before[0] = nn.Sigmoid()
    check(replacement.model, module, torch.randn(2, 6, 11, device=device))


def test_a_residual_that_broadcasts(device: str) -> None:
    """torch's broadcast: one position of the result for many of the residual."""
    module, replacement, _ = made((lambda: Padded(stride=3), relu_of, residual, ""), device)
    check(replacement.model, module, torch.randn(2, 6, 3, device=device))
    x = torch.randn(2, 6, 1, device=device)
    check(replacement.model, module, x)


def test_copies_and_pickles(device: str) -> None:
    module, replacement, _ = made((Padded, relu_of, residual, ""), device)
    x = torch.randn(2, 6, 11, device=device)
    check(copy.deepcopy(replacement.model), module, x)
    again = pickle.loads(pickle.dumps(replacement.model))
    check(again, module, x)
    assert type(again.part) is type(replacement.model.part)
    second = sluice.replace(replacement.model)
    check(replacement.model, module, x)
    second.undo()
    check(replacement.model, module, x)


class Norm(nn.Module):
    """No wrapper: something stands between the convolution and the result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(6, 6, 3, padding=1, groups=6), nn.GroupNorm(1, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


class Read(nn.Module):
    """No wrapper: the padding depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, groups=6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (2, int(x.shape[-1]) % 2))) * x.mean()


@pytest.mark.parametrize("part", [Norm, Read])
def test_what_is_no_wrapper(part: type, device: str) -> None:
    module, replacement, _ = made((part, relu_of, nothing, ""), device)
    assert shown(replacement) == ""
    check(replacement.model, module, torch.randn(2, 6, 11, device=device))
