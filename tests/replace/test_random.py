"""sluice.replace on random forwards: every order of convolutions, activations, addends, views and writes."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from sluice.compile import in_place

pytestmark = pytest.mark.no_gpu
# The operations of a step: the names of one value's functions, of two values', and of writes.
ONE = ["relu", "tanh", "leaky", "half", "module", "inplace_module", "dropout", "identity", "view", "cat", "reversed"]
TWO = ["add", "sub", "rsub", "mul", "div"]
WRITES = ["add_", "iadd", "relu_", "leaky_", "imul", "zero_part"]
CONVOLUTIONS = ["conv", "up", "grouped", "narrow", "block"]


class Steps(nn.Module):
    """Runs its steps on a list of values."""

    def __init__(self, steps: list[tuple[str, int, int]], returned: list[int]) -> None:
        super().__init__()
        self.steps, self.returned = steps, returned
        self.conv, self.grouped = (nn.Conv1d(4, 4, 3, padding=1, groups=4) for _ in range(2))
        self.up, self.narrow = nn.ConvTranspose1d(4, 4, 3, padding=1, groups=4), nn.Conv1d(4, 1, 1)
        depthwise = nn.Conv1d(4, 4, 1, groups=4)
        self.block = nn.Sequential(nn.ReLU(inplace=True), depthwise, nn.LeakyReLU(0.1, inplace=True))
        self.module, self.inplace_module = nn.ELU(), nn.LeakyReLU(0.3, inplace=True)
        self.dropout, self.identity = nn.Dropout(0.5), nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        values = [x]
        for name, first, second in self.steps:
            values.append(self.step(name, values[first], values[second]))
        return [values[i] for i in self.returned]

    def step(self, name: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if name in ("conv", "up", "grouped", "block", "module", "inplace_module", "dropout", "identity"):
            return getattr(self, name)(a)  # type: ignore[no-any-return]
        if name == "narrow":
            return self.narrow(a).expand(-1, 4, -1)
        if name == "relu":
            return F.relu(a)
        if name == "tanh":
            return a.tanh()
        if name == "leaky":
            return F.leaky_relu(a, 0.2)
        if name == "half":
            return a / 2
        if name == "view":
            return a.view(a.shape) if a.dim() == 3 else a
        if name == "cat":
            return torch.cat([a[..., :3], b[..., 3:]], -1)
        if name == "reversed":
            return a.transpose(1, 2).transpose(1, 2)
        if name == "add":
            return a + b
        if name == "sub":
            return a - b
        if name == "rsub":
            return 1.5 - a
        if name == "mul":
            return torch.mul(a, b)
        if name == "div":
            return a / 4.0
        if name == "add_":
            return a.add_(b)
        if name == "iadd":
            a += b
            return a
        if name == "relu_":
            return F.relu(a, inplace=True)
        if name == "leaky_":
            return F.leaky_relu(a, 0.2, True)
        if name == "imul":
            a *= 0.5
            return a
        return a.narrow(-1, 0, 2).zero_()[..., :1] + a


def drawn(source: random.Random, length: int) -> tuple[list[tuple[str, int, int]], list[int]]:
    """Steps, mostly on the latest values."""
    steps = []
    for i in range(length):
        names = source.choices([CONVOLUTIONS, ONE, TWO, WRITES], weights=[4, 4, 2, 2])[0]
        near = [max(0, i - int(source.expovariate(1.2))) for _ in range(2)]
        steps.append((source.choice(names), *near))
    return steps, sorted({length, *source.sample(range(length + 1), source.choice([0, 0, 1, 2]))})  # type: ignore[return-value]


def outcome(model: nn.Module, x: torch.Tensor) -> Any:
    """The results and what became of the input, or the error."""
    x = x.clone()
    with torch.no_grad():
        try:
            return [*model(x), x]
        except RuntimeError as error:
            return type(error)


@pytest.mark.parametrize("seeds", [range(14), range(14, 28)], ids=["first", "second"])
def test_random_forwards(seeds: Iterable[int]) -> None:
    folded = 0
    for seed in seeds:
        source = random.Random(seed)
        torch.default_generator.manual_seed(seed)
        model = Steps(*drawn(source, source.randint(3, 9))).double().eval()
        twin = copy.deepcopy(model)
        replacement = sluice.replace(model)
        for _ in range(2):
            x = torch.randn(2, 4, source.randint(4, 9), dtype=torch.float64)
            ours, theirs = outcome(model, x), outcome(twin, x)
            if isinstance(theirs, type):
                assert ours is theirs
                continue
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other, msg=f"seed {seed}: {model.steps}")
                assert one.stride() == other.stride()
        folded += sum(row.folded != "" for row in replacement.rows)
    assert folded > 8


def test_a_missing_rule_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rule about writes into shared values, the random forwards find an error."""
    monkeypatch.setattr(in_place, "_is_last_reader", lambda node, order: isinstance(node.args[0], torch.fx.Node))
    with pytest.raises(AssertionError, match="seed"):
        test_random_forwards(range(28))
