"""sluice.replace: calls of folded forwards that differ from what was traced: attributes, hooks, arguments, shapes."""

from __future__ import annotations

import copy
import functools
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from folded_modules import ResidualBlock, assert_twins, folded, parent, x_of

pytestmark = pytest.mark.no_gpu


# --- attributes and submodules ----------------------------------------------------------------------------------------
def configured(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.config.deep.is_on:
        x = F.leaky_relu(self.conv(x), self.config.slope)
    if getattr(self, "bonus", None) is not None:
        x = x + self.bonus
    for layer in self.layers:
        x = layer(self.function(x))
    return x * self.factors[0]


def change(path: str, value: Any) -> Callable[[Any], None]:
    def to(model: Any) -> None:
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, model)
        setattr(owner, name, value)

    return to


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an attribute of an object": change("config.slope", 0.7),
    "of an object in an object": change("config.deep.is_on", False),
    "the object": change("config", types.SimpleNamespace(slope=0.4, deep=types.SimpleNamespace(is_on=True))),
    "a number of another type": change("config.slope", 1),
    "a function": change("function", torch.sigmoid),
    "an element of a list": lambda model: model.factors.__setitem__(0, 3.0),
    "an attribute that was not there": change("bonus", 2.0),
    "a submodule": lambda model: model.layers.__setitem__(0, nn.Conv1d(4, 4, 1, groups=4)),
    "a submodule of another class": lambda model: model.layers.__setitem__(1, nn.Tanh()),
    "one submodule more": lambda model: model.layers.append(nn.Tanh()),
    "one submodule less": lambda model: model.layers.__delitem__(1),
    "a submodule that is no more": change("conv", nn.Identity()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_forward_reads_may_change(name: str) -> None:
    torch.manual_seed(8)
    config = types.SimpleNamespace(slope=0.1, deep=types.SimpleNamespace(is_on=True))
    layers = nn.ModuleList([nn.Conv1d(4, 4, 1, groups=4), nn.ELU()])
    model, twin, replacement = parent(
        configured, config=config, layers=layers, function=torch.tanh, factors=[0.5, 2.0]
    )  # fmt: skip
    assert_twins(model, twin, x_of())
    assert set(folded(replacement)) == {"conv", "layers.0"}
    for module in (model, twin):
        torch.manual_seed(9)
        CHANGES[name](module)
    assert_twins(model, twin, x_of())


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.part = 1.0, nn.Module()
        self.part.deep = 2.0


def by_made_names(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.relu(self.conv(x)) * getattr(self, "factor" + str(1))


def by_submodules(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.relu(self.conv(x)) * self.inner.scale * self.inner.part.deep


@pytest.mark.parametrize(
    ("forward", "path"),
    [(by_made_names, "factor1"), (by_submodules, "inner.scale"), (by_submodules, "inner.part.deep")],
)
def test_attributes_behind_names(forward: Callable[..., Any], path: str) -> None:
    model, twin, _ = parent(forward, factor1=3.0, inner=Inner())
    assert_twins(model, twin, x_of())
    for one in (model, twin):
        change(path, 5.0)(one)
    assert_twins(model, twin, x_of())


SLOPE = 0.1  # as in the sources of HiFi-GAN
FACTORS = {"x": [2.0]}


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    model, twin, replacement = parent(lambda self, x: F.leaky_relu(self.conv(x), SLOPE) * FACTORS["x"][0])
    assert_twins(model, twin, x_of())
    assert folded(replacement)["conv"] == "post: leaky_relu(0.1) | scale(2.0)"
    monkeypatch.setitem(FACTORS, "x", [3.0])
    assert_twins(model, twin, x_of())
    monkeypatch.setitem(FACTORS, "x", [2.0])
    monkeypatch.setitem(globals(), "SLOPE", 0.3)
    assert_twins(model, twin, x_of())


def test_copies_do_not_hold_the_model() -> None:
    model = ResidualBlock().eval()
    sluice.replace(model)
    twin, gone = copy.deepcopy(model), weakref.ref(model)
    x = torch.randn(2, 6, 9)
    with torch.no_grad():
        expected = model(x)
        del model
        gc.collect()
        assert gone() is None
        assert torch.equal(twin(x), expected)


def test_attributes_of_activations_are_read_at_each_call() -> None:
    model = nn.Sequential(nn.LeakyReLU(0.1), nn.Conv1d(4, 4, 3, groups=4), nn.Softplus()).eval()
    twin = copy.deepcopy(model)
    sluice.replace(model)
    for one in (model, twin):
        one[0].negative_slope, one[2].beta = 0.5, 3.0
    assert_twins(model, twin, x_of())
    for one in (model, twin):
        one[0] = nn.Tanh()
    assert_twins(model, twin, x_of())
    for one in (model, twin):
        one.append(nn.Tanh())
    assert_twins(model, twin, x_of())
    assert_twins(model[1:], twin[1:], x_of())


def test_attributes_that_move_do_not_stop_folding() -> None:
    model, twin, _ = parent(lambda self, x: F.relu(self.conv(x.to(x.device) * self.gain)))
    for one in (model, twin):
        one.bfloat16().double()
    assert_twins(model, twin, x_of(dtype=torch.float64))


def test_training_and_eval() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.drop(F.dropout(F.relu(self.conv(x)), 0.5, self.training))

    model, twin, replacement = parent(forward, drop=nn.Dropout(0.5))
    for mode in (False, True, False):
        x, drawn = x_of(), []
        for one in (model.train(mode), twin.train(mode)):
            torch.manual_seed(1)
            with torch.no_grad():
                drawn.append(one(x))
        torch.testing.assert_close(*drawn)
    assert folded(replacement) == {"conv": "post: relu()"}


def test_a_dropout_in_training_alone() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3, groups=4), nn.Dropout(0.5), nn.ReLU()).eval()
    twin = copy.deepcopy(model)
    sluice.replace(model)
    drawn = []
    for one in (model, twin):
        one[1].train()
        torch.manual_seed(1)
        with torch.no_grad():
            drawn.append(one(torch.ones(2, 4, 12)))
    torch.testing.assert_close(*drawn)
    assert (drawn[0] == 0).any()


# --- hooks ------------------------------------------------------------------------------------------------------------
HOOKS: dict[str, Callable[[nn.Module, list[Any]], Any]] = {
    "forward": lambda m, seen: m.register_forward_hook(lambda _, i, o: seen.extend((*i, o))),
    "forward with keywords": lambda m, seen: m.register_forward_hook(
        lambda _, i, k, o: seen.extend((*i, k, o)), with_kwargs=True
    ),
    "forward_pre": lambda m, seen: m.register_forward_pre_hook(lambda _, i: seen.extend(i)),
    "forward_pre with keywords": lambda m, seen: m.register_forward_pre_hook(
        lambda _, i, k: seen.extend((*i, k)), with_kwargs=True
    ),
    "changing": lambda m, seen: m.register_forward_hook(lambda _, i, o: o + 1),
}


@pytest.mark.parametrize("place", ["0", "1", "2", ""])
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_see_what_they_saw(name: str, place: str) -> None:
    """Before the first call, after it, and when they are gone."""
    model = nn.Sequential(nn.ELU(), nn.Conv1d(4, 4, 3, groups=4), nn.Tanh()).eval()
    for when in ("before", "after") if name == "forward" or place == "1" else ("after",):
        twin, ours, seen, expected = copy.deepcopy(model), copy.deepcopy(model), [], []
        handles = [HOOKS[name](twin.get_submodule(place), expected)]
        if when == "before":
            handles.append(HOOKS[name](ours.get_submodule(place), seen))
        sluice.replace(ours)
        x = x_of()
        if when == "after":
            with torch.no_grad():
                ours(x)
            handles.append(HOOKS[name](ours.get_submodule(place), seen))
        assert_twins(ours, twin, x)
        torch.testing.assert_close(seen, expected)
        for handle in handles:
            handle.remove()
        assert_twins(ours, twin, x)


def test_hooks_of_all_modules() -> None:
    model = nn.Sequential(nn.ELU(), nn.Conv1d(4, 4, 3, groups=4)).eval()
    sluice.replace(model)
    seen: list[str] = []
    for _ in range(2):
        handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: seen.append(type(m).__name__))
        with torch.no_grad():
            model(x_of())
        handle.remove()
        assert seen == ["ELU", "Conv1d", "Sequential"]
        seen.clear()
        with torch.no_grad():
            model(x_of())


# --- arguments --------------------------------------------------------------------------------------------------------
def optional(self: Any, x: torch.Tensor, y: torch.Tensor | None = None, scale: float = 1.0, **more: Any) -> Any:
    x = self.conv(x.relu())
    if y is not None:
        x = x + self.other(y)
    if more:
        x = x + more["z"]
    return torch.tanh(x * scale), None


def test_optional_and_other_arguments() -> None:
    model, twin, replacement = parent(optional)
    for args, kwargs in (
        ((x_of(),), {}),
        ((x_of(), x_of()), {}),
        ((), {"y": x_of(), "x": x_of()}),
        ((x_of(), None, 2.0), {}),
        ((x_of(),), {"scale": 1}),
        ((x_of(),), {"z": x_of()}),
    ):
        assert_twins(model, twin, *args, **kwargs)
    assert "pre: relu(), post: add($0,1.0) | scale(1.0) | tanh()" in folded(replacement)["conv"]
    for wrong in ({"args": ()}, {"args": (x_of(), None, 1.0, 2.0)}, {"args": (x_of(),), "kwargs": {"x": x_of()}}):
        messages = []
        for one in (model, twin):
            with pytest.raises(TypeError) as error:
                one(*wrong.get("args", ()), **wrong.get("kwargs", {}))
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def test_arguments_that_are_no_tensors() -> None:
    model, twin, _ = parent(lambda self, x, r: torch.tanh(self.conv(x) + r))
    for r in (0.5, 2, x_of().double(), nn.Parameter(x_of())):
        assert_twins(model, twin, x_of(), r)
    assert_twins(model, twin, x_of(), 0.5)


# --- shapes -----------------------------------------------------------------------------------------------------------
def cropped(self: Any, x: torch.Tensor) -> torch.Tensor:
    is_batched = x.dim() == 3
    if not is_batched:
        x = x.unsqueeze(0)
    y = self.valid(self.act(x))
    crop = (x.shape[-1] - y.shape[-1]) // 2
    if crop > 0:
        x = x[..., crop:-crop]
    y = x + y
    return y if is_batched else y.squeeze(0)


def padded(self: Any, x: torch.Tensor) -> torch.Tensor:
    batch, channels, length = x.size()
    if length % 2 == 1 and channels == 4:
        x = F.pad(x, (0, 1))
    return F.silu(self.conv(x))[..., : length // 2].reshape(batch, -1)


def same(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(F.silu(x))
    return y + x if y.shape == x.shape and x.dtype == torch.float32 else y


@pytest.mark.parametrize("forward", [cropped, padded, same])
def test_branches_on_shapes(forward: Callable[..., Any]) -> None:
    model, twin, replacement = parent(forward)
    for length in (12, 13, 31):
        assert_twins(model, twin, x_of(length))
    assert folded(replacement), str(replacement)
    if forward is cropped:
        assert_twins(model, twin, torch.randn(4, 12))
    model.double(), twin.double()
    assert_twins(model, twin, x_of(12, dtype=torch.float64))


# --- gradients, modes -------------------------------------------------------------------------------------------------
def test_gradients_come_from_forward_itself() -> None:
    model = ResidualBlock().eval()
    twin = copy.deepcopy(model)
    sluice.replace(model)
    inputs = [torch.linspace(-1, 1, 2 * 6 * 9).view(2, 6, 9).requires_grad_() for _ in range(2)]
    for one, x in zip((model, twin), inputs, strict=True):
        one(x).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    model.requires_grad_(False)(inputs[0]).sum().backward()
    torch.testing.assert_close(model(inputs[0].detach()), twin(inputs[0]).detach())
    with torch.no_grad():
        x, v = torch.randn(2, 2, 6, 9)
        for one, other in zip(*(torch.func.jvp(m, (x,), (v,)) for m in (model, twin)), strict=True):
            torch.testing.assert_close(one, other)
    with torch.inference_mode():
        torch.testing.assert_close(model(x), twin(x))


def test_autocast_chooses_dtypes() -> None:
    model, twin, _ = parent(lambda self, x: F.softplus(self.conv(x)) + x)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert_twins(model, twin, x_of())


def test_classes_around_convolutions_stay() -> None:
    model = ResidualBlock().eval()
    sluice.replace(model)
    assert type(model) is ResidualBlock
    assert repr(model) == repr(ResidualBlock())
