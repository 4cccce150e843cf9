"""The tensor-core kernel of conv1d: accuracy, bits, borders and memory, in both forms and every layout."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import (
    HALF_TYPES,
    TOLERANCE,
    Layout,
    contiguous,
    ends_of_words,
    offset_by_one,
    permuted,
    relative_error,
)
from convolution_tensors import convolution
from dense_problems import LAYOUTS_AND_ENDS
from linked_forms import link_mode
from marks import ON_TENSOR_CORES
from sluice import stages

pytestmark = ON_TENSOR_CORES


def dense(x, w, b, padding: int = 0, dilation: int = 1, **options) -> torch.Tensor:
    """Computed by the kernel, not by aten."""
    assert sluice.plan("conv1d", x, w, b, 1, padding, dilation).method == "dense"
    return sluice.conv1d(x, w, b, 1, padding, dilation, **options)


def error_of(result, x, w, b, padding: int = 0, dilation: int = 1) -> float:
    wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), 1, padding, dilation)
    return relative_error(result, wanted)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(
    ("inputs", "outputs", "taps", "length"),
    [(2048, 64, 16, 9024), (1024, 200, 32, 6144), (512, 128, 64, 9024), (1, 512, 9, 5000), (1536, 1536, 7, 1024)],
)
def test_accuracy_of_long_sums(inputs: int, outputs: int, taps: int, length: int, dtype: torch.dtype) -> None:
    x, w, b = convolution((2, inputs, length), outputs, taps, dtype)
    result = dense(x, w, b, taps // 2, out=x.new_full((2, outputs, length + taps // 2 * 2 - taps + 1), float("nan")))
    assert error_of(result, x, w, b, taps // 2) <= TOLERANCE[dtype]


def random_problem(rng: random.Random) -> tuple[tuple[int, int, int], int, int, int, int]:
    """Shape, output channels, taps, padding, dilation."""
    size = lambda most: int(2 ** rng.uniform(0, most))  # noqa: E731
    taps, dilation = size(5), rng.choice([1, 1, 1, 2, 5])
    reach = (taps - 1) * dilation
    padding = rng.choice([0, reach // 2, reach, rng.randint(0, reach + 3)])
    return (rng.randint(1, 3), size(9), max(20, size(12)) + reach), size(9), taps, padding, dilation


@pytest.mark.parametrize("layout", LAYOUTS_AND_ENDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_random_problems(dtype: torch.dtype, layout: Layout) -> None:
    rng = random.Random(torch.initial_seed())
    for _ in range(30):
        problem = random_problem(rng)
        shape, outputs, taps, padding, dilation = problem
        x, w, b = convolution(shape, outputs, taps, dtype, layout)
        plan = sluice.plan("conv1d", x, w, b, 1, padding, dilation)
        if plan.method != "dense":
            continue
        length = shape[2] + 2 * padding - (taps - 1) * dilation
        # Written to the middle of a larger tensor, in any layout: every result, and nothing else.
        around = torch.full((shape[0], outputs + 4, length + 6), 7.0, device="cuda", dtype=dtype)
        around = rng.choice([contiguous, permuted])(around)
        out = around[:, 2 : 2 + outputs, 3 : 3 + length].fill_(float("nan"))
        sluice.conv1d(x, w, b, 1, padding, dilation, out=out)
        assert error_of(out, x, w, b, padding, dilation) <= TOLERANCE[dtype], (problem, plan)
        inside = out.clone()
        assert torch.equal(sluice.conv1d(x, w, b, 1, padding, dilation), inside), (problem, plan)
        out.fill_(7.0)
        assert bool((around == 7.0).all()), (problem, plan)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(
    "case", [(64, 128, 1000, 7, 9, 3), (96, 40, 333, 3, 1, 1), (16, 600, 100, 5, 2, 1), (20, 7, 3001, 2, 1, 1)], ids=str
)
def test_the_same_bits_in_every_layout_form_and_run(case, dtype: torch.dtype, linked_always: None) -> None:
    inputs, outputs, length, taps, padding, dilation = case
    x, w, b = convolution((2, inputs, length), outputs, taps, dtype)
    alpha, scale = torch.rand(inputs, 1, device="cuda") + 0.5, torch.rand(outputs, 1, device="cuda")
    plain = dense(x, w, b, padding, dilation)
    residual = torch.randn_like(plain)
    chains = [
        {},
        {"post": stages.gelu()},
        {"pre": stages.snake(alpha), "post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(scale)},
        {"pre": stages.leaky_relu(0.1) | stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
    ]
    for options in chains:
        wanted = dense(x, w, b, padding, dilation, **options)
        packed = sluice.pack(w)
        for layout in LAYOUTS_AND_ENDS:
            own = {**options}
            if "post" in own and options is not chains[1]:
                own["post"] = sluice.Chain(
                    tuple(
                        (name, tuple(layout(v) if v is residual else v for v in values))
                        for name, values in own["post"].stages
                    )
                )
            assert torch.equal(dense(layout(x), w, b, padding, dilation, **own), wanted)
            assert torch.equal(dense(layout(x), packed, b, padding, dilation, **own), wanted)
            out = layout(torch.empty_like(wanted)).fill_(float("nan"))
            assert torch.equal(dense(x, w, b, padding, dilation, **own, out=out), wanted)
            with link_mode("never"):
                assert torch.equal(dense(layout(x), w, b, padding, dilation, **own), wanted)


@pytest.mark.parametrize("layout", LAYOUTS_AND_ENDS, ids=lambda f: f.__name__)
def test_rows_do_not_leak_into_each_other(layout: Layout) -> None:
    x, w, b = convolution((3, 40, 500), 48, 9, torch.bfloat16)
    wanted = dense(x, w, b, 8)
    x[1] = float("nan")
    x[0, :, 300] = float("inf")
    result = dense(layout(x), w, b, 8)
    assert torch.equal(result[2], wanted[2])
    assert bool(result[1].isnan().all())
    touched = torch.zeros(result.shape[-1], dtype=torch.bool, device="cuda")
    touched[300 : 300 + 9] = True
    assert torch.equal(result[0][:, ~touched], wanted[0][:, ~touched])
    assert not bool(result[0][:, touched].isfinite().any())


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
def test_capture(ahead: bool) -> None:
    x, w, b = convolution((2, 64, 3000), 96, 5, torch.float16)
    weight = sluice.pack(w) if ahead else w
    chains = {"pre": stages.leaky_relu(0.1), "post": stages.gelu()}
    sluice.prepare(chains["post"], x, weight, b, 1, 2, op="conv1d", pre=chains["pre"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = sluice.conv1d(x, weight, b, padding=2, **chains)
    old = w.clone()
    for _ in range(3):
        x.normal_()
        w.normal_()
        result.fill_(float("nan"))
        graph.replay()
        # A replay packs the weight if the call did; a weight packed ahead keeps its values.
        assert torch.equal(result, sluice.conv1d(x, old if ahead else w, b, padding=2, **chains))


def test_two_streams_do_not_share_workspace() -> None:
    problems = [convolution((4, 128, 4000), 128, 5, torch.float16) for _ in range(2)]
    wanted = [dense(*problem, 2) for problem in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for stream, problem in zip(streams, problems, strict=True):
            with torch.cuda.stream(stream):
                results.append(dense(*problem, 2))
    torch.cuda.synchronize()
    for i, result in enumerate(results):
        assert torch.equal(result, wanted[i % 2])


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_more_than_2_to_31_elements(layout: Layout) -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of device memory")
    length = (1 << 25) + 1000
    x = torch.empty(1, 64, length, device="cuda", dtype=torch.bfloat16).normal_()
    x = layout(x)
    _, w, b = convolution((1, 64, 16), 72, 3, torch.bfloat16)
    result = dense(x, w, b, 1, post=stages.relu())
    assert result.numel() > 2**31
    for begin in (0, length // 2, length - 4096):
        own = dense(x[..., max(begin - 1, 0) : begin + 4097].contiguous(), w, b, 1, post=stages.relu())
        first = 1 if begin > 0 else 0
        assert torch.equal(result[..., begin : begin + 4096], own[..., first : first + 4096])


@pytest.mark.sanitize
@pytest.mark.parametrize("layout", [contiguous, permuted, ends_of_words], ids=lambda f: f.__name__)
def test_under_sanitizers(layout: Layout) -> None:
    for inputs, outputs, length, taps in ((20, 40, 300, 3), (64, 130, 90, 5)):
        x, w, b = convolution((2, inputs, length), outputs, taps, torch.float16, layout)
        with link_mode("never"):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu()}):
                result = sluice.conv1d(x, w, b, padding=1, **chains)
                assert bool(result.isfinite().all())
