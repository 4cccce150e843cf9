"""Steps of constructed models: calls with arguments or in a mode, and changes of a model between its calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from constructed_models import LOG, Step, depthwise, x_of

X, SHORT = (lambda: x_of(12)), (lambda: x_of(9))


def folded(s: Any, x: torch.Tensor) -> torch.Tensor:
    """What is folded in a case."""
    return torch.tanh(s.conv(F.leaky_relu(x, s.slope)))


def given(*makers: Callable[[], Any], **named: Callable[[], Any]) -> Step:
    """Calls the model, and returns its result and its arguments, which it may have written to."""

    def step(model: Any) -> Any:
        args, kwargs = [make() for make in makers], {name: make() for name, make in named.items()}
        result = model(*args, **kwargs)
        return result, args, kwargs

    return step


def within(context: Callable[[], Any], x: Callable[[], torch.Tensor] = X) -> Step:
    """Calls the model in a context."""

    def step(model: Any) -> Any:
        with context():
            return model(x()), torch.is_grad_enabled()

    return step


def do(*calls: Callable[[Any], Any]) -> Step:
    """Changes the model; what the changes return is no outcome."""

    def step(model: Any) -> None:
        for call in calls:
            call(model)

    return step


def change(path: str, make: Callable[[], Any]) -> Step:
    """Sets an attribute of a part."""

    def to(model: Any) -> None:
        *owners, name = path.split(".")
        torch.manual_seed(11)
        setattr(functools.reduce(getattr, owners, model), name, make())

    return to


def without(path: str) -> Step:
    """Deletes an attribute of a part."""

    def to(model: Any) -> None:
        *owners, name = path.split(".")
        delattr(functools.reduce(getattr, owners, model), name)

    return to


def patched(owner: Any, name: str, value: Any, x: Callable[[], Any] = X) -> Step:
    """Calls the model while an attribute of a class, a module or an object has another value."""

    def to(model: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, value)
            return model(x())

    return to


def hook(path: str, kind: str, function: Any, **options: Any) -> tuple[Step, Step]:
    """Two steps: one that adds a hook, one that removes it."""

    def add(model: Any) -> None:
        hooked(model, model.get_submodule(path), kind, function, **options)

    return add, unhook


def hooked(model: Any, part: Any, kind: str, function: Any, **options: Any) -> None:
    """Adds a hook to a part, which `unhook` removes."""
    model.__dict__.setdefault("_handles_of_hooks", []).append(getattr(part, kind)(function, **options))


def unhook(model: Any) -> None:
    """Removes the last hook of `hooked`."""
    model._handles_of_hooks.pop().remove()


def note(module: Any, *args: Any) -> None:
    """A hook that notes its module and shapes."""
    LOG.append((module.__class__.__name__, [tuple(one.shape) for one in args[-1] if isinstance(one, torch.Tensor)]))


def doubled(module: Any, args: Any, result: Any) -> Any:
    """A hook that changes the result."""
    return result * 2


def doubles(self: Any, x: torch.Tensor) -> Any:
    """A forward."""
    return x * 2


class Doubled(nn.Module):
    """A module, or a parametrization."""

    factor = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def seeded(make: Callable[[], nn.Module] = depthwise) -> nn.Module:
    """A module with the same numbers each time."""
    torch.manual_seed(11)
    return make().eval()


def backward(model: Any) -> Any:
    """The gradients of a loss."""
    model.zero_grad()
    with torch.enable_grad():
        x = x_of(12).requires_grad_()
        y = model(x)
        y = y if isinstance(y, torch.Tensor) else y[0]
        y.square().sum().backward()
    return y.detach(), x.grad, [one.grad for one in model.parameters()]
