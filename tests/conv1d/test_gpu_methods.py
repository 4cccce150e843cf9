"""What is true of every method of conv1d on a GPU: sums, bits, borders, graphs, sizes, and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from collections.abc import Iterator

import pytest
import torch

import sluice
from common import NAN, TOLERANCE, Layout, assert_close, relative_error
from conv1d_methods import METHODS, Method, row, rows
from dense_problems import Problem
from gpu_tensors import DEVICE, around
from linked_forms import assert_forms_agree, link_mode
from marks import ON_GPU
from rows import naming
from sluice import stages
from tf32 import assert_accurate, assert_no_element_is_worse, tf32_allowed

pytestmark = ON_GPU

INFINITY = float("inf")
PLACES = (0, 7, 300, 1000, 1001, 3583, 3584, 9999, 10000, 20000, -1)  # positions that get values which are not finite
each_row = functools.partial(pytest.mark.parametrize, ("method", "layout", "dtype"))


@pytest.fixture(autouse=True)
def torchs_setting(method: Method) -> Iterator[None]:
    with tf32_allowed(method.in_tf32):
        yield


@each_row(rows())
def test_random_problems(method: Method, layout: Layout, dtype: torch.dtype) -> None:
    """Results are written to a part of a larger tensor: every element of the part, and nothing else."""
    rng = random.Random(torch.initial_seed())
    ran: list[str] = []
    for _ in range(method.draws):
        problem = method.draw(rng)
        x, w, b = problem.make(DEVICE, dtype, layout)
        out = rng.choice(method.places)(x.new_empty(problem.results))
        call = functools.partial(sluice.conv1d, x, w, b, *problem.numbers)
        plan = sluice.plan("conv1d", x, w, b, *problem.numbers, out=out, **method.given)
        if not method.runs(plan):
            continue
        ran.append(plan.kernel)
        with naming(problem, x.stride(), out.stride(), plan):
            around(out).fill_(7.0)
            out.fill_(NAN)
            call(out=out, **method.given)
            wanted = method.sums(problem, x, w, b)
            torchs = functools.partial(torch.conv1d, x, w, b, *problem.numbers)
            if method.in_tf32:
                assert_accurate(out, wanted, torchs)
            else:
                assert method.error(out, wanted, x, w, *problem.numbers) <= TOLERANCE[dtype]
            if method.on_tensor_cores and dtype == torch.float32 and not method.in_tf32:
                assert_no_element_is_worse(out, wanted, torchs())
            if plan.method == "depthwise":  # all of its kernels have one order of sums
                with contextlib.suppress(ValueError):  # so many taps, or the inputs of a tile, do not fit into a ring
                    assert torch.equal(out, call(schedule="two_stage"))
            if method.is_exact:
                assert torch.equal(out, call())
            out.fill_(7.0)
            assert bool((around(out) == 7.0).all())
    assert len(ran) >= method.least
    for kernels in method.kernels:
        assert kernels & set(ran), kernels


def mixed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """With infinities and NaN for about a tenth of all sums."""
    places, rate = torch.rand(x.shape, device=DEVICE), 0.06 / w[0].numel()
    x = torch.where(places < rate, INFINITY, x)
    return torch.where(places > 1 - rate, NAN, x)


@pytest.mark.parametrize(
    ("method", "layout", "dtype", "case"),
    [
        row(method, layout, dtype, case, name=f"{case.shape}-{case.outputs}-{case.taps}-{case.stride}".replace(" ", ""))
        for method in METHODS
        for case in method.cases
        for layout in method.layouts
        for dtype in method.dtypes
        if dtype != torch.float64
    ],
)
def test_chains_have_the_same_bits_in_both_forms_and_every_run(
    method: Method, layout: Layout, dtype: torch.dtype, case: Problem, linked_always: None
) -> None:
    x, w, b = case.make(DEVICE, dtype, layout)
    operands = method.operands(case, x, w, b)
    chains = method.chains(operands)
    for options in chains:
        result = method.run(case, x, w, b, **options)
        allowed = max(method.tolerance(dtype), TOLERANCE[result.dtype]) * (2 if "pre" in options else 1)
        assert relative_error(result, method.expected(case, x, w, b, **options)) <= allowed, options
    assert_forms_agree(functools.partial(method.run, case, x, w, b), chains)
    x = layout(mixed(x, w))
    assert_forms_agree(functools.partial(method.run, case, x, w, b), method.chains(operands._replace(x=x)))


@each_row(rows(lambda method: method.cases, most=4))
def test_chains_before_do_not_reach_the_padding(
    method: Method, layout: Layout, dtype: torch.dtype, linked_always: None
) -> None:
    for case in method.cases[:: max(1, len(method.cases) // 4)]:
        case = dataclasses.replace(case, padding=case.span + 3)
        x, w, b = case.make(DEVICE, dtype, layout)
        gain = torch.rand(x.shape[1], 1, device=DEVICE) + 0.5
        for options in (
            {"pre": stages.shift(3.0)},
            {"pre": stages.mul(gain) | stages.shift(1.0)},
            {"pre": stages.shift(0.5) | stages.snake(gain) | stages.leaky_relu(0.1), "post": stages.silu()},
        ):
            wanted = method.expected(case, x, w, b, **options)
            for mode in ("always", "never"):
                with link_mode(mode), naming(case, mode, options):
                    error = relative_error(method.run(case, x, w, b, **options), wanted)
                    # Shifted inputs cancel in the sums, and TF32 rounds each of them.
                    factor = 2 if "post" in options or method.in_tf32 else 1
                    assert error <= method.tolerance(dtype) * factor


def spoiled(x: torch.Tensor, w: torch.Tensor, groups: int) -> Iterator[torch.Tensor]:
    """`x` with values that are not finite: each value alone, a row of the batch, a group of channels, and a mixture."""
    batch, channels, length = x.shape
    for value in (INFINITY, -INFINITY, NAN):
        other = x.clone()
        for number, place in enumerate(place for place in PLACES if place < length):
            other[-1, (-1 - 37 * number) % channels, place] = value
        yield other
    if batch > 1:
        yield torch.cat([x[:1], torch.full_like(x[:1], NAN), x[2:]])
    if groups > 1:
        other = x.clone()
        other[:, channels // groups : 2 * channels // groups] = NAN
        yield other
    yield mixed(x, w)


def windows_with(values: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Where results of the problem have a true value in their windows."""
    of_groups = values.float().unflatten(1, (problem.groups, -1)).amax(2)
    padded = torch.nn.functional.pad(of_groups, (problem.padding, problem.padding))
    found = torch.nn.functional.max_pool1d(padded, problem.taps, problem.stride, 0, problem.dilation)
    return found.bool().repeat_interleave(problem.outputs // problem.groups, 1)


@each_row(rows(lambda method: method.reached or method.cases))
def test_values_that_are_not_finite_stay_in_their_windows(method: Method, layout: Layout, dtype: torch.dtype) -> None:
    for problem in method.reached or method.cases:
        x, w, b = problem.make(DEVICE, dtype)
        w = w.abs() + 0.01
        sums, finite = method.sums(problem, x, w, b), method.run(problem, layout(x), w, b)
        for other in spoiled(x, w, problem.groups):
            with naming(problem):
                result = method.run(problem, layout(other), w, b)
                above, below = (windows_with(other == value, problem) for value in (INFINITY, -INFINITY))
                neither = windows_with(other.isnan(), problem) | (above & below)
                inside = above | below | neither
                assert torch.equal(result.isnan(), neither)
                assert bool((result[above & ~neither] == INFINITY).all())
                assert bool((result[below & ~neither] == -INFINITY).all())
                assert bool(result[~inside].isfinite().all())
                if method.is_exact:
                    assert torch.equal(result[~inside], finite[~inside])
                # The few sums that are left may all cancel: errors are relative to what they are on average.
                left = sums[~inside]
                usual = torch.maximum(left.norm(), sums.norm() * (left.numel() / sums.numel()) ** 0.5)
                assert (result[~inside].double() - left).norm() <= method.tolerance(dtype) * usual


@each_row(
    [
        row(method, method.layouts[0], dtype)
        for method in METHODS
        for dtype in (method.dtypes if method.cases else [])
        if dtype != torch.float64
    ]
)
def test_graphs_replay_with_new_inputs(method: Method, layout: Layout, dtype: torch.dtype) -> None:
    case = method.cases[-1]
    x, w, b = case.make(DEVICE, dtype, layout)
    out = torch.empty_like(method.run(case, x, w, b))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        method.run(case, x, w, b, out=out)
    for number in range(10):
        if number % 3 == 0:
            x.normal_()
            w.normal_()
        out.fill_(NAN)
        graph.replay()
        assert torch.equal(out, method.run(case, x, w, b))


@pytest.mark.large
@pytest.mark.parametrize(
    ("method", "layout", "dtype", "problem"),
    [
        row(method, layout, dtype, problem, name=str(problem.taps))
        for method in METHODS
        for problem, dtype, layout in method.large
    ],
)
def test_over_2_31_elements(method: Method, layout: Layout, dtype: torch.dtype, problem: Problem) -> None:
    """Parts of a group in each row of the batch: the first, the last and a middle part."""
    x, w, b = problem.make(DEVICE, dtype, layout)
    result = method.run(problem, x, w, b)
    batch, outputs, length = problem.results
    inputs, outputs = problem.shape[1] // problem.groups, outputs // problem.groups
    count = min(length, 2**21 // inputs)
    for of_batch in range(batch):
        group = (problem.groups - 1) * of_batch // max(1, batch - 1)
        channels, own = slice(group * inputs, (group + 1) * inputs), slice(group * outputs, (group + 1) * outputs)
        rows_of_group = x[of_batch : of_batch + 1, channels]
        for begin in (0, (length - count) // 2, length - count):
            first, last = begin - problem.padding, begin - problem.padding + count + problem.span
            part = rows_of_group[..., max(0, first) : last]
            part = torch.nn.functional.pad(part, (max(0, -first), max(0, last - x.shape[2])))
            alone = Problem((1, inputs, last - first), outputs, problem.taps, 1)
            found = result[of_batch : of_batch + 1, own, begin : begin + count]
            assert_close(found, method.sums(alone, part, w[own], b[own]))
    assert not result.isnan().any()


@pytest.mark.sanitize
@pytest.mark.parametrize("mode", ["never", "always"], ids=["interpreted", "linked"])
@each_row(
    [row(method, layout, method.dtypes[0]) for method in METHODS if method.sanitized for layout in method.layouts]
)
def test_under_sanitizers(method: Method, layout: Layout, dtype: torch.dtype, mode: str) -> None:
    for problem in method.sanitized:
        x, w, b = problem.make(DEVICE, dtype, layout)
        with link_mode(mode):
            *_, with_operands = method.chains(method.operands(problem, x, w, b))
            for chains in ({}, with_operands):
                method.run(problem, x, w, b, **chains)
            if problem.groups == problem.outputs == x.shape[1]:
                states = torch.randn(*x.shape[:2], problem.taps - 1, device=DEVICE, dtype=dtype)
                sluice.causal_conv1d(x, w[:, 0], activation="silu", initial_states=states)
            x[0, 1, x.shape[2] // 2] = INFINITY
            method.run(problem, x, w, b)
    torch.cuda.synchronize()
