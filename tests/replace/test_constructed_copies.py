"""sluice.replace: copies of a model's insides, and parts that have several owners."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sluice
from constructed_faults import marked
from constructed_models import LOG, Base, Step, assert_same_steps, of_forward, some, undo, x_of
from constructed_steps import Doubled, change, do, doubled, doubles, folded, seeded

pytestmark = pytest.mark.no_gpu


# --- copies of a model's insides --------------------------------------------------------------------------------------
def replica(model: Any) -> Any:
    return model._replicate_for_data_parallel()


def by_dict(model: Any) -> Any:
    """A shallow copy, by hand."""
    made = object.__new__(type(model))
    made.__dict__.update(model.__dict__)
    made.__dict__["_modules"] = dict(model._modules)
    return made


def shallow(model: Any) -> Any:
    made = copy.copy(model)
    made._modules = dict(made._modules)
    return made


def by_state(model: Any) -> Any:
    made = object.__new__(type(model))
    made.__setstate__(copy.deepcopy(model.__getstate__() if hasattr(model, "__getstate__") else model.__dict__))
    return made


def again_replaced(model: Any) -> Any:
    made = copy.deepcopy(model)
    sluice.replace(made)
    return made


def undone_copy(model: Any) -> Any:
    made = copy.deepcopy(model)
    sluice.replace(made).undo()
    return made


def of_bytes(model: Any) -> Any:
    file = io.BytesIO()
    torch.save({"model": model, "parts": [model.conv]}, file)
    file.seek(0)
    return torch.load(file, weights_only=False)["model"]


def by_memo(model: Any) -> Any:
    """A deep copy that shares the convolution."""
    return copy.deepcopy(model, {id(model.other): model.other})


MADE: dict[str, Callable[[Any], Any]] = {
    "a replica": replica,
    "a copied __dict__": by_dict,
    "a shallow copy": shallow,
    "a state": by_state,
    "a copy that is replaced": again_replaced,
    "a copy that is undone": undone_copy,
    "a file": of_bytes,
    "a shared part": by_memo,
    "protocol 2": lambda m: pickle.loads(pickle.dumps(m, protocol=2)),
    "a copy of a list": lambda m: copy.deepcopy([m.conv, m])[1],
    "a copy of a method's owner": lambda m: copy.deepcopy(m.forward).__self__,
    "a copy of a closure": lambda m: copy.deepcopy(functools.partial(m, x_of(12))).func,
    "a traced one": lambda m: torch.fx.symbolic_trace(m),
}


class Made(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return folded(self, x)


@pytest.mark.parametrize("name", marked(some(MADE), "copies of insides"))
def test_copies_of_insides(name: str) -> None:
    def step(model: Any) -> Any:
        made = MADE[name](model)
        results = [made(x_of(12))]
        made.conv, made.slope = seeded(), 0.9
        results += [made(x_of(12)), model(x_of(12))]
        model.conv.weight.mul_(2)
        return [*results, made(x_of(9)), model(x_of(9))]

    assert_same_steps(Made().eval(), (step, 12, step, undo, step))


# --- shared parts -----------------------------------------------------------------------------------------------------
def shared() -> nn.Module:
    part, act = seeded(), nn.LeakyReLU(0.3)
    return of_forward(lambda s, x: [row(x) for row in s.rows], rows=nn.ModuleList(
        [nn.Sequential(act, part), nn.Sequential(part, act), part]))  # fmt: skip


SHARED: dict[str, Step] = {
    "one gets a hook": do(lambda m: m.rows[0][1].register_forward_hook(doubled)),
    "one is untied": do(lambda m: m.rows[1].__setitem__(0, seeded(lambda: nn.Conv1d(4, 4, 3, 1, 1, groups=4)))),
    "an activation changes": change("rows.1.1.negative_slope".replace(".1.1.", "."), lambda: 0.9),
    "the slope of all": do(lambda m: setattr(m.rows[1][1], "negative_slope", 0.9)),
    "one is patched": do(lambda m: setattr(m.rows[2], "forward", types.MethodType(doubles, m.rows[2]))),
    "one weight is parametrised": do(lambda m: nn.utils.parametrize.register_parametrization(m.rows[2], "weight",
        Doubled())),
    "one goes": do(lambda m: m.rows.__delitem__(2)),
    "one is copied": do(lambda m: m.rows.__setitem__(2, copy.deepcopy(m.rows[0][1])), lambda m: m.rows[0][1].weight.
        mul_(2)),
    "a weight of two": do(lambda m: m.rows.append(nn.Sequential(seeded())), lambda m: setattr(m.rows[3][0], "weight",
        m.rows[2].weight), lambda m: m.rows[2].weight.mul_(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", marked(some(SHARED), "shared parts"))
def test_shared_parts(name: str) -> None:
    assert_same_steps(shared(), (12, SHARED[name], 12, 9), shared())
    assert LOG == []
