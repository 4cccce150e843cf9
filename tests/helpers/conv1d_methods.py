"""The methods of conv1d, a row each: problems, layouts and dtypes that a method takes, and what is true of it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import conv1d_draws as draws
import sluice
from common import (
    DTYPES,
    HALF_TYPES,
    LAYOUTS,
    NARROW_TYPES,
    TOLERANCE,
    Given,
    Layout,
    contiguous,
    ends_of_words,
    error_of_sums,
    offset_by_one,
    parts_of_positions,
    permuted,
    sliced,
)
from conv1d_chains import (
    Operands,
    chains_of_any_position,
    chains_of_depthwise,
    chains_of_float32,
    chains_of_last_layers,
    chains_without_tensors_behind,
    usual_chains,
)
from conv1d_draws import depthwise
from conv1d_errors import error_of_one_tap_after_another, error_of_results, transformed_sums
from dense_problems import LAYOUTS_AND_ENDS, Problem
from fourier_problems import columns_of_wider
from gpu_tensors import DEVICE, positions_anywhere, rows_anywhere
from marks import ON_TENSOR_CORES
from planned_calls import IS_BY_ROWS
from tf32 import tolerance_in_tf32

LEAST_FOR_FEW_OUTPUTS = 16384  # positions of all results, by the policy
WHOLE, PARTITIONED = 1500, 6000  # taps of the Fourier method's filter in one partition, and in several
GATHERED = 128  # more taps than the depthwise kernels have where words of channels are gathered


@dataclasses.dataclass(frozen=True)
class Method:
    """A method and its problems. A test of problems that a method does not have leaves it out."""

    name: str
    runs: Callable[[sluice.Plan], bool]  # whether a plan is the method's: always, but for random problems
    layouts: list[Layout]  # of inputs
    dtypes: list[torch.dtype]
    # Random problems: how many are drawn for a layout and a dtype, and how many of them the method takes at the least.
    draw: Callable[[random.Random], Problem]
    draws: int
    least: int
    kernels: tuple[set[str], ...] = ()  # a kernel of each set runs some draw
    given: Given = dataclasses.field(default_factory=dict)  # options of their calls
    places: tuple[Layout, ...] = (ends_of_words,)  # layouts of their results
    # Problems for chains and graphs, and their chains. The last chain has `pre` and operands.
    cases: tuple[Problem, ...] = ()
    chains: Callable[[Operands], list[Given]] = usual_chains
    reached: tuple[Problem, ...] = ()  # problems for values that are not finite; the cases if there are none
    large: tuple[tuple[Problem, torch.dtype, Layout], ...] = ()  # more than 2^31 elements
    sanitized: tuple[Problem, ...] = ()
    sums: Callable[..., torch.Tensor] = Problem.expected  # exact, of a problem, the input, the weight and the bias
    error: Callable[..., float] = error_of_results  # of a result, exact sums, the input, the weight, and the numbers
    is_exact: bool = False  # the bits of a result depend neither on where it is, nor on values outside its window
    on_tensor_cores: bool = False  # the method needs compute capability 9.0
    in_tf32: bool = False  # torch's setting allows TF32 during the tests

    def tolerance(self, dtype: torch.dtype) -> float:
        """Limits of results' relative errors."""
        return tolerance_in_tf32(dtype) if self.in_tf32 else TOLERANCE[dtype]

    def run(self, problem: Problem, *tensors: Any, **options: Any) -> torch.Tensor:
        """By the method, and no other."""
        plan = sluice.plan("conv1d", *tensors, *problem.numbers, **options)
        assert self.runs(plan), (problem, plan)
        return sluice.conv1d(*tensors, *problem.numbers, **options)

    def expected(self, problem: Problem, x: torch.Tensor, *others: Any, **chains: Any) -> torch.Tensor:
        """The float64 result, with `pre` rounded to the input's dtype as the op rounds it."""
        none = sluice.Chain()
        x = sluice.reference.transform(x, chains.get("pre", none), dtype=x.dtype)
        sums = self.sums(problem, x, *others)
        return sluice.reference.transform(sums, chains.get("post", none), dtype=torch.float64)

    def operands(self, problem: Problem, *tensors: Any) -> Operands:
        residual, x = torch.randn_like(self.run(problem, *tensors)), tensors[0]
        before, after = (torch.rand(channels, 1, device=DEVICE) + 0.5 for channels in (x.shape[1], problem.outputs))
        return Operands(x, residual, before, after)


def is_of(method: str) -> Callable[[sluice.Plan], bool]:
    return lambda plan: plan.method == method


def is_any(plan: sluice.Plan) -> bool:
    """Several of the depthwise methods take the problems."""
    return True


LONG_FILTER_ROWS = Method(
    "long_filter_rows",
    is_of("long_filter"),
    [contiguous, offset_by_one, ends_of_words],
    HALF_TYPES,
    draws.long_rows,
    draws=40,
    least=40,
    cases=tuple(depthwise((3, 70, 1501), taps, taps // 2) for taps in (9, 31, 64, 200)),
    large=((depthwise((3, 1024, 2**31 // (2 * 1024) + 13), 31, 15), torch.bfloat16, contiguous),),
    sanitized=tuple(
        depthwise((2, 5, length), taps, taps - 1) for length, taps in ((177, 31), (301, 9), (1500, 64), (64, 200))
    ),
)


def long_filter_channels(name: str, layout: Layout, more: int) -> Method:
    """Channels-last, by as many taps more."""
    return Method(
        name,
        is_of("long_filter"),
        [layout],
        HALF_TYPES,
        draws.long_channels,
        draws=40,
        least=0,
        places=(positions_anywhere, parts_of_positions),
        cases=tuple(depthwise((3, 72, 901), taps + more, (taps + more) // 2) for taps in (16, 31, 64, 200)),
        chains=chains_without_tensors_behind,
        sanitized=tuple(
            depthwise((2, 40, length), taps + more, taps + more - 1)
            for length, taps in ((177, 31), (301, 16), (64, 100))
        ),
    )


FOURIER = Method(
    "fourier",
    is_of("fourier"),
    [contiguous, offset_by_one, columns_of_wider],
    NARROW_TYPES,
    draws.fourier,
    draws=100,
    least=10,
    cases=tuple(depthwise((3, 20, 20001), taps, taps // 2) for taps in (WHOLE, PARTITIONED)),
    reached=tuple(depthwise((2, 20, 20001), taps, taps // 2) for taps in (WHOLE, PARTITIONED)),
    large=((depthwise((3, 1024, 2**31 // (2 * 1024) + 13), 4001, 2000), torch.bfloat16, contiguous),),
    sanitized=tuple(depthwise((2, 20, 7001), taps, taps - 1) for taps in (WHOLE, PARTITIONED)),
    sums=transformed_sums,
)
BY_ROWS = Method(
    "by_rows",
    lambda plan: IS_BY_ROWS in plan.detail,
    [positions_anywhere],
    NARROW_TYPES,
    draws.by_rows,
    draws=20,
    least=20,
    places=(positions_anywhere, parts_of_positions),
    cases=(depthwise((2, 120, 3001), 300),),
    chains=chains_of_any_position,
    reached=(depthwise((1, 60, 5000), 301, 150),),
)
FEW_OUTPUTS = Method(
    "few_outputs",
    is_of("few_outputs"),
    [contiguous, permuted, offset_by_one, ends_of_words, parts_of_positions],
    HALF_TYPES,
    draws.few_outputs,
    draws=30,
    least=30,
    cases=(
        *(Problem((3, 50, 6001), outputs, taps, 1, taps // 2) for outputs, taps in ((1, 7), (2, 5), (3, 9), (4, 8))),
        Problem((2, 33, LEAST_FOR_FEW_OUTPUTS + 3), 2, 7, 1, 3),
        Problem((4, 32, 100003), 1, 7, 1, 3),
    ),
    chains=chains_of_last_layers,
    reached=tuple(
        Problem((1, inputs, LEAST_FOR_FEW_OUTPUTS + reach + 5), outputs, taps, 1, reach, dilation)
        for inputs, outputs, taps, dilation, reach in ((40, 1, 7, 1, 6), (33, 3, 5, 4, 16), (8, 2, 3, 1, 2))
    ),
    large=tuple(
        (Problem((3, 64, 2**31 // (2 * 64) + 13), 1, 7, 1, 3), torch.bfloat16, layout)
        for layout in (contiguous, permuted, offset_by_one)
    ),
    sanitized=tuple(
        Problem((2, inputs, LEAST_FOR_FEW_OUTPUTS // 2 + more), outputs, taps, 1, taps - 1)
        for inputs, outputs, taps, more in ((8, 1, 7, 0), (33, 4, 8, 1), (40, 2, 5, 8))
    ),
    is_exact=True,
)

WINDOW_ROWS = Method(
    "window_rows",
    is_any,
    [rows_anywhere],
    NARROW_TYPES,
    lambda rng: draws.windows(rng, draws.size(rng, 0, 10)),
    draws=120,
    least=120,
    kernels=({"few_taps_rows"}, {"window_rows"}),
    places=(rows_anywhere,),
    cases=tuple(
        depthwise((3, channels, 1501), taps, taps // 2) for taps in (3, 4, 7, 33, 100) for channels in (3, 14, 37, 130)
    ),
    chains=chains_of_depthwise,
    reached=tuple(
        depthwise((2, 15, length), taps, taps - 1)
        for taps in (2, 3, 4, 5, 9, 18, 19, 20, 21, 40)
        for length in (61, 400)
    ),
    large=tuple((depthwise((1, 1, 2**31 + 4099), taps, 1), torch.float32, contiguous) for taps in (3, 33)),
    error=error_of_one_tap_after_another,
)
WINDOW_CHANNELS = dataclasses.replace(
    WINDOW_ROWS,
    name="window_channels",
    layouts=[positions_anywhere],
    draw=lambda rng: draws.windows(rng, draws.size(rng, 0, 9)),
    draws=150,
    least=150,
    kernels=({"window_channels", "window_channels_pairs"},),
    places=(positions_anywhere,),
    large=(),
)
# Half types with 5 to 8 taps are plain_rows' where the schedule is forced; else tensor cores have most of them.
PLAIN_ROWS = dataclasses.replace(
    WINDOW_ROWS,
    name="plain_rows",
    dtypes=HALF_TYPES,
    draw=lambda rng: draws.windows(rng, rng.randint(5, 8)),
    draws=30,
    least=30,
    kernels=({"plain_rows"},),
    given={"schedule": "direct"},
    cases=(),
    reached=(),
    large=(),
)
# plain_rows holds four taps of float32, which are few.
DIRECT_ROWS = dataclasses.replace(PLAIN_ROWS, name="direct_rows", dtypes=[torch.float32], kernels=({"direct_rows"},))
STRIDED_ROWS = Method(
    "strided_rows",
    is_any,
    [rows_anywhere],
    DTYPES,
    draws.strided_depthwise,
    draws=120,
    least=120,
    kernels=({"direct_rows"},),
    places=(rows_anywhere,),
    cases=tuple(
        depthwise((3, 14, length), 7, 3 * dilation, multiplier=2, stride=stride, dilation=dilation)
        for stride, dilation in ((2, 1), (1, 3), (5, 2))
        for length in (5, 61, 700, 5003)
    ),
    chains=chains_of_depthwise,
    reached=tuple(
        depthwise((2, 15, length), taps, taps - 1, stride=stride, dilation=dilation)
        for taps, stride, dilation, length in ((2, 2, 1, 61), (3, 1, 2, 400), (9, 3, 4, 1501), (20, 8, 1, 3000))
    ),
    error=error_of_sums,
)
STRIDED_CHANNELS = dataclasses.replace(
    STRIDED_ROWS,
    name="strided_channels",
    layouts=[positions_anywhere],
    kernels=({"direct_rows"}, {"direct_channels"}),
    places=(positions_anywhere, rows_anywhere),
    cases=(),
)

DENSE = Method(
    "dense",
    is_of("dense"),
    LAYOUTS_AND_ENDS,
    HALF_TYPES,
    draws.dense,
    draws=30,
    least=6,
    places=(ends_of_words, parts_of_positions),
    reached=(Problem((3, 40, 500), 48, 9, 1, 8),),
    is_exact=True,
    on_tensor_cores=True,
)
DENSE_GROUPS = dataclasses.replace(
    DENSE,
    name="dense_groups",
    layouts=LAYOUTS,
    draw=draws.groups,
    reached=tuple(Problem((2, n * each, 500), n * out, 5, 1, 2, groups=n) for n, each, out in draws.GROUPS),
)
DENSE_STRIDES = dataclasses.replace(
    DENSE,
    name="dense_strides",
    draw=draws.strides,
    reached=tuple(Problem((3, 40, 900), 48, 9, stride, 8) for stride in (2, 3, 5)),
)
SPLIT_K = dataclasses.replace(
    DENSE,
    name="split_k",
    runs=lambda plan: "split-K of" in plan.detail,
    layouts=[contiguous, permuted, ends_of_words, offset_by_one],
    draw=draws.split_k,
    draws=10,
    least=1,
    reached=(Problem((1, 1064, 1720), 24, 9, 1, 4),),
)


def in_float32(method: Method, in_tf32: bool, **changes: Any) -> Method:
    """The method for float32: inputs and results at every alignment to words of four elements."""
    layouts = [contiguous, permuted, sliced, offset_by_one, rows_anywhere, positions_anywhere]
    name = f"{method.name}_{'tf32' if in_tf32 else 'float32'}"
    same = {"name": name, "dtypes": [torch.float32], "layouts": layouts, "in_tf32": in_tf32}
    places = (*method.places, rows_anywhere, positions_anywhere)
    reached = tuple(with_another_input(problem) for problem in method.reached)
    same |= {"places": places, "chains": chains_of_float32, "reached": reached}
    return dataclasses.replace(method, **{**same, **changes})


def with_another_input(problem: Problem) -> Problem:
    """Words of channels without a chain are torch's in TF32 where few taps have no dilation."""
    batch, inputs, length = problem.shape
    return dataclasses.replace(problem, shape=(batch, inputs + problem.groups, length))


# Cases and sanitized problems have a dilation, or channels of no whole words, so that none is left to torch; one output
# channel, counts of channels that are no multiple of four. So many draws have results of both layouts.
FLOAT32: tuple[tuple[Method, dict[str, Any]], ...] = (
    (
        DENSE,
        {
            "kernels": ({"dense_positions"}, {"dense_channels"}),
            "cases": (
                Problem((2, 48, 2000), 1, 31, 1, 15),
                Problem((2, 33, 701), 38, 9, 1, 4),
                Problem((2, 64, 1000), 128, 9, 1, 12, 3),
            ),
            "reached": (*map(with_another_input, DENSE.reached), Problem((2, 37, 301), 6, 16, 1, 15, 2)),
            "sanitized": (Problem((2, 20, 300), 40, 9, 1, 4, 2), Problem((1, 33, 200), 6, 16, 1, 3, 2)),
        },
    ),
    (
        DENSE_GROUPS,
        {
            "draws": 16,
            "least": 2,
            "cases": (Problem((2, 48, 900), 96, 9, 1, 4, groups=12), Problem((2, 102, 900), 96, 9, 2, 4, groups=3)),
            "sanitized": (Problem((1, 40, 400), 48, 9, 1, 1, groups=2), Problem((1, 20, 400), 40, 9, 2, 1, groups=5)),
        },
    ),
    (
        DENSE_STRIDES,
        {
            "draws": 24,
            "least": 1,
            "cases": (Problem((2, 64, 2001), 262, 9, 2, 12, 3),),
            "reached": tuple(Problem((3, 41, 900), 310, 9, stride, 8) for stride in (2, 3, 5)),
            "sanitized": (Problem((2, 18, 400), 22, 7, 3, 1, 2),),
        },
    ),
    (SPLIT_K, {}),
)
METHODS = (
    *(LONG_FILTER_ROWS, long_filter_channels("long_filter_words", permuted, 0)),
    long_filter_channels("long_filter_gathered", parts_of_positions, GATHERED),
    *(FOURIER, BY_ROWS, FEW_OUTPUTS, WINDOW_ROWS, WINDOW_CHANNELS, PLAIN_ROWS, DIRECT_ROWS),
    *(STRIDED_ROWS, STRIDED_CHANNELS, DENSE, DENSE_GROUPS, DENSE_STRIDES, SPLIT_K),
    *(in_float32(method, in_tf32, **changes) for method, changes in FLOAT32 for in_tf32 in (True, False)),
)


def row(method: Method, layout: Layout, dtype: torch.dtype, *more: Any, name: str = "") -> Any:
    marks = ON_TENSOR_CORES if method.on_tensor_cores else ()
    text = "-".join(filter(None, (method.name, name, layout.__name__, str(dtype))))
    return pytest.param(method, layout, dtype, *more, marks=marks, id=text)


def rows(has: Callable[[Method], object] = lambda method: True, *, most: int = 8) -> list[Any]:
    """A row of a test for each layout and each dtype of at most so many bytes of a method that has its problems."""
    return [
        row(method, layout, dtype)
        for method in filter(has, METHODS)
        for layout in method.layouts
        for dtype in method.dtypes
        if dtype.itemsize <= most
    ]
