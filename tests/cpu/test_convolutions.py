"""Depthwise convolutions and stencils on the CPU: every instruction set, any number of threads, windows of NaN."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sluice
from common import DTYPES, TOLERANCE
from rows import naming
from sluice import stages

Each = Callable[[], Iterator[str]]
NEAR = TOLERANCE | {torch.float64: 1e-13}
SHAPES = [(2, 3, 5000), (2, 40, 37), (1, 17, 300), (3, 64, 9)]
CHANNELS = (2, 5, 8, 13, 16, 17, 31, 65, 200)
LAYOUTS = ["contiguous", "channels_last"]


def in_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    return x if layout == "contiguous" else x.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_conv1d(each_instruction_set: Each, shape: tuple[int, int, int], dtype: torch.dtype, layout: str) -> None:
    for taps in (1, 4, 8, 9, 31, 300):
        with naming(taps):
            x, w = in_layout(torch.randn(shape).to(dtype), layout), torch.randn(shape[1], 1, taps).to(dtype)
            row = torch.randn(shape[1], 1)
            for stride, dilation in ((1, 1), (2, 1), (3, 2), (50, 7)):
                padding = (taps * dilation + 1) // 2
                arguments: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
                arguments["groups"] = shape[1]
                chains: dict[str, Any] = {"pre": stages.scale(0.5), "post": stages.add(row) | stages.relu()}
                wanted = torch.nn.functional.conv1d(x.double() * 0.5, w.double(), **arguments)
                wanted = (wanted + row.double()).relu()
                for name in each_instruction_set():
                    out = in_layout(torch.full(wanted.shape, torch.nan, dtype=dtype), layout)
                    sluice.conv1d(x, w, **arguments, **chains, out=out)
                    assert (out.double() - wanted).norm() <= NEAR[dtype] * wanted.norm(), (name, stride)


@pytest.mark.parametrize("taps", [2, 4, 5, 8, 9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_length(instruction_set: str, dtype: torch.dtype, taps: int) -> None:
    """Short rows and rows of many taps are copied, long rows read in place, except their ends."""
    w = torch.randn(3, taps).to(dtype)
    tolerance = NEAR[dtype]
    for length in (64, 1023, 1024, 1024 + taps, 2047, 2048 + 2 * taps, 4096 + 1031):
        x, states = torch.randn(2, 3, length).to(dtype), torch.randn(2, 3, taps - 1).to(dtype)
        whole = torch.cat((states, x), 2).double()
        wanted = torch.nn.functional.conv1d(whole, w[:, None].double(), groups=3)
        out = sluice.causal_conv1d(x, w, initial_states=states, out=torch.full_like(x, torch.nan))
        assert (out.double() - wanted).norm() <= tolerance * wanted.norm()
        padded = sluice.conv1d(x, w[:, None], padding=taps, groups=3)
        wanted = torch.nn.functional.conv1d(x.double(), w[:, None].double(), padding=taps, groups=3)
        assert (padded.double() - wanted).norm() <= tolerance * wanted.norm()
        short = sluice.conv1d(x[..., :64], w[:, None], padding=taps, groups=3)
        assert torch.equal(padded[..., :64], short[..., :64])  # whichever way a position goes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_an_operand_may_be_the_result(instruction_set: str, dtype: torch.dtype, layout: str) -> None:
    x, residual = (in_layout(torch.randn(2, 20, 3001).to(dtype), layout) for _ in range(2))
    w = torch.randn(20, 1, 3).to(dtype)
    chain = stages.silu() | stages.add(residual)
    wanted = sluice.conv1d(x, w, padding=1, groups=20, post=chain)
    assert torch.equal(sluice.conv1d(x, w, padding=1, groups=20, post=chain, out=residual), wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_do_not_depend_on_threads(instruction_set: str, dtype: torch.dtype, layout: str) -> None:
    x, image = (
        in_layout(torch.randn(3, 40, 7001).to(dtype), layout),
        in_layout(torch.randn(2, 20, 130, 301).to(dtype), layout),
    )
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
    y = sluice.conv1d(in_layout(x, layout), w, padding=2, groups=20)
    assert (~y.isfinite()).nonzero().tolist() == [[0, 7, t] for t in range(298, 303)]
    for size in (3, 5, 7):
        image = torch.randn(1, 20, 30, 300)
        image[0, 7, 10, 150] = value
        result = sluice.filter2d(in_layout(image, layout), torch.rand(20, size, size) + 0.5)
        around = range(-(size // 2), size // 2 + 1)
        assert (~result.isfinite()).nonzero().tolist() == [[0, 7, 10 + i, 150 + j] for i in around for j in around]


def between_walls(shape: torch.Size, dtype: torch.dtype, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """An empty tensor with 64 NaNs before and after it, and all of its memory."""
    count = shape.numel()
    memory = torch.full((count + 128,), torch.nan, dtype=dtype)
    strides = in_layout(torch.empty(shape), layout).stride()
    return memory[64 : 64 + count].as_strided(shape, strides, 64), memory


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_filter2d_of_few_columns_or_channels(each_instruction_set: Each, dtype: torch.dtype, layout: str) -> None:
    """Vectors run across channels, from the image or from transposed planes; the last vectors are partial."""
    for channels in CHANNELS:
        with naming(channels):
            tolerance = NEAR[dtype]
            for height, width, rows, columns, padding in (
                (9, 7, 3, 3, (1, 1)),
                (20, 33, 5, 5, (2, 0)),
                (5, 4, 7, 7, (3, 5)),
                (12, 40, 1, 3, (0, 1)),
                (30, 8, 11, 11, (5, 5)),
                (6, 19, 2, 4, (0, 3)),
            ):
                x = in_layout(torch.randn(2, channels, height, width).to(dtype), layout)
                kernel, bias = torch.randn(channels, rows, columns).to(dtype), torch.randn(channels).to(dtype)
                wanted = torch.nn.functional.conv2d(
                    x.double(), kernel[:, None].double(), bias.double(), padding=padding, groups=channels
                )
                for name in each_instruction_set():
                    for chain, exact in ((None, wanted), (stages.scale(2.0), 2 * wanted)):
                        out, memory = between_walls(wanted.shape, dtype, layout)
                        sluice.filter2d(x, kernel, bias, padding, post=chain, out=out)
                        assert (out.double() - exact).norm() <= tolerance * exact.norm(), (name, rows)
                        assert memory[:64].isnan().all(), (name, rows)
                        assert memory[-64:].isnan().all(), (name, rows)


@pytest.mark.parametrize("taps", [2, 4, 31])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_conv1d_of_short_rows(instruction_set: str, taps: int, dtype: torch.dtype) -> None:
    for channels, length in ((16, 8), (40, 63), (77, 15), (100, 31)):
        x, w = torch.randn(3, channels, length).to(dtype), torch.randn(channels, 1, taps).to(dtype)
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=taps // 2, groups=channels)
        result = sluice.conv1d(x, w, padding=taps // 2, groups=channels)
        assert (result.double() - wanted).norm() <= (1e-6 if dtype == torch.float32 else 1e-2) * wanted.norm()
        causal = sluice.causal_conv1d(x, w[:, 0], activation="silu")
        exact = sluice.reference.causal_conv1d(x.double(), w[:, 0].double(), activation="silu")[0]
        assert (causal.double() - exact).norm() <= (1e-6 if dtype == torch.float32 else 1e-2) * exact.norm()


def test_random_cases_are_drawn_from_their_seeds() -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
    import random_cpu

    for op in random_cpu.OPS:
        drawn = [random_cpu.draw(op, seed) for seed in range(8)]
        again = [random_cpu.draw(op, seed) for seed in range(8)]
        assert any(drawn)
        assert [case and case.text for case in drawn] == [case and case.text for case in again]
        for case in filter(None, drawn):
            ours, native = case.ours(), case.native()
            assert (ours.double() - native.double()).norm() <= 1e-2 * native.double().norm(), case.text
