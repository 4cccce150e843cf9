"""Graphs that run ahead of Dynamo's guards: what they may be, and that nobody can tell."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from folded_modules import Parent, x_of
from sluice.compile import ahead

pytestmark = pytest.mark.no_gpu


class Counts:
    """How many graphs ran ahead, and how many of them were asked for."""

    def __init__(self) -> None:
        self.runs = self.hits = 0

    def take(self) -> tuple[int, int]:
        found, self.runs, self.hits = (self.runs, self.hits), 0, 0
        return found


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Graphs run ahead on the CPU."""
    monkeypatch.setattr(ahead, "DEVICES", frozenset(("cpu",)))
    found, run, is_of = Counts(), ahead.Ahead.run, ahead.Call.is_of

    def counted_run(self: ahead.Ahead, *args: Any) -> ahead.Call | None:
        made = run(self, *args)
        found.runs += made is not None
        return made

    def counted_is_of(self: ahead.Call, *args: Any) -> bool:
        is_same = is_of(self, *args)
        found.hits += is_same
        return is_same

    monkeypatch.setattr(ahead.Ahead, "run", counted_run)
    monkeypatch.setattr(ahead.Call, "is_of", counted_is_of)
    return found


def twins(forward: Callable[..., Any] = lambda self, x: F.relu(self.other(F.silu(self.conv(x))))) -> list[nn.Module]:
    """A module and a replaced copy of it."""
    module = type("Made", (Parent,), {"forward": forward})().eval()
    return [module, sluice.replace(copy.deepcopy(module)).model]


def assert_equal(pair: list[nn.Module], *args: Any, **kwargs: Any) -> None:
    ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with torch.no_grad():
        torch.testing.assert_close(pair[1](*ours[0], **ours[1]), pair[0](*theirs[0], **theirs[1]))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_calls_like_the_last_one(counts: Counts) -> None:
    pair = twins()
    for length in (12, 12, 31, 31, 12):
        assert_equal(pair, x_of(length))
    assert counts.take() == (2, 2)  # another length runs as ever
    assert_equal(pair, x=x_of())
    assert_equal(pair, x_of().mT.contiguous().mT)
    assert counts.take()[1] <= 1


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "conv", nn.Identity()),
        lambda model: model.other.register_forward_hook(lambda module, args, result: 2 * result),
        lambda model: model.double().float(),
        lambda model: setattr(model.conv, "weight", nn.Parameter(torch.ones(4, 1, 3))),
        lambda model: model.train(),
    ],
)
def test_changes_between_calls(change: Callable[[nn.Module], Any], counts: Counts) -> None:
    pair = twins()
    for _ in range(2):
        assert_equal(pair, x_of())
    for model in pair:
        change(model)
    for _ in range(3):
        assert_equal(pair, x_of())
    assert counts.hits >= 1


def test_weights_that_change_in_place(counts: Counts) -> None:
    pair = twins()
    for _ in range(4):
        assert_equal(pair, x_of())
        with torch.no_grad():
            for model in pair:
                model.conv.weight.mul_(1.5)  # type: ignore[union-attr, operator]
    assert counts.take() == (3, 3)


def test_weights_of_each_call_end_it(counts: Counts) -> None:
    pair = twins()
    for _ in range(8):
        for model in pair:
            model.conv.weight = nn.Parameter(torch.full((4, 1, 3), 0.5))  # type: ignore[union-attr]
        assert_equal(pair, x_of())
    assert counts.take() == (3, 0)


def count_and_write(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.relu(self.conv(x))
    x.mul_(2)
    return y + x


def draw(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.relu(self.conv(x)), 0.5)


def log(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.relu(self.conv(x))
    self.logged = [*getattr(self, "logged", []), float(y.sum())]
    return F.silu(self.other(y))  # type: ignore[no-any-return]


def pass_on(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return F.relu(self.conv(x)), x[..., 1:]


@pytest.mark.parametrize("forward", [count_and_write, draw, log, pass_on])
def test_what_can_be_told_does_not_run_ahead(forward: Callable[..., Any], counts: Counts) -> None:
    pair = twins(forward)
    with torch.no_grad():
        for _ in range(3):
            x, results, inputs = x_of(), [], []
            for model in pair:
                torch.manual_seed(11)
                inputs.append(x.clone())
                results.append(model(inputs[-1]))
            torch.testing.assert_close(results[1], results[0])
            torch.testing.assert_close(inputs[1], inputs[0], rtol=0, atol=0)
    if forward is log:
        assert len(pair[1].logged) == 3  # type: ignore[arg-type]
    assert counts.take() == (0, 0)


def test_errors_are_those_of_the_call(counts: Counts) -> None:
    pair = twins(lambda self, x: F.relu(self.conv(x)) + x)
    for _ in range(2):
        assert_equal(pair, x_of())
    for model in pair:
        model.conv.weight.data = torch.ones(3, 1, 3)  # type: ignore[union-attr]
        with torch.no_grad(), pytest.raises((RuntimeError, ValueError)):
            model(x_of())


def test_gradients_are_those_of_the_call(counts: Counts) -> None:
    pair = twins()
    for model in pair:
        model.requires_grad_(False)
    for _ in range(2):
        assert_equal(pair, x_of())
    x = x_of()
    gradients = [
        torch.autograd.grad(model(given).sum(), given) for model in pair for given in (x.clone().requires_grad_(),)
    ]
    torch.testing.assert_close(*gradients)


def test_threads(counts: Counts) -> None:
    pair = twins()
    assert_equal(pair, x_of())
    failures: list[BaseException] = []

    def run(scale: float) -> None:
        try:
            for _ in range(20):
                assert_equal(pair, scale * x_of())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(float(i),)) for i in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert counts.hits > 0
