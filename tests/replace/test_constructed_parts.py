"""sluice.replace: modules, parameters and buffers that come, go and change places."""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from constructed_faults import marked
from constructed_models import Step, assert_same_steps, depthwise, of_forward, some, x_of
from constructed_steps import change, do, doubles, folded, seeded, without

pytestmark = pytest.mark.no_gpu


class Layered(nn.Module):
    """Containers of layers, which the forward walks over."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList([depthwise(), nn.LeakyReLU(0.2), depthwise()])
        self.table = nn.ModuleDict({"a": depthwise(), "b": nn.Tanh()})
        self.row = nn.Sequential(nn.ReLU(), depthwise(), nn.Sequential(nn.ELU()))
        self.conv, self.act, self.spare, self.slope = depthwise(), nn.LeakyReLU(0.2), depthwise(), 0.1

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        for name, layer in self.table.items():
            x = layer(x) * (2 if name == "a" else 3)
        return self.act(self.conv(self.row(x)))


class Own(nn.Conv1d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * 2) + 1


class Plain(nn.Conv1d):
    """A subclass that changes nothing."""


def other_class(model: Any) -> None:
    model.conv.__class__ = type("Other", (type(model.conv),), {"forward": doubles})


def own_class_back(model: Any) -> None:
    model.conv.__class__ = type(model.conv).__mro__[1]


def replaced_part(model: Any) -> None:
    part = of_forward(folded)
    sluice.replace(part)
    model.conv = part


def scripted() -> Any:
    return torch.jit.script(nn.Sequential(seeded(), nn.Tanh()))


def moved(model: Any) -> None:
    """Every layer to the next place, by `_modules`."""
    layers = model.layers._modules
    layers["0"], layers["2"] = layers["2"], layers["0"]


def twice(model: Any) -> Any:
    """Another module for each of two calls."""
    first, results = model.conv, []
    for conv in (seeded(), first, seeded(), first):
        model.conv = conv
        results.append(model(x_of(12)))
    return results


def each_of_many(model: Any) -> Any:
    """More modules of one class than Dynamo compiles for."""
    results, first = [], model.act
    for place in range(24):
        model.act = nn.LeakyReLU(place / 24)
        results.append(model(x_of(12)))
    model.act = first
    return results


CHANGES: dict[str, Step | tuple[Step, ...]] = {
    "an item": do(lambda m: m.layers.__setitem__(0, seeded())),
    "an item of another class": do(lambda m: m.layers.__setitem__(1, nn.Softplus())),
    "an item twice": do(lambda m: m.layers.__setitem__(2, m.layers[0])),
    "a slice": do(lambda m: setattr(m, "layers", m.layers[:2])),
    "a slice of new ones": do(lambda m: m.layers.__setitem__(slice(0, 2), [nn.Tanh(), seeded()])),
    "inserted": do(lambda m: m.layers.insert(1, nn.Sigmoid())),
    "extended": do(lambda m: m.layers.extend([nn.ELU(), seeded()])),
    "added": do(lambda m: m.layers.__iadd__([seeded()])),
    "popped": do(lambda m: m.layers.pop(-1)),
    "cleared": do(lambda m: m.layers.__delitem__(slice(0, 3))),
    "add_module": do(lambda m: m.add_module("conv", seeded())),
    "register_module": do(lambda m: m.register_module("act", nn.Tanh())),
    "set_submodule": do(lambda m: m.set_submodule("row.2.0", seeded())),
    "deleted": (without("row.2"), 12, do(lambda m: m.row.append(nn.Tanh()))),
    "a row's end": do(lambda m: m.row.append(nn.Softplus())),
    "a row's start": do(lambda m: m.row.insert(0, nn.Sigmoid())),
    "a row's item": do(lambda m: m.row.__setitem__(1, seeded())),
    "a row twice": do(lambda m: m.row.__imul__(2)),
    "a dict's key": do(lambda m: m.table.update({"c": nn.Sigmoid()})),
    "a dict's other order": do(lambda m: m.table._modules.move_to_end("a")),
    "a dict without a key": do(lambda m: m.table.pop("b")),
    "an empty dict": do(lambda m: m.table.clear()),
    "exchanged items": do(moved),
    "another _modules": (do(lambda m: setattr(m.row, "_modules", collections.OrderedDict({"0": nn.Tanh()}))), 12, do(
        lambda m: m.row._modules.update({"0": nn.ELU()}))),
    "another _modules of the model": (do(lambda m: setattr(m, "_modules", dict(m._modules))), 12, do(
        lambda m: m._modules.update(conv=seeded()))),
    "an Identity": do(lambda m: setattr(m, "conv", nn.Identity())),
    "a wider one": do(lambda m: setattr(m, "conv", seeded(lambda: nn.Conv1d(4, 8, 5, stride=2, groups=4)))),
    "a dense one": do(lambda m: setattr(m, "conv", seeded(lambda: nn.Conv1d(4, 4, 3, padding="same")))),
    "a transposed one": do(lambda m: setattr(m, "conv", seeded(lambda: nn.ConvTranspose1d(4, 4, 4, 2, groups=4)))),
    "a lazy one": do(lambda m: setattr(m, "conv", nn.LazyConv1d(4, 3)), lambda m: torch.manual_seed(2)),
    "a subclass": do(lambda m: setattr(m, "conv", seeded(lambda: Plain(4, 4, 3, groups=4)))),
    "a subclass with a forward": do(lambda m: setattr(m, "conv", seeded(lambda: Own(4, 4, 3, groups=4)))),
    "one of sluice": do(lambda m: setattr(m, "conv", seeded(lambda: sluice.nn.Conv1d(4, 4, 3, groups=4,
        post=nn.Tanh())))),
    "a replaced one": do(replaced_part),
    "a scripted one": (do(lambda m: setattr(m, "conv", scripted())), 12, 9, change("conv", seeded)),
    "a compiled one": (do(lambda m: setattr(m, "conv", torch.compile(seeded(), backend="eager"))), 12, 9, change(
        "conv", seeded)),
    "a traced one": do(lambda m: setattr(m, "conv", torch.jit.trace(seeded(), x_of(12)))),
    "an fx one": (do(lambda m: setattr(m, "row", torch.fx.symbolic_trace(nn.Sequential(seeded(), nn.Tanh())))), 12, 9,
        change("row", seeded)),
    "a function": do(lambda m: delattr(m, "conv"), lambda m: setattr(m, "conv", doubled_function)),
    "a partial": do(lambda m: delattr(m, "act"), lambda m: setattr(m, "act", functools.partial(F.leaky_relu,
        negative_slope=0.6))),
    "a class": do(other_class),
    "a class and back": (do(other_class), 12, do(own_class_back)),
    "two in turn": twice,
    "many": each_of_many,
    "applied": do(lambda m: m.apply(lambda part: part.weight.mul_(2) if isinstance(part, nn.Conv1d) else None)),
    "children exchanged": do(lambda m: (setattr(m, "conv", m.layers[0]), m.layers.__setitem__(0, m.spare))),
    "the model in itself": do(lambda m: m.__dict__.update(inner=[m])),
    "a fused norm": (do(lambda m: setattr(m, "act", seeded(lambda: nn.BatchNorm1d(4)))), 12, do(lambda m: (setattr(m,
        "conv", nn.utils.fusion.fuse_conv_bn_eval(m.conv, m.act)), setattr(m, "act", nn.Identity())))),
}  # fmt: skip


def doubled_function(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("name", marked(some(CHANGES), "changed parts"))
def test_changed_parts(name: str) -> None:
    steps = CHANGES[name]
    assert_same_steps(Layered().eval(), (12, *(steps if isinstance(steps, tuple) else (steps,)), 12, 9))


# --- parameters and buffers -------------------------------------------------------------------------------------------
def of_plain_weight(model: Any) -> None:
    weight = model.conv.weight.detach() * 2
    del model.conv.weight
    model.conv.weight = weight


def shadowed(model: Any) -> None:
    model.conv.__dict__["weight"] = model.conv.weight.detach() * 3


def of_vector(model: Any) -> Any:
    """Parameters in one vector's memory, which then changes."""
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    nn.utils.vector_to_parameters(vector, model.parameters())
    first = model(x_of(12))
    vector.mul_(2)
    return first, model(x_of(12))


def of_numpy(model: Any) -> Any:
    array = model.conv.weight.detach().numpy()
    first = model(x_of(12))
    array *= 2
    return first, model(x_of(12))


def averaged(model: Any) -> Any:
    average = torch.optim.swa_utils.AveragedModel(model)
    results = [average(x_of(12))]
    model.conv.weight.mul_(3)
    average.update_parameters(model)
    return [*results, average(x_of(12)), model(x_of(12))]


def optimized(kind: Any, **options: Any) -> Step:
    """Steps of an optimizer between calls without gradients."""

    def step(model: Any) -> Any:
        optimizer, results = kind(model.parameters(), lr=0.05, **options), []
        for place in range(2):
            with torch.enable_grad():
                optimizer.zero_grad()
                model(x_of(12)).square().mean().backward()
            optimizer.step()
            results.append(model(x_of(9 + place)))
        model.zero_grad()
        return results

    return step


def swapped(model: Any) -> None:
    torch.utils.swap_tensors(model.conv.weight, nn.Parameter(model.conv.weight.detach() * 2))


def within_inference(change_of: Callable[[Any], Any]) -> Step:
    def step(model: Any) -> None:
        with torch.inference_mode():
            change_of(model)

    return step


def foreach(model: Any) -> None:
    torch._foreach_mul_(list(model.parameters()), 2.0)


def loaded_with(**options: Any) -> Step:
    def step(model: Any) -> str:
        state = {name: one * 2 for name, one in model.state_dict().items() if not name.endswith("bias")}
        return str(model.load_state_dict(state, strict=False, **options))

    return step


VALUES: dict[str, tuple[Step, ...]] = {
    "a plain tensor as weight": (12, of_plain_weight, 12, do(lambda m: m.conv.weight.mul_(2)), 12),
    "a shadowed weight": (12, shadowed, 12, do(lambda m: m.conv.__dict__.pop("weight")), 12),
    "_parameters of another": (12, lambda m: setattr(m.conv, "_parameters", m.other._parameters), 12, do(
        lambda m: m.other.weight.mul_(3)), 12),
    "an element of _parameters": (12, lambda m: m.conv._parameters.update(weight=nn.Parameter(m.conv.weight * 2)), 12),
    "a copy of _parameters": (12, lambda m: setattr(m.conv, "_parameters", dict(m.conv._parameters)), 12, lambda m:
        m.conv._parameters.update(bias=None), 12),
    "an element of _buffers": (12, lambda m: m._buffers.update(shift=torch.full((4, 1), 3.0)), 12),
    "a buffer to None": (12, change("shift", lambda: None), 12),
    "a deleted buffer": (12, without("shift"), 12),
    "a bias to None": (12, change("conv.bias", lambda: None), 12, change("conv.bias", lambda: nn.Parameter(
        torch.ones(4))), 12),
    "a vector": (of_vector, 12, of_vector),
    "numpy": (12, of_numpy, 12),
    "an average": (12, averaged, 12),
    "SGD": (12, optimized(torch.optim.SGD, foreach=True), 12),
    "Adam, fused": (12, optimized(torch.optim.Adam, fused=True), 12),
    "AdamW": (optimized(torch.optim.AdamW, foreach=False), 12),
    "swapped tensors": (12, swapped, 12),
    "foreach": (12, foreach, 12),
    "in inference mode": (12, within_inference(foreach), 12, within_inference(lambda m: m.conv.weight.copy_(
        m.other.weight)), 12),
    "created in inference mode": (12, within_inference(lambda m: setattr(m.conv, "weight", nn.Parameter(
        m.conv.weight * 2, requires_grad=False))), 12),
    "loaded in part": (12, loaded_with(), 12, loaded_with(assign=True), 12),
    "reset_parameters": (12, do(lambda m: torch.manual_seed(1), lambda m: m.conv.reset_parameters()), 12),
    "init": (12, do(lambda m: nn.init.constant_(m.conv.weight, 0.5), lambda m: nn.init.zeros_(m.conv.bias)), 12),
    "data in place": (12, do(lambda m: m.conv.weight.data.mul_(2)), 12),
    "data of a buffer in place": (12, do(lambda m: m.shift.data.mul_(2)), 12),
    "a row of a weight": (12, do(lambda m: m.conv.weight[1].mul_(5)), 12, do(lambda m: m.conv.weight.view(-1)[:3].
        fill_(2)), 12),
    "set_": (12, do(lambda m: m.conv.weight.set_(m.conv.weight.detach().clone() * 2)), 12),
    "a transposed memory": (12, lambda m: setattr(m.conv.weight, "data", m.conv.weight.data.mT.contiguous().mT), 12),
    "an expanded weight": (12, lambda m: setattr(m.conv, "weight", nn.Parameter(m.conv.weight.detach()[:1].expand(
        4, 1, 3))), 12),
    "half": (12, do(lambda m: m.half()), lambda m: m(x_of(12).half()), do(lambda m: m.float()), 12),
    "double": (12, do(lambda m: m.double()), 12, lambda m: m(x_of(12).double()), do(lambda m: m.float()), 9),
    "type": (12, do(lambda m: m.type(torch.float64)), lambda m: m(x_of(12).double())),
    "to a dtype before the first call": (do(lambda m: m.to(torch.float64)), lambda m: m(x_of(12).double()), 12),
    "to by swapping": (12, lambda m: by_swapping(m), lambda m: m(x_of(12).double())),
    "share_memory": (12, do(lambda m: m.share_memory()), 12, foreach, 12),
    "to meta": (12, do(lambda m: m.to("meta")), 12, lambda m: m(x_of(12).to("meta")).shape),
    "a parameter of a class": (12, lambda m: setattr(m.conv, "weight", Scaled(m.conv.weight.detach())), 12),
    "functional_call of a part": (12, lambda m: torch.func.functional_call(m, {"conv.weight": m.conv.weight * 2},
        (x_of(12),)), 12),
    "functional_call, not strict": (12, lambda m: torch.func.functional_call(m, ({"shift": m.shift * 2}, {
        "gain": m.gain * 3}), x_of(9), strict=False), 12),
    "a stack of models": (12, lambda m: stacked(m), 12),
    "one that was deleted": (12, without("conv.weight"), 12, change("conv.weight", lambda: nn.Parameter(
        torch.rand(4, 1, 3))), 12),
}  # fmt: skip


class Scaled(nn.Parameter):
    """A class of parameters."""


def by_swapping(model: Any) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def stacked(model: Any) -> Any:
    models = [copy.deepcopy(model) for _ in range(2)]
    models[1].conv.weight.mul_(2)
    values, buffers = torch.func.stack_module_state(models)
    call = torch.vmap(lambda p, b, x: torch.func.functional_call(model, (p, b), (x,)), (0, 0, None))
    return call(values, buffers, x_of(12)).contiguous()  # torch's strides are its own there


@pytest.mark.parametrize("name", marked(some(VALUES), "changed values"))
def test_changed_values(name: str) -> None:
    def forward(s: Any, x: torch.Tensor) -> Any:
        y = folded(s, x) * s.gain
        return y if s.__dict__.get("shift", s._buffers.get("shift")) is None else y + s.shift

    assert_same_steps(of_forward(forward), VALUES[name])
