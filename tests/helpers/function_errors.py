"""Exact stage functions and the errors of results, in float64 on the tensor's device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch

import sluice
from sluice import reference, stages

Exact = Callable[[torch.Tensor], torch.Tensor]
ROOT_HALF = math.sqrt(0.5)


@dataclasses.dataclass(frozen=True)
class Function:
    """A stage with fixed parameters, its exact value in float64, and torch's own function."""

    chain: sluice.Chain
    exact: Exact
    # The smallest argument whose result between half types is good to 16 bits: torch has 0 below.
    lowest_exact: float = -math.inf

    def torchs(self, x: torch.Tensor) -> torch.Tensor:
        """torch's result: half types compute in float32, as reference.py defines a chain, and round once."""
        return reference.transform(x, self.chain)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


FUNCTIONS = {
    "exp": Function(stages.exp(), torch.exp),
    "log": Function(stages.log(), torch.log),
    "sqrt": Function(stages.sqrt(), torch.sqrt),
    "sigmoid": Function(stages.sigmoid(), torch.sigmoid),
    "silu": Function(stages.silu(), lambda x: x * torch.sigmoid(x)),
    "gelu": Function(stages.gelu(), lambda x: 0.5 * x * torch.erfc(-ROOT_HALF * x), lowest_exact=-6.5),
    "gelu_tanh": Function(stages.gelu(approximate="tanh"), _gelu_tanh),
    "tanh": Function(stages.tanh(), torch.tanh),
    "elu": Function(stages.elu(), lambda x: torch.where(x > 0, x, torch.expm1(x))),
    "softplus": Function(stages.softplus(), lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(x)))),
    "snake": Function(stages.snake(1.0), lambda x: x + torch.sin(x).square() / (1 + 1e-9)),
}


def last_place(exact: torch.Tensor) -> torch.Tensor:
    """The unit in the last place of float32 at each value."""
    return torch.ldexp(torch.ones_like(exact), torch.frexp(exact.abs().clamp_min(2.0**-126)).exponent - 24)


def magnification(function: Function, x: torch.Tensor) -> torch.Tensor:
    """|x f'(x) / f(x)|: the factor by which a relative error of the argument grows in the result."""
    with torch.enable_grad():
        at = x.detach().clone().requires_grad_()
        value = function.exact(at)
        (slope,) = torch.autograd.grad(value.sum(), at)
    return (x * slope / value.detach()).abs()


@dataclasses.dataclass
class Worst:
    """The largest errors in units of the last place: where arguments are magnified at most fourfold, and elsewhere."""

    near: float = 0.0
    near_at: float = 0.0
    far: float = 0.0
    far_at: float = 0.0
    far_of_torch: float = 0.0

    def add(self, function: Function, x: torch.Tensor, result: torch.Tensor) -> None:
        """Adds float32 tensors. A NaN or an infinity must also be torch's or the exact result."""
        exact, torchs = function.exact(x.double()), function.torchs(x)
        rounded = exact.float()
        plain = x.isfinite() & rounded.isfinite() & result.isfinite()
        odd = ~plain
        same = (result == rounded) | (result == torchs) | (result.isnan() & torchs.isnan())
        assert bool(same[odd].all()), f"{x[odd & ~same][:4]} -> {result[odd & ~same][:4]}, {torchs[odd & ~same][:4]}"
        x, exact, result, torchs = x[plain].double(), exact[plain], result[plain].double(), torchs[plain].double()
        unit, near = last_place(exact), magnification(function, x).nan_to_num(0.0) <= 4
        error = (result - exact).abs() / unit
        if bool(near.any()) and float(error[near].max()) > self.near:
            self.near, self.near_at = float(error[near].max()), float(x[near][error[near].argmax()])
        if not bool(near.all()):
            if float(error[~near].max()) > self.far:
                self.far, self.far_at = float(error[~near].max()), float(x[~near][error[~near].argmax()])
            of_torch = ((torchs - exact).abs() / unit)[~near]
            self.far_of_torch = max(self.far_of_torch, float(of_torch.nan_to_num(math.inf).max()))


def all_of_half(dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every value of a half type, NaNs too."""
    return torch.arange(-(2**15), 2**15, device=device).to(torch.int16).view(dtype)


def rank(x: torch.Tensor) -> torch.Tensor:
    """The rank of each half-type value: adjacent values differ by one, both zeros have the same rank."""
    bits = x.view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def check_every_half(function: Function, dtype: torch.dtype, device: str) -> None:
    """Checks every value of a half type: the rounded exact result, an adjacent value, or one between it and torch's."""
    x = all_of_half(dtype, device)
    result, torchs = function.chain(x), function.torchs(x)
    exact = function.exact(x.double()).to(dtype)
    assert torch.equal(result.isnan(), exact.isnan())
    x, result, torchs, exact = (t[~exact.isnan()] for t in (x, result, torchs, exact))
    beside = (rank(result) - rank(exact)).abs() <= 1
    between = (torch.minimum(exact, torchs) <= result) & (result <= torch.maximum(exact, torchs))
    wrong = ~(beside | between)
    assert not wrong.any(), f"{x[wrong][:4]} -> {result[wrong][:4]}, exactly {exact[wrong][:4]}"
    zero = x == 0
    assert torch.equal(result[zero].signbit(), exact[zero].signbit())
