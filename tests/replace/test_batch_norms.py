"""sluice.replace: BatchNorm1d in eval mode becomes a part of a convolution, and stays what it is in training."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import sluice
from folded_modules import folded


def filled(model: nn.Module) -> nn.Module:
    """The model in eval mode, its norms with random factors and statistics."""
    torch.manual_seed(5)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d):
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
            if part.running_mean is not None:
                part.running_mean.normal_()
                part.running_var.uniform_(0.3, 2.0)
    return model.eval()


def depthwise(**options: int) -> nn.Conv1d:
    return nn.Conv1d(8, 8, 3, groups=8, padding=1, **options)


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, str]]] = {
    "behind": (
        lambda: nn.Sequential(depthwise(), nn.BatchNorm1d(8), nn.ReLU()),
        {"0": "post: mul($0) | add($1,1.0) | relu()"},
    ),
    "ahead of zeros": (
        lambda: nn.Sequential(nn.BatchNorm1d(8), depthwise()),
        {"1": "pre: mul($0) | add($1,1.0)"},
    ),
    "without factors": (
        lambda: nn.Sequential(depthwise(), nn.BatchNorm1d(8, affine=False)),
        {"0": "post: mul($0) | add($1,1.0)"},
    ),
    "torch's convolution": (lambda: nn.Sequential(nn.Conv1d(8, 6, 3), nn.BatchNorm1d(6), nn.ReLU()), {"0": ""}),
    "without a bias": (lambda: nn.Sequential(nn.Conv1d(8, 6, 3, bias=False), nn.BatchNorm1d(6)), {"0": ""}),
    "grouped": (lambda: nn.Sequential(nn.Conv1d(8, 6, 3, groups=2), nn.BatchNorm1d(6)), {"0": ""}),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose1d(8, 6, 4, 2), nn.BatchNorm1d(6)), {"0": ""}),
    "transposed in groups": (
        lambda: nn.Sequential(nn.ConvTranspose1d(8, 6, 4, 2, groups=2), nn.BatchNorm1d(6)),
        {"0": ""},
    ),
    "statistics of the batch": (
        lambda: nn.Sequential(depthwise(), nn.BatchNorm1d(8, track_running_stats=False)),
        {"0": ""},
    ),
    "twice": (
        lambda: nn.Sequential(depthwise(), nn.BatchNorm1d(8), nn.BatchNorm1d(8)),
        {"0": "post: mul($0) | add($1,1.0) | mul($2) | add($3,1.0)"},
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", MODELS)
@torch.no_grad()
def test_results(device: str, case: str, dtype: torch.dtype) -> None:
    make, chains = MODELS[case]
    model = filled(make()).to(device, dtype)
    wide, ours = copy.deepcopy(model).double(), copy.deepcopy(model)
    replacement = sluice.replace(ours)

    def check(length: int) -> None:
        x = torch.randn(2, 8, length, device=device, dtype=dtype)
        exact, expected, result = wide(x.double()), model(x), ours(x)
        assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
        error = (expected.double() - exact).norm()
        assert (result.double() - exact).norm() <= 3 * error + 1e-6 * exact.norm()

    check(20)
    if device == "cpu":
        assert {name: folded(replacement).get(name, "") for name in chains} == chains
    check(33)
    for one in (model, wide, ours):
        for part in one.modules():
            if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
                part.running_mean.add_(1.5)
                part.running_var.mul_(0.5)
        next(one.parameters()).mul_(0.5)
    check(20)
    replacement.undo()
    check(20)


def test_a_norm_is_in_the_weight_of_torchs_convolution() -> None:
    model = filled(nn.Sequential(nn.Conv1d(8, 6, 3), nn.BatchNorm1d(6), nn.ReLU()))
    sluice.replace(model)
    with torch.no_grad():
        x = torch.randn(2, 8, 20)
        model(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
            model(x)
    names = {event.name for event in recorded.events()}
    assert not any("batch_norm" in name for name in names)
    assert "aten::mul" not in names  # the weight is kept


@torch.no_grad()
def test_training_and_back() -> None:
    model = filled(nn.Sequential(depthwise(), nn.BatchNorm1d(8), nn.ReLU()))
    ours = copy.deepcopy(model)
    sluice.replace(ours)
    for training in (False, True, False, True, False):
        model.train(training)
        ours.train(training)
        x = torch.randn(3, 8, 17)
        torch.testing.assert_close(ours(x), model(x))
        torch.testing.assert_close(dict(ours.named_buffers()), dict(model.named_buffers()))


@torch.no_grad()
def test_a_value_that_something_else_reads() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.conv(x)
            return y, self.norm(y).relu() + x

    model = filled(Both())
    ours = sluice.replace(copy.deepcopy(model)).model
    for length in (20, 21):
        x = torch.randn(2, 8, length)
        for result, expected in zip(ours(x), model(x), strict=True):
            torch.testing.assert_close(result, expected)
