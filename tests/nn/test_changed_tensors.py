"""Weights and biases that become buffers, plain tensors or parametrised tensors, and devices without autocast."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import sluice
from sluice import stages

pytestmark = pytest.mark.no_gpu


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


KINDS: dict[str, Callable[[], nn.Module]] = {
    "Conv1d": lambda: nn.Conv1d(4, 4, 3, padding=1, groups=4),
    "ConvTranspose1d": lambda: nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=4),
    "Conv2d": lambda: nn.Conv2d(4, 4, (1, 3), padding="same", groups=4),
}


class Shifted(nn.Module):
    """A parametrisation that changes its tensor's values."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor + 1


def to_buffer(module: nn.Module, name: str) -> None:
    value = getattr(module, name).detach() * 3
    delattr(module, name)
    module.register_buffer(name, value)


def to_plain(module: nn.Module, name: str) -> None:
    value = getattr(module, name).detach() * 4
    delattr(module, name)
    setattr(module, name, value)


def to_parameter(module: nn.Module, name: str) -> None:
    value = getattr(module, name).detach() * 5
    delattr(module, name)
    setattr(module, name, nn.Parameter(value))


def to_parametrised(module: nn.Module, name: str) -> None:
    parametrize.register_parametrization(module, name, Shifted())


def without_bias(module: nn.Module, name: str) -> None:
    module.bias = None


def with_bias(module: nn.Module, name: str) -> None:
    module.bias = nn.Parameter(torch.ones(4))


def to_double_and_back(module: nn.Module, name: str) -> None:
    module.double().float()


def assigned(module: nn.Module, name: str) -> None:
    module.load_state_dict({key: value + 1 for key, value in module.state_dict().items()}, assign=True)


def in_place(module: nn.Module, name: str) -> None:
    getattr(module, name).mul_(7)


WAYS: dict[str, list[Callable[[nn.Module, str], None]]] = {
    "buffer": [to_buffer, in_place, to_double_and_back, assigned, to_parameter],
    "plain": [to_plain, in_place, to_buffer, assigned],
    "parametrised": [to_parametrised, to_parametrised, to_double_and_back],
    "no bias": [without_bias, with_bias, in_place, without_bias],
    "parametrised buffer": [to_buffer, to_parametrised],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_first", [False, True])
def test_results_follow(kind: str, name: str, way: str, is_first: bool) -> None:
    torch.manual_seed(3)
    theirs = nn.Sequential(nn.Tanh(), KINDS[kind]()).eval()
    swapped = sluice.replace(copy.deepcopy(theirs)).model
    x = torch.randn(2, 4, 1, 9) if kind == "Conv2d" else torch.randn(2, 4, 9)

    def check() -> None:
        for one, other in ((swapped[1], theirs[1]), (swapped, theirs)):  # alone, and folded
            for _ in range(2):
                torch.testing.assert_close(one(x), other(x), rtol=1e-5, atol=1e-5)

    if not is_first:
        check()
    for change in WAYS[way]:
        for model in (theirs, swapped):
            change(model[1], name)
        check()


def test_a_property_of_a_class_in_between_is_read() -> None:
    """A class may compute what is still a parameter, under its name."""
    layer, x = sluice.nn.Conv1d(4, 4, 3, groups=4), torch.randn(2, 4, 9)
    layer(x)
    doubled = {name: property(lambda self, name=name: self._parameters[name] * 2) for name in ("weight", "bias")}
    layer.__class__ = type("Doubled", (sluice.nn.Conv1d,), doubled)  # type: ignore[assignment]
    expected = torch.nn.Conv1d.forward(layer, x)
    for _ in range(3):
        torch.testing.assert_close(layer(x), expected)


def test_a_bias_that_is_gone_is_an_error() -> None:
    layer, x = sluice.nn.Conv1d(4, 4, 3, groups=4), torch.randn(2, 4, 9)
    layer(x)
    del layer.bias
    with pytest.raises(AttributeError, match="bias"):
        layer(x)


# --- devices without autocast -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "layer",
    [
        sluice.nn.Conv1d(4, 4, 3, groups=4),
        sluice.nn.Conv1d(4, 6, 3, post=nn.GELU()),
        sluice.nn.ConvTranspose1d(4, 4, 3, groups=4),
        sluice.nn.CausalConv1d(4, 3),
        sluice.nn.Transform("tanh()"),
    ],
    ids=repr,
)
def test_modules_on_the_meta_device(layer: nn.Module) -> None:
    x = torch.randn(2, 4, 9)
    far = copy.deepcopy(layer).to("meta")
    for grad in (False, False, True):
        with torch.set_grad_enabled(grad):
            assert far(x.to("meta")).shape == layer(x).shape
            with torch.autocast("cpu", torch.bfloat16):
                assert far(x.to("meta")).dtype == x.dtype
    if isinstance(layer, sluice.nn.CausalConv1d):
        with torch.enable_grad():
            assert far(x.to("meta", torch.bfloat16)).dtype == torch.bfloat16


def test_functions_on_the_meta_device() -> None:
    x, weight, state = (torch.empty(shape, device="meta") for shape in ((2, 4, 9), (4, 3), (2, 4, 2)))
    own = stages.cpp("x + 1.0f", reference=lambda x: x + 1)
    for post in (None, stages.relu(), own):
        assert sluice.conv1d(x, weight[:, None], groups=4, post=post).shape == (2, 4, 7)
        assert sluice.causal_conv1d(x, weight, post=post, return_final_states=True)[0].shape == x.shape
        assert sluice.causal_conv1d_update(x[..., 0], state, weight, post=post).shape == (2, 4)
    assert torch.ops.sluice.conv1d(x, weight[:, None], groups=4).shape == (2, 4, 7)


# --- chains in training -----------------------------------------------------------------------------------------------
def dropping() -> list[nn.Module]:
    """Layers with a dropout; their weights are positive, so that an activation lets all values through."""
    layers = [
        sluice.nn.Conv1d(4, 4, 3, padding=1, groups=4, post=nn.Dropout(0.5).eval()),
        sluice.nn.ConvTranspose1d(4, 4, 3, padding=1, pre=nn.Dropout(0.5).eval()),
        sluice.nn.CausalConv1d(4, 3, post=nn.Sequential(nn.ReLU(), nn.Dropout(0.5)).eval()),
        sluice.nn.Transform(nn.Dropout(0.5).eval()),
    ]
    for parameter in nn.ModuleList(layers).parameters():
        nn.init.uniform_(parameter, 0.1, 1.0)
    return layers


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_in_a_chain_drops_in_training(grad: bool) -> None:
    x = torch.rand(2, 4, 9) + 0.1
    for layer in dropping():
        expected = layer.eval()(x)
        for _ in range(2):
            with torch.set_grad_enabled(grad):
                torch.manual_seed(5)
                trained = layer.train()(x)
                torch.manual_seed(5)
                assert torch.equal(trained, layer(x))
                torch.manual_seed(6)
                assert not torch.equal(trained, layer(x))
            torch.testing.assert_close(layer.eval()(x), expected)
        layer.train()
        for part in layer.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        torch.testing.assert_close(layer(x), expected)


def test_a_step_needs_stages() -> None:
    layer, x, state = dropping()[2], torch.rand(2, 4), torch.zeros(2, 4, 2)
    expected = layer.eval().step(x, state.clone())
    rule = "the modules of pre and post must have stages in step"
    message = f"^CausalConv1d: {rule}, got one without; call eval\\(\\) if it is in training mode$"
    with pytest.raises(RuntimeError, match=message):
        layer.train().step(x, state)
    assert not state.any()
    assert torch.equal(layer.eval().step(x, state), expected)
