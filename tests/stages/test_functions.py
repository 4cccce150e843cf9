"""The stage functions against exact results: every value of the half types, samples of float32, and special values."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest
import torch

import sluice
from common import HALF_TYPES, ROOT
from function_errors import FUNCTIONS, Worst, all_of_half, check_every_half, last_place
from sluice import stages

INFINITY, NAN = float("inf"), float("nan")
# Units in the last place: on a GPU, and on a CPU without FMA, where errors that go along as low numbers are lost.
ALLOWED = {"cuda": 2.0, "cpu": 4.0}


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_half_is_rounded_exactly_or_to_a_neighbour(device: str, name: str, dtype: torch.dtype) -> None:
    check_every_half(FUNCTIONS[name], dtype, device)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_between_halves_are_good_to_sixteen_bits(device: str, name: str, dtype: torch.dtype) -> None:
    """A chain shows what its end would round away: the relative error of what it computes."""
    function, x = FUNCTIONS[name], all_of_half(dtype, device)
    exact = function.exact(x.double())
    # Smaller values have not much more than 16 bits in the chain, and larger values overflow there.
    seen = (exact.abs() > 1e-36) & (exact.abs() < 1e36) & (x.abs() < 1e30) & (x >= function.lowest_exact)
    x, exact = x[seen], exact[seen].float()
    error = (function.chain | stages.sub(exact) | stages.div(exact))(x).abs().float()
    worst = int(error.argmax())
    assert error[worst] <= 2**-16 * 1.01, f"{x[worst]}: {error[worst]}"


def sampled(device: str) -> torch.Tensor:
    """Floats of every exponent and both signs, more of them where functions bend."""
    step, count = (4093, 2**20) if device == "cuda" else (4 * 4093, 2**18)
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64, device=device)
    bits += torch.randint(step, (), device=device)
    anywhere = bits.clamp_max(2**31 - 1).to(torch.int32).view(torch.float32)
    return torch.cat([anywhere[~anywhere.isnan()], torch.empty(count, device=device).uniform_(-20, 20)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_samples_of_float32(device: str, name: str) -> None:
    function, worst, x = FUNCTIONS[name], Worst(), sampled(device)
    worst.add(function, x, function.chain(x))
    assert worst.near <= ALLOWED[device], worst
    assert worst.far <= max(worst.far_of_torch, ALLOWED[device]), worst


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_special_stays_so(device: str, name: str) -> None:
    """Special values give torch's results; torch's own gelu of infinity is infinity on some paths and NaN on others."""
    function = FUNCTIONS[name]
    x = torch.tensor(
        [INFINITY, -INFINITY, 0.0, -0.0, NAN, -NAN, 3e38, -3e38, 1e-45, -1e-45, 1e-40, -1e-40], device=device
    )
    result, exact = function.chain(x), function.exact(x.double()).float()
    torch.testing.assert_close(result, exact, rtol=1e-6, atol=1.5e-45, equal_nan=True)
    zero = (exact == 0) & (result == 0)
    assert torch.equal(result[zero].signbit(), exact[zero].signbit())
    signalling = torch.tensor([0x7F800001, 0x7FFFFFFF, -1], dtype=torch.int32, device=device).view(torch.float32)
    assert bool(function.chain(signalling).isnan().all())


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_a_float32_result_of_halves_has_float32s_functions(device: str, dtype: torch.dtype) -> None:
    x = all_of_half(dtype, device)
    x = x[x.abs() < 80]
    for name in ("exp", "silu", "tanh", "softplus"):
        function = FUNCTIONS[name]
        exact = function.exact(x.double())
        cast = function.chain | stages.cast(torch.float32)
        for result in (sluice.transform(x, function.chain, dtype=torch.float32), cast(x)):
            assert ((result.double() - exact).abs() <= ALLOWED[device] * last_place(exact)).all(), name
        several = sluice.transform(x, [function.chain, cast])  # one pass on a GPU, each result with its own precision
        assert torch.equal(several[0], function.chain(x))
        assert torch.equal(several[1], cast(x))


@pytest.mark.parametrize("angle", [1e4, 0.9e6, 1.1e6, 1.4e6, 1.6e6, 6.4e6, 1e9, 1e15, 1e25, 3e38])
def test_snake_knows_the_phase_of_large_angles(device: str, angle: float) -> None:
    x = torch.rand(4096, device=device)
    exact = x.double() + torch.sin(torch.tensor(angle, device=device) * x).double().square() / 2
    by_product = torch.sin(torch.tensor(angle, device=device).double() * x.double()).square() / 2 + x.double()
    result = stages.snake(angle, beta=2.0, eps=0.0)(x).double()
    assert torch.minimum((result - exact).abs(), (result - by_product).abs()).max() < 4e-7


@pytest.mark.parametrize("name", ["softplus", "snake"])
def test_parameters_that_are_tensors_or_odd(device: str, name: str) -> None:
    make = {"softplus": lambda b: stages.softplus(b), "snake": lambda b: stages.snake(1.3, b, 0.0)}[name]
    x = torch.randn(64, device=device)
    beta = torch.logspace(-4, 4, 64, device=device)
    for dtype, allowed in ((torch.float32, 2e-5), (torch.bfloat16, 1e-2)):
        given = x.to(dtype)
        exact = sluice.reference.transform(given.double(), make(beta.double()))
        torch.testing.assert_close(make(beta)(given).double(), exact, rtol=allowed, atol=allowed)
    if name == "snake":
        for odd in (0.0, INFINITY, 1e38):
            wanted = sluice.reference.transform(x, make(odd))
            torch.testing.assert_close(make(odd)(x), wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", [*HALF_TYPES, torch.float32], ids=str)
def test_a_gate_is_a_product_with_the_stage_sigmoid(device: str, dtype: torch.dtype) -> None:
    other = sampled(device) if dtype == torch.float32 else all_of_half(dtype, device)
    torch.testing.assert_close(
        stages.gate(other)(torch.ones_like(other)), stages.sigmoid()(other), rtol=0, atol=0, equal_nan=True
    )
    x = torch.tensor([0.0, -0.0, 2.0, -3.0, INFINITY, -INFINITY, NAN], device=device, dtype=dtype)
    for value in (-200.0, -2.0, 0.0, 1.5, 200.0, INFINITY, -INFINITY, NAN):
        for given in (value, torch.full_like(x, value)):
            wanted = sluice.reference.transform(x, stages.gate(given))
            result = stages.gate(given)(x)
            torch.testing.assert_close(result, wanted, equal_nan=True)
            zero = (result == 0) & (wanted == 0)
            assert torch.equal(result[zero].signbit(), wanted[zero].signbit())


def test_the_polynomials_are_the_scripts() -> None:
    """The coefficients match tools/minimax.py up to another BLAS's rounding, and have the header's bits."""
    mpmath = pytest.importorskip("mpmath")
    pytest.importorskip("numpy")
    spec = importlib.util.spec_from_file_location("minimax", ROOT / "tools" / "minimax.py")
    assert spec is not None
    assert spec.loader is not None
    minimax = importlib.util.module_from_spec(spec)
    sys.modules["minimax"] = minimax
    spec.loader.exec_module(minimax)
    minimax.POINTS, minimax.ROUNDS = 100, 60  # instead of 400 and 200, whose coefficients differ by less than 2e-4
    text = (ROOT / "kernels/shared/stages/polynomials.h").read_text()
    again = minimax.header()
    number = r"-?\d[\d.]*(?:e[-+]\d+)?f"
    assert re.sub(rf"{number}|\s+", "", text) == re.sub(rf"{number}|\s+", "", again)
    stands, found = (torch.tensor([float(n[:-1]) for n in re.findall(number, t)]) for t in (text, again))
    torch.testing.assert_close(stands, found, rtol=1e-3, atol=1e-7)
    assert mpmath.mp.prec >= 100
