"""sluice.replace: norms, shared weights, copies, and classes that change what calls are."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from constructed_models import LOG, STEPS, Base, Step, assert_same_steps, depthwise, of_forward, some, undo, x_of
from constructed_steps import Doubled, folded, seeded

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:.*weight_norm.*")]


# --- norms and parametrizations ---------------------------------------------------------------------------------------
def norm_of(make: Callable[[Any], Any], **attributes: Any) -> nn.Module:
    model = of_forward(folded, **attributes)
    with torch.no_grad():  # else the weight of old norms cannot be copied
        make(model.conv)
    return model.eval()


def factors(model: Any) -> None:
    for one in model.conv.parameters():
        one.mul_(torch.linspace(0.5, 2, one.numel()).view(one.shape))


def data_of_factors(model: Any) -> None:
    for one in model.conv.parameters():
        one.data = one.data * torch.linspace(0.5, 2, one.numel()).view(one.shape)


NORMS: dict[str, tuple[Callable[[Any], Any], Step]] = {
    "weight_norm": (parametrizations.weight_norm, lambda m: parametrize.remove_parametrizations(m.conv, "weight")),
    "old weight_norm": (nn.utils.weight_norm, lambda m: nn.utils.remove_weight_norm(m.conv)),
    "spectral_norm": (parametrizations.spectral_norm, lambda m: parametrize.remove_parametrizations(m.conv, "weight")),
    "old spectral_norm": (nn.utils.spectral_norm, lambda m: nn.utils.remove_spectral_norm(m.conv)),
    "a parametrization": (lambda conv: parametrize.register_parametrization(conv, "weight", Doubled()),
                          lambda m: parametrize.remove_parametrizations(m.conv, "weight")),
    "one of the bias": (lambda conv: parametrize.register_parametrization(conv, "bias", Doubled()),
                        lambda m: parametrize.remove_parametrizations(m.conv, "bias")),
}  # fmt: skip


@pytest.mark.parametrize("name", some(NORMS))
def test_norms(name: str) -> None:
    make, remove = NORMS[name]
    model, ours = norm_of(make), norm_of(make)  # copies would have one class, which removing changes
    train: tuple[Step, ...] = (lambda m: m.train(), 12, 12, lambda m: m.eval())
    assert_same_steps(model, (12, factors, 12, data_of_factors, 9, *train, 12, remove, 12), ours)


@pytest.mark.parametrize("name", some(NORMS))
def test_later_norms(name: str) -> None:
    make, remove = NORMS[name]
    assert_same_steps(of_forward(folded), (12, lambda m: make(m.conv) and None, 12, factors, 12, remove, factors, 9))


def test_cached_parametrizations() -> None:
    def cached(model: Any) -> Any:
        with parametrize.cached():
            return model(x_of(12)), factors(model), model(x_of(12))

    assert_same_steps(norm_of(parametrizations.weight_norm), (cached, 12, cached, 12))


# --- shared weights and copies ----------------------------------------------------------------------------------------
def tied(s: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(s.other(F.relu(s.conv(F.relu(x)))))


def tie(model: Any) -> None:
    model.other.weight = model.conv.weight


def untie(model: Any) -> None:
    model.other.weight = nn.Parameter(model.conv.weight * 3)


def saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def functional(model: Any) -> Any:
    values = {name: one * 2 for name, one in model.named_parameters()}
    return torch.func.functional_call(model, values, (x_of(12),)), model(x_of(12))


def of_copy(make: Callable[[Any], Any]) -> Step:
    """Calls a copy, changes it, and calls both."""

    def step(model: Any) -> Any:
        copied = make(model)
        results = [copied(x_of(12))]
        copied.conv.weight.mul_(3)
        copied.slope = 0.9
        return [*results, copied(x_of(12)), copied(x_of(9)), model(x_of(12)), sorted(copied.state_dict())]

    return step


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": saved,
    "copy": lambda m: copy.deepcopy(copy.copy(m)),
    "a list of copies": lambda m: copy.deepcopy([m, m])[1],
    "a copy's copy": lambda m: copy.deepcopy(pickle.loads(pickle.dumps(copy.deepcopy(m)))),
}


class Plain(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return folded(self, x)


@pytest.mark.parametrize("name", some(COPIES))
def test_copies(name: str) -> None:
    step = of_copy(COPIES[name])
    assert_same_steps(Plain().eval(), (step, 12, step, undo, step))


TIES: dict[str, tuple[Step, ...]] = {
    "later untied": (tie, 12, untie, 12, 9),
    "later tied": (12, tie, 12, factors, 12),
    "tied modules": (12, lambda m: setattr(m, "other", m.conv), 12, factors, 12),
    "untied modules": (lambda m: setattr(m, "other", m.conv), 12, lambda m: setattr(m, "other", seeded()), 12),
    "the same buffer": (12, lambda m: setattr(m, "shift", m.conv.weight.detach()[:, 0]), 12, factors, 12),
    "functional_call": (functional, 12, functional),
    "functional_call of tied": (tie, functional, untie, functional),
}


@pytest.mark.parametrize("name", some(TIES))
def test_ties(name: str) -> None:
    assert_same_steps(of_forward(tied), TIES[name])


# --- classes that change what calls are -------------------------------------------------------------------------------
class OwnCall(Base):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        LOG.append("call")
        return super().__call__(*args, **kwargs) * 2


class OwnGetattr(Base):
    def __getattr__(self, name: str) -> Any:
        if name == "missing":
            LOG.append(name)
            return 3.0
        return super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> Any:
        return folded(self, x) * self.missing


class OwnSetattr(Base):
    def __setattr__(self, name: str, value: Any) -> None:
        LOG.append(name)
        super().__setattr__(name, value)

    def forward(self, x: torch.Tensor) -> Any:
        self.slope = self.slope + 0.1
        return folded(self, x)


class Slots(Base):
    __slots__ = ("kept",)

    def forward(self, x: torch.Tensor) -> Any:
        self.kept = getattr(self, "kept", 0) + 1
        return folded(self, x) * self.kept


class OwnProperty(Base):
    @property
    def layer(self) -> Any:
        self.slope += 0.25
        return self.conv

    @functools.cached_property
    def once(self) -> float:
        LOG.append("once")
        return self.slope

    def forward(self, x: torch.Tensor) -> Any:
        return torch.tanh(self.layer(F.relu(x))) * self.slope + self.once


class Descriptor:
    def __get__(self, owner: Any, kind: Any = None) -> float:
        LOG.append("get")
        return 2.0


class OwnDescriptor(Base):
    factor = Descriptor()

    @staticmethod
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @classmethod
    def named(cls, x: torch.Tensor) -> torch.Tensor:
        LOG.append(cls.__name__)
        return x

    def forward(self, x: torch.Tensor) -> Any:
        return self.named(self.twice(folded(self, x))) * self.factor


class Decorated(Base):
    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> Any:
        return folded(self, x), torch.is_grad_enabled()


class Disabled(Base):
    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> Any:
        return folded(self, x) * next(iter([x.mean().item()]))


class Managed(Base):
    @contextlib.contextmanager
    def noted(self) -> Any:
        self.slope *= 2
        yield
        self.slope /= 2

    def forward(self, x: torch.Tensor) -> Any:
        with self.noted():
            return folded(self, x)


class Container(nn.Sequential):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) * len(self)


CLASSES: list[Callable[[], nn.Module]] = [
    OwnCall, OwnGetattr, OwnSetattr, Slots, OwnProperty, OwnDescriptor, Decorated, Disabled, Managed,
    lambda: Container(nn.ReLU(), depthwise(), nn.Tanh()),
]  # fmt: skip


@pytest.mark.parametrize("place", some(range(len(CLASSES))))
def test_classes(place: int) -> None:
    assert_same_steps(
        CLASSES[place]().eval(), (*STEPS, lambda m: m.append(nn.ELU()) if isinstance(m, Container) else None, 12)
    )
