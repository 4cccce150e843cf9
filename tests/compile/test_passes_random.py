"""The pass on networks that are drawn: whatever it folds, the values stay the same in float64."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from compiled_graphs import FORMS, FoldedRows, calls, of_sluice
from rows import naming

pytestmark = pytest.mark.no_gpu
CHANNELS, LENGTH = 4, 12
Value = torch.Tensor

ONE: list[Callable[[Value], Value]] = [
    F.relu, F.gelu, F.silu, F.elu, F.softplus, torch.tanh, torch.sigmoid, torch.sin, torch.abs,
    lambda x: F.leaky_relu(x, 0.2), lambda x: F.gelu(x, approximate="tanh"), lambda x: x.clamp(-0.7, 0.8),
    lambda x: x * x, lambda x: 1 - x, lambda x: x * 0.5, lambda x: x / 1.7, lambda x: x.pow(2),
    lambda x: x * x.sigmoid(), lambda x: x.float().double(), lambda x: x.reshape(2, CHANNELS, -1),
    lambda x: x.mT.contiguous().mT,
    lambda x: x.flip(-1), lambda x: torch.softmax(x, 1), lambda x: x + x.mean(-1, keepdim=True),
    lambda x: torch.where(x > 0, x, x * 0.3), lambda x: torch.where(x > 0, x * 0.3, x), lambda x: x * torch.erf(x),
    lambda x: F.glu(torch.cat([x, x.flip(1)], 1), 1), lambda x: x.tanh() * x.flip(1).sigmoid(),
]  # fmt: skip
TWO: list[Callable[[Value, Value], Value]] = [
    torch.add, torch.sub, torch.mul, lambda x, y: torch.add(x, y, alpha=-0.5), lambda x, y: x / (y.abs() + 1),
    lambda x, y: x * torch.sigmoid(y), lambda x, y: torch.where(x > 0, x, x * y),
    lambda x, y: x + torch.sin(y * x).pow(2) / (y.abs() + 1),
    lambda x, y: x + (y * y + 1e-3).reciprocal() * torch.sin(x * y).square(),
]  # fmt: skip


def drawn(seed: int) -> tuple[Callable[..., list[Value]], list[Value]]:
    """A network of pointwise ops and convolutions that keep the shape, its input and parameters."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    weights = [torch.randn(CHANNELS, CHANNELS, 3) / 4, torch.randn(CHANNELS, 1, 3) / 2, torch.randn(CHANNELS, 1, 3) / 2]
    columns = [torch.randn(CHANNELS, 1), torch.randn(1, 1, LENGTH), torch.tensor(0.7)]
    kinds = draw.choices(["one", "two", "column", "conv"], [5, 2, 2, 3], k=draw.randint(4, 16))
    choices = [(kind, draw.random(), draw.random(), draw.random()) for kind in kinds]
    ends = [draw.random() for _ in range(draw.randint(1, 2))]

    def network(x: Value, *parameters: Value) -> list[Value]:
        values = [x]

        def pick(share: float) -> Value:  # a late one most often
            return values[int(len(values) * share**0.3)]

        for kind, a, b, c in choices:
            y = values[-1] if a < 0.6 else pick(b)
            if kind == "one":
                y = ONE[int(c * len(ONE))](y)
            elif kind == "two":
                y = TWO[int(c * len(TWO))](y, pick(b))
            elif kind == "column":
                y = TWO[int(c * len(TWO))](y, parameters[3 + int(b * 3)])
            else:
                y = convolve(int(c * 4), y, parameters)
            values.append(y)
        return [values[-1], *[pick(share) + 0 for share in ends]]

    return network, [value.double() for value in (torch.randn(2, CHANNELS, LENGTH), *weights, *columns)]


def convolve(kind: int, x: Value, parameters: tuple[Value, ...]) -> Value:
    if kind == 0:
        return F.conv1d(x, parameters[0], padding=1)
    if kind == 1:
        return F.conv1d(x, parameters[1], padding=2, dilation=2, groups=CHANNELS)
    if kind == 2:
        return F.conv_transpose1d(x, parameters[2], padding=1, groups=CHANNELS)
    return F.conv1d(F.pad(x, (2, 0)), parameters[1], groups=CHANNELS)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("form", FORMS)
def test_drawn_networks(form: str, mode: str) -> None:
    first = int(torch.randint(2**30, ()))
    found = FoldedRows({seed: drawn(seed) for seed in range(first, first + 15)}, form=form, mode=mode)
    for seed, (network, inputs) in found.rows.items():
        with torch.no_grad(), naming(f"seed {seed}"):
            for result, expected in zip(found.results[seed], network(*inputs), strict=True):
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
                torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert "aten.convolution.default" not in calls(found.module)
    assert any("pre" in node.kwargs or "post" in node.kwargs for node in of_sluice(found.module))
