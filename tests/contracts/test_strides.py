"""Strides of results: modules return torch's; eager calls, fake kernels and compiled graphs agree in every layout."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import sluice
from sluice import stages

Call = tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]


def laid_out(source: random.Random, shape: Sequence[int], device: str) -> torch.Tensor:
    """A tensor of that shape in a random order of its dimensions, often a part of a larger tensor."""
    order = list(range(len(shape)))
    if source.random() < 0.8:
        source.shuffle(order)
    sizes = [size + source.choice([0, 0, 0, 1, 3]) for size in shape]
    x = torch.randn([sizes[d] for d in order], device=device).permute([order.index(d) for d in range(len(shape))])
    for d, size in enumerate(shape):
        x = x.narrow(d, source.randint(0, sizes[d] - size), size)
    return x


def drawn_shape(source: random.Random, channels: int, spatial: int) -> list[int]:
    batch = [] if source.random() < 0.25 else [source.choice([1, 1, 2, 3])]
    return [*batch, channels, *(source.choice([1, 2, 5, 8]) for _ in range(spatial))]


def modules(source: random.Random, device: str, fold: bool) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """torch's convolution and its activation, the same replaced, and an input."""
    kind = source.choice([nn.Conv1d, nn.Conv1d, nn.ConvTranspose1d, nn.Conv2d])
    channels, taps = source.choice([1, 1, 2, 4, 8]), source.choice([1, 3])
    groups = channels if kind is nn.Conv2d else source.choice([1, channels])
    outputs = channels if groups > 1 else source.choice([1, 6, channels])
    padding = 0 if kind is nn.ConvTranspose1d else taps // 2
    theirs = kind(channels, outputs, taps, padding=padding, groups=groups, device=device).eval()
    if source.random() < 0.2:
        theirs.weight = nn.Parameter(theirs.weight.detach().movedim(1, -1).contiguous().movedim(-1, 1))
    model = nn.Sequential(theirs, source.choice([nn.Identity, nn.GELU, nn.Tanh])())
    ours = sluice.replace(copy.deepcopy(model), fold=fold).model
    return model, ours, laid_out(source, drawn_shape(source, channels, 2 if kind is nn.Conv2d else 1), device)


def functions(source: random.Random, device: str) -> Call:
    """A function of ours with its other arguments, and an input."""
    channels, taps = source.choice([1, 2, 4, 8]), source.choice([1, 3])
    ops = ["transform", "conv1d", "conv_transpose1d", "causal_conv1d", "causal_conv1d_update", "filter2d"]
    op = source.choice([*ops, "dense causal_conv1d", "causal_conv_transpose1d"])
    weight = torch.randn(channels, taps, device=device)
    x = laid_out(source, drawn_shape(source, channels, 2 if op == "filter2d" else 1), device)
    if op == "transform":
        return lambda x: sluice.transform(x, stages.gelu()), x
    if op == "filter2d":
        return lambda x: sluice.filter2d(x, weight[:, None].expand(-1, taps, -1), post="tanh"), x
    if op == "causal_conv1d":
        return lambda x: sluice.causal_conv1d(x, weight, activation="silu"), x if x.dim() == 3 else x[None]
    if op == "causal_conv1d_update":
        x = x if x.dim() == 3 else x[None]
        state = torch.zeros(len(x), channels, taps + 1, device=device)
        return lambda x: sluice.causal_conv1d_update(x, state.clone(), weight), x
    if "causal" in op:
        x = x if x.dim() == 3 else x[None]
        dense, cache = torch.randn(channels, 6, taps, device=device), source.random() < 0.5
        if op == "causal_conv_transpose1d":
            sums = {"overlap_cache": torch.zeros(len(x), 6, 2, device=device)} if cache else {}
            return lambda x: sluice.causal_conv_transpose1d(x, dense, stride=2, **sums), x
        states = {"state_cache": torch.zeros(len(x), channels, 2, device=device)} if cache else {}
        return lambda x: sluice.causal_conv1d(x, dense.transpose(0, 1), pre="tanh", **states), x
    if op == "conv_transpose1d":
        return lambda x: sluice.conv_transpose1d(x, weight[:, None], groups=channels, post="gelu"), x
    if source.random() < 0.5:
        return lambda x: sluice.conv1d(x, weight[:, None], padding=1, groups=channels, pre="tanh"), x
    dense = torch.randn(6, channels, taps, device=device)
    return lambda x: sluice.conv1d(x, dense, padding=1, post="gelu"), x


def strides_of(result: torch.Tensor) -> list[int]:
    """The strides that decide what `view` can do."""
    return [stride for size, stride in zip(result.shape, result.stride(), strict=True) if size != 1]


def described(x: torch.Tensor, what: Any) -> str:
    return f"{what} of {tuple(x.shape)} with strides {x.stride()}"


def fake_result(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return function(mode.from_tensor(x))


def checked(theirs: nn.Module, ours: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Our result, which has torch's values and strides."""
    expected, result = theirs(x), ours(x)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)
    assert strides_of(result) == strides_of(expected), described(x, ours)
    return result  # type: ignore[no-any-return]


def test_two_hundred_layouts_of_modules(device: str) -> None:
    source = random.Random(66)
    with torch.no_grad():
        for _ in range(200):
            theirs, ours, x = modules(source, device, fold=False)
            result = checked(theirs, ours, x)
            assert ours(x).stride() == result.stride(), described(x, ours)  # a repeated call
            assert fake_result(ours, x).stride() == result.stride(), described(x, ours)


def test_layouts_of_folded_modules(device: str) -> None:
    source = random.Random(69)
    with torch.no_grad():
        for _ in range(30):
            theirs, ours, x = modules(source, device, fold=True)
            checked(theirs, ours, x)


def test_two_hundred_layouts_of_functions(device: str) -> None:
    source = random.Random(67)
    with torch.no_grad():
        for _ in range(200):
            function, x = functions(source, device)
            assert fake_result(function, x).stride() == function(x).stride(), described(x, function)


def test_a_view_behind_a_replaced_convolution(device: str) -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(4, 6, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.gelu(self.conv(x.transpose(1, 2))).view(len(x), -1)

    model = Features().to(device).eval()
    x = torch.randn(2, 9, 4, device=device)
    with torch.no_grad():
        expected = model(x)
        sluice.replace(model)
        torch.testing.assert_close(model(x), expected)


def test_compiled_graphs(device: str, fresh_compiler: None) -> None:
    source = random.Random(68)
    calls: list[Call] = [(ours, x) for _, ours, x in (modules(source, device, fold=False) for _ in range(12))]
    calls += [functions(source, device) for _ in range(12)]

    def function(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [call(x) for (call, _), x in zip(calls, inputs, strict=True)]

    inputs = [x for _, x in calls]
    with torch.no_grad():
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)(inputs)
        for (call, x), result in zip(calls, compiled, strict=True):
            assert result.stride() == call(x).stride(), described(x, call)
