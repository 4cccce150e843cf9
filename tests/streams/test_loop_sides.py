"""Loops over equal chunks whose inputs or results are on the device: here on a CPU that is said to be one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import sluice
from sluice import stages
from sluice.stream.device.layout import LOCAL, Endpoint
from sluice.stream.device.routes import Routes
from sluice.stream.map import arguments, run
from stream_calls import exact
from stream_loops import recorded_loops

CHAIN = stages.scale(2.0) | stages.relu()
WEIGHT = torch.randn(6, 1, 5)
CONVOLUTION = functools.partial(sluice.conv1d, weight=WEIGHT, padding=2, groups=6)

pytestmark = [pytest.mark.usefixtures("through_the_engine"), pytest.mark.no_gpu]


class Sides:
    """Which of the CPU's tensors count as tensors on the device."""

    def __init__(self) -> None:
        self.is_result_there = False
        self.inputs: list[torch.Tensor] = []


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Sides:
    given, of = Sides(), Routes.of

    def route(self: Routes, tensor: torch.Tensor, dim: int, extent: int, device: torch.device, name: str) -> Endpoint:
        is_there = any(tensor.data_ptr() == x.data_ptr() for x in given.inputs)
        return Endpoint(tensor, dim, LOCAL) if is_there else of(self, tensor, dim, extent, device, name)

    def allocate(sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(sizes), dtype=dtype)

    monkeypatch.setattr(Routes, "of", route)
    monkeypatch.setattr(arguments, "_choose_side", lambda *_: given.is_result_there)
    monkeypatch.setattr(run, "_allocator_on", lambda device: allocate)
    return given


def expected(fn: Any, x: torch.Tensor) -> torch.Tensor:
    return x if fn is None else (x * 2).relu()


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("staging", ["auto", "ring"])
@pytest.mark.parametrize("fn", [None, CHAIN], ids=["none", "chain"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("halo", [0, (2, 1), 30])
def test_a_result_on_the_device(sides: Sides, fn: Any, depth: int, staging: str, dim: int, halo: Any) -> None:
    sides.is_result_there = True
    x = torch.randn(100, 100)
    with sluice.Streamer("cpu", depth=depth) as streamer:
        for out in (None, torch.empty_like(x), torch.empty_like(x)):
            with recorded_loops() as (told, by_python):
                got = streamer.map(fn, x, dim=dim, chunk_size=9, staging=staging, halo=halo, out=out)
            exact(got, expected(fn, x))
            assert out is None or got is out
            ahead = min(depth - 1, 2 if out is None else depth)  # the later calls are settled
            stats = streamer.stats()
            assert stats.bytes_out == {}
            assert [times.chunk for times in stats.timeline] == list(range(12))
            if halo == 0:
                assert sum(stats.bytes_in.values()) == x.nbytes
            if halo == 30:
                assert told[-1] == "3 3"  # chunks 4 to 6
                assert by_python == [1, 2, 3, 7, 8, 9, 10, 11]
            elif fn is None and dim == 0 and halo == 0:  # chunks that are ahead are in slots, the others need none
                assert told[-1] == f"{10 - ahead} {10 - ahead}"
                assert by_python == [*range(1, 1 + ahead), 11]
            else:
                assert told[-1] == "10 10"
                assert by_python == [11]


def test_an_upload_through_an_op_moves_what_python_moves(sides: Sides) -> None:
    x = torch.randn(4, 6, 300)
    wanted = torch.nn.functional.conv1d(x, WEIGHT, padding=2, groups=6)
    sides.is_result_there = True
    counted = []
    with sluice.Streamer("cpu") as streamer:
        for fn in (CONVOLUTION, lambda x: CONVOLUTION(x)):
            for options in ({"dim": 0, "chunk_size": 1}, {"dim": -1, "chunk_size": 32, "halo": 2}):
                totals: list[tuple[int, int]] = []
                add = lambda done, total, totals=totals: totals.append((done, total))  # noqa: E731
                with recorded_loops() as (told, _):
                    got = streamer.map(fn, x, progress=add, **options)
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
                assert bool(told) == (fn is CONVOLUTION)
                stats = streamer.stats()
                counted.append((totals[-1], stats.bytes_in, stats.bytes_out, stats.chunks))
    assert counted[:2] == counted[2:]


@pytest.mark.parametrize("fn", [None, CHAIN], ids=["none", "chain"])
@pytest.mark.parametrize("is_result_there", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("halo", [0, (2, 1)])
def test_an_input_on_the_device(sides: Sides, fn: Any, is_result_there: bool, dim: int, halo: Any) -> None:
    x = torch.randn(100, 100)
    sides.inputs, sides.is_result_there = [x], is_result_there
    kept = x.clone()
    for out in (None, torch.empty_like(x), torch.empty(100, 200)[:, ::2]):
        with recorded_loops() as (told, by_python):
            exact(sluice.stream_map(fn, x, devices="cpu", dim=dim, chunk_size=9, halo=halo, out=out), expected(fn, x))
        if is_result_there and out is not None and not out.is_contiguous():
            assert told == []
        else:
            assert told[-1] == "10 10"
            assert by_python == [11]
    assert torch.equal(x, kept)
    if not halo:
        assert sluice.stream_map(fn, x, devices="cpu", dim=dim, chunk_size=9, out=x) is x
        exact(x, expected(fn, kept))


@pytest.mark.parametrize("is_result_there", [False, True])
def test_inputs_on_both_sides(sides: Sides, is_result_there: bool) -> None:
    x, y, sides.is_result_there = torch.randn(100, 7), torch.randn(100, 5), is_result_there
    for there in ([x], [y], [x, y]):
        sides.inputs = there
        with recorded_loops() as (told, by_python):
            both = sluice.stream_map(None, x, y, devices="cpu", chunk_size=9)
        exact(both[0], x)
        exact(both[1], y)
        assert told[-1] == "10 10"
        assert by_python == [11]


def test_what_is_left_to_python(sides: Sides) -> None:
    x = torch.randn(100, 100)
    sides.is_result_there = True
    for source, out in ((x, torch.empty(100, 200)[:, ::2]), (x.expand(3, 100, 100), None)):
        sides.inputs = [source] if source.dim() == 3 else []
        with recorded_loops() as (told, _):
            exact(
                sluice.stream_map(CHAIN, source, devices="cpu", dim=1, chunk_size=9, out=out), expected(CHAIN, source)
            )
        assert told == []
