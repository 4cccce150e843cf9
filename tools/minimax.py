"""Fits the polynomials of kernels/shared/stages/functions: prints polynomials.h there, or with --write writes it.

A fit nearly minimises the largest error of its function: Lawson's iteration, least squares reweighted by the error.
Coefficients are rounded to float32 from the constant up, and the higher coefficients are fitted again to the remainder.
Needs mpmath for more than double precision.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import textwrap
from collections.abc import Callable

import mpmath as mp
import numpy as np

HEADER = pathlib.Path(__file__).resolve().parent.parent / "kernels/shared/stages/polynomials.h"
POINTS = 400  # Chebyshev points of an interval
ROUNDS = 200  # rounds of Lawson's iteration

Function = Callable[[mp.mpf], mp.mpf]
Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Fit:
    """A polynomial for `function`, and the weight of its relative error in the result that uses it."""

    name: str
    what: str
    function: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    constants: tuple[str, ...] = ()  # the names of the lowest coefficients, if the rest is a separate polynomial


def over(whole: Function, power: int) -> Function:
    """The weight of a polynomial that multiplies x^power in a part of `whole`."""
    return lambda x: x**power / whole(x)


def odd_tail(function: Function) -> Function:
    """(function(x) / x - 1) / x^2 as a function of v = x^2."""
    return lambda v: (function(mp.sqrt(v)) / mp.sqrt(v) - 1) / v


def fits() -> list[Fit]:
    one, two = mp.mpf(1), mp.mpf(2)
    turn = mp.log(2) / 2 + two**-12  # the bound of a reduced exponent, with its rounding
    mantissa = (mp.sqrt(0.5) - 1 - two**-10, mp.sqrt(2) - 1 + two**-10)
    quarter, eighth, edge = mp.pi / 2 + two**-10, mp.pi / 4 + two**-10, mp.mpf("0.7")

    def exp_tail(x: mp.mpf) -> mp.mpf:
        return (mp.expm1(x) - x) / x**2

    def log_tail(x: mp.mpf) -> mp.mpf:
        return (mp.log1p(x) - x) / x**2

    def exponent_of_tail(y: mp.mpf) -> mp.mpf:
        return -mp.log(mp.erfc(y / mp.sqrt(2)), 2) / y

    def half_tanh(v: mp.mpf) -> mp.mpf:
        return mp.tanh(mp.sqrt(v)) / v**1.5

    def half_sine(v: mp.mpf) -> mp.mpf:
        return mp.sin(mp.sqrt(v)) ** 2 / v

    def half_log(x: mp.mpf) -> mp.mpf:
        return mp.log1p(x) / x

    return [
        Fit(
            "exp2_fraction",
            "(2^x - 1) / x, |x| <= 1/2",
            lambda x: (2**x - 1) / x,
            lambda x: x / 2**x,
            -one / 2,
            one / 2,
            3,
        ),
        Fit(
            "exp2_fraction_long",
            "the same",
            lambda x: (2**x - 1) / x,
            lambda x: x / 2**x,
            -one / 2 - two**-12,
            one / 2 + two**-12,
            5,
        ),
        Fit("exp_tail", "(e^x - 1 - x) / x^2, |x| <= ln 2 / 2, for e^x", exp_tail, over(mp.exp, 2), -turn, turn, 4),
        Fit("expm1_tail", "the same for e^x - 1", exp_tail, over(mp.expm1, 2), -turn, turn, 5),
        Fit("expm1_tail_near", "the same, -1/4 <= x <= 0", exp_tail, over(mp.expm1, 2), -one / 4, mp.mpf(0), 2),
        Fit(
            "log_tail", "(ln(1 + x) - x) / x^2, sqrt 1/2 <= 1 + x <= sqrt 2", log_tail, over(mp.log1p, 2), *mantissa, 8
        ),
        Fit("log_tail_short", "the same", log_tail, over(mp.log1p, 2), *mantissa, 5),
        Fit("log1p_tail", "(ln(1 + x) - x) / x^2, 0 <= x <= 1", log_tail, over(mp.log1p, 2), mp.mpf(0), one, 9),
        Fit("log1p_factor", "ln(1 + x) / x, 0 <= x <= 1", half_log, lambda x: 1 / half_log(x), mp.mpf(0), one, 6),
        Fit(
            "tanh_tail",
            "(tanh(x) / x - 1) / x^2 by x^2, |x| <= 0.7",
            odd_tail(mp.tanh),
            lambda v: 1 / half_tanh(v),
            mp.mpf(0),
            edge**2,
            4,
        ),
        Fit(
            "tanh_tail_short",
            "the same, |x| <= 1/4",
            odd_tail(mp.tanh),
            lambda v: 1 / half_tanh(v),
            mp.mpf(0),
            one / 16,
            1,
        ),
        Fit(
            "sine_squared_tail",
            "(sin^2(x) / x^2 - 1) / x^2 by x^2, |x| <= pi / 4",
            lambda v: (half_sine(v) - 1) / v,
            lambda v: v / half_sine(v),
            mp.mpf(0),
            eighth**2,
            3,
        ),
        Fit(
            "sine_squared_factor",
            "sin^2(x) / x^2 by x^2, |x| <= pi / 2",
            half_sine,
            lambda v: 1 / half_sine(v),
            mp.mpf(0),
            quarter**2,
            4,
        ),
        Fit(
            "gelu_exponent_tail",
            "-log2(erfc(y / sqrt 2)) / y, 0 <= y <= 6.5, as gelu(-y) / y up to 2 and x - gelu(x) show it",
            exponent_of_tail,
            lambda y: y * mp.log(2) * min(one, 20 * mp.erfc(y / mp.sqrt(2))),
            mp.mpf(0),
            mp.mpf("6.5"),
            9,
            ("kGeluExponent", "kGeluExponentSlope"),
        ),
        Fit(
            "gelu_exponent_short",
            "log2(erfc(y / sqrt 2)) / y, 0 <= y <= 6.5",
            lambda y: -exponent_of_tail(y),
            lambda y: y * mp.log(2),
            mp.mpf(0),
            mp.mpf("6.5"),
            6,
        ),
    ]


def lawson(x: Array, values: Array, weights: Array, powers: Array) -> Array:
    """Coefficients of these powers of x with nearly the smallest largest weighted error."""
    scale = np.abs(x).max()
    columns = (x[:, None] / scale) ** powers * weights[:, None]
    importance = np.ones_like(x)
    smallest, best = np.inf, np.empty(0)
    for _ in range(ROUNDS):
        root = np.sqrt(importance)
        found = np.linalg.lstsq(columns * root[:, None], values * weights * root, rcond=None)[0]
        errors = np.abs(columns @ found - values * weights)
        if errors.max() < smallest:
            smallest, best = errors.max(), found
        importance *= errors / errors.max()
        importance = np.maximum(importance / importance.mean(), 1e-12)
    return best / scale**powers


def coefficients_of(fit: Fit) -> tuple[list[np.float32], float]:
    """The coefficients from the constant up, and the largest relative error of their function."""
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    points = [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * POINTS)) for i in range(POINTS)]
    x, rest, weights = (np.array([float(f(p)) for p in points]) for f in (lambda p: p, fit.function, fit.weight))
    coefficients: list[np.float32] = []
    for power in range(fit.degree + 1):
        first = np.float32(lawson(x, rest, weights, np.arange(power, fit.degree + 1))[0])
        coefficients.append(first)
        rest = rest - float(first) * x**power
    return coefficients, float(np.abs(rest * weights).max())


def header() -> str:
    mp.mp.prec = 120
    text = """\
// Written by tools/minimax.py: the polynomials of functions_single.h and functions_half.h, with the number of correct
// bits.
#pragma once

#include "kernels/shared/stages/target.h"

namespace sluice {

"""
    for fit in fits():
        coefficients, error = coefficients_of(fit)
        numbers = [f"{np.format_float_scientific(c, unique=True, trim='-')}f" for c in coefficients]
        text += f"// {fit.what}: {-np.log2(error):.1f} bits\n"
        for constant in fit.constants:
            text += f"inline constexpr float {constant} = {numbers.pop(0)};\n"
        text += f"template <class F>\nSLUICE_HOST_DEVICE F {fit.name}(F x) {{\n"
        text += textwrap.fill(
            f"return polynomial(x, {', '.join(numbers)});", 120, initial_indent="  ", subsequent_indent=" " * 20
        )
        text += "\n}\n\n"
    return text + "}  // namespace sluice\n"


def main() -> None:
    text = header()
    if "--write" in sys.argv:
        HEADER.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
