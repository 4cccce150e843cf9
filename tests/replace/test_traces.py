"""Which modules `sluice.replace` traces, and for how many lengths."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import sluice
from constructed_models import Base, depthwise, of_forward, x_of
from sluice.replace.entry import entry_of
from sluice.replace.frames import Compiler

pytestmark = pytest.mark.no_gpu


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """The graphs that Dynamo has made."""
    found: list[torch.fx.GraphModule] = []
    own = Compiler._folded

    def kept(self: Compiler, graph: torch.fx.GraphModule, inputs: object) -> object:
        found.append(graph)
        return own(self, graph, inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(Compiler, "_folded", kept)
    return found


def assert_twins(model: nn.Module, lengths: range) -> None:
    twin = copy.deepcopy(model)
    sluice.replace(model)
    with torch.no_grad():
        for length in lengths:
            torch.testing.assert_close(model(x_of(length)), twin(x_of(length)))


def scan(self: Base, x: torch.Tensor) -> torch.Tensor:
    """A recurrence, which a trace unrolls for a single length."""
    y, states = self.conv(x), [torch.zeros_like(x[..., 0])]
    for place in range(y.shape[-1]):
        states.append(0.5 * states[-1] + y[..., place])
    return torch.stack(states, -1)


def test_a_loop_over_positions_is_traced_for_three_lengths(graphs: list[torch.fx.GraphModule]) -> None:
    model = of_forward(scan)
    assert_twins(model, range(4, 12))
    assert len(graphs) == 3


def test_lengths_that_vary_are_traced_once(graphs: list[torch.fx.GraphModule]) -> None:
    assert_twins(Base().eval(), range(12, 62))
    assert len(graphs) == 1


class Mixer(nn.Module):
    """The parts of a Mamba's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = depthwise(), nn.SiLU()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.outer(self.act(self.conv(self.inner(x.mT).mT)).mT).mT
        return y


class Block(nn.Module):
    """Convolutions with parts without matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.act, self.conv = nn.BatchNorm1d(4), nn.PReLU(4), depthwise()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(self.act(self.norm(x)))
        return y


def test_what_consists_of_convolutions_is_traced() -> None:
    model = nn.Sequential(Mixer(), Block(), nn.Sequential(Block(), nn.Linear(9, 9)), nn.Linear(9, 9)).eval()
    assert_twins(model, range(9, 10))
    traced = [name for name, part in model.named_modules() if entry_of(part) is not None]
    assert traced == ["1", "2", "2.0"]
    assert type(model[0].conv) is sluice.nn.Conv1d


def dense_block() -> nn.Module:
    """What torch computes as fast on a CPU, in a part of a part."""
    return nn.Sequential(nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.Softmax(1)), nn.Softmax(1))


def test_where_nothing_is_gained_the_parts_have_no_entries() -> None:
    model = nn.Sequential(dense_block(), dense_block()).eval()
    twin = copy.deepcopy(model)
    replacement = sluice.replace(model)

    def called() -> int:
        return sum(entry_of(part) is not None and part._compiled_call_impl is not None for part in model.modules())

    def assert_equal(dtype: torch.dtype) -> None:
        with torch.no_grad():
            x = x_of(9).to(dtype)
            torch.testing.assert_close(model(x), twin(x))

    assert called() == 5
    for _ in range(5):
        assert_equal(torch.float32)
    assert called() == 1
    for dtype in (torch.float64, torch.float32):  # each is another try
        for module in (model, twin):
            module.to(dtype)
        assert_equal(dtype)
        assert called() == 5
    other = copy.deepcopy(model)
    assert all(part._compiled_call_impl is not None for part in other.modules() if entry_of(part) is not None)
    replacement.undo()
    assert called() == 0
    assert not any("_compiled_call_impl" in vars(part) for part in model.modules())
    assert_equal(torch.float32)
