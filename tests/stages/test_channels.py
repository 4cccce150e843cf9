"""Activations with a value for each channel take dimension 1 as channels, as torch does, whatever the input's rank."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import sluice
from sluice import stages

SHAPES = [(8,), (5, 8), (8, 5), (8, 8), (2, 8, 5), (2, 5, 8), (2, 8, 8), (2, 8, 5, 6), (2, 8, 8, 6), (2, 8, 3, 5, 4)]


class Snake(nn.Module):
    """As transformers' DAC has it: it flattens the dimensions after the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        shape = hidden_states.shape
        hidden_states = hidden_states.reshape(shape[0], shape[1], -1)
        hidden_states = hidden_states + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * hidden_states).pow(2)
        hidden_states = hidden_states.reshape(shape)
        return hidden_states  # noqa: RET504


class SnakeBeta(nn.Module):
    """As BigVGAN has it: its parameters broadcast to (B, C, L)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.rand(channels)), nn.Parameter(torch.rand(channels))
        self.alpha_logscale, self.no_div_by_zero = True, 1e-9

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
        beta = self.beta.unsqueeze(0).unsqueeze(-1)
        if self.alpha_logscale:
            alpha = torch.exp(alpha)
            beta = torch.exp(beta)
        x = x + (1.0 / (beta + self.no_div_by_zero)) * torch.pow(torch.sin(x * alpha), 2)
        return x  # noqa: RET504


def prelu(channels: int = 8) -> nn.PReLU:
    module = nn.PReLU(channels)
    with torch.no_grad():
        module.weight.uniform_(0.1, 0.9)
    return module


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "PReLU": prelu,
    "Snake": lambda: Snake(8),
    "SnakeBeta": lambda: SnakeBeta(8),
}


Function = Callable[[torch.Tensor], torch.Tensor]


def value_of(function: Function, x: torch.Tensor) -> torch.Tensor | None:
    """The result, None where the call is refused."""
    try:
        return function(x)
    except (ValueError, RuntimeError):
        return None


def assert_like(torchs: Function, ours: Function, x: torch.Tensor, place: str) -> None:
    expected, result = value_of(torchs, x), value_of(ours, x)
    if expected is None:
        assert result is None, f"{place}: torch refuses it"
        return
    assert result is not None, f"{place}: {ours(x)}"
    torch.testing.assert_close(result, expected, msg=lambda text: f"{place}: {text}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chains_of_modules_at_every_rank(device: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, device=device)
    activation = prelu().to(device)
    chain = stages.scale(2) | stages.from_module(nn.Sequential(activation, nn.Tanh()))
    module = sluice.nn.Transform(activation)
    kept = sluice.nn.Transform(stages.from_module(activation)).to(torch.float64).to(torch.float32)

    def torchs(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(activation(2 * x))

    with torch.no_grad():
        assert_like(torchs, chain, x, "chain")
        assert_like(torchs, lambda x: sluice.transform(x, [chain, chain])[1], x, "list")
        if x.dim() > 1:  # the reference broadcasts as torch does
            assert_like(torchs, lambda x: sluice.reference.transform(x, chain), x, "reference")
        assert_like(activation, module, x, "Transform")
        assert_like(activation, kept, x, "Transform of a chain")


def test_the_chain_as_an_object() -> None:
    activation = prelu()
    chain = stages.from_module(activation)
    assert repr(chain) == "leaky_relu(PerChannel(8))"
    assert chain.text == "leaky_relu($0)"
    assert copy.deepcopy(chain) == chain
    assert chain != stages.leaky_relu(activation.weight[:, None])
    assert len(stages.from_module(nn.PReLU()).operands) == 1
    with torch.no_grad():
        activation.weight.fill_(0.25)
    assert chain.operands[0].eq(0.25).all()
    assert sluice.plan("transform", torch.zeros(2, 8, 4, 4), chain).reason
    with pytest.raises(ValueError, match="must broadcast to the result's shape"):
        sluice.plan("transform", torch.zeros(2, 4, 8, 4), chain)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(2, 8, 12), (8, 12), (8, 8)], ids=str)
def test_replaced_models(device: str, name: str, shape: tuple[int, ...]) -> None:
    for groups in (1, 8):
        convolution = nn.Conv1d(8, 8, 3, padding=1, groups=groups)
        model = nn.Sequential(ACTIVATIONS[name](), convolution, ACTIVATIONS[name]()).to(device).eval()
        expected = copy.deepcopy(model)
        sluice.replace(model)
        x = torch.randn(shape, device=device)
        with torch.no_grad():
            for _ in range(2):  # a repeated call is another path
                assert_like(expected, model, x, f"{groups} groups")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_replaced_stencils(device: str, name: str) -> None:
    for height in (8, 5):
        model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), ACTIVATIONS[name]()).to(device).eval()
        expected = copy.deepcopy(model)
        sluice.replace(model)
        x = torch.randn(2, 8, height, 6, device=device)
        with torch.no_grad():
            assert_like(expected, model, x, f"{height} rows")


@pytest.mark.parametrize("shape", [(2, 8, 12), (8, 12), (8, 8)], ids=str)
def test_modules_with_an_activation(device: str, shape: tuple[int, ...]) -> None:
    activation = prelu().to(device)
    x = torch.randn(shape, device=device)
    for kind, groups in ((nn.Conv1d, 1), (nn.Conv1d, 8), (nn.ConvTranspose1d, 8)):
        ours = getattr(sluice.nn, kind.__name__)(8, 8, 3, groups=groups, pre=activation, post=activation, device=device)
        theirs = kind(8, 8, 3, groups=groups, device=device)
        theirs.load_state_dict({"weight": ours.weight, "bias": ours.bias})
        with torch.no_grad():
            assert_like(nn.Sequential(activation, theirs, activation), ours, x, f"{kind.__name__}, {groups} groups")


def test_causal_modules(device: str) -> None:
    activation = prelu().to(device)
    layer = sluice.nn.CausalConv1d(8, 3, post=activation, device=device)
    plain = sluice.nn.CausalConv1d(8, 3, device=device)
    plain.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    x, state = torch.randn(2, 8, 6, device=device), torch.zeros(2, 8, 2, device=device)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), activation(plain(x)))
        torch.testing.assert_close(layer.step(x[..., 0], state.clone()), activation(plain.step(x[..., 0], state)))


def test_the_backend(device: str, fresh_compiler: None) -> None:
    model = nn.Sequential(nn.Conv1d(8, 8, 3, groups=8), prelu(), Snake(8)).to(device).eval()
    image = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), prelu()).to(device).eval()
    x = torch.randn(2, 8, 8, device=device)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="sluice")(x), model(x))
        torch.testing.assert_close(torch.compile(image, backend="sluice")(x[..., None]), image(x[..., None]))
