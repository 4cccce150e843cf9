"""Several results of one pass: `sluice.transform(x, [chain, ...])`."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.library import opcheck

import sluice
from common import DTYPES, LAYOUTS, SCHEDULES, permuted, poisoned_like
from op_checks import ALL_CHECKS, FAST_CHECKS
from sluice import stages


def chains_of(x: torch.Tensor) -> list[sluice.Chain]:
    other = torch.linspace(0.5, 1.5, x.shape[-1], device=x.device)
    return [
        stages.scale(1.5) | stages.add(other) | stages.silu(),
        stages.mul(other) | stages.cast(torch.float32),
        stages.gelu() | stages.add(x, 0.5) | stages.cast(torch.float16),
        stages.square(),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_list_of_chains_is_each_chain(device: str, dtype: torch.dtype, layout) -> None:
    for shape in ((3, 40, 130), (5, 7), (2, 3, 1000)):
        x = layout(torch.randn(shape, device=device).to(dtype))
        chains = chains_of(x)
        wanted = [chain(x) for chain in chains]
        for schedule in ("auto", *SCHEDULES):
            for got, one in zip(sluice.transform(x, chains, schedule=schedule), wanted, strict=True):
                assert got.dtype == one.dtype
                assert got.stride() == one.stride()
                assert torch.equal(got, one)
        outs = [poisoned_like(x, one.dtype) for one in wanted]
        got = sluice.transform(x, chains, out=outs)
        assert all(a is b and torch.equal(a, one) for a, b, one in zip(got, outs, wanted, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_more_tensors_than_one_kernel_takes(device: str, compiled: bool) -> None:
    x = torch.randn(3, 50, device=device)
    ys = [torch.randn(50, device=device) for _ in range(16)]
    chains = [stages.add(ys[i]) | stages.mul(ys[i + 1]) | stages.add(x) for i in range(0, 16, 2)]
    wanted = [chain(x) for chain in chains]

    def step(x: torch.Tensor, outs: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
        return sluice.transform(x, chains, out=outs)

    call, into = step, step
    if compiled:  # Inductor has to see that `outs` are written to
        call, into = torch.compile(step, fullgraph=True, backend="aot_eager"), torch.compile(step, fullgraph=True)
    outs = [torch.empty_like(x) for _ in chains]
    for results in (call(x), into(x, outs), outs):
        assert all(map(torch.equal, results, wanted))
    if not compiled:
        for options in ({}, {"out": outs}):
            assert sluice.prepare(chains, x, **options) == ("the CPU needs no linking" if device == "cpu" else "")
        same = [x.clone(), *outs[1:]]  # even where an out is what the others read
        assert all(map(torch.equal, sluice.transform(same[0], chains[:-1] + [stages.neg()], out=same),
                       [*(chain(x) for chain in chains[:-1]), -x]))  # fmt: skip
        with pytest.raises(ValueError, match="transform: chain must have at most 12 tensor operands, got 13"):
            sluice.transform(x, [stages.neg(), functools.reduce(lambda a, b: a | b, map(stages.add, ys[:13]))])


def test_edges(device: str) -> None:
    x = torch.randn(6, 10, device=device)
    assert sluice.transform(x, []) == []
    assert torch.equal(sluice.transform(x, [stages.neg()])[0], -x)
    assert [y.shape for y in sluice.transform(x[:0], [stages.neg(), stages.relu()])] == [(0, 10), (0, 10)]
    assert [y.dtype for y in sluice.transform(x, [stages.neg(), stages.relu()], dtype=torch.float16)] == [
        torch.float16
    ] * 2
    # More stages, or more results, than one kernel takes.
    long = stages.neg() | stages.neg()
    for count in (7, 20):
        results = sluice.transform(x, [sluice.Chain(long.stages * 3) for _ in range(count)])
        assert len(results) == count
        assert all(torch.equal(y, x) for y in results)
    # The last result may take x's place.
    y = x.clone()
    first, last = sluice.transform(y, [stages.neg(), stages.scale(2.0)], out=[torch.empty_like(x), y])
    assert last is y
    assert torch.equal(first, -x)
    assert torch.equal(y, 2 * x)


def test_bad_input(device: str) -> None:
    x, chains = torch.randn(6, 10, device=device), [stages.neg(), stages.relu()]
    out = torch.empty_like(x)
    with pytest.raises(ValueError, match="transform: out must have one tensor for each of the 2 chains, got 1"):
        sluice.transform(x, chains, out=[out])
    with pytest.raises(ValueError, match="out must not overlap another result"):
        sluice.transform(x, chains, out=[out, out])
    with pytest.raises(ValueError, match="out must not overlap input"):
        sluice.transform(x, chains, out=[x, out])
    with pytest.raises(TypeError, match="a chain or a list of chains, got int"):
        sluice.transform(x, 3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="out must be a torch.Tensor"):
        sluice.transform(x, chains, out=[out, None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="must broadcast"):
        sluice.transform(x, [stages.neg(), stages.add(torch.zeros(7, device=device))])
    with pytest.raises(RuntimeError, match="forward-only"):
        sluice.transform(x.requires_grad_(), chains)


def test_opcheck_and_compile(device: str) -> None:
    two = (torch.randn(4, 50, device=device), permuted(torch.randn(2, 4, 50, device=device)))
    for x, tests in zip(two, (ALL_CHECKS, FAST_CHECKS), strict=True):
        arguments = (x, ["add($0)|relu()", "neg()|cast(float16)"], [torch.randn(50, device=device)])
        opcheck(torch.ops.sluice.transform_many.default, arguments, test_utils=tests)
        outs = [torch.empty_like(x), torch.empty_like(x, dtype=torch.float16)]
        opcheck(torch.ops.sluice.transform_many_out.default, arguments, {"out": outs}, test_utils=tests)
        chains = chains_of(x)
        compute = functools.partial(sluice.transform, chain=chains)
        compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
        for got, wanted in zip(compiled(x), compute(x), strict=True):
            assert torch.equal(got, wanted)
