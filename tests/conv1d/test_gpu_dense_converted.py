"""Dense conv1d whose input is converted to channels-last first: plans, bits, borders and memory, for every layout."""

from __future__ import annotations

import functools
import random

import pytest
import torch

import sluice
from common import NARROW_TYPES, TOLERANCE, Layout, contiguous, offset_by_one, permuted, relative_error, sliced
from convolution_tensors import convolution
from linked_forms import link_mode
from marks import IS_PORTABLE, ON_TENSOR_CORES
from rows import naming
from sluice import stages
from tf32 import assert_accurate, tf32_allowed

pytestmark = ON_TENSOR_CORES

Numbers = tuple[int, ...]  # stride, padding, dilation, groups
IS_CONVERTED = "converted to channels-last in a workspace first"


def every_second(x: torch.Tensor) -> torch.Tensor:
    """A tensor whose channels and positions are both not contiguous."""
    wide = x.new_full((x.shape[0], 2 * x.shape[1], 2 * x.shape[2]), float("nan"))
    inner = wide[:, ::2, 1::2]
    inner.copy_(x)
    return inner


def odd_pixels(x: torch.Tensor) -> torch.Tensor:
    """Contiguous but unaligned channels."""
    wide = x.new_full((x.shape[0], x.shape[2], x.shape[1] + 3), float("nan"))
    inner = wide[..., 1 : 1 + x.shape[1]].transpose(1, 2)
    inner.copy_(x)
    return inner


LAYOUTS: list[Layout] = [contiguous, sliced, offset_by_one, every_second, odd_pixels]


def converted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *numbers: int, **options) -> torch.Tensor:
    found = sluice.plan("conv1d", x, w, b, *numbers)
    assert IS_CONVERTED in found.detail, found
    assert found.workspace_bytes >= x.itemsize * x.numel()
    return sluice.conv1d(x, w, b, *numbers, **options)


def words(x: torch.Tensor) -> torch.Tensor:
    """The layout that the conversion stores: rows of channels, aligned to 16 bytes."""
    channels = x.shape[1]
    wide = x.new_zeros(x.shape[0], x.shape[2], (channels + 7) // 8 * 8).transpose(1, 2)
    wide[:, :channels] = x
    return wide


# Wide strides and few taps; all words of a tile's rows, and some; odd counts of channels.
CASES: list[tuple[tuple[int, int, int], int, int, Numbers]] = [
    ((8, 512, 4001), 512, 3, (2, 0, 1, 1)),
    ((4, 256, 20000), 512, 16, (8, 4, 1, 1)),
    ((8, 100, 30001), 72, 3, (2, 1, 1, 1)),
    ((4, 41, 60000), 256, 5, (3, 7, 2, 1)),
    ((4, 17, 100003), 200, 4, (4, 2, 1, 1)),
    ((8, 320, 9999), 320, 4, (2, 1, 3, 5)),
    ((2, 128, 70000), 128, 10, (70, 0, 1, 1)),
]


# In TF32 torch computes strided convolutions of many channels.
@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for dtype in NARROW_TYPES for case in CASES[2 if dtype == torch.float32 else 0 :]],
    ids=str,
)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_results(case, layout: Layout, dtype: torch.dtype) -> None:
    shape, outputs, taps, numbers = case
    x, w, b = convolution(shape, outputs, taps, dtype, groups=numbers[3])
    result = converted(layout(x), w, b, *numbers)
    wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), *numbers)
    assert_accurate(result, wanted, lambda: torch.conv1d(x, w, b, *numbers))
    if shape[1] // numbers[3] % 8 == 0:  # the same kernel and order of sums without the conversion
        plain = sluice.plan("conv1d", words(x), w, b, *numbers)
        assert plain.method == "dense" or dtype == torch.float32
        if plain.method == "dense":
            assert torch.equal(result, sluice.conv1d(words(x), w, b, *numbers))


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_the_same_bits_in_every_form_and_run(layout: Layout, dtype: torch.dtype, linked_always: None) -> None:
    x, w, b = convolution((4, 136, 30001), 200, 5, dtype)
    other = torch.float16 if dtype == torch.float32 else torch.float32
    numbers = (3, 2, 1, 1)
    own = layout(x)
    alpha, scale = torch.rand(136, 1, device="cuda") + 0.5, torch.rand(200, 1, device="cuda")
    residual = torch.randn_like(converted(own, w, b, *numbers))
    packed = sluice.pack(w)
    for options in (
        {},
        {"post": stages.gelu()},
        {"pre": stages.snake(alpha), "post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)},
        {"pre": stages.shift(0.25), "post": stages.add(residual), "dtype": other},
    ):
        wanted = converted(own, w, b, *numbers, **options)
        assert torch.equal(converted(own, w, b, *numbers, **options), wanted)
        assert torch.equal(sluice.conv1d(own, packed, b, *numbers, **options), wanted)
        out = layout(torch.empty_like(wanted)).fill_(float("nan"))
        assert torch.equal(converted(own, w, b, *numbers, **options, out=out), wanted)
        with link_mode("never"):
            assert torch.equal(sluice.conv1d(own, w, b, *numbers, **options), wanted)


# With so many output channels the conversion applies `pre` once, instead of the kernel for each tile.
def test_pre_is_applied_by_the_conversion(linked_always: None) -> None:
    x, w, b = convolution((8, 128, 3001), 1280, 3, torch.float16)
    odd, odd_w, _ = convolution((4, 201, 9001), 1280, 1, torch.bfloat16)
    alpha, shift = torch.rand(128, 1, device="cuda") + 0.5, torch.rand_like(x)
    for own, weight, bias, pre in (
        (x, w, b, stages.snake(alpha)),
        (x, w, b, stages.add(shift) | stages.gelu()),
        (odd, odd_w, None, stages.tanh() | stages.snake(0.5)),
        (odd, odd_w, None, stages.cpp("x * 2.0f - y", y=0.25) | stages.snake(0.5)),
    ):
        wanted = sluice.conv1d(sluice.transform(own, pre), weight, bias, 1, weight.shape[-1] // 2, post=stages.relu())
        for layout in (*LAYOUTS, permuted):
            call = {"pre": pre, "post": stages.relu()}
            found = sluice.plan("conv1d", layout(own), weight, bias, 1, weight.shape[-1] // 2, **call)
            assert IS_PORTABLE or IS_CONVERTED + ", with pre applied" in found.detail, found
            result = sluice.conv1d(layout(own), weight, bias, 1, weight.shape[-1] // 2, **call)
            assert torch.equal(result, wanted)
            if "cpp" in repr(pre):
                continue
            with link_mode("never"):
                assert torch.equal(sluice.conv1d(layout(own), weight, bias, 1, weight.shape[-1] // 2, **call), wanted)
                plain = sluice.conv1d(layout(own), weight, bias, 1, weight.shape[-1] // 2, pre=pre)
            assert torch.equal(plain.relu(), wanted)


def test_pre_with_split_k(linked_always: None) -> None:
    x, w, b = convolution((2, 512, 564), 64, 65, torch.float16)
    pre, post = stages.snake(torch.rand(512, 1, device="cuda") + 0.5), stages.silu()
    for layout in (*LAYOUTS, permuted):
        found = sluice.plan("conv1d", layout(x), w, b, pre=pre, post=post)
        assert "with pre applied" in found.detail, found
        assert "split-K of" in found.detail, found
        result = sluice.conv1d(layout(x), w, b, pre=pre, post=post)
        changed = sluice.transform(x, pre).double()
        wanted = torch.nn.functional.silu(torch.nn.functional.conv1d(changed, w.double(), b.double()))
        assert relative_error(result, wanted) <= TOLERANCE[x.dtype]
        with link_mode("never"):
            assert torch.equal(sluice.conv1d(layout(x), w, b, pre=pre, post=post), result)


def test_pre_of_transposed_ones(linked_always: None) -> None:
    for shape, outputs, taps, numbers in (
        ((4, 256, 3001), 128, 16, (8, 4)),  # one component range
        ((2, 512, 2001), 256, 10, (4, 3)),  # components with two and with three taps
    ):
        x, w, _ = convolution(shape, outputs, taps, torch.float16)
        w = w.transpose(0, 1).contiguous()
        pre, post = stages.snake(torch.rand(shape[1], 1, device="cuda") + 0.5), stages.leaky_relu(0.1)
        wanted = sluice.conv_transpose1d(sluice.transform(x, pre), w, None, *numbers, post=post)
        for layout in (*LAYOUTS, permuted):
            found = sluice.plan("conv_transpose1d", layout(x), w, None, *numbers, pre=pre, post=post)
            assert IS_PORTABLE or "with pre applied" in found.detail, found
            for mode in ("always", "never"):
                with link_mode(mode):
                    result = sluice.conv_transpose1d(layout(x), w, None, *numbers, pre=pre, post=post)
                assert torch.equal(result, wanted)


def test_a_hundred_random_problems() -> None:
    pick = random.Random(5)
    seen = 0
    with tf32_allowed():
        while seen < 100:
            channels, stride = pick.randint(1, 300), pick.randint(2, 12)
            taps, length = pick.randint(1, 2 * stride), pick.randint(20_000, 60_000)
            numbers = (stride, pick.randint(0, 9), pick.randint(1, 3), 1)
            shape, outputs, dtype = (pick.randint(1, 4), channels, length), pick.randint(8, 200), NARROW_TYPES[seen % 3]
            x, w, b = convolution(shape, outputs, taps, dtype)
            own = pick.choice(LAYOUTS)(x)
            if IS_CONVERTED not in sluice.plan("conv1d", own, w, b, *numbers).detail:
                continue
            seen += 1
            wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), *numbers)
            with naming(shape, outputs, taps, dtype, numbers):
                result = sluice.conv1d(own, w, b, *numbers)
                assert_accurate(result, wanted, functools.partial(torch.conv1d, x, w, b, *numbers))


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_rows_do_not_leak_into_each_other(layout: Layout, dtype: torch.dtype) -> None:
    x, w, b = convolution((3, 300, 40_001), 48, 9, dtype)
    wanted = converted(x, w, b, 4, 8)
    x[1] = float("nan")
    x[0, :, 300] = float("inf")
    result = converted(layout(x), w, b, 4, 8)
    assert torch.equal(result[2], wanted[2])
    assert bool(result[1].isnan().all())
    first = torch.arange(result.shape[-1], device="cuda") * 4 - 8
    touched = (first <= 300) & (first + 9 > 300)
    assert bool(result[0][:, ~touched].isfinite().all())
    assert not bool(result[0][:, touched].isfinite().any())


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_capture(dtype: torch.dtype) -> None:
    x, w, b = convolution((4, 200, 30_001), 96, 5, dtype)
    chains = {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}
    sluice.prepare(chains["post"], x, w, b, 4, 2, op="conv1d", pre=chains["pre"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = converted(x, w, b, 4, 2, **chains)
    for _ in range(3):
        x.normal_()
        result.fill_(float("nan"))
        graph.replay()
        assert torch.equal(result, converted(x, w, b, 4, 2, **chains))


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_a_transposed_convolution(dtype: torch.dtype) -> None:
    x = torch.randn(4, 129, 40_001, device="cuda", dtype=dtype)
    w = torch.randn(129, 64, 4, device="cuda", dtype=dtype) / 16
    found = sluice.plan("conv_transpose1d", every_second(x), w, None, 2, 1)
    assert IS_CONVERTED in found.detail, found
    wanted = torch.nn.functional.conv_transpose1d(x.double(), w.double(), None, 2, 1)
    of_torch = functools.partial(torch.conv_transpose1d, x, w, None, 2, 1)
    for layout in LAYOUTS:
        assert_accurate(sluice.conv_transpose1d(layout(x), w, None, 2, 1), wanted, of_torch)


def test_more_than_2_to_31_elements() -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of device memory")
    length = (1 << 25) + 1001
    x = torch.empty(1, 72, length, device="cuda", dtype=torch.bfloat16).normal_()
    _, w, b = convolution((1, 72, 16), 64, 3, torch.bfloat16)
    result = converted(x, w, b, 2)
    assert x.numel() > 2**31
    for begin in (0, length // 4, result.shape[-1] - 4096):
        own = sluice.conv1d(permuted(x[..., 2 * begin : 2 * begin + 2 * 4096 + 1]), w, b, 2)
        assert torch.equal(result[..., begin : begin + 4096], own[..., :4096])


@pytest.mark.sanitize
@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_under_sanitizers(layout: Layout, dtype: torch.dtype) -> None:
    sizes = (5, 100_003), (41, 30_001), (136, 20_001)
    for channels, length in sizes if dtype == torch.float16 else sizes[1:2]:
        x, w, b = convolution((2, channels, length), 64, 3, dtype)
        for mode in ("never", "always"):
            with link_mode(mode):
                assert bool(converted(layout(x), w, b, 4, 1, 1, pre=stages.snake(0.5)).isfinite().all())
        assert bool(converted(layout(x), w, b, 4, 1, 1).isfinite().all())
