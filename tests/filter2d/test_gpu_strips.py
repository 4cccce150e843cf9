"""filter2d's windows on a GPU: the bits of the other kernels, at every alignment, width and border, linked and not."""

from __future__ import annotations

import functools
import random

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import NARROW_TYPES
from images import MODES
from linked_forms import interpreted, linking
from marks import LINKED_ON_GPU
from sluice import stages

pytestmark = LINKED_ON_GPU


def placed(x: torch.Tensor, offset: int, apart: int) -> torch.Tensor:
    """`x` with its first element `offset` elements after a word boundary, rows as many elements further apart."""
    *planes, height, width = x.shape
    count = x[..., 0, 0].numel() * height * (width + apart)
    flat = x.new_zeros(count + offset)[offset:]
    view = flat.view(*planes, height, width + apart)[..., :width]
    return view.copy_(x)


def padded(x: torch.Tensor, side: int, mode: str) -> torch.Tensor:
    reach = side // 2
    sides = (reach, reach, reach, reach)
    return F.pad(x.float(), sides, mode="constant" if mode == "zeros" else mode).to(x.dtype)


@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_rows_that_lie_anyhow_give_the_bits_of_a_ring(dtype: torch.dtype, side: int) -> None:
    draw = random.Random(side)
    for _ in range(30):
        shape = (draw.choice([1, 3]), draw.choice([1, 2]), draw.randint(64, 170), draw.randint(64, 700))
        x = placed(torch.randn(shape, device="cuda").to(dtype), draw.randint(0, 9), draw.choice([0, 0, 1, 5, 8]))
        w = torch.randn(shape[1], side, side, device="cuda").to(dtype)
        b = torch.randn(shape[1], device="cuda").to(dtype)
        padding = draw.choice(["same", "valid", (1, 0), (0, 2)])
        wanted = sluice.filter2d(x, w, b, padding, schedule="sync")
        result = placed(torch.full_like(wanted, float("nan")), draw.randint(0, 9), draw.choice([0, 0, 3, 8]))
        result.fill_(float("nan"))
        sluice.filter2d(x, w, b, padding, out=result)
        assert torch.equal(result, wanted), (shape, x.stride(), result.stride(), padding)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", [3, 5, 6])
@pytest.mark.parametrize("dtype", [*NARROW_TYPES, torch.float64, torch.uint8], ids=str)
def test_borders_give_the_bits_of_an_image_with_them(dtype: torch.dtype, side: int, mode: str) -> None:
    for shape in ((2, 3, 70, 129), (1, 2, 20, 37), (1, 1, 200, 320)):
        x = torch.randint(0, 100, shape, device="cuda").to(dtype)
        computed = torch.float32 if dtype == torch.uint8 else dtype
        w = torch.randn(shape[1], side, side, device="cuda", dtype=computed)
        whole = padded(x, side, mode).to(computed)
        reach = (side // 2, side // 2)
        wanted = sluice.filter2d(whole, w, padding="valid")
        assert torch.equal(sluice.filter2d(x, w, None, reach, padding_mode=mode), wanted)
        for stride, dilation in (((2, 3), (1, 1)), ((1, 1), (2, 2)), ((3, 1), (1, 2))):
            options = {"stride": stride, "dilation": dilation}
            found = sluice.filter2d(x, w, None, reach, padding_mode=mode, **options)
            assert torch.equal(found, sluice.filter2d(whole, w, padding="valid", **options))
        assert torch.equal(sluice.filter2d(whole, w, padding="valid", stride=(2, 3)), wanted[..., ::2, ::3])


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("dtype", [*NARROW_TYPES, torch.uint8], ids=str)
def test_windows_link_to_the_bits_of_the_interpreter(dtype: torch.dtype, side: int, mode: str) -> None:
    x = torch.randint(0, 100, (2, 3, 75, 133), device="cuda").to(dtype)
    computed = torch.float32 if dtype == torch.uint8 else dtype
    w = torch.randn(3, side, side, device="cuda", dtype=computed)
    gain = torch.rand(3, 1, 1, device="cuda")
    for stride in (1, 2):
        shape = sluice.filter2d(x, w, None, (2, 2), stride=stride, padding_mode=mode).shape
        other = torch.randn(shape, device="cuda").half()
        for pre in (None, stages.scale(0.1) | stages.silu()):
            compute = functools.partial(
                sluice.filter2d, x, w, None, (2, 2), stride=stride, padding_mode=mode, pre=pre,
                post=stages.add(other) | stages.snake(gain),
            )  # fmt: skip
            launches = linking()["linked_launches"]
            result = compute()
            assert linking()["linked_launches"] == launches + 1
            assert torch.equal(result, interpreted(compute))


def test_strips_in_place_of_an_operand() -> None:
    for dtype in NARROW_TYPES:
        x = torch.randn(2, 2, 150, 519, device="cuda").to(dtype)
        w = torch.randn(2, 3, 3, device="cuda").to(dtype)
        out = x.clone()
        wanted = sluice.filter2d(x, w, post=stages.add(x))
        sluice.filter2d(x, w, post=stages.add(out), out=out)
        assert torch.equal(out, wanted)


@pytest.mark.parametrize("side", [3, 5])
def test_nothing_not_finite_leaves_its_window(side: int) -> None:
    for dtype in NARROW_TYPES:
        for width in (131, 640):
            x = torch.ones(1, 2, 90, width, device="cuda", dtype=dtype)
            for row, column in ((0, 0), (0, width - 1), (45, 64), (89, width - 1), (50, 0)):
                x[..., row, column] = float("inf")
            for mode in MODES:
                kernel = torch.ones(side, side, device="cuda", dtype=dtype)
                wanted = sluice.filter2d(padded(x, side, mode), kernel, padding="valid", schedule="sync")
                assert torch.equal(sluice.filter2d(x, kernel, padding_mode=mode), wanted)
