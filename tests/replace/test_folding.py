"""sluice.replace: ops that are folded into chains, and ops that are not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from folded_modules import ResidualBlock, assert_twins, folded, parent, x_of

pytestmark = pytest.mark.no_gpu


# --- what is folded ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_residual_blocks(device: str, dtype: torch.dtype) -> None:
    model = ResidualBlock().to(device, dtype).eval()
    twin, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    replacement = sluice.replace(model)
    for length in (20, 33):
        x = torch.randn(2, 6, length, device=device, dtype=dtype)
        with torch.no_grad():
            result, expected = model(x), wide(x.double())
            assert result.dtype == dtype
            error = (twin(x).double() - expected).norm()
            assert (result.double() - expected).norm() <= 3 * error + 1e-12 * expected.norm()
    found = folded(replacement)
    assert found["convs1.0"] == found["convs1.1"] == "pre: leaky_relu(0.1), post: leaky_relu(0.1)"
    assert found["convs2.0"] == found["convs2.1"] == "post: add($0,1.0)"


FOLDED: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "functions": (
        lambda self, x: torch.tanh(self.other(F.gelu(self.conv(F.elu(x)), approximate="tanh")).clamp(-1, 0.5)),
        {"conv": "pre: elu(1.0), post: gelu_tanh()", "other": "post: clamp(-1.0,0.5) | tanh()"},
    ),
    "numbers": (
        lambda self, x: 2 * (1 - self.conv(x / 3)) - 0.25,
        {"conv": "pre: div(3.0), post: neg() | shift(1.0) | scale(2.0) | shift(-0.25)"},
    ),
    "tensors": (
        lambda self, x: self.gain * self.conv(x) - x,
        {"conv": "post: mul($0) | sub($1,1.0)"},
    ),
    "modules": (lambda self, x: self.act(self.up(self.act(x))), {"up": "pre: leaky_relu(0.2), post: leaky_relu(0.2)"}),
    "an addend that comes later": (
        lambda self, x: self.conv(x) + self.other(x),
        {"conv": "post: add($0,1.0)"},
    ),
    "a value that is added again": (
        lambda self, x: (lambda y: self.conv(y) + y)(torch.tanh(x)),
        {"conv": "post: add($0,1.0)"},
    ),
    "an activation for two": (
        lambda self, x: [c(F.leaky_relu(x, 0.3)) for c in (self.conv, self.other)],
        {"conv": "pre: leaky_relu(0.3)", "other": "pre: leaky_relu(0.3)"},
    ),
    "one activation for two": (
        lambda self, x: (lambda y: self.conv(y) * self.other(y))(F.relu(x)),
        {"conv": "pre: relu(), post: mul($0)", "other": "pre: relu()"},
    ),
    "in place on what is new": (
        lambda self, x: F.relu(self.other(F.leaky_relu(self.conv(x), 0.1, True)), inplace=True),
        {"conv": "post: leaky_relu(0.1)", "other": "post: relu()"},
    ),
    "a sum in place": (
        lambda self, x: self.conv(x).add_(self.other(x)).mul_(0.5),
        {"conv": "post: add($0,1.0) | scale(0.5)"},
    ),
    "a gated linear unit": (
        lambda self, x: self.conv(F.glu(torch.cat([x, self.other(x)], 1), dim=1) * 2),
        {"conv": "pre: gate($0) | scale(2.0)"},
    ),
    "a gate of two halves": (
        lambda self, x: self.conv((lambda a, b: torch.tanh(a) * torch.sigmoid(b))(*torch.cat([x, -x], 1).chunk(2, 1))),
        {"conv": "pre: tanh() | gate($0)"},
    ),
    "a gate behind": (
        lambda self, x: torch.tanh(self.conv(x)) * torch.sigmoid(self.other(x)), {"conv": "post: tanh() | gate($0)"}
    ),
    "dropout of no training": (
        lambda self, x: self.conv(F.dropout(F.silu(x), 0.5, self.training)),
        {"conv": "pre: silu()"},
    ),
    "a dictionary of results": (lambda self, x: {"y": [self.conv(x.relu()), None]}, {"conv": "pre: relu()"}),
    "a forward with an exception": (lambda self, x: _caught(self, x), {"conv": "pre: relu()"}),
    "lists and closures": (
        lambda self, x: [layer(F.relu(x)) for layer in [self.conv, self.other][:1]],
        {"conv": "pre: relu()"},
    ),
    "through a padding": (lambda self, x: self.valid(F.pad(F.silu(x), (1, 1), "reflect")), {"valid": "pre: silu()"}),
    "through a padding with zeros": (lambda self, x: self.valid(F.pad(F.elu(x), (2, 0))), {"valid": "pre: elu(1.0)"}),
    "through zeros of a length": (
        lambda self, x: self.valid(F.pad(F.elu(x), (2, x.shape[-1] % 3))), {"valid": "pre: elu(1.0)"}
    ),
    "through a trim": (
        lambda self, x: F.relu(self.up(F.silu(x))[..., 1:-1] * self.gain).sum(-1),
        {"up": "pre: silu(), post: mul($0) | relu()"},
    ),
}  # fmt: skip


def _caught(self: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        return self.absent(x)  # type: ignore[no-any-return]
    except AttributeError:
        return self.conv(F.relu(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FOLDED)
def test_neighbours_are_folded(name: str) -> None:
    forward, expected = FOLDED[name]
    model, twin, replacement = parent(forward)
    for length in (12, 31):
        assert_twins(model, twin, x_of(length))
    assert expected.items() <= folded(replacement).items(), str(replacement)
    replacement.undo()
    assert_twins(model, twin, x_of())
    assert type(model) is type(twin)


class Snake(nn.Module):
    """BigVGAN's module."""

    def __init__(self, channels: int, alpha_logscale: bool) -> None:
        super().__init__()
        self.alpha_logscale = alpha_logscale
        self.alpha, self.beta = (nn.Parameter(torch.rand(channels) + 0.1) for _ in range(2))
        self.no_div_by_zero = 1e-9

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
        beta = self.beta.unsqueeze(0).unsqueeze(-1)
        if self.alpha_logscale:
            alpha, beta = torch.exp(alpha), torch.exp(beta)
        return x + (1.0 / (beta + self.no_div_by_zero)) * torch.pow(torch.sin(x * alpha), 2)


def test_transposed_inputs() -> None:
    """Convolutions of channels-last tensors hand them on, and their readers get eager's strides."""
    model, twin, replacement = parent(
        lambda self, x: (lambda y: (y, y.relu().transpose(1, 2)))(self.other(F.silu(self.conv(x.transpose(1, 2)))))
    )
    for x in (torch.randn(2, 12, 4), torch.randn(1, 31, 4)):
        assert_twins(model, twin, x)
        with torch.no_grad(), torch.profiler.profile() as recorded:
            result = model(x)
        assert [one.stride() for one in result] == [one.stride() for one in twin(x)]
        assert sum(event.name == "aten::clone" for event in recorded.events()) == 1  # a clone of the last result
    assert folded(replacement) == {"conv": "post: silu()"}
    assert [row.note for row in replacement.rows] == ["", "", "", ""]


@pytest.mark.parametrize("is_logarithm", [False, True])
def test_snakes(is_logarithm: bool) -> None:
    layers = Snake(4, is_logarithm), nn.Conv1d(4, 8, 3, groups=4), Snake(8, is_logarithm), nn.PReLU(8)
    model = nn.Sequential(*layers).eval()
    twin, keys = copy.deepcopy(model), list(model.state_dict())
    replacement = sluice.replace(model)
    assert_twins(model, twin, x_of())
    assert folded(replacement)["1"].count("snake") == 2
    assert "leaky_relu($" in folded(replacement)["1"]
    assert list(model.state_dict()) == keys
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        with torch.no_grad():
            other.copy_(parameter.uniform_(0.3, 0.9))
    assert_twins(model, twin, x_of())


# --- what is not folded -----------------------------------------------------------------------------------------------
def test_values_that_others_see_stay() -> None:
    for forward in (
        lambda self, x: (lambda y: (F.relu(y), y))(self.conv(x)),
        lambda self, x: torch.tanh(self.conv(x).view(-1)),
        lambda self, x: self.conv(F.relu_(x)),
        lambda self, x: self.conv(F.relu(x, inplace=True)),
        lambda self, x: self.conv(F.leaky_relu(x, 0.1, True)),
    ):
        model, twin, replacement = parent(forward)
        assert_twins(model, twin, x_of())
        assert folded(replacement) == {}, str(replacement)


def test_in_place_modules_change_their_input() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Conv1d(4, 4, 3, groups=4), nn.ReLU(inplace=True)).eval()
    twin = copy.deepcopy(model)
    replacement = sluice.replace(model)
    assert_twins(model, twin, x_of())
    assert folded(replacement) == {"1": "post: relu()"}


def test_writes_in_between() -> None:
    def moved(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        x.add_(1)
        return self.conv(y)

    def later(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        x += 1
        return y + x

    def shortcut(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.same(x)
        y += self.conv(x)
        return y * 2 + x

    def written(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        z = self.writes(x)
        return torch.tanh(y) + z

    writes = nn.Sequential(nn.ReLU(inplace=True), nn.Conv1d(4, 4, 1, groups=4))
    for forward in (moved, later, shortcut, written):
        model, twin, _ = parent(forward, same=nn.Identity(), writes=copy.deepcopy(writes))
        assert_twins(model, twin, x_of())


def test_an_addend_decides_shape_and_dtype_at_the_call() -> None:
    model, twin, replacement = parent(lambda self, x, r: torch.tanh(self.conv(x) + r))
    for r in (
        torch.randn(2, 4, 12), torch.randn(1, 12), torch.tensor(0.5), torch.randn(3, 2, 4, 12), torch.arange(12),
        torch.randn(2, 4, 12, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64),
    ):  # fmt: skip
        assert_twins(model, twin, x_of(), r)
    assert folded(replacement) == {"conv": "post: add($0,1.0) | tanh()"}
    with torch.no_grad(), pytest.raises(RuntimeError, match="must match the size"):
        model(x_of(), torch.randn(2, 4, 11))


def test_channels_of_an_unbatched_input() -> None:
    model = nn.Sequential(nn.PReLU(4), nn.Conv1d(4, 4, 3, groups=4), nn.PReLU(4)).eval()
    model[0].weight.data.uniform_(0, 1)
    twin = copy.deepcopy(model)
    sluice.replace(model)
    assert_twins(model, twin, x_of())
    assert_twins(model[:2], twin[:2], torch.randn(4, 4))  # torch's channels are the last dimension here
