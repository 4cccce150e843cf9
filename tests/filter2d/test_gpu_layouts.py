"""filter2d on a GPU by columns, tiles and Toeplitz products: every layout, narrow images, bits, what is not finite."""

from __future__ import annotations

import functools
import random

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import NARROW_TYPES, TOLERANCE, relative_error
from images import MODES, channels_last, row_slice
from linked_forms import interpreted, linking
from marks import LINKED_ON_GPU
from sluice import stages

pytestmark = LINKED_ON_GPU

HALF_TYPES = [torch.float16, torch.bfloat16]


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The elements one element further in memory."""
    return x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x)


PLACES = [torch.clone, channels_last, row_slice, transposed, shifted]


def kernel_of(*arguments, **options) -> str:
    return sluice.plan("filter2d", *arguments, **options).kernel


def padded(x: torch.Tensor, height: int, width: int, mode: str) -> torch.Tensor:
    sides = (width // 2, width // 2, height // 2, height // 2)
    return F.pad(x.float(), sides, mode="constant" if mode == "zeros" else mode).to(x.dtype)


def is_by_columns(side: int, dtype: torch.dtype) -> bool:
    return dtype == torch.float32 or side < 7


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("side", [3, 5, 7, 9])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_columns_give_the_bits_of_a_ring(dtype: torch.dtype, side: int, place) -> None:
    draw = random.Random(torch.initial_seed())
    for _ in range(12):
        channels = draw.choice([1, 2, 3, 4, 5, 31, 64, 65, 200])
        shape = (draw.choice([1, 2, 5]), channels, draw.randint(side, 90), draw.randint(side, 63))
        x = place(torch.randn(shape, device="cuda").to(dtype))
        w = torch.randn(channels, side, side, device="cuda").to(dtype)
        b = torch.randn(channels, device="cuda").to(dtype)
        padding = draw.choice(["same", "valid", (1, 0), (0, 2), (side, side + 2)])
        wanted = sluice.filter2d(x, w, b, padding, schedule="sync")
        result = place(torch.full_like(wanted, float("nan")))
        sluice.filter2d(x, w, b, padding, out=result)
        if is_by_columns(side, dtype):
            assert torch.equal(result, wanted), (shape, padding)
        else:
            assert relative_error(result, wanted) <= 2 * TOLERANCE[dtype], (shape, padding)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("dtype", [*NARROW_TYPES, torch.uint8], ids=str)
def test_columns_pad_with_any_border(dtype: torch.dtype, side: int, mode: str) -> None:
    for shape in ((2, 3, 70, 129), (1, 40, 9, 11), (3, 2, 200, 17)):
        x = channels_last(torch.randint(0, 100, shape, device="cuda").to(dtype))
        computed = torch.float32 if dtype == torch.uint8 else dtype
        w = torch.randn(shape[1], side, side, device="cuda", dtype=computed)
        whole = padded(x, side, side, mode).to(computed)
        wanted = sluice.filter2d(whole, w, padding="valid", schedule="sync")
        assert torch.equal(sluice.filter2d(x, w, padding_mode=mode, schedule="direct"), wanted)


def taps_of(channels: int, height: int, width: int, dtype: torch.dtype, separable: bool):
    if separable:
        return tuple(torch.randn(channels, side, device="cuda").to(dtype) for side in (height, width))
    return torch.randn(channels, height, width, device="cuda").to(dtype)


LARGE = [(11, 11), (7, 8), (31, 31), (3, 40), (40, 3), (64, 17), (13, 4), (16, 16), (5, 9)]


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("size", LARGE, ids=str)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_tiles_give_the_bits_of_a_ring(dtype: torch.dtype, size: tuple[int, int], separable: bool) -> None:
    draw = random.Random(torch.initial_seed())
    height, width = size
    for _ in range(8):
        channels, place = draw.choice([1, 2, 3, 5]), draw.choice(PLACES)
        shape = (draw.choice([1, 2]), channels, draw.randint(height, 150), draw.randint(width, draw.choice([70, 400])))
        x = place(torch.randn(shape, device="cuda").to(dtype))
        w = taps_of(channels, height, width, dtype, separable)
        b = torch.randn(channels, device="cuda").to(dtype)
        padding = draw.choice([(height // 2, width // 2), (0, 0), (0, width), (height, 1)])
        kernel = kernel_of(x, w, b, padding, schedule="direct")
        assert kernel == ("tiled_separable" if separable else "tiled")
        wanted = sluice.filter2d(x, w, b, padding, schedule="sync")
        result = place(torch.full_like(wanted, float("nan")))
        sluice.filter2d(x, w, b, padding, schedule="direct", out=result)
        assert torch.equal(result, wanted), (shape, padding, place.__name__)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [*NARROW_TYPES, torch.uint8], ids=str)
def test_tiles_pad_with_any_border(dtype: torch.dtype, mode: str, separable: bool) -> None:
    for shape, place in (((2, 3, 70, 129), channels_last), ((1, 4, 19, 31), torch.clone), ((3, 2, 200, 17), shifted)):
        x = place(torch.randint(0, 100, shape, device="cuda").to(dtype))
        computed = torch.float32 if dtype == torch.uint8 else dtype
        w = taps_of(shape[1], 15, 11, computed, separable)
        wanted = sluice.filter2d(padded(x, 15, 11, mode).to(computed), w, padding="valid", schedule="sync")
        assert torch.equal(sluice.filter2d(x, w, padding_mode=mode, schedule="direct"), wanted)


SIZES = [(7, 7), (9, 9), (11, 11), (31, 31), (1, 45), (45, 1), (3, 40), (21, 2), (8, 24), (63, 63), (5, 26)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_toeplitz_products(dtype: torch.dtype, size: tuple[int, int]) -> None:
    draw = random.Random(torch.initial_seed())
    height, width = size
    for _ in range(15):
        channels = draw.choice([1, 2, 3, 7])
        shape = (
            draw.choice([1, 3]),
            channels,
            draw.randint(height, 170),
            draw.randint(width, draw.choice([64, 70, 600])),
        )
        x = draw.choice([torch.clone, row_slice, shifted])(torch.randn(shape, device="cuda").to(dtype))
        w = (torch.randn(channels, height, width, device="cuda") / (height * width) ** 0.5).to(dtype)
        b = torch.randn(channels, device="cuda").to(dtype)
        padding = draw.choice([(height // 2, width // 2), (0, 0), (0, width), (height, 1)])
        assert kernel_of(x, w, b, padding) == "toeplitz"
        wanted = F.conv2d(x.double(), w.double()[:, None], b.double(), padding=padding, groups=channels)
        result = draw.choice([torch.clone, row_slice, shifted])(torch.full_like(wanted, float("nan"), dtype=dtype))
        sluice.filter2d(x, w, b, padding, out=result)
        assert relative_error(result, wanted) <= TOLERANCE[dtype], (shape, padding, x.stride(), result.stride())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_toeplitz_products_of_any_border_and_layout(dtype: torch.dtype, mode: str) -> None:
    for place in PLACES:
        for size in ((7, 7), (11, 3), (5, 31)):
            x = place(torch.randn(2, 3, 60, 83, device="cuda").to(dtype))
            w = (torch.randn(3, *size, device="cuda") / 8).to(dtype)
            wanted = F.conv2d(padded(x, *size, mode).double(), w.double()[:, None], groups=3)
            assert relative_error(sluice.filter2d(x, w, padding_mode=mode), wanted) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_toeplitz_results_depend_on_their_windows_alone(dtype: torch.dtype) -> None:
    for size, width in (((7, 7), 640), ((15, 15), 131), ((31, 31), 90), ((45, 1), 64), ((1, 45), 200)):
        reach = (size[0] // 2, size[1] // 2)
        x = torch.randn(1, 2, 90, width, device="cuda").to(dtype)
        w = torch.randn(2, *size, device="cuda").to(dtype)
        clean = sluice.filter2d(x, w)
        for row, column, value in ((0, 0, "inf"), (45, width // 2, "nan"), (89, width - 1, "-inf"), (50, 0, "inf")):
            spoilt = x.clone()
            spoilt[:, 1, row, column] = float(value)
            result = sluice.filter2d(spoilt, w)
            window = torch.zeros(90, width, dtype=torch.bool, device="cuda")
            rows = slice(max(row - reach[0], 0), row + reach[0] + 1)
            window[rows, max(column - reach[1], 0) : column + reach[1] + 1] = True
            assert torch.equal(~result[0, 1].isfinite(), window)
            assert torch.equal(result[0, 1][~window], clean[0, 1][~window])
            assert torch.equal(result[0, 0], clean[0, 0])


@pytest.mark.parametrize("side", [3, 5, 7, 9, 11, 15])
@pytest.mark.parametrize("dtype", [*NARROW_TYPES, torch.uint8], ids=str)
def test_chains_link_to_the_bits_of_the_interpreter(dtype: torch.dtype, side: int) -> None:
    computed = torch.float32 if dtype == torch.uint8 else dtype
    for place in (channels_last, torch.clone):
        x = place(torch.randint(-9, 9, (2, 3, 75, 61), device="cuda").to(dtype))
        w = torch.randn(3, side, side, device="cuda", dtype=computed) / side
        gain, other = torch.rand(3, 1, 1, device="cuda"), torch.randn(2, 3, 75, 61, device="cuda").half()
        for pre in (None, stages.scale(0.1) | stages.silu()):
            post = stages.add(other) | stages.snake(gain)
            compute = functools.partial(sluice.filter2d, x, w, pre=pre, post=post, dtype=torch.bfloat16)
            launches = linking()["linked_launches"]
            result = compute()
            assert linking()["linked_launches"] == launches + 1
            assert torch.equal(result, interpreted(compute))
            prepared = x if pre is None else sluice.transform(x.to(computed), pre)
            wanted = F.conv2d(prepared.double(), w.double()[:, None], padding=side // 2, groups=3) + other.double()
            wanted = sluice.reference.transform(wanted, stages.snake(gain.double()))
            assert relative_error(result, wanted) <= 2 * TOLERANCE[torch.bfloat16]


def test_batch_dimensions_that_do_not_merge_and_a_graph() -> None:
    base = torch.randn(3, 4, 2, 70, 50, device="cuda").half()
    w = torch.randn(2, 9, 9, device="cuda").half() / 9
    x = base.transpose(0, 1)[:, ::2]
    wanted = F.conv2d(x.reshape(8, 2, 70, 50).double(), w.double()[:, None], padding=4, groups=2).view(x.shape)
    out = torch.empty_like(sluice.filter2d(x, w))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sluice.filter2d(x, w, out=out)
    graph.replay()
    assert relative_error(out, wanted) <= TOLERANCE[torch.float16]


# Memory ends with the image: PYTORCH_NO_CUDA_MEMORY_CACHING.
@pytest.mark.sanitize
@pytest.mark.parametrize("place", [torch.clone, channels_last, shifted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(1, 1, 33, 31), (2, 3, 40, 72), (1, 9, 12, 131)], ids=str)
@pytest.mark.parametrize(
    ("side", "dtype"),
    [(3, "float16"), (5, "float32"), (7, "bfloat16"), (9, "float32"), (11, "float16"), (11, "float32")],
)
def test_under_a_sanitizer(side: int, dtype: str, shape: tuple[int, ...], place) -> None:
    x = place(torch.randn(shape, device="cuda").to(getattr(torch, dtype)))
    w = torch.randn(shape[1], side, side, device="cuda").to(x.dtype) / side
    wanted = F.conv2d(x.double(), w.double()[:, None], padding=side // 2, groups=shape[1])
    assert relative_error(sluice.filter2d(x, w), wanted) <= TOLERANCE[x.dtype]


@pytest.mark.sanitize
@pytest.mark.parametrize("place", [torch.clone, channels_last, shifted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(1, 1, 33, 31), (2, 3, 40, 72), (1, 9, 12, 131)], ids=str)
@pytest.mark.parametrize(("side", "dtype"), [(5, "float32"), (7, "bfloat16"), (11, "float16")])
def test_separable_ones_under_a_sanitizer(side: int, dtype: str, shape: tuple[int, ...], place) -> None:
    x = place(torch.randn(shape, device="cuda").to(getattr(torch, dtype)))
    column, row = taps_of(shape[1], side, side, x.dtype, separable=True)
    taps = (column.double()[:, :, None] * row.double()[:, None])[:, None]
    assert kernel_of(x, (column, row)) == "tiled_separable"
    wanted = F.conv2d(x.double(), taps, padding=side // 2, groups=shape[1])
    assert relative_error(sluice.filter2d(x, (column, row)), wanted) <= 2 * TOLERANCE[x.dtype]
