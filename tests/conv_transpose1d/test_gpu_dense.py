"""The tensor-core kernel of conv_transpose1d with a stride: accuracy, bits, borders and memory, in every layout."""

from __future__ import annotations

import functools
import random

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import (
    LAYOUTS,
    NARROW_TYPES,
    Layout,
    assert_close,
    contiguous,
    ends_of_words,
    permuted,
)
from convolution_tensors import transposed
from linked_forms import link_mode, linking
from marks import ON_TENSOR_CORES
from rows import naming
from sluice import stages
from sluice._fake import is_channels_last
from sluice.pack import pack_transposed
from tf32 import assert_accurate

pytestmark = ON_TENSOR_CORES


def dense(x, w, b, *numbers: int, **options) -> torch.Tensor:
    """Computed by the kernel, not by aten."""
    found = sluice.plan("conv_transpose1d", x, w, b, *numbers, **options)
    assert found.method == "dense", found
    return sluice.conv_transpose1d(x, w, b, *numbers, **options)


def wanted_of(x, w, b, *numbers: int) -> torch.Tensor:
    stride, padding, output_padding, groups, dilation = (*numbers, *(1, 0, 0, 1, 1)[len(numbers) :])
    return F.conv_transpose1d(x.double(), w.double(), b.double(), stride, padding, output_padding, groups, dilation)


LAYERS = [
    *((512, 256, 430, 16, 8, 4), (256, 128, 3440, 16, 8, 4), (128, 64, 27520, 4, 2, 1), (64, 32, 55040, 4, 2, 1)),
    (1536, 768, 512, 16, 8, 4),
]
# In TF32 torch computes many channels, and words of channels without a chain.
TF32_LAYERS = [(129, 64, 27520, 4, 2, 1), (65, 32, 55040, 4, 2, 1)]


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("layer", "dtype"),
    [(case, dtype) for dtype in NARROW_TYPES for case in (TF32_LAYERS if dtype == torch.float32 else LAYERS)],
    ids=str,
)
def test_layers_of_models(layer: tuple[int, ...], dtype: torch.dtype, layout: Layout) -> None:
    inputs, outputs, length, taps, stride, padding = layer
    x, w, b = transposed((2, inputs, length), outputs, taps, dtype, layout, stride=stride)
    out = layout(x.new_full((2, outputs, length * stride), float("nan")))
    of_torch = functools.partial(F.conv_transpose1d, x, w, b, stride, padding)
    assert_accurate(dense(x, w, b, stride, padding, out=out), wanted_of(x, w, b, stride, padding), of_torch)


def random_problem(rng: random.Random) -> tuple[tuple[int, int, int], int, int, tuple[int, ...]]:
    """Shape, output channels, taps, and the numbers: stride, padding, output padding, groups, dilation."""
    size = lambda most: int(2 ** rng.uniform(0, most))  # noqa: E731
    stride = rng.choice([2, 2, 3, 4, 4, 5, 8, 8, 10, 16, 32])
    dilation = rng.choice([1, 1, 1, 2, 3])
    taps = rng.choice([stride * rng.randint(1, 4), rng.randint(1, 3 * stride)])
    length = 20 + size(10)
    spread = min((taps - 1) * dilation + stride, (length - 1) * stride // 2)
    padding = rng.choice([0, max(0, taps - stride) // 2, rng.randint(0, spread)])
    spare = rng.choice([0, rng.randint(0, max(stride, dilation) - 1)])
    return (rng.randint(1, 3), size(8), length), size(8), taps, (stride, padding, spare, 1, dilation)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("results", [contiguous, permuted], ids=lambda f: "out_" + f.__name__)
@pytest.mark.parametrize("layout", [*LAYOUTS, ends_of_words], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_random_problems(dtype: torch.dtype, layout: Layout, results: Layout) -> None:
    rng = random.Random(torch.initial_seed())
    taken, draws, least = 0, *((24, 6) if dtype == torch.float32 else (60, 26))
    for _ in range(draws):
        problem = random_problem(rng)
        shape, outputs, taps, numbers = problem
        x, w, b = transposed(shape, outputs, taps, dtype, layout, stride=numbers[0])
        w = rng.choice([w, w.transpose(0, 1).contiguous().transpose(0, 1), ends_of_words(w)])
        wanted = wanted_of(x, w, b, *numbers)
        # Written to the middle of a larger tensor: every result, and nothing else.
        around = results(torch.full((shape[0], outputs + 4, wanted.shape[2] + 6), 7.0, device="cuda", dtype=dtype))
        edge = rng.choice([0, 2])
        out = around[:, edge : edge + outputs, 3 : 3 + wanted.shape[2]].fill_(float("nan"))
        plan = sluice.plan("conv_transpose1d", x, w, b, *numbers, out=out)
        if plan.method != "dense":
            continue
        taken += 1
        sluice.conv_transpose1d(x, w, b, *numbers, out=out)
        with naming(problem, plan):
            assert_accurate(out, wanted, functools.partial(F.conv_transpose1d, x, w, b, *numbers))
            out.fill_(7.0)
            assert bool((around == 7.0).all())
    assert taken >= least


# Taps that are a multiple of the stride, and others; counts of channels that are no multiple of a word's elements.
SAME_BITS = [
    *((64, 40, 333, 16, 8, 4), (96, 64, 1000, 4, 2, 1), (24, 13, 501, 4, 4, 0), (33, 24, 100, 32, 16, 8)),
    *((40, 24, 300, 10, 5, 2), (64, 19, 300, 7, 3, 1), (32, 1, 700, 11, 3, 4), (48, 5, 300, 3, 8, 0)),
]
SAME_TF32_BITS = [(65, 40, 333, 16, 8, 4), (25, 13, 501, 4, 4, 0), (41, 24, 300, 10, 5, 2), (33, 1, 700, 11, 3, 4)]


@pytest.mark.usefixtures("linked_always", "tf32_of_float32")
@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for dtype in NARROW_TYPES for case in (SAME_TF32_BITS if dtype == torch.float32 else SAME_BITS)],
    ids=str,
)
def test_the_same_bits_in_every_layout_form_and_run(case, dtype: torch.dtype) -> None:
    inputs, outputs, length, taps, stride, padding = case
    x, w, b = transposed((2, inputs, length), outputs, taps, dtype, stride=stride)
    alpha, scale = torch.rand(inputs, 1, device="cuda") + 0.5, torch.rand(outputs, 1, device="cuda")
    residual = torch.randn_like(dense(x, w, b, stride, padding))
    every = [contiguous, permuted, ends_of_words]
    other = torch.float16 if dtype == torch.float32 else torch.float32
    for options in (
        {},
        {"post": stages.gelu()},
        {"pre": stages.leaky_relu(0.1), "post": stages.snake(scale)},
        {"pre": stages.snake(alpha), "post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)},
        {"pre": stages.leaky_relu(0.1) | stages.shift(0.25), "post": stages.add(residual), "dtype": other},
    ):
        wanted = dense(x, w, b, stride, padding, **options)
        for layout in every:
            plan = sluice.plan("conv_transpose1d", layout(x), w, b, stride, padding, **options)
            launches = linking()["linked_launches"]
            assert torch.equal(dense(layout(x), w, b, stride, padding, **options), wanted)
            launched = 1 if taps % stride == 0 else 2
            if "with pre applied" in plan.detail:
                launched += launched if taps >= stride else 1  # each conversion is linked too; no taps have no input
            assert linking()["linked_launches"] == launches + (launched if options else 0)
            out = layout(torch.empty_like(wanted)).fill_(float("nan"))
            assert torch.equal(dense(x, w, b, stride, padding, **options, out=out), wanted)
            with link_mode("never"):
                assert torch.equal(dense(layout(x), w, b, stride, padding, **options), wanted)
                out.fill_(float("nan"))
                assert torch.equal(dense(x, w, b, stride, padding, **options, out=out), wanted)


@pytest.mark.usefixtures("linked_always", "tf32_of_float32")
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        ((*case, dilation), dtype)
        for dtype in NARROW_TYPES
        for case in (SAME_TF32_BITS if dtype == torch.float32 else [*SAME_BITS, (64, 40, 333, 7, 1, 3)])
        for dilation in (1, 2)
    ],
    ids=str,
)
def test_packed_weights_give_the_same_bits(case, dtype: torch.dtype) -> None:
    inputs, outputs, length, taps, stride, padding, dilation = case
    numbers = stride, padding, 0, 1, dilation
    x, w, b = transposed((2, inputs, length), outputs, taps, dtype, stride=stride)
    for options in ({}, {"post": stages.gelu()}, {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}):
        wanted = dense(x, w, b, *numbers, **options)
        for layout in (contiguous, permuted):
            out = layout(torch.empty_like(wanted))
            handle = pack_transposed(w, None, stride, dilation, is_channels_last(out))
            assert handle.packed is not None
            for mode in ("always", "never"):
                with link_mode(mode):
                    own, packed = (
                        sluice.plan("conv_transpose1d", x, weight, b, *numbers, **options, out=out)
                        for weight in (w, handle)
                    )
                    assert packed.workspace_bytes < own.workspace_bytes
                    out.fill_(float("nan"))
                    assert torch.equal(dense(x, handle, b, *numbers, **options, out=out), wanted)


def test_results_of_a_layout_that_only_some_strides_have() -> None:
    """Channels-last results of any stride are stored directly, channels-first results transposed; in passes too."""
    x, w, b = transposed((2, 64, 300), 48, 10, torch.float16, permuted, stride=5)
    options = {"pre": stages.relu(), "post": stages.gelu()}
    wanted = F.gelu(wanted_of(x.relu(), w, b, 5, 2))
    for mode in ("never", "always"):
        with link_mode(mode):
            assert_close(dense(x, w, b, 5, 2, **options), wanted, factor=2)
            across = permuted(x.new_empty(wanted.shape))
            assert_close(dense(x.contiguous(), w, b, 5, 2, out=across, **options), wanted, factor=2)
            assert torch.equal(dense(x.contiguous(), w, b, 5, 2, **options), across)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("outputs", [2, 7, 8, 33, 64, 130])
def test_results_are_transposed_in_every_size_and_layout(outputs: int, dtype: torch.dtype) -> None:
    x, w, b = transposed((3, 24, 777), outputs, 6, torch.float16, stride=3)
    wanted = dense(permuted(x), w, b, 3, 2, dtype=dtype)
    assert torch.equal(dense(x, w, b, 3, 2, dtype=dtype), wanted)
    around = torch.full((5, outputs + 2, 2 * wanted.shape[2] + 3), 7.0, device="cuda", dtype=dtype)
    for edge, step in ((0, 1), (1, 1), (1, 2)):
        out = around[1:4, 1 : 1 + outputs, edge : edge + step * wanted.shape[2] : step].fill_(float("nan"))
        assert torch.equal(dense(x, w, b, 3, 2, dtype=dtype, out=out), wanted)
        out.fill_(7.0)
        assert bool((around == 7.0).all())


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("taps", "stride", "padding", "dilation"),
    [(16, 8, 4, 1), (4, 2, 1, 1), (9, 3, 2, 2), (7, 3, 2, 1), (2, 5, 0, 1), (5, 2, 9, 3)],
)
def test_what_is_not_finite_stays_where_it_reaches(
    taps: int, stride: int, padding: int, dilation: int, layout: Layout, dtype: torch.dtype
) -> None:
    x, w, b = transposed((3, 41, 500), 48, taps, dtype, layout, stride=stride)
    out = permuted(torch.empty_like(wanted_of(x, w, b, stride, padding, 0, 1, dilation), dtype=x.dtype))
    compute = functools.partial(dense, x, w, b, stride, padding, 0, 1, dilation, out=out)
    wanted = compute().clone()
    x[1] = float("nan")
    x[0, :, 300] = float("inf")
    result = compute()
    assert torch.equal(result[2], wanted[2])
    reaches = dilation * torch.arange(taps, device="cuda") - padding
    everywhere = (stride * torch.arange(x.shape[2], device="cuda")[:, None] + reaches).flatten()
    everywhere = everywhere[(everywhere >= 0) & (everywhere < result.shape[-1])]
    reached = torch.zeros(result.shape[-1], dtype=torch.bool, device="cuda").index_fill(0, everywhere, True)
    assert bool(result[1][:, reached].isnan().all())
    assert torch.equal(result[1][:, ~reached], wanted[1][:, ~reached])
    touched = torch.zeros_like(reached)
    touched[300 * stride + reaches] = True
    assert torch.equal(result[0][:, ~touched], wanted[0][:, ~touched])
    assert not bool(result[0][:, touched].isfinite().any())


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_result_may_be_a_tensor_of_its_chain(mode: str, layout: Layout) -> None:
    """Neither of two launches reads the other's results."""
    x, w, b = transposed((2, 48, 400), 40, 7, torch.float16, layout, stride=3)
    sums = dense(x, w, b, 3, 1, dtype=torch.float32)
    out = layout(torch.randn_like(sums).half())
    wanted = (sums + out.float()).half()
    with link_mode(mode):
        dense(x, w, b, 3, 1, post=stages.add(out), out=out)
    assert torch.equal(out, wanted)


def test_capture_and_two_streams() -> None:
    problems = [transposed((2, 128, 3000), 96, 4, torch.float16, stride=2) for _ in range(2)]
    chains = {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}
    x, w, b = problems[0]
    sluice.prepare(chains["post"], x, w, b, 2, 1, op="conv_transpose1d", pre=chains["pre"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = sluice.conv_transpose1d(x, w, b, 2, 1, **chains)
    for _ in range(3):
        x.normal_()
        w.normal_()
        result.fill_(float("nan"))
        graph.replay()
        assert torch.equal(result, sluice.conv_transpose1d(x, w, b, 2, 1, **chains))
    wanted = [dense(*problem, 2, 1) for problem in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for stream, problem in zip(streams, problems, strict=True):
            with torch.cuda.stream(stream):
                results.append(dense(*problem, 2, 1))
    torch.cuda.synchronize()
    for i, result in enumerate(results):
        assert torch.equal(result, wanted[i % 2])


@pytest.mark.large
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_more_than_2_to_31_elements(layout: Layout) -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of device memory")
    length = (1 << 24) + 1000
    x = layout(torch.empty(1, 64, length, device="cuda", dtype=torch.bfloat16).normal_())
    _, w, b = transposed((1, 64, 16), 72, 4, torch.bfloat16, stride=2)
    result = dense(x, w, b, 2, 1)
    assert result.numel() > 2**31
    for begin in (1, length // 2, length - 4096):
        own = dense(layout(x[..., begin - 1 : begin + 4097].contiguous()), w, b, 2, 1)
        end = min(begin + 4096, length - 1)
        assert torch.equal(result[..., 2 * begin : 2 * end], own[..., 2 : 2 + 2 * (end - begin)])


@pytest.mark.sanitize
@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("layout", [contiguous, permuted, ends_of_words], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_under_sanitizers(dtype: torch.dtype, layout: Layout) -> None:
    cases = (20, 40, 150, 16, 8, 4), (64, 35, 90, 4, 2, 1), (20, 35, 90, 7, 3, 1), (16, 70, 50, 2, 5, 0)
    if dtype == torch.float32:
        cases = (65, 35, 90, 4, 2, 1), (21, 35, 90, 7, 3, 1)
    for inputs, outputs, length, taps, stride, padding in cases:
        x, w, b = transposed((2, inputs, length), outputs, taps, dtype, layout, stride=stride)
        with link_mode("never"):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu()}):
                assert bool(dense(x, w, b, stride, padding, **chains).isfinite().all())
    torch.cuda.synchronize()
