"""sluice.replace: hooks in every place and of later modules, and dicts of hooks that others write."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from constructed_faults import marked
from constructed_models import LOG, Base, Step, assert_same_steps, depthwise, of_forward, some, x_of
from constructed_steps import Doubled, change, do, doubled, folded, given, hook, hooked, note, unhook

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:.*weight_norm.*")]


# --- modules that a model calls without owning them, or that come later -----------------------------------------------
OUTSIDE = depthwise().eval()


class Hidden(nn.Module):
    """A module without children, which gets one later."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.children():
            x = part(x)
        return x


class Holder:
    """An object of no module's class, with a module."""

    def __init__(self) -> None:
        self.part = depthwise()


def in_closure() -> nn.Module:
    return of_forward(lambda s, x: OUTSIDE(folded(s, x)))


def of_plain(value: Callable[[], Any], get: Callable[[Any], nn.Module]) -> tuple[Callable[[], nn.Module], Any]:
    """A model with modules where torch does not find them, and how to get one."""

    def make() -> nn.Module:
        model = of_forward(lambda s, x: get(s)(folded(s, x)))
        model.plain = value()
        return model

    return make, get


# How to make the model, and the module that gets the hook.
PLACES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], nn.Module]]] = {
    "a list": of_plain(lambda: [depthwise()], lambda s: s.plain[0]),
    "a tuple": of_plain(lambda: (depthwise(), 3), lambda s: s.plain[0]),
    "a dict": of_plain(lambda: {"a": [depthwise()]}, lambda s: s.plain["a"][0]),
    "an object": of_plain(Holder, lambda s: s.plain.part),
    "a partial": of_plain(lambda: functools.partial(nn.Tanh()), lambda s: s.plain.func),
    "a bound method's owner": of_plain(lambda: nn.Tanh().__call__, lambda s: s.plain.__self__),
    "a global": (in_closure, lambda s: OUTSIDE),
    "the class": (lambda: type("Owner", (Base,), {"forward": lambda s, x: s.shared(folded(s, x)), "shared": OUTSIDE})(
        ).eval(), lambda s: OUTSIDE),
    "__dict__": (lambda: of_forward(lambda s, x: s.__dict__["raw"](folded(s, x))), lambda s: s.__dict__["raw"]),
    "an activation": (Base, lambda s: s.act),
    "a nested part": (lambda: nn.Sequential(nn.Sequential(nn.ReLU(), nn.Sequential(depthwise(), nn.Tanh()))).eval(),
                      lambda s: s[0][1][1]),
    "a container": (lambda: of_forward(lambda s, x: s.box[1](s.box[0](x)), box=nn.Sequential(nn.ReLU(), depthwise())),
                    lambda s: s.box),
    "a parametrization": (lambda: parametrized(), lambda s: s.conv.parametrizations.weight[0]),
    "a list of parametrizations": (lambda: parametrized(), lambda s: s.conv.parametrizations.weight),
    "a part called twice": (lambda: of_forward(lambda s, x: s.act(s.conv(s.act(x)))), lambda s: s.act),
    "a part by another name": (lambda: of_forward(lambda s, x: s.same(s.conv(x)), same=nn.Tanh()), lambda s: s.same),
    "a part never called": (lambda: of_forward(folded), lambda s: s.other),
}  # fmt: skip


def parametrized() -> nn.Module:
    model = of_forward(folded)
    parametrize.register_parametrization(model.conv, "weight", Doubled())
    return model.eval()


def with_raw(model: Any) -> Any:
    model.__dict__["raw"] = depthwise()
    return model


@pytest.mark.parametrize("name", marked(some(PLACES), "hooks in places"))
def test_places_of_hooks(name: str) -> None:
    make, get = PLACES[name]

    def add(model: Any) -> None:
        hooked(model, get(model), "register_forward_hook", doubled)

    def add_pre(model: Any) -> None:
        hooked(model, get(model), "register_forward_pre_hook", lambda m, a: LOG.append(type(m).__name__))

    assert_same_steps(with_raw(make()).eval(), (12, add, 12, 9, unhook, 12, add_pre, 12, unhook, 12))


def filled(model: Any, path: str = "box", hooks: bool = False) -> None:
    torch.manual_seed(4)
    part = nn.Sequential(depthwise(), nn.Tanh())
    if hooks:
        part[0].register_forward_hook(doubled)
    model.get_submodule(path).add_module("late", part)


def with_late(s: Any, x: torch.Tensor) -> Any:
    return s.box(folded(s, x)) + sum(part(x) for part in s.layers)


LATER: dict[str, tuple[Step, ...]] = {
    "an empty Sequential": (12, filled, 12, lambda m: hooked(m, m.box.late[1], "register_forward_hook", doubled), 12),
    "an empty Sequential, hooked part": (12, lambda m: filled(m, hooks=True), 12, lambda m: m.box.late[0].
        _forward_hooks.clear(), 12),
    "an empty ModuleList": (12, do(lambda m: m.layers.append(nn.Tanh())), 12, lambda m: hooked(m, m.layers[0],
        "register_forward_hook", doubled), 12, unhook, 12),
    "an empty ModuleList that shrinks": (12, do(lambda m: m.layers.append(nn.Tanh())), 12, do(
        lambda m: m.layers.pop(0)), 12),
    "a leaf": (12, lambda m: filled(m, "leaf"), 12, lambda m: hooked(m, m.leaf.late[0], "register_forward_hook",
        doubled), 12),
    "a part of a new part": (change("box", lambda: nn.Sequential(nn.Sequential())), 12, lambda m: filled(m, "box.0"),
        12, lambda m: hooked(m, m.box[0].late[1], "register_forward_pre_hook", note), 12),
    "a part that is replaced by a hooked one": (12, lambda m: (filled(m, hooks=True), setattr(m, "box", m.box.late))[1],
        12, lambda m: m.box[0]._forward_hooks.clear(), 12),
}  # fmt: skip


@pytest.mark.parametrize("name", marked(some(LATER), "hooks of later modules"))
def test_hooks_of_later_modules(name: str) -> None:
    def forward(s: Any, x: torch.Tensor) -> Any:
        return s.leaf(with_late(s, x))

    model = of_forward(forward, box=nn.Sequential(), layers=nn.ModuleList(), leaf=Hidden())
    assert_same_steps(model, LATER[name])


# --- dicts of hooks that others write ---------------------------------------------------------------------------------
def put(kind: str, function: Any, path: str = "conv") -> Step:
    return lambda model: setattr(model.get_submodule(path), kind, collections.OrderedDict({7: function}))


def emptied(kind: str, path: str = "conv") -> Step:
    return lambda model: setattr(model.get_submodule(path), kind, collections.OrderedDict())


DICTS: dict[str, tuple[Step, ...]] = {
    "another dict": (12, put("_forward_hooks", doubled), 12, emptied("_forward_hooks"), 12),
    "another dict of an activation": (12, put("_forward_pre_hooks", lambda m, a: (a[0] * 2,), "act"), 12),
    "another dict before the first call": (put("_forward_hooks", doubled), 12, put("_forward_hooks",
        lambda m, a, y: y + 1), 12, emptied("_forward_hooks"), 12),
    "another dict of the model": (12, put("_forward_hooks", doubled, ""), 12, emptied("_forward_hooks", ""), 12),
    "an element": (12, lambda m: m.conv._forward_hooks.update({7: doubled}), 12, lambda m: m.conv._forward_hooks.
        update({7: lambda m, a, y: y + 1}), 12, do(lambda m: m.conv._forward_hooks.pop(7)), 12),
    "a cleared dict": (*hook("conv", "register_forward_hook", doubled)[:1], 12, lambda m: m.conv._forward_hooks.
        clear(), 12),
    "another order": (lambda m: m.conv._forward_hooks.update({7: doubled, 8: lambda m, a, y: y + 1}), 12,
        lambda m: m.conv._forward_hooks.move_to_end(7), 12),
    "flags of kwargs": (lambda m: m.conv._forward_pre_hooks.update({7: lambda m, a, *k: (LOG.append(len(k)))}), 12,
        lambda m: m.conv._forward_pre_hooks_with_kwargs.update({7: True}), 12),
    "flags of always": (lambda m: m.conv._forward_hooks.update({7: note}), 12, lambda m: m.conv.
        _forward_hooks_always_called.update({7: True}), given(lambda: x_of(12)[:, :3]), 12),
    "a dict of two modules": (12, lambda m: setattr(m.conv, "_forward_hooks", m.act._forward_hooks), 12,
        hook("act", "register_forward_hook", doubled)[0], 12),
    "a state": (12, lambda m: m.act.__setstate__({**m.act.__dict__, "_forward_hooks": collections.OrderedDict(
        {7: doubled})}), 12),
    "a replaced __dict__": (12, lambda m: m.act.__dict__.update(_forward_hooks=collections.OrderedDict({7: doubled})),
        12),
}  # fmt: skip


@pytest.mark.parametrize("name", marked(some(DICTS), "dicts of hooks"))
def test_dicts_of_hooks(name: str) -> None:
    assert_same_steps(Base().eval(), DICTS[name])
