"""A sample of every stage, for the tests that go over all of them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sluice import Chain, stages
from sluice._library import stage_signatures
from sluice.chain import Parameter

# From a parameter's number to the test's value: that number, or a tensor.
MakeParameter = Callable[[float], Parameter]

# A stage's name, and a word more if it has several -> the stage, after stages that keep random numbers in its domain.
SAMPLES: dict[str, Callable[[MakeParameter], Chain]] = {
    "scale": lambda t: stages.scale(t(1.5)),
    "shift": lambda t: stages.shift(t(-0.25)),
    "add": lambda t: stages.add(t(0.5), alpha=t(2.0)),
    "sub": lambda t: stages.sub(t(0.5), alpha=t(3.0)),
    "mul": lambda t: stages.mul(t(0.75)),
    "div": lambda t: stages.div(t(1.7)),
    "square": lambda t: stages.square(),
    "abs": lambda t: stages.abs(),
    "neg": lambda t: stages.neg(),
    "exp": lambda t: stages.exp(),
    "log": lambda t: stages.abs() | stages.shift(0.5) | stages.log(),
    "sqrt": lambda t: stages.abs() | stages.shift(0.1) | stages.sqrt(),
    "rsqrt": lambda t: stages.abs() | stages.shift(0.5) | stages.rsqrt(),
    "clamp": lambda t: stages.clamp(t(-0.5), t(0.75)),
    "clamp min": lambda t: stages.clamp(min=t(-0.5)),
    "clamp max": lambda t: stages.clamp(max=t(0.5)),
    "relu": lambda t: stages.relu(),
    "leaky_relu": lambda t: stages.leaky_relu(t(0.1)),
    "elu": lambda t: stages.elu(t(0.8)),
    "silu": lambda t: stages.silu(),
    "gelu": lambda t: stages.gelu(),
    "gelu_tanh": lambda t: stages.gelu(approximate="tanh"),
    "sigmoid": lambda t: stages.sigmoid(),
    "tanh": lambda t: stages.tanh(),
    "softplus": lambda t: stages.softplus(t(2.0), t(3.0)),
    "snake": lambda t: stages.snake(t(1.3)),
    "snake beta": lambda t: stages.snake(t(1.3), t(0.7)),
    "gate": lambda t: stages.gate(t(0.6)),
    "cast": lambda t: stages.cast(torch.bfloat16) | stages.scale(1.0),
}


def stage_of(sample: str) -> str:
    """The name of a sample's stage."""
    return sample.partition(" ")[0]


WITH_PARAMETERS = [sample for sample in SAMPLES if stage_signatures().get(stage_of(sample))]
