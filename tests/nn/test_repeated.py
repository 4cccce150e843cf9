"""Repeated calls of `sluice.nn` go directly to the raw op; a call that differs does not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sluice
from sluice import stages
from sluice.nn import convolution


class Counted:
    """Counts the calls that went through sluice.conv1d and sluice.conv_transpose1d."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        for name in ("conv1d", "conv_transpose1d"):
            patch.setattr(convolution, name, self._counting(getattr(convolution, name)))

    def _counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return function(*args, **kwargs)

        return counted


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def layers(device: str) -> list[torch.nn.Module]:
    return [
        sluice.nn.Conv1d(4, 4, 3, padding=1, groups=4).to(device),
        sluice.nn.Conv1d(4, 4, 3, padding="same", groups=4, bias=False).to(device),
        sluice.nn.ConvTranspose1d(4, 4, 4, stride=2, padding=1, groups=4).to(device),
    ]


def own(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The result of torch's module."""
    kind = torch.nn.ConvTranspose1d if layer.transposed else torch.nn.Conv1d
    return kind.forward(layer, x)


def check(layer: torch.nn.Module, x: torch.Tensor) -> None:
    torch.testing.assert_close(layer(x), own(layer, x), rtol=1e-5, atol=1e-5)


def test_the_second_call_goes_to_the_op(device: str, counted: Counted) -> None:
    for layer in layers(device):
        counted.calls = 0
        for _ in range(3):
            check(layer, torch.randn(2, 4, 9, device=device))
        assert counted.calls == 1


def test_calls_that_differ_do_not(device: str, counted: Counted) -> None:
    for layer in layers(device):
        x = torch.randn(2, 4, 9, device=device)
        check(layer, x)
        for changed in (x[:1], x[..., :7], x.double()[:, :, :7], x[0]):
            counted.calls = 0
            if changed.dtype == torch.float64:
                layer.double()
                check(layer, changed)
                layer.float()
            else:
                check(layer, changed)
            assert counted.calls == 1
        counted.calls = 0
        layer.dilation = (2,)
        layer.padding = (2,)
        check(layer, x[0])
        assert counted.calls == 1


def test_values_are_those_of_the_call(device: str, counted: Counted) -> None:
    for layer in layers(device):
        x = torch.randn(2, 4, 9, device=device)
        check(layer, x)
        counted.calls = 0
        layer.weight.mul_(2)
        check(layer, x)
        layer.weight = torch.nn.Parameter(torch.randn_like(layer.weight))
        check(layer, x)
        if layer.bias is not None:
            layer.bias.add_(1)
            check(layer, x)
            layer.bias = None
            check(layer, x)
        assert counted.calls == 0
        check(layer, torch._neg_view(x))


def _noting(seen: list[Any]) -> Callable[..., None]:
    def hook(*given: Any) -> None:
        seen.append(given)

    return hook


class Counting(torch.nn.Module):
    """A parametrisation that doubles."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return weight * 2


def test_a_parametrised_weight_is_computed_once_a_call(device: str) -> None:
    for layer in layers(device):
        counting = Counting()
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", counting)
        swapped = sluice.replace(torch.nn.Sequential(layer)).model[0]
        for length in (9, 9, 7, 7, 9):
            counting.calls = 0
            x = torch.randn(2, 4, length, device=device)
            result = swapped(x)
            assert counting.calls == 1
            torch.testing.assert_close(result, own(swapped, x), rtol=1e-5, atol=1e-5)


def test_hooks_run(device: str) -> None:
    for layer in layers(device):
        x = torch.randn(2, 4, 9, device=device)
        seen: list[Any] = []
        layer(x)
        for register in (layer.register_forward_hook, torch.nn.modules.module.register_module_forward_hook):
            handle = register(_noting(seen))
            layer(x)
            handle.remove()
        with layer.register_forward_pre_hook(lambda module, given: (given[0] * 2,)):
            assert torch.equal(layer(x), layer(x * 2)) or torch.allclose(layer(x), own(layer, x * 2), atol=1e-5)
        assert len(seen) == 2


def test_gradients_casts_maps_and_graphs(device: str) -> None:
    for layer in layers(device):
        x = torch.randn(2, 4, 9, device=device)
        wanted = layer(x)
        with torch.enable_grad():
            layer(x).sum().backward()
        assert layer.weight.grad is not None
        half = torch.bfloat16
        with torch.autocast(device, dtype=half):
            assert layer(x).dtype == half
        mapped = torch.func.vmap(layer)(torch.stack([x, x]))
        torch.testing.assert_close(mapped[1], wanted, rtol=1e-5, atol=1e-5)
        jvp = torch.func.jvp(layer, (x,), (x,))[1]
        assert jvp.shape == wanted.shape
        traced = torch.fx.symbolic_trace(torch.nn.Sequential(layer))
        torch.testing.assert_close(traced(x), wanted, rtol=1e-5, atol=1e-5)

        class Mine(torch.Tensor):
            pass

        assert type(layer(x.as_subclass(Mine))) is Mine


def test_copies_begin_anew(device: str, counted: Counted) -> None:
    for layer in layers(device):
        x = torch.randn(2, 4, 9, device=device)
        layer(x)
        for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            counted.calls = 0
            check(again, x)
            assert counted.calls == 1


def test_a_chain_of_the_module_goes_the_whole_way(device: str, counted: Counted) -> None:
    layer, x = layers(device)[0], torch.randn(2, 4, 9, device=device)
    layer(x)
    layer.post = stages.relu()
    assert float(layer(x).min()) >= 0
    layer.post = None
    layer(x)
    layer.post = torch.nn.ReLU()
    assert float(layer(x).min()) >= 0
    assert counted.calls == 4
