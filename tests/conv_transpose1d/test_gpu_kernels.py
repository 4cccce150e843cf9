"""conv_transpose1d on a GPU: which kernels it takes, linked and interpreted bits, borders and graphs."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import HALF_TYPES, LAYOUTS, NARROW_TYPES, Layout, assert_close, contiguous, permuted
from convolution_tensors import transposed
from linked_forms import interpreted, link_mode, linking
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("padding", [0, 3, 6, 11])
def test_stride_1_goes_to_the_tensor_cores(padding: int, dtype: torch.dtype, layout: Layout) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs compute capability 9.0")
    x, w, b = transposed((2, 64, 1003), 72, 7, dtype, layout, groups=1)
    for options in ({}, {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}):
        assert sluice.plan("conv_transpose1d", x, w, b, 1, padding, **options).method == "dense"
        wanted = sluice.reference.conv_transpose1d(x.double(), w.double(), b.double(), 1, padding)
        if options:
            rounded = F.leaky_relu(x.float(), 0.1).to(dtype)
            wanted = F.gelu(F.conv_transpose1d(rounded.double(), w.double(), b.double(), 1, padding))
        for mode in ("never", "always"):
            with link_mode(mode):
                assert_close(sluice.conv_transpose1d(x, w, b, 1, padding, **options), wanted, factor=2)


@pytest.mark.usefixtures("linked_always")
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize(("taps", "stride", "padding"), [(12, 2, 5), (16, 8, 4), (4, 2, 1), (31, 3, 1)])
def test_components_have_the_interpreters_bits(taps: int, stride: int, padding: int, dtype, layout: Layout) -> None:
    x, w, b = transposed((3, 72, 501), 1, taps, dtype, layout, groups=72)
    gain, length = torch.rand(72, 1, device="cuda"), 500 * stride - 2 * padding + taps
    other = torch.randn(3, 72, length, device="cuda")
    options = {"pre": stages.silu() | stages.mul(gain), "post": stages.add(other) | stages.snake(gain)}
    # With "auto", aten would compute results too few for the launches.
    compute = functools.partial(sluice.conv_transpose1d, x, w, b, stride, padding, 0, 72, schedule="direct", **options)
    launches = linking()["linked_launches"]
    result = compute()
    assert linking()["linked_launches"] == launches + stride
    assert torch.equal(result, interpreted(compute))
    wanted = F.conv_transpose1d(
        (F.silu(x.float()) * gain).to(dtype).double(), w.double(), b.double(), stride, padding, 0, 72
    )
    wanted = wanted + other
    assert_close(result, wanted + torch.sin(gain.double() * wanted).square() / (gain.double() + 1e-9), factor=2)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_nothing_is_written_around_a_result(dtype: torch.dtype, layout: Layout) -> None:
    for weight, groups, stride in (((72, 1, 12), 72, 2), ((72, 40, 5), 1, 1), ((72, 40, 4), 1, 2)):
        x, w, b = transposed((2, 72, 203), *weight[1:], dtype, layout, groups=groups)
        wanted = F.conv_transpose1d(x.double(), w.double(), b.double(), stride, 1, 0, groups)
        batch, channels, length = (size + 6 for size in wanted.shape)
        rows = torch.full((batch, channels, length), float("nan"), device="cuda", dtype=dtype)
        positions = torch.full((batch, length, channels), float("nan"), device="cuda", dtype=dtype)
        for around in (rows, positions.transpose(1, 2)):
            inside = around[3:-3, 3:-3, 3:-3]
            sluice.conv_transpose1d(x, w, b, stride, 1, 0, groups, out=inside)
            assert_close(inside, wanted)
            inside.fill_(float("nan"))
            assert around.isnan().all()


def test_depthwise_sums_are_full_float32_whatever_tf32_says() -> None:
    x, w, b = transposed((2, 64, 700), 1, 12, torch.float32, contiguous, groups=64)
    bare = torch.randn(64, 1, 2, device="cuda")  # with stride 3 some results have no tap: torch's convolution
    torch.backends.cudnn.allow_tf32 = True
    try:
        for weight, stride in ((w, 2), (bare, 3)):
            result = sluice.conv_transpose1d(x, weight, b, stride, 0, 0, 64)
            assert_close(result, F.conv_transpose1d(x.double(), weight.double(), b.double(), stride, 0, 0, 64))
    finally:
        torch.backends.cudnn.allow_tf32 = False


def test_a_graph_replays_every_component() -> None:
    x, w, b = transposed((2, 64, 500), 1, 12, torch.float16, contiguous, groups=64)
    compute = functools.partial(sluice.conv_transpose1d, x, w, b, 2, 5, 0, 64, post=stages.silu())
    compute()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()
    for _ in range(3):
        x.normal_()
        result.fill_(float("nan"))
        graph.replay()
        assert torch.equal(result, compute())


@pytest.mark.large
def test_components_over_2_31_elements() -> None:
    x = torch.empty(2, 1024, 2**31 // (4 * 1024) + 13, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    w = torch.randn(1024, 1, 4, device="cuda", dtype=torch.bfloat16)
    y = sluice.conv_transpose1d(x, w, None, 2, 1, 0, 1024)
    assert y.numel() > 2**31
    for b, c in ((0, 0), (1, 700), (1, 1023)):
        wanted = F.conv_transpose1d(x[b, c].double()[None, None], w[c].double()[None], None, 2, 1)
        assert_close(y[b, c], wanted[0, 0])
    assert not y.isnan().any()


@pytest.mark.sanitize
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("schedule", ["direct", "multi_stage"])
def test_short_selection(schedule: str, mode: str) -> None:
    """Runs under compute-sanitizer; its tools skip rings by the test's name."""
    with link_mode(mode):
        for dtype in (torch.float32, torch.bfloat16):
            for layout in (contiguous, permuted):
                for weight, groups, stride, padding in (
                    ((70, 1, 12), 70, 2, 5), ((70, 2, 5), 70, 3, 0), ((70, 1, 5), 70, 1, 9), ((70, 33, 4), 1, 1, 2),
                    ((70, 33, 4), 1, 2, 1),
                ):  # fmt: skip
                    x, w, b = transposed((2, 70, 131), *weight[1:], dtype, layout, groups=groups)
                    chains = {"pre": stages.relu(), "post": stages.silu()}
                    own = schedule if groups > 1 else "auto"  # dense convolutions have no choice of schedule
                    sluice.conv_transpose1d(x, w, b, stride, padding, 0, groups, schedule=own, **chains)
                    sluice.conv_transpose1d(x[..., 1:], w, None, stride, padding, 0, groups, schedule=own)
    torch.cuda.synchronize()
