"""The tensor-core kernel of conv1d, with strides and groups too: accuracy, bits in all layouts, streams and memory."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import (
    HALF_TYPES,
    LAYOUTS,
    NARROW_TYPES,
    TOLERANCE,
    Layout,
    contiguous,
    ends_of_words,
    offset_by_one,
    permuted,
    relative_error,
    sliced,
)
from convolution_tensors import convolution
from dense_problems import LAYOUTS_AND_ENDS, Problem
from linked_forms import link_mode
from marks import IS_PORTABLE, ON_TENSOR_CORES
from sluice import stages
from tf32 import assert_accurate

pytestmark = ON_TENSOR_CORES

LONG_SUMS = [
    *(Problem((2, 2048, 9024), 64, 16, 1, 8), Problem((2, 1024, 6144), 200, 32, 1, 16)),
    *(Problem((2, 512, 9024), 128, 64, 1, 32), Problem((2, 1, 5000), 512, 9, 1, 4)),
    Problem((2, 1536, 1024), 1536, 7, 1, 3),
]
LAYERS_WITH_GROUPS = [
    Problem((2, 768, 1499), 768, 128, 1, 64, groups=16),  # Wav2Vec2's positional convolution
    Problem((2, 4096, 500), 4096, 3, 1, 1, groups=64),
    Problem((2, 256, 5000), 256, 3, 1, 1, groups=16),
    Problem((2, 512, 5001), 512, 7, 1, 9, 3, groups=4),
    Problem((2, 128, 5000), 384, 5, 1, 2, groups=2),
    Problem((2, 256, 8000), 256, 4, 2, 1, groups=4),
]
# Groups of 2 -> 8, 4 -> 8, 8 -> 8, 12 -> 16 and 3 -> 24 channels, which are part of a k-block's shortest row.
LAYERS_WITH_SMALL_GROUPS = [
    Problem((2, 128, 6000), 512, 5, 2, 2, groups=64),
    Problem((2, 256, 3000), 512, 9, 1, 4, groups=64),
    Problem((2, 512, 3000), 512, 3, 1, 1, groups=64),
    Problem((2, 192, 5000), 256, 7, 1, 9, 3, groups=16),
    Problem((2, 96, 5000), 768, 5, 3, 4, 2, groups=32),
]
# Blocks keep the weights of one tile of channels, of several of them, for several tiles of positions.
LAYERS_THAT_KEEP_WEIGHTS = [Problem((4, 64, 9000), 640, 3, 1, 1), Problem((8, 128, 3000), 1280, 3, 1, 1)]
# Layers of Wav2Vec2, Whisper and codecs' encoders, and a patch embedding, in full size.
LAYERS_WITH_STRIDES = [
    Problem((2, 512, 31999), 512, 3, 2),
    Problem((2, 512, 1999), 512, 2, 2),
    Problem((2, 1280, 3000), 1280, 3, 2, 1),
    Problem((1, 64, 100000), 128, 4, 2, 1),
    Problem((1, 128, 50000), 256, 8, 4, 2),
    Problem((1, 160, 25000), 320, 10, 5, 3),
    Problem((2, 256, 12504), 512, 16, 8, 4),
    Problem((2, 16, 16000), 768, 16, 16),
]
CASES = [
    *(Problem((2, 64, 1000), 128, 7, 1, 9, 3), Problem((2, 96, 333), 40, 3, 1, 1)),
    *(Problem((2, 16, 100), 600, 5, 1, 2), Problem((2, 20, 3001), 7, 2, 1, 1)),
    *(LAYERS_WITH_GROUPS[2], Problem((2, 96, 700), 96, 9, 1, 4, groups=2)),
    *(Problem((2, 64, 1000), 128, 5, 1, 2, groups=16), Problem((2, 64, 1000), 64, 3, 1, 2, 2, groups=8)),
    *(Problem((2, 24, 999), 96, 5, 2, 2, groups=12), Problem((2, 48, 700), 64, 3, 1, 1, groups=4)),
    *(Problem((2, 64, 2000), 128, 7, 2, 9, 3), Problem((2, 96, 999), 40, 3, 3, 1)),
    *(Problem((2, 16, 500), 600, 5, 4, 2), Problem((2, 20, 3001), 7, 2, 2, 1)),
    LAYERS_THAT_KEEP_WEIGHTS[0],
]
# With a stride: all residues read, some of them, and more positions than the taps read.
SANITIZED = [
    (Problem((2, 20, 300), 40, 3, 1, 1), [contiguous, permuted, ends_of_words]),
    (Problem((2, 64, 90), 130, 5, 1, 1), [contiguous, permuted, ends_of_words]),
    (Problem((9, 24, 3000), 130, 3, 1, 1), [permuted]),  # several tiles of a block that keeps its weights
    (Problem((2, 96, 300), 96, 5, 1, 2, groups=2), [contiguous, permuted, offset_by_one]),
    (Problem((1, 40, 400), 48, 3, 2, 1, groups=2), [contiguous, permuted, offset_by_one]),
    (Problem((2, 24, 304), 48, 5, 1, 2, groups=6), [contiguous, permuted, offset_by_one]),
    (Problem((1, 32, 400), 32, 3, 2, 1, groups=4), [contiguous, permuted, offset_by_one]),
    (Problem((2, 20, 600), 40, 3, 2, 1), [contiguous, permuted, sliced, ends_of_words]),
    (Problem((2, 64, 400), 130, 5, 3, 1, 2), [contiguous, permuted, sliced, ends_of_words]),
    (Problem((2, 16, 500), 24, 2, 5), [contiguous, permuted, sliced, ends_of_words]),
]


def dense(problem: Problem, x, w, b, **options) -> torch.Tensor:
    """Computed by the kernel, not by aten."""
    found = sluice.plan("conv1d", x, w, b, *problem.numbers)
    assert found.method == "dense", found.reason
    return sluice.conv1d(x, w, b, *problem.numbers, **options)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("problem", LONG_SUMS, ids=str)
def test_accuracy_of_long_sums(problem: Problem, dtype: torch.dtype) -> None:
    x, w, b = problem.make("cuda", dtype)
    result = dense(problem, x, w, b, out=x.new_full(problem.results, float("nan")))
    assert_accurate(result, problem.expected(x, w, b), lambda: torch.conv1d(x, w, b, *problem.numbers))


@pytest.mark.parametrize("layout", [contiguous, permuted, offset_by_one], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(
    "layer",
    [*LAYERS_WITH_GROUPS, *LAYERS_WITH_SMALL_GROUPS, *LAYERS_THAT_KEEP_WEIGHTS, *LAYERS_WITH_STRIDES],
    ids=str,
)
def test_layers_of_models(layer: Problem, dtype: torch.dtype, layout: Layout) -> None:
    x, w, b = layer.make("cuda", dtype, layout)
    result = dense(layer, x, w, b)
    assert relative_error(result, layer.expected(x, w, b)) <= TOLERANCE[dtype]
    assert torch.equal(dense(layer, x, sluice.pack(w), b), result)


@pytest.mark.skipif(IS_PORTABLE, reason="a choice of the kernel of compute capability 9.0")
@pytest.mark.parametrize("layer", LAYERS_THAT_KEEP_WEIGHTS, ids=str)
def test_weights_stay(layer: Problem) -> None:
    reason = sluice.plan("conv1d", *layer.make("cuda", torch.float16, permuted), *layer.numbers).reason
    assert "beside all weights" in reason


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_bits_in_every_layout_form_and_run(case: Problem, dtype: torch.dtype, linked_always: None) -> None:
    x, w, b = case.make("cuda", dtype)
    alpha, scale = torch.rand(x.shape[1], 1, device="cuda") + 0.5, torch.rand(case.outputs, 1, device="cuda")
    residual, packed = torch.randn_like(dense(case, x, w, b)), sluice.pack(w)
    for make in (
        lambda r: {},
        lambda r: {"post": stages.gelu()},
        lambda r: {
            "pre": stages.snake(alpha),
            "post": stages.leaky_relu(0.1) | stages.add(r) | stages.mul(scale),
        },
        lambda r: {
            "pre": stages.leaky_relu(0.1) | stages.shift(0.25),
            "post": stages.add(r),
            "dtype": torch.float32,
        },
    ):
        wanted = dense(case, x, w, b, **make(residual))
        for layout in LAYOUTS if case.groups > 1 else LAYOUTS_AND_ENDS:
            options, placed = make(layout(residual)), layout(x)
            if case.stride > 1:  # sums go residue by residue, or tap by tap, depending on the layout
                wanted = dense(case, placed, w, b, **options)
            assert torch.equal(dense(case, placed, w, b, **options), wanted)
            assert torch.equal(dense(case, placed, packed, b, **options), wanted)
            out = layout(torch.empty_like(wanted)).fill_(float("nan"))
            # Without a stride a result has the bits of the contiguous input.
            given = placed if case.stride > 1 else x
            assert torch.equal(dense(case, given, w, b, **options, out=out), wanted)
            with link_mode("never"):
                assert torch.equal(dense(case, placed, w, b, **options), wanted)


def test_a_product_with_chains_that_are_not_linked() -> None:
    """Only the linked form has a kernel; without it aten computes the product, between passes."""
    x, w, b = convolution((8, 128, 1000), 128, 1, torch.float16)
    x = offset_by_one(x)
    out = x.new_empty(8, 1000, 128).transpose(1, 2)
    wanted = sluice.conv1d(x, w, b, pre=stages.silu(), out=out).clone()
    with link_mode("never"):
        result = sluice.conv1d(x, w, b, pre=stages.silu(), out=out.fill_(float("nan")))
    torch.testing.assert_close(result, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("stride", [1, 2])
def test_capture(stride: int, layout: Layout, ahead: bool) -> None:
    x, w, b = convolution((2, 64, 3000 * stride), 96, 5, torch.float16, layout)
    weight = sluice.pack(w) if ahead else w
    chains = {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}
    sluice.prepare(chains["post"], x, weight, b, stride, 2, op="conv1d", pre=chains["pre"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = sluice.conv1d(x, weight, b, stride, 2, **chains)
    old = w.clone()
    for _ in range(3):
        x.normal_()
        w.normal_()
        result.fill_(float("nan"))
        graph.replay()
        # A replay packs the weight if the call did; a weight packed ahead keeps its values.
        assert torch.equal(result, sluice.conv1d(x, old if ahead else w, b, stride, 2, **chains))


def test_two_streams_do_not_share_workspace() -> None:
    problem = Problem((4, 128, 4000), 128, 5, 1, 2)
    given = [problem.make("cuda", torch.float16) for _ in range(2)]
    wanted = [dense(problem, *tensors) for tensors in given]
    streams = [torch.cuda.Stream() for _ in given]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for stream, tensors in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                results.append(dense(problem, *tensors))
    torch.cuda.synchronize()
    for i, result in enumerate(results):
        assert torch.equal(result, wanted[i % 2])


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("problem", "chains"),
    [
        (Problem((1, 64, (1 << 25) + 1000), 72, 3, 1, 1), {"post": stages.relu()}),
        (Problem((1, 72, (1 << 25) + 1000), 64, 3, 2), {}),
    ],
    ids=["result", "input"],
)
def test_more_than_2_to_31_elements(problem: Problem, chains, layout: Layout) -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of device memory")
    x, w, b = problem.make("cuda", torch.bfloat16, layout)
    result = dense(problem, x, w, b, **chains)
    assert max(x.numel(), result.numel()) > 2**31
    length, stride, padding = result.shape[2], problem.stride, problem.padding
    for begin in (0, length // 4, length // 2, length - 4096):
        # A part with an input more on each side; padding is zero beside the whole tensor alone.
        first = max(begin * stride - padding, 0)
        part = x[..., first : (begin + 4096) * stride + 1]
        own = dense(problem, part.contiguous() if padding else layout(part), w, b, **chains)
        at = padding if begin > 0 else 0
        assert torch.equal(result[..., begin : begin + 4096], own[..., at : at + 4096])


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("problem", "layout"),
    [(problem, layout) for problem, layouts in SANITIZED for layout in layouts],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_under_sanitizers(problem: Problem, layout: Layout) -> None:
    x, w, b = problem.make("cuda", torch.float16, layout)
    with link_mode("never"):
        for chains in ({}, {"pre": stages.relu(), "post": stages.gelu()}):
            assert bool(dense(problem, x, w, b, **chains).isfinite().all())
