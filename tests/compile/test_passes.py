"""The pass on aten graphs: every pattern alone, before a convolution and after it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from common import HALF_TYPES, assert_close
from compiled_graphs import FORMS, FoldedRows, calls, of_sluice
from rows import naming

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


Place = Callable[[str], Callable[..., torch.Tensor]]


def problem(dtype: torch.dtype, name: str) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    values = [torch.randn(shape, generator=draw) for shape in ((2, 4, 19), (4, 2, 3), (4,))]
    values[1] /= 2
    if "$" in ONE[name][1]:
        values.append(torch.rand(1, 4, 1, generator=draw) + 0.5)
    return [value.to(dtype) for value in values]


def behind(name: str) -> Callable[..., torch.Tensor]:
    return lambda x, w, b, *more: ONE[name][0](F.conv1d(x, w, b, padding=1, groups=2), *more)


def ahead(name: str) -> Callable[..., torch.Tensor]:
    return lambda x, w, b, *more: F.conv1d(ONE[name][0](x, *more), w, b, padding=1, groups=2)


def check(place: Place, names: list[str], dtype: torch.dtype, **options: Any) -> None:
    rows = {name: (place(name), problem(dtype, name)) for name in names}
    found = FoldedRows(rows, **options)
    for name, (function, inputs) in rows.items():
        with naming(name, dtype):
            node, placeholders = found.only_node(name), found.placeholders[name]
            assert ONE[name][1] in node.kwargs.get("post" if place is behind else "pre", "")
            if len(placeholders) == 3:  # else something is left that is computed from parameters
                assert node.all_input_nodes == placeholders
                assert [list(one.users) for one in placeholders] == [[node]] * 3
            assert found.results[name].dtype == dtype
            with torch.no_grad():
                expected = function(*[value.double() for value in inputs])
            assert_close(found.results[name], expected, factor=40 if name == "batch_norm" else 10)
    assert len(of_sluice(found.module)) == len(rows)
    assert "$" in "".join(ONE[name][1] for name in names) or len(calls(found.module)) == len(rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [behind, ahead])
def test_every_pattern_alone(place: Place, form: str) -> None:
    without = [name for name in ONE if "$" not in ONE[name][1]]
    # dac_snake reads extents, so its graph has no other input.
    rest = [name for name in ONE if name not in without and name != "dac_snake"]
    for names in (without, ["dac_snake"], rest):
        check(place, names, torch.float32, form=form, mode="symbolic")
    for dtype in HALF_TYPES:
        for names in (without, ["dac_snake", *rest]):
            check(place, names, dtype, form=form)
