"""Depthwise convolutions and stencils on the CPU: every instruction set, any number of threads, windows of NaN."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import sluice
from sluice import _library, stages

SHAPES = [(2, 3, 5000), (2, 40, 37), (1, 17, 300), (3, 64, 9)]
LAYOUTS = ["contiguous", "channels_last"]


@pytest.fixture(params=_library.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _library.instruction_set()
    torch.ops.sluice._set_instruction_set(request.param)
    yield request.param
    torch.ops.sluice._set_instruction_set(before)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def laid(x: torch.Tensor, layout: str) -> torch.Tensor:
    return x if layout == "contiguous" else x.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("taps", [1, 4, 8, 9, 31, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_conv1d(instruction_set: str, shape: tuple[int, int, int], taps: int, dtype: torch.dtype, layout: str) -> None:
    x, w = laid(torch.randn(shape).to(dtype), layout), torch.randn(shape[1], 1, taps).to(dtype)
    row = torch.randn(shape[1], 1)
    for stride, dilation in ((1, 1), (2, 1), (3, 2), (50, 7)):
        padding = (taps * dilation + 1) // 2
        arguments: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": shape[1]}
        chains: dict[str, Any] = {"pre": stages.scale(0.5), "post": stages.add(row) | stages.relu()}
        wanted = torch.nn.functional.conv1d(x.double() * 0.5, w.double(), **arguments)
        wanted = (wanted + row.double()).relu()
        out = laid(torch.full(wanted.shape, torch.nan, dtype=dtype), layout)
        sluice.conv1d(x, w, **arguments, **chains, out=out)
        tolerance = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-13}[dtype]
        assert (out.double() - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_do_not_depend_on_threads(instruction_set: str, dtype: torch.dtype, layout: str) -> None:
    x, image = laid(torch.randn(3, 40, 7001).to(dtype), layout), laid(torch.randn(2, 20, 130, 301).to(dtype), layout)
    w, kernel = torch.randn(40, 1, 31).to(dtype), torch.randn(20, 7, 7).to(dtype)

    def run(count: int) -> tuple[Any, ...]:
        torch.set_num_threads(count)
        return (
            sluice.conv1d(x, w, padding=15, groups=40, post=stages.silu()),
            sluice.causal_conv1d(x, w[:, 0, :4], activation="silu"),
            sluice.filter2d(image, kernel),
            sluice.filter2d(image, (kernel[:, 0], kernel[:, 1])),
        )

    alone = run(1)
    for count in (2, 3, 7):
        assert all(torch.equal(a, b) for a, b in zip(alone, run(count), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_in_its_window(instruction_set: str, layout: str, value: float) -> None:
    x, w = torch.randn(1, 20, 600), torch.rand(20, 1, 5) + 0.5
    x[0, 7, 300] = value
    y = sluice.conv1d(laid(x, layout), w, padding=2, groups=20)
    assert (~y.isfinite()).nonzero().tolist() == [[0, 7, t] for t in range(298, 303)]
    for size in (3, 5, 7):
        image = torch.randn(1, 20, 30, 300)
        image[0, 7, 10, 150] = value
        result = sluice.filter2d(laid(image, layout), torch.rand(20, size, size) + 0.5)
        around = range(-(size // 2), size // 2 + 1)
        assert (~result.isfinite()).nonzero().tolist() == [[0, 7, 10 + i, 150 + j] for i in around for j in around]


def test_random_cases_are_drawn_from_their_seeds() -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "benchmarks"))
    import random_cpu

    for op in random_cpu.OPS:
        drawn = [random_cpu.draw(op, seed) for seed in range(8)]
        again = [random_cpu.draw(op, seed) for seed in range(8)]
        assert any(drawn)
        assert [case and case.text for case in drawn] == [case and case.text for case in again]
        for case in filter(None, drawn):
            ours, native = case.ours(), case.native()
            assert (ours.double() - native.double()).norm() <= 1e-2 * native.double().norm(), case.text
