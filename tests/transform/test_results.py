"""transform: every stage, dtype and layout, against float64."""

from __future__ import annotations

import pytest
import torch
from torch.library import opcheck

import sluice
from common import (
    DTYPES,
    FIXED_DEPTH,
    LAYOUTS,
    SCHEDULES,
    assert_close,
    contiguous,
    double_chain,
    offset_by_one,
    permuted,
    poisoned_like,
    relative_error,
)
from every_stage import SAMPLES, WITH_PARAMETERS
from op_checks import ALL_CHECKS, FAST_CHECKS
from rows import naming
from sluice import stages


def expected(x: torch.Tensor, chain: sluice.Chain, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The float64 result, with only the roundings of the chain itself."""
    return sluice.reference.transform(x.double(), double_chain(chain), dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_stage_with_numbers(device: str, dtype: torch.dtype) -> None:
    for name in SAMPLES:
        with naming(name):
            x = torch.randn(3, 501, device=device, dtype=dtype)
            chain = SAMPLES[name](lambda value: value)
            result = poisoned_like(x)
            assert sluice.transform(x, chain, out=result) is result
            assert_close(result, expected(x, chain))


@pytest.mark.parametrize("shape", [(), (501,), (3, 1), (3, 501), (1, 1)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_tensors_in_the_place_of_numbers(device: str, shape: tuple[int, ...], layout) -> None:
    for name in WITH_PARAMETERS:
        with naming(name):
            x = torch.randn(3, 501, device=device)

            def tensor(value: float) -> torch.Tensor:
                made = value + 0.1 * torch.rand(shape, device=device)
                return layout(made) if made.dim() else made

            chain = SAMPLES[name](tensor)
            assert_close(sluice.transform(x, chain), expected(x, chain))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("other", DTYPES, ids=str)
def test_mixed_dtypes(device: str, dtype: torch.dtype, other: torch.dtype) -> None:
    for result in [None, *DTYPES]:
        with naming(result):
            x = torch.randn(5, 77, device=device, dtype=dtype)
            chain = stages.add(torch.randn(77, device=device, dtype=other)) | stages.silu()
            made = sluice.transform(x, chain, dtype=result)
            assert made.dtype == (result or dtype)
            # A float64 result of a float32 evaluation is no better than float32.
            factor = 1.0 if dtype == torch.float64 or made.dtype != torch.float64 else 1e6
            assert_close(made, expected(x, chain), factor=factor)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_layouts_and_schedules(device: str, layout, dtype: torch.dtype, schedule: str) -> None:
    for shape in ((1,), (7,), (4099,), (3, 5), (5, 1031), (2, 3, 4, 5), (33, 8, 129)):
        with naming(shape):
            x = layout(torch.randn(shape, device=device, dtype=dtype))
            if x.numel() == 1:
                x.abs_()  # or the sum may nearly cancel, and a single element's relative error be any
            chain = stages.scale(1.5) | stages.shift(0.25) | stages.silu()
            result = sluice.transform(x, chain, schedule=schedule)
            assert_close(result, expected(x, chain))
            dense = layout in (contiguous, permuted, offset_by_one) or x.numel() == 1
            assert result.stride() == (x.stride() if dense else torch.empty(shape).stride())


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_every_depth_gives_the_same_bits(device: str, schedule: str) -> None:
    x = torch.randn(3_000_017 if device == "cuda" else 100_003, device=device)
    chain = stages.scale(1.5) | stages.tanh()
    wanted = sluice.transform(x, chain)
    depths = range(1, 9) if device == "cuda" else (1, 8)  # the CPU takes the same way for each
    for depth in [FIXED_DEPTH[schedule]] if schedule in FIXED_DEPTH else depths:
        with naming(depth):
            assert torch.equal(sluice.transform(x, chain, schedule=schedule, depth=depth), wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alignment_never_changes_a_result(device: str, dtype: torch.dtype) -> None:
    base = torch.randn(5000, device=device, dtype=dtype)
    other = torch.randn(5000, device=device, dtype=dtype)
    out = torch.empty(5000, device=device, dtype=dtype)
    for start in range(9):
        for n in (1, 15, 64, 4001):
            x, y = base[start : start + n], other[(start * 3) % 8 :][:n]
            chain = stages.add(y) | stages.gelu()
            aligned = sluice.transform(x.clone(), stages.add(y.clone()) | stages.gelu())
            for schedule in SCHEDULES:
                result = out[(start * 5) % 8 :][:n]
                out.fill_(float("nan"))
                sluice.transform(x, chain, out=result, schedule=schedule)
                assert torch.equal(result, aligned)
                assert int(torch.isnan(out).sum()) == 5000 - n  # nothing outside was written


def test_broadcast_and_permuted_operands(device: str) -> None:
    x = torch.randn(4, 6, 50, device=device)
    operands = [
        torch.randn(6, 1, device=device),
        permuted(torch.randn(4, 6, 50, device=device)),
        torch.randn(4, 1, 50, device=device, dtype=torch.bfloat16),
        torch.randn(50, 6, 4, device=device).permute(2, 1, 0),
        torch.randn(1, device=device).expand(4, 6, 50),
    ]
    for layout in LAYOUTS:
        for operand in operands:
            chain = stages.mul(operand) | stages.sub(operand)
            assert_close(sluice.transform(layout(x), chain), expected(x, chain))


def test_expanded_input(device: str) -> None:
    x = torch.randn(6, 1, device=device).expand(6, 40)
    result = sluice.transform(x, stages.silu())
    assert result.is_contiguous()
    assert_close(result, expected(x, stages.silu()))


def test_out_with_any_strides(device: str) -> None:
    x = torch.randn(6, 40, device=device)
    for out in (torch.empty(40, 6, device=device).t(), torch.empty(6, 120, device=device)[:, ::3]):
        out.fill_(float("nan"))
        assert sluice.transform(x, stages.exp(), out=out) is out
        assert_close(out, expected(x, stages.exp()))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_place(device: str, schedule: str) -> None:
    for layout in LAYOUTS:
        x = layout(torch.randn(37, 1111, device=device))
        before = x.clone()
        chain = stages.scale(2.0) | stages.add(x) | stages.relu()
        sluice.transform(x, chain, out=x, schedule=schedule)
        assert_close(x, torch.relu(3.0 * before.double()))


def test_empty_and_single(device: str) -> None:
    chain = stages.scale(2.0)
    assert sluice.transform(torch.empty(3, 0, device=device), chain).shape == (3, 0)
    assert sluice.transform(torch.tensor(3.0, device=device), chain).item() == 6.0


def test_too_many_dimensions_are_refused_alike(device: str) -> None:
    """The op, what links for it and what plans it have one limit."""
    rank = 13
    x = torch.zeros([3] * rank, device=device)[(slice(0, 3, 2),) * rank]  # no two dimensions merge with a result's
    calls = (
        lambda: sluice.transform(x, stages.silu()),
        lambda: sluice.prepare(stages.silu(), x),
        lambda: sluice.plan("transform", x, stages.silu()),
    )
    for call in calls:
        with pytest.raises(
            ValueError, match=r"^transform: input must have at most 12 dimensions that do not merge, got"
        ):
            call()


def test_cast_rounds_where_it_stands_and_sets_the_result(device: str) -> None:
    x = torch.randn(1000, device=device)
    middle = sluice.transform(x, stages.cast(torch.bfloat16) | stages.scale(1.0))
    assert middle.dtype == torch.float32
    assert torch.equal(middle, x.bfloat16().float())
    last = sluice.transform(x, stages.scale(1.0) | stages.cast(torch.float16))
    assert torch.equal(last, x.half())
    both = sluice.transform(x, stages.cast(torch.bfloat16), dtype=torch.float32)
    assert torch.equal(both, x.bfloat16().float())


def test_special_values(device: str) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, 88.0, -88.0], device=device)
    # Not gelu: what torch gives at -inf differs between its own CPU code paths.
    for name in ("relu", "clamp", "abs", "neg", "exp", "leaky_relu", "elu", "sigmoid", "tanh", "softplus"):
        chain = SAMPLES[name](lambda value: value)
        assert relative_error(sluice.transform(x, chain), sluice.reference.transform(x, chain)) < 1e-6
    limits = torch.tensor([float("nan"), 0.0], device=device)
    ones = torch.ones(2, device=device)
    result = sluice.transform(ones, stages.clamp(max=limits))
    assert torch.equal(result.isnan(), torch.tensor([True, False], device=device))


def test_longest_chain(device: str) -> None:
    x = torch.randn(100, device=device)
    tensors = [torch.rand(100, device=device) for _ in range(12)]
    chain = sluice.Chain()
    for tensor in tensors:
        chain = chain | stages.add(tensor) | stages.tanh()
    assert len(chain) == 24
    assert_close(sluice.transform(x, chain), expected(x, chain), factor=3)
    with pytest.raises(ValueError, match="at most 24 stages"):
        sluice.transform(x, chain | stages.relu())
    with pytest.raises(ValueError, match="at most 12 tensor operands"):
        sluice.transform(x, sluice.Chain() | stages.add(x) | sluice.Chain(chain._stages[::2]))


def test_a_list_of_chains_gives_a_list(device: str) -> None:
    x = torch.randn(50, device=device)
    first, second = sluice.transform(x, [stages.relu(), stages.exp()])
    assert torch.equal(first, x.relu())
    assert_close(second, x.double().exp())


def test_raw_op_takes_text_with_torchs_defaults(device: str) -> None:
    x, y = torch.randn(9, device=device), torch.randn(9, device=device)
    result = torch.ops.sluice.transform(x, " leaky_relu | add( $0 , 2 )|softplus()", [y])
    assert_close(result, torch.nn.functional.softplus(torch.nn.functional.leaky_relu(x.double()) + 2 * y.double()))


# contracts/test_fakes.py traces transform in every kind of layout, so one of them traces all arguments here.
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_opcheck(device: str, layout) -> None:
    tests = ALL_CHECKS if layout is contiguous else FAST_CHECKS
    x = layout(torch.randn(4, 6, 20, device=device))
    y = torch.randn(6, 1, device=device)
    opcheck(torch.ops.sluice.transform.default, (x, "scale(2.0)|silu"), test_utils=tests)
    opcheck(torch.ops.sluice.transform.default, (x, "add($0)|cast(bfloat16)", [y]), test_utils=tests)
    opcheck(torch.ops.sluice.transform.default, (x[:0], "silu"), test_utils=tests)
    out = torch.empty_like(x, dtype=torch.float16)
    opcheck(
        torch.ops.sluice.transform_out.default,
        (x, "mul($0)", [y]),
        {"dtype": torch.float16, "out": out},
        test_utils=tests,
    )
