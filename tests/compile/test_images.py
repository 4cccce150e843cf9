"""Convolutions of torch on a CPU as convolutions of images, in regions that are channels-last."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.utils import run_and_get_code

import sluice
from sluice.compile import folded_graph, layout, post_grad
from sluice.compile.leftover import decompose_kept

pytestmark = pytest.mark.no_gpu
LONG, SHORT = 700, 40  # a length at the trace that is worth it, and one that is not
Body = Callable[[nn.ModuleList, torch.Tensor], torch.Tensor]


class Stack(nn.Module):
    """Convolutions of one number of channels, and how they are called."""

    def __init__(self, body: Body, channels: int = 8, count: int = 6) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.ModuleList([nn.Conv1d(channels, channels, 3, padding=1) for _ in range(count)])
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.layers, x)


def chain(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = F.leaky_relu(layer(x), 0.2) + x
    return x


def padded(layers: nn.ModuleList, x: torch.Tensor, mode: str = "constant") -> torch.Tensor:
    """Causal: padded on one side and cut on the other."""
    for layer in layers:
        x = F.elu(layer(F.pad(x, (2, 0), mode=mode)))[..., :-2]
    return x


def transposed(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    y = chain(layers, x)
    return F.conv_transpose1d(y, layers[0].weight, layers[0].bias, 2, 1, 1, 1, 2)


def branches(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    a, b = chain(layers[:3], x), chain(layers[3:], x)
    return (a + b) / 2


BODIES: dict[str, Body] = {
    "chain": chain,
    "zeros": padded,
    "reflect": lambda layers, x: padded(layers, x, "reflect"),
    "replicate": lambda layers, x: padded(layers, x, "replicate"),
    "transposed": transposed,
    "branches": branches,
    "a view of the result": lambda layers, x: chain(layers, x).mT,
    "a cut result": lambda layers, x: chain(layers, x)[..., 3:],
}


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many regions each graph has."""
    found: list[int] = []

    def counted(*args: object) -> int:
        found.append(layout.to_channels_last(*args))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(folded_graph, "to_channels_last", counted)
    return found


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def x_of(length: int, channels: int = 8, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, channels, length, generator=torch.Generator().manual_seed(length))


def assert_same(model: nn.Module, twin: nn.Module, x: torch.Tensor) -> None:
    y, expected = model(x), twin(x)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    assert y.stride() == expected.stride()


@pytest.mark.parametrize("name", BODIES)
def test_regions(name: str, regions: list[int]) -> None:
    model = Stack(BODIES[name]).eval()
    twin = copy.deepcopy(model)
    replacement = sluice.replace(model)
    for length in (LONG, SHORT, LONG + 1, 7):
        assert_same(model, twin, x_of(length))
    assert regions == [1]
    for one in (model, twin):
        for parameter in one.parameters():
            parameter.mul_(1.5)
    assert_same(model, twin, x_of(LONG))
    assert_same(replacement.undo(), twin, x_of(LONG))


def test_inputs_of_other_strides(regions: list[int]) -> None:
    model = Stack(chain).eval()
    twin = copy.deepcopy(model)
    sluice.replace(model)
    whole = x_of(2 * LONG)
    for x in (x_of(LONG), x_of(LONG).mT.contiguous().mT, whole[..., ::2], x_of(LONG, batch=1)):
        assert_same(model, twin, x)
    assert regions[0] == 1


@pytest.mark.parametrize("case", ["short", "large weights", "float64", "few", "another weight at each call", "groups"])
def test_what_stays(case: str, regions: list[int]) -> None:
    channels, count = (304 if case == "large weights" else 8), (3 if case == "few" else 6)
    model = Stack(chain, channels, count).eval()
    if case == "groups":
        for layer in model.layers:
            layer.groups, layer.weight = 2, nn.Parameter(layer.weight[:, :4].clone())
    if case == "another weight at each call":
        model.body = of_computed_weights
    x = x_of(SHORT if case == "short" else LONG, channels)
    if case == "float64":
        model, x = model.double(), x.double()
    twin = copy.deepcopy(model)
    sluice.replace(model)
    assert_same(model, twin, x)
    assert not any(regions)


def of_computed_weights(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = F.leaky_relu(F.conv1d(x, layer.weight * x.mean(), padding=1), 0.2)
    return x


# --- under the backend ------------------------------------------------------------------------------------------------
def targets(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", ["chain", "zeros", "transposed"])
def test_the_backend_has_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[list[str]] = []

    def noted(graph: torch.fx.Graph, table: object) -> None:
        graphs.append(targets(graph))
        decompose_kept(graph, table)  # type: ignore[arg-type]

    monkeypatch.setattr(post_grad, "decompose_kept", noted)
    torch._dynamo.reset()
    model = Stack(BODIES[name]).eval()
    with torch._inductor.config.patch(force_disable_caches=True):
        compiled = torch.compile(model, backend="sluice", dynamic=True)
        for length in (LONG, LONG + 1, SHORT):
            torch.testing.assert_close(compiled(x_of(length)), model(x_of(length)), rtol=1e-4, atol=1e-5)
    assert "aten.unsqueeze.default" in graphs[0]
    assert not any("sluice" in target for target in graphs[0])


def test_the_backend_still_folds_into_modules_with_chains() -> None:
    torch._dynamo.reset()
    conv = sluice.nn.Conv1d(8, 8, 3, padding=1, pre=nn.LeakyReLU(0.1))
    model = nn.Sequential(conv, nn.Tanh()).eval()
    with torch._inductor.config.patch(force_disable_caches=True):
        _, code = run_and_get_code(torch.compile(model, backend="sluice"), x_of(LONG))
    assert "pre='leaky_relu(0.1)'" in "".join(code)
    assert "post='tanh()'" in "".join(code)
