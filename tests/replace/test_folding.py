"""sluice.replace: ops that are folded into chains, ops that are not, and calls outside the traced paths."""

from __future__ import annotations

import copy
import itertools
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from folded_modules import Parent, ResidualBlock, assert_twins, folded, parent, why_not, x_of

pytestmark = pytest.mark.no_gpu


# --- what is folded ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_residual_blocks(device: str, dtype: torch.dtype) -> None:
    model = ResidualBlock().to(device, dtype).eval()
    twin, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    found = folded(sluice.replace(model))
    assert found["convs1.0"] == found["convs1.1"] == "pre: leaky_relu(0.1), post: leaky_relu(0.1)"
    assert found["convs2.0"] == "post: add(x)"
    assert found["convs2.1"].startswith("post: add(")
    for length in (20, 33):
        x = torch.randn(2, 6, length, device=device, dtype=dtype)
        with torch.no_grad():
            result, expected = model(x), wide(x.double())
            assert result.dtype == dtype
            error = (twin(x).double() - expected).norm()
            assert (result.double() - expected).norm() <= 3 * error + 1e-12 * expected.norm()


FOLDED: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "functions": (
        lambda self, x: torch.tanh(self.other(F.gelu(self.conv(F.elu(x)), approximate="tanh")).clamp(-1, 0.5)),
        {"conv": "pre: elu(1.0), post: gelu_tanh()", "other": "post: clamp(-1, 0.5) | tanh()"},
    ),
    "numbers": (
        lambda self, x: 2 * (1 - self.conv(x / 3)) - 0.25,
        {"conv": "pre: div(3), post: neg() | shift(1) | scale(2) | shift(-0.25)"},
    ),
    "tensors": (
        lambda self, x: self.gain * self.conv(x) - x,
        {"conv": "post: mul(gain) | sub(x)"},
    ),
    "modules": (lambda self, x: self.act(self.up(self.act(x))), {"up": "pre: leaky_relu(0.2), post: leaky_relu(0.2)"}),
    "an addend that comes later": (
        lambda self, x: self.conv(x) + self.other(x),
        {"conv": "post: add(other)"},
    ),
    "a value that is added again": (
        lambda self, x: (lambda y: self.conv(y) + y)(torch.tanh(x)),
        {"conv": "post: add(tanh)"},
    ),
    "an activation for two": (
        lambda self, x: [c(F.leaky_relu(x, 0.3)) for c in (self.conv, self.other)],
        {"conv": "pre: leaky_relu(0.3)", "other": "pre: leaky_relu(0.3)"},
    ),
    "one activation for two": (
        lambda self, x: (lambda y: self.conv(y) * self.other(y))(F.relu(x)),
        {"conv": "pre: relu(), post: mul(other)", "other": "pre: relu()"},
    ),
    "in place on what is new": (
        lambda self, x: F.relu(self.other(F.leaky_relu(self.conv(x), 0.1, True)), inplace=True),
        {"conv": "post: leaky_relu(0.1)", "other": "post: relu()"},
    ),
    "dropout of no training": (
        lambda self, x: self.conv(F.dropout(F.silu(x), 0.5, self.training)),
        {"conv": "pre: silu()"},
    ),
    "a dictionary of results": (lambda self, x: {"y": [self.conv(x.relu()), None]}, {"conv": "pre: relu()"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_neighbours_are_folded(name: str) -> None:
    forward, expected = FOLDED[name]
    model, twin, replacement = parent(forward)
    assert expected.items() <= folded(replacement).items(), str(replacement)
    for length in (12, 31):
        assert_twins(model, twin, x_of(length))
    replacement.undo()
    assert_twins(model, twin, x_of())
    assert type(model) is type(twin)


class Snake(nn.Module):
    """BigVGAN's module under another name."""

    def __init__(self, channels: int, alpha_logscale: bool) -> None:
        super().__init__()
        self.alpha_logscale = alpha_logscale
        self.alpha, self.beta = (nn.Parameter(torch.rand(channels) + 0.1) for _ in range(2))
        self.no_div_by_zero = 1e-9

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A forward with other code."""
        alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
        beta = self.beta.unsqueeze(0).unsqueeze(-1)
        if self.alpha_logscale:
            alpha = torch.exp(alpha)
            beta = torch.exp(beta)
        x = x + (1.0 / (beta + self.no_div_by_zero)) * pow(sin(x * alpha), 2)
        return x  # noqa: RET504


class OtherSnake(Snake):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
        beta = self.beta.unsqueeze(0).unsqueeze(-1)
        if self.alpha_logscale:
            alpha = torch.exp(alpha)
            beta = torch.exp(beta)
        x = x + (1.0 / (alpha + self.no_div_by_zero)) * pow(sin(x * alpha), 2)
        return x  # noqa: RET504


from torch import pow, sin  # noqa: E402  as BigVGAN does


@pytest.mark.parametrize("is_logarithm", [False, True])
def test_snakes_are_known_by_their_code(is_logarithm: bool) -> None:
    model = nn.Sequential(Snake(4, is_logarithm), nn.Conv1d(4, 6, 3), Snake(6, is_logarithm), nn.PReLU(6)).eval()
    twin, keys = copy.deepcopy(model), list(model.state_dict())
    assert folded(sluice.replace(model))["1"].count("snake") == 2
    assert list(model.state_dict()) == keys
    assert_twins(model, twin, x_of())
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        parameter.data.uniform_(0.3, 0.9)
        other.data.copy_(parameter.data)
    assert_twins(model, twin, x_of())
    other = nn.Sequential(OtherSnake(4, is_logarithm), nn.Conv1d(4, 6, 3))
    assert folded(sluice.replace(other)) == {}


# --- what is not folded -----------------------------------------------------------------------------------------------
def test_values_that_others_see_stay() -> None:
    for forward in (
        lambda self, x: (lambda y: (F.relu(y), y))(self.conv(x)),
        lambda self, x: (lambda y: y * y)(self.conv(x)),
        lambda self, x: torch.tanh(self.conv(x).view(-1)),
        lambda self, x: self.conv(F.relu_(x)),
        lambda self, x: self.conv(F.relu(x, inplace=True)),
        lambda self, x: self.conv(F.leaky_relu(x, 0.1, True)),
    ):
        model, twin, replacement = parent(forward)
        assert folded(replacement) == {}, str(replacement)
        assert_twins(model, twin, x_of())


def test_in_place_modules_change_their_input() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Conv1d(4, 4, 3), nn.ReLU(inplace=True)).eval()
    twin = copy.deepcopy(model)
    assert folded(sluice.replace(model)) == {"1": "post: relu()"}
    assert_twins(model, twin, x_of())


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

    writes = nn.Sequential(nn.ReLU(inplace=True), nn.Conv1d(4, 4, 1))
    for forward in (moved, later, shortcut, written):
        model, twin, _ = parent(forward, same=nn.Identity(), writes=copy.deepcopy(writes))
        assert_twins(model, twin, x_of())


def test_an_addend_decides_shape_and_dtype_at_the_call() -> None:
    model, twin, replacement = parent(lambda self, x, r: torch.tanh(self.narrow(x) + r))
    assert folded(replacement) == {"narrow": "post: add(r) | tanh()"}
    for r in (
        torch.randn(2, 1, 12), torch.randn(1, 12), torch.randn(12), torch.tensor(0.5), torch.randn(2, 4, 12),
        torch.randn(3, 2, 1, 12), torch.randn(2, 1, 12, dtype=torch.float64), torch.arange(12), torch.randn(1, 1, 1),
        torch.tensor(0.5, dtype=torch.float64), torch.randn(2, 1, 12).bfloat16(), torch.ones(12, dtype=torch.bool),
    ):  # fmt: skip
        assert_twins(model, twin, x_of(), r)
    assert_twins(model, twin, torch.randn(4, 12), torch.randn(1, 12))
    with torch.no_grad(), pytest.raises(RuntimeError, match="must match the size"):
        model(x_of(), torch.randn(2, 1, 11))


def test_channels_of_an_unbatched_input() -> None:
    model = nn.Sequential(nn.PReLU(4), nn.Conv1d(4, 4, 3), nn.PReLU(4)).eval()
    model[0].weight.data.uniform_(0, 1)
    twin = copy.deepcopy(model)
    assert folded(sluice.replace(model))
    assert_twins(model, twin, x_of())
    assert_twins(model[:2], twin[:2], torch.randn(4, 4))  # torch's channels are the last dimension here


def counting() -> Callable[..., Any]:
    calls = 0

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return self.conv(x.relu()) * calls

    return forward


def storing(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.conv.last = self.conv(x.relu())
    return self.conv.last


SEEN: list[Any] = []
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a value": (lambda self, x: self.conv(x.relu()) if x.sum() > 0 else x, "branches on values"),
    "a class": (lambda self, x: self.conv(x.relu() if isinstance(x, torch.Tensor) else x), "reads the class"),
    "a number": (lambda self, x: self.conv(x.relu()) * float(x.mean()), "cannot be traced"),
    "an own tensor": (lambda self, x: self.conv(x.relu()) + torch.rand(1), "calls rand on tensors of its own"),
    "chance": (lambda self, x: self.conv(x.relu()) * random.random(), "reads the global random"),
    "a walk": (lambda self, x: [m(x.relu()) for m in self.children() if m is self.conv], "forward reads children"),
    "an iterator": (lambda self, x: self.conv(x.relu()) * next(self.numbers), "calls next"),
    "outer variables": (counting(), "stores into variables of an outer function"),
    "a list of parameters": (lambda self, x: self.conv(x.relu()) * self.gains[0], "gains is a list of parameters"),
    "the grad mode": (lambda self, x: self.conv(x.relu() if torch.is_grad_enabled() else x), "is_grad_enabled"),
    "a global": (lambda self, x: self.conv(x.relu()) * SWITCHES[0].on, "reads the global SWITCHES"),
    "effects": (lambda self, x: setattr(self, "seen", 1) or self.conv(x.relu()), "calls setattr"),
    "attributes of others": (storing, "stores into attributes"),
    "a global list": (lambda self, x: SEEN.append(x) or self.conv(x.relu()), "changes the global SEEN"),
    "a list": (lambda self, x: self.seen.append(1) or self.conv(x.relu()), "changes attributes"),
    "an object": (lambda self, x: types.SimpleNamespace(y=self.conv(x.relu())), "returns SimpleNamespace"),
    "objects in a list": (lambda self, x: self.conv(x.relu()) * self.objects[0].scale, "holds objects"),
}
SWITCHES = [types.SimpleNamespace(on=1.0)]


@pytest.mark.parametrize("name", REFUSED)
def test_forwards_that_a_trace_does_not_tell(name: str) -> None:
    forward, reason = REFUSED[name]
    made = type("Made", (Parent,), {"forward": forward})
    model = made(seen=[], objects=[types.SimpleNamespace(scale=2.0)], numbers=itertools.count()).eval()
    model.gains = nn.ParameterList([nn.Parameter(torch.ones(1))])
    replacement = sluice.replace(model)
    assert reason in why_not(replacement), str(replacement)
    assert folded(replacement) == {}
    assert model.seen == SEEN == []
    assert not hasattr(model.conv, "last")
    assert type(model) is made


def test_autocast_of_a_forward_is_refused() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.conv(x.relu())

    model, twin, replacement = parent(forward)
    assert why_not(replacement) == "forward has a with statement"
    with torch.autocast("cpu", torch.bfloat16):
        assert_twins(model, twin, x_of())


class Calls(nn.Conv1d):
    """A child that computes something around its forward."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(2 * x)


def test_a_child_with_a_call_of_its_own() -> None:
    model, twin, replacement = parent(lambda self, x: self.conv(self.own(x).relu()), own=Calls(4, 4, 1))
    assert why_not(replacement) == "Calls has a __call__ of its own"
    assert_twins(model, twin, x_of())
