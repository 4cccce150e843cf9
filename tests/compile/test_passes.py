"""The pass on aten graphs: every pattern alone, before a convolution and after it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from common import HALF_TYPES, assert_close
from compiled_graphs import FORMS, calls, folded, of_sluice

pytestmark = pytest.mark.no_gpu


# --- every pattern alone ----------------------------------------------------------------------------------------------
Activation = Callable[..., torch.Tensor]


def new_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def dac_snake(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    shape = x.shape
    x = x.reshape(shape[0], shape[1], -1)
    x = x + (alpha + 1e-9).reciprocal() * torch.sin(alpha * x).pow(2)
    return x.reshape(shape)


def snake_beta(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    alpha, beta = torch.exp(alpha), torch.exp(alpha / 2)
    return x + (1.0 / (beta + 0.000000001)) * torch.pow(torch.sin(x * alpha), 2)


def batch_norm(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    column = alpha.reshape(-1)
    return F.batch_norm(x, column - 1, column * 2, column, column / 2, training=False)


# By name: the function of x, and of (1, C, 1) where it has a second argument; and a piece of the chain's text.
ONE: dict[str, tuple[Activation, str]] = {
    "relu": (F.relu, "relu()"),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), "leaky_relu(0.1)"),
    "default_slope": (F.leaky_relu, "leaky_relu(0.01)"),
    "gelu": (F.gelu, "gelu()"),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh()"),
    "new_gelu": (new_gelu, "gelu_tanh()"),
    "fast_gelu": (fast_gelu, "gelu_tanh()"),
    "written_gelu": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "gelu()"),
    "silu": (F.silu, "silu()"),
    "written_silu": (lambda x: torch.sigmoid(x) * x, "silu()"),
    "elu": (F.elu, "elu(1.0)"),
    "elu_alpha": (lambda x: F.elu(x, 1.5), "elu(1.5)"),
    "selu": (F.selu, "elu("),
    "tanh": (torch.tanh, "tanh()"),
    "sigmoid": (torch.sigmoid, "sigmoid()"),
    "softplus": (F.softplus, "softplus(1.0,20.0)"),
    "softplus_beta": (lambda x: F.softplus(x, 3.0, 5.0), "softplus(3.0,5.0)"),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 0.75), "clamp("),
    "relu6": (F.relu6, "clamp("),
    "clamp": (lambda x: x.clamp(-0.5, 1), "clamp("),
    "clamp_min": (lambda x: x.clamp(min=-0.5), "clamp(-0.5,"),
    "clamp_max": (lambda x: x.clamp_max(0.5), "clamp("),
    "abs": (torch.abs, "abs()"),
    "neg": (torch.neg, "neg()"),
    "exp": (torch.exp, "exp()"),
    "square": (torch.square, "square()"),
    "times_itself": (lambda x: x * x, "square()"),
    "plus_itself": (lambda x: torch.add(x, x, alpha=3), "scale(4.0)"),
    "power": (lambda x: x.pow(2), "square()"),
    "scale": (lambda x: x * 1.5, "scale(1.5)"),
    "scale_from_left": (lambda x: 1.5 * x, "scale(1.5)"),
    "divide": (lambda x: x / 3, "div(3.0)"),
    "shift": (lambda x: x + 0.5, "shift(0.5)"),
    "minus": (lambda x: x - 0.5, "shift(-0.5)"),
    "rsub": (lambda x: 1 - x, "neg()|shift(1.0)"),
    "rsub_alpha": (lambda x: torch.rsub(x, 1.5, alpha=2), "scale(-2.0)|shift(1.5)"),
    "prelu": (lambda x, a: F.prelu(x, a.reshape(-1)), "leaky_relu($0)"),
    "dac_snake": (dac_snake, "snake($0,$0,1e-09)"),
    "snake_beta": (snake_beta, "snake($0,$1,1e-09)"),
    "snake_divided": (lambda x, a: x + torch.sin(x * a) ** 2 / (a + 0.25), "snake($0,$0,0.25)"),
    "snake_alone": (lambda x, a: x + torch.sin(x * a).square() / a, "snake($0,$0,0.0)"),
    "batch_norm": (batch_norm, "sub($0,1.0)"),
    "add": (lambda x, a: x + a, "add($0,1.0)"),
    "add_alpha": (lambda x, a: torch.add(x, a, alpha=0.5), "add($0,0.5)"),
    "add_to": (lambda x, a: torch.add(a, x, alpha=0.5), "scale(0.5)|add($0,1.0)"),
    "sub": (lambda x, a: x - a, "sub($0,1.0)"),
    "sub_from": (lambda x, a: a - x, "neg()|add($0,1.0)"),
    "mul": (lambda x, a: a * x, "mul($0)"),
    "div": (lambda x, a: x / a, "div($0)"),
    "log": (lambda x: torch.log(x.abs()), "log()"),
    "sqrt": (lambda x: torch.sqrt(x.abs()), "sqrt()"),
    "rsqrt": (lambda x: torch.rsqrt(x.abs() + 0.5), "rsqrt()"),
    "two": (lambda x: torch.tanh(F.relu(x)), "relu()|tanh()"),
}  # fmt: skip


def problem(dtype: torch.dtype, name: str) -> list[torch.Tensor]:
    torch.manual_seed(3)
    values = [torch.randn(2, 4, 19), torch.randn(4, 2, 3) / 2, torch.randn(4)]
    if "$" in ONE[name][1]:
        values.append(torch.rand(1, 4, 1) + 0.5)
    return [value.to(dtype) for value in values]


def behind(name: str) -> Callable[..., torch.Tensor]:
    return lambda x, w, b, *more: ONE[name][0](F.conv1d(x, w, b, padding=1, groups=2), *more)


def ahead(name: str) -> Callable[..., torch.Tensor]:
    return lambda x, w, b, *more: F.conv1d(ONE[name][0](x, *more), w, b, padding=1, groups=2)


def check(function: Callable[..., torch.Tensor], name: str, argument: str, dtype: torch.dtype, **options: Any) -> None:
    inputs = problem(dtype, name)
    module = folded(function, *inputs, **options)
    [node] = of_sluice(module)
    text = ONE[name][1]
    assert text in node.kwargs.get(argument, "")
    x = module.graph.find_nodes(op="placeholder")[0]
    assert list(x.users) == [node]  # what else is left is computed from parameters
    assert [user.op for user in node.users] == ["output"]
    assert len(inputs) == 4 or len(calls(module)) == 1
    with torch.no_grad():
        expected = function(*[value.double() for value in inputs])
        assert module(*inputs).dtype == dtype
        assert_close(module(*inputs), expected, factor=40 if name == "batch_norm" else 10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("place", [behind, ahead])
def test_a_pattern_alone(place: Any, name: str, form: str) -> None:
    argument = "post" if place is behind else "pre"
    check(place(name), name, argument, torch.float32, form=form, mode="symbolic")
    for dtype in HALF_TYPES:
        check(place(name), name, argument, dtype, form=form)
