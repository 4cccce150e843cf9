"""sluice.replace: what is changed between calls of a replaced model: attributes, modules, hooks, norms, and copies."""

from __future__ import annotations

import functools
import gc
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from constructed_models import (
    LOG,
    Base,
    Step,
    again,
    assert_same_steps,
    depthwise,
    some,
    undo,
    x_of,
)  # fmt: skip
from constructed_steps import change, doubles, hook, note, patched, without

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:.*weight_norm.*")]


class Watching(nn.Module):
    """Attributes of all kinds. Norms and lists of modules are there where a case has them in its name."""

    limit, table = 3.0, {"a": 1.0}

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.act, self.slope, self.mode, self.on = depthwise(), nn.LeakyReLU(0.2), 0.1, "a", True
        self.extra, self.function, self.numbers, self.plain = None, torch.tanh, [1.0, 2.0], torch.ones(4, 1)
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.has_norm, self.has_list = any(word in name for word in ("norm", "drop", "train", "run")), "list" in name
        self.layers, self.by_name = nn.ModuleList([depthwise(), nn.ELU()]), nn.ModuleDict({"a": nn.ELU()})
        self.parts = [depthwise()]
        self.register_buffer("shift", torch.rand(4, 1))
        self.gain = nn.Parameter(torch.rand(4, 1))
        self.config = types.SimpleNamespace(slope=0.1, deep={"on": True})
        self.partial = functools.partial(F.leaky_relu, negative_slope=0.3)

    @property
    def factor(self) -> float:
        return self.slope * 2

    def forward(self, x: torch.Tensor) -> Any:
        x = self.partial(self.function(self.conv(self.act(x)))) * self.table["a"]
        if self.has_norm:
            x = self.norm(self.drop(x))
        if self.has_list:
            for layer in [*self.layers, *self.parts]:
                x = layer(x) + self.numbers[0]
        if self.on and self.extra is None and self.config.deep["on"]:
            x = F.leaky_relu(self.by_name[self.mode](x), self.config.slope) * self.limit
        return x * self.plain + self.shift * self.factor + self.gain * self.numbers[0]


def patch_class(name: str, value: Any) -> Step:
    """Patches the class of the model, and reverts it after a call."""

    def to(model: Any) -> Any:
        kind = next(one for one in type(model).__mro__ if name in vars(one))
        former = vars(kind)[name]
        setattr(kind, name, value)
        try:
            return model(x_of(12))
        finally:
            setattr(kind, name, former)

    return to


def load(model: Any) -> None:
    model.load_state_dict({name: one * 2 for name, one in model.state_dict().items()})


def assigned(model: Any) -> None:
    model.load_state_dict({name: one * 2 for name, one in model.state_dict().items()}, assign=True)


def in_order(*names: str) -> Step:
    """Makes parameters buffers, and buffers parameters."""

    def to(model: Any) -> None:
        for name in names:
            value = getattr(model, name).detach().clone() * 2
            if name in model._parameters:
                delattr(model, name)
                model.register_buffer(name, value)
            else:
                delattr(model, name)
                model.register_parameter(name, nn.Parameter(value))

    return to


ATTRIBUTES: dict[str, Step | tuple[Step, ...]] = {
    "a float": change("slope", lambda: 0.7),
    "a float to int": change("slope", lambda: 1),
    "a float to a tensor": change("slope", lambda: torch.tensor(0.3)),
    "a string": (lambda m: m.by_name.update({"b": nn.Tanh()}), change("mode", lambda: "b")),
    "a bool": change("on", lambda: False),
    "None to a tensor": change("extra", lambda: torch.ones(1)),
    "a function": change("function", lambda: torch.sigmoid),
    "a partial": change("partial", lambda: functools.partial(F.leaky_relu, negative_slope=0.5)),
    "a partial's keyword": lambda m: m.partial.keywords.update(negative_slope=0.9),
    "a lambda": (change("function", lambda: lambda x: x * 2), 12, change("function", lambda: lambda x: x * 3)),
    "an element": lambda m: m.numbers.__setitem__(0, 5.0),
    "a namespace's": change("config.slope", lambda: 0.5),
    "a nested dict's": lambda m: m.config.deep.update(on=False),
    "a class attribute": lambda m: setattr(m, "limit", 4.0),
    "a plain tensor": change("plain", lambda: torch.full((4, 1), 3.0)),
    "a plain tensor in place": lambda m: m.plain.mul_(3),
    "a plain tensor's dtype": change("plain", lambda: torch.ones(4, 1, dtype=torch.float64)),
    "a plain tensor's shape": change("plain", lambda: torch.ones(2, 4, 1) * 2),
    "a buffer in place": lambda m: m.shift.mul_(3),
    "a buffer": change("shift", lambda: torch.full((4, 1), 3.0)),
    "a buffer's shape": change("shift", lambda: torch.rand(1)),
    "a buffer's data": lambda m: setattr(m.shift, "data", m.shift.data * 2),
    "a buffer to a parameter and back": (in_order("shift", "gain"), 12, in_order("shift", "gain")),
    "a parameter": change("gain", lambda: nn.Parameter(torch.rand(4, 1))),
    "a parameter of another shape": change("gain", lambda: nn.Parameter(torch.rand(1, 1))),
    "a parameter in place": lambda m: m.gain.add_(1),
    "a weight in place": lambda m: m.conv.weight.mul_(2),
    "a weight": change("conv.weight", lambda: nn.Parameter(torch.rand(4, 1, 3))),
    "a weight's data": lambda m: setattr(m.conv.weight, "data", m.conv.weight.data * 2),
    "a weight of another width": (change("conv.weight", lambda: nn.Parameter(torch.rand(4, 1, 5))),
                                  change("conv.padding", lambda: (2,))),
    "no bias": lambda m: m.conv.register_parameter("bias", None),
    "padding": change("conv.padding", lambda: (2,)),
    "padding as a string": change("conv.padding", lambda: "same"),
    "dilation": change("conv.dilation", lambda: (3,)),
    "stride": change("conv.stride", lambda: (2,)),
    "padding mode": (change("conv.padding_mode", lambda: "circular"),),
    "groups": (change("conv.groups", lambda: 1), change("conv.weight", lambda: nn.Parameter(torch.rand(4, 4, 3)))),
    "wrong groups": change("conv.groups", lambda: 3),
    "load_state_dict": load,
    "load_state_dict with assign": assigned,
    "a module": change("conv", lambda: nn.Conv1d(4, 4, 1)),
    "a module to None": change("act", lambda: None),
    "a module to a function": (without("act"), change("act", lambda: torch.sigmoid)),
    "a module's attribute": change("act.negative_slope", lambda: 0.9),
    "a module's inplace": change("act.inplace", lambda: True),
    "a list that grows": lambda m: m.layers.append(nn.Tanh()),
    "a list that shrinks": lambda m: m.layers.__delitem__(0),
    "a list's other order": lambda m: setattr(m, "layers", nn.ModuleList(reversed(m.layers))),
    "a plain list of modules": lambda m: m.parts.append(nn.Sigmoid()),
    "a plain list's module": lambda m: m.parts[0].weight.mul_(3),
    "a dict of modules": change("by_name", lambda: nn.ModuleDict({"a": nn.Tanh()})),
    "train": (lambda m: m.train(), 12, lambda m: m.eval()),
    "train of a dropout": (lambda m: m.drop.train(), 12, change("drop.p", lambda: 0.1)),
    "train of a norm": (lambda m: m.norm.train(), 12, change("norm.momentum", lambda: 0.9)),
    "eps of a norm": change("norm.eps", lambda: 0.5),
    "running_var": lambda m: m.norm.running_var.fill_(4.0),
    "requires_grad": (lambda m: m.requires_grad_(False), 12, lambda m: m.conv.requires_grad_(True)),
    "double": (lambda m: m.double(), lambda m: m(x_of(12).double())),
    "bfloat16": (lambda m: m.bfloat16(), lambda m: m(x_of(12).bfloat16()).bfloat16(), lambda m: m.float()),
    "a dtype of one part": lambda m: m.conv.double(),
    "to meta and back": (lambda m: m.to_empty(device="cpu"), lambda m: [p.fill_(0.5) for p in [*m.parameters(),
        *m.buffers()]]),
    "the class of an activation": change("act.__class__", lambda: nn.ELU),
    "a patched forward": lambda m: setattr(m, "forward", types.MethodType(doubles, m)),
    "a patched forward of a child": (lambda m: setattr(m.act, "forward", types.MethodType(doubles, m.act)), 12,
                                     without("act.forward")),
    "a patched forward of a convolution": (
        lambda m: setattr(m.conv, "forward", types.MethodType(doubles, m.conv)), 12, without("conv.forward")),
    "a patched _conv_forward": lambda m: setattr(m.conv, "_conv_forward", lambda x, *_: x + 1),
    "a wrapped forward": lambda m: setattr(m, "forward", lambda x, former=m.forward: former(x) * 2),
    "a patched class": patch_class("forward", doubles),
    "a patched property": patch_class("factor", property(lambda self: 9.0)),
    "a patched class attribute": patch_class("limit", 7.0),
    "a patched class dict": patch_class("table", {"a": 5.0}),
    "a patched LeakyReLU": patched(nn.LeakyReLU, "forward", doubles),
    "a patched torch function": patched(torch, "conv1d", lambda x, *a, **k: x + 1),
    "a patched ELU of F": patched(F, "elu", lambda x, *a, **k: x + 1),
    "a patched Conv1d": patched(nn.Conv1d, "_conv_forward", lambda s, x, *a: x + 1),
    "a patched Conv1d's forward": patched(nn.Conv1d, "forward", doubles),
    "a patched __call__": patched(nn.LeakyReLU, "__call__", doubles),
    "undo": (undo, 12, again),
    "replace again": again,
    "undo of both": (again, 12, undo),
    "garbage": lambda m: gc.collect() and None,
    "Dynamo's reset": lambda m: torch._dynamo.reset(),
}  # fmt: skip


@pytest.mark.parametrize("name", some(ATTRIBUTES))
def test_attributes(name: str) -> None:
    steps = ATTRIBUTES[name]
    steps = steps if isinstance(steps, tuple) else (steps,)
    assert_same_steps(Watching(name).eval(), (12, *steps, 12))


# --- hooks ------------------------------------------------------------------------------------------------------------
def in_place(module: Any, args: Any, result: Any) -> None:
    result.add_(1)


def raising(module: Any, *args: Any) -> None:
    raise KeyError("of a hook")


HOOKS: dict[str, tuple[Step, Step]] = {
    "forward of the model": hook("", "register_forward_hook", lambda m, a, y: y * 2),
    "forward of the convolution": hook("conv", "register_forward_hook", lambda m, a, y: y * 2),
    "forward of the activation": hook("act", "register_forward_hook", lambda m, a, y: y * 2),
    "notes of the convolution": hook("conv", "register_forward_hook", note),
    "notes of the activation": hook("act", "register_forward_pre_hook", note),
    "pre of the model": hook("", "register_forward_pre_hook", lambda m, a: (a[0] * 2,)),
    "pre of the convolution": hook("conv", "register_forward_pre_hook", lambda m, a: a[0] + 1),
    "pre with kwargs": hook("conv", "register_forward_pre_hook", lambda m, a, k: ((a[0] * 3,), k), with_kwargs=True),
    "with kwargs": hook("", "register_forward_hook", lambda m, a, k, y: (y, dict(k)), with_kwargs=True),
    "prepended": hook("act", "register_forward_hook", in_place, prepend=True),
    "in place on the convolution's": hook("conv", "register_forward_hook", in_place),
    "in place on the input": hook("act", "register_forward_pre_hook", lambda m, a: a[0].add_(1) and None
                                  if a[0].numel() == 1 else LOG.append(a[0].add_(1).shape)),
    "raising": hook("act", "register_forward_hook", raising),
    "raising, always called": hook("act", "register_forward_hook", raising, always_call=True),
    "full backward": hook("conv", "register_full_backward_hook", lambda m, i, o: LOG.append("backward")),
    "backward pre": hook("", "register_full_backward_pre_hook", lambda m, o: LOG.append("backward")),
    "of a capture": hook("conv", "register_forward_hook", lambda m, a, y: LOG.append(y.mean().item() > 0)),
    "state_dict": hook("", "register_state_dict_post_hook", lambda *a: LOG.append("state")),
    "of a parameter": hook("", "register_forward_pre_hook", lambda m, a: m.conv.weight.mul_(1.5) is None or None),
    "that sets an attribute": hook("conv", "register_forward_pre_hook", lambda m, a: setattr(m, "seen",
        a[0].shape[-1])),
}  # fmt: skip


@pytest.mark.parametrize("is_early", [False, True], ids=["later", "earlier"])
@pytest.mark.parametrize("name", some(HOOKS))
def test_hooks(name: str, is_early: bool) -> None:
    add, remove = HOOKS[name]
    assert_same_steps(Base().eval(), (add, 12, 9, remove, 12) if is_early else (12, add, 12, 9))


@pytest.mark.parametrize("kind", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_global_hooks(kind: str) -> None:
    def with_hook(model: Any) -> Any:
        handle = getattr(nn.modules.module, kind)(lambda m, *a: LOG.append(type(m).__name__))
        try:
            return model(x_of(12)), model(x_of(9))
        finally:
            handle.remove()

    assert_same_steps(Base().eval(), (12, with_hook, 12))
