"""Suite `decode` of the benchmarks, on few channels, with a clock that answers by script."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

import sluice
import write_results
from bench_documents import CPU, FEW, ScriptedClock, good_document, rows_of
from common import ROOT, assert_close
from sluice import bench
from sluice.bench.check import WrongResultError
from sluice.bench.runner import run_case, run_suite
from sluice.bench.schema import PEERS

pytestmark = pytest.mark.no_gpu
SUITE = bench.load_suite(ROOT, "decode")
MODULE = sys.modules["bench_decode"]
make = MODULE.decode_case

SMALL = [
    *(make(3, 20, columns, dtype) for columns in (3, 4, 7) for dtype in ("bf16", "fp16", "fp32")),
    make(1, 5),
    make(5, 12, form="slots"),
    make(5, 12, tokens=4, form="slots"),
    make(2, 12, tokens=4),
    make(2, 12, 4, tokens=9),
    make(4, 12, tokens=4, form="accepted"),
    make(4, 12, 9, tokens=3, form="accepted"),
    make(3, 12, 3, taps=3, form="gates"),
    make(3, 12, dilation=3),
]


def ids(case: bench.Case) -> str:
    return case.name


def problem(case: bench.Case) -> MODULE.Problem:
    return case.make.args[0]  # a functools.partial of `_make`


def step(case: bench.Case) -> MODULE.Step:
    return MODULE.FORMS[problem(case).form](problem(case), CPU)


def test_the_required_rows_are_there() -> None:
    rows = [case.params for case in SUITE.cases]
    for batch, channels in ((1, 5120), (1, 8192), (64, 5120), (256, 8192), (17, 6144), (128, 10240)):
        for columns in (3, 4):
            required = {"B": batch, "C": channels, "L": 1, "K": 4, "dtype": "bf16", "fn": f"silu, state={columns}"}
            assert sum(required.items() <= row.items() for row in rows) == 1
    assert {row["dtype"] for row in rows} == {"bf16", "fp16", "fp32"}
    assert sum("slots" in str(row["fn"]) for row in rows) == 2
    assert {"B": 64, "C": 2048, "K": 3, "fn": "identity, state=3 gates"}.items() <= rows[-2].items()
    assert {"B": 64, "C": 8192, "dilation": 3, "fn": "silu, state=9"}.items() <= rows[-1].items()
    assert [case.params["L"] for case in SUITE.cases if "accepted" in case.name] == [4]


def test_is_warm_in_a_graph() -> None:
    assert SUITE.clock is bench.GraphClock


def test_small_cases_run() -> None:
    rows = rows_of("decode", SMALL)
    assert [row["name"] for row in rows] == [case.name for case in SMALL]
    assert set(rows[0]["peers"]) == {"torch", "torch_compile", "causal_conv1d"} <= PEERS
    assert all(row["floor_kind"] == "bytes" and row["peers"]["torch"] == 2.0 for row in rows)
    assert rows[0]["name"] == "3x20 K=4 state=3 bf16"
    assert rows[-1]["name"] == "3x12 K=4 d=3 state=9 bf16"


@pytest.mark.parametrize("case", SMALL, ids=ids)
def test_peers_compute_what_ours_does(case: bench.Case) -> None:
    given = step(case)
    state = given.state.clone()
    for _ in range(2):  # the second update finds what the first has left
        expected, moved = given.expected(torch.float64)[0], given.expected(given.x.dtype)[1]
        result = given.eager(given.x, state, *given.operands)
        assert_close(result, expected, factor=4)  # products, sums and bias are rounded one after another
        assert torch.equal(state, moved)
        given = dataclasses.replace(given, state=moved)


def test_bytes_of_the_floor() -> None:
    taps, bias, tokens = 4 * 12, 12, 5 * 12
    for form, slots in (("", 0), ("slots", 5 * 4)):
        state = 2 * 5 * 12 * 3
        assert make(5, 12, form=form).make(CPU).traffic == 2 * (taps + bias + 2 * tokens + state) + slots
    gated = 3 * 12 + 4 * tokens + 2 * 5 * 12 * 3
    assert make(5, 12, 3, taps=3, form="gates").make(CPU).traffic == 2 * gated
    packed = taps + bias + 2 * 4 * tokens + 2 * 5 * 12 * 6
    assert make(5, 12, tokens=4, form="accepted").make(CPU).traffic == 2 * packed + 4 * (5 + 6)


def test_calls_have_states_of_their_own() -> None:
    workload = make(2, 12, dtype="fp32").make(CPU)
    first = workload.ours()
    for call in (workload.peers["torch"], workload.ours):
        assert call is not None
        call()
    out = torch.empty_like(first)
    workload.write(out)
    assert torch.equal(out, first)
    assert not torch.equal(workload.ours(), first)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state, before: state.copy_(before),
        lambda state, before: state[..., 0].add_(1),
        lambda state, before: state[-1].fill_(float("nan")),
    ],
    ids=["kept", "one column", "poisoned"],
)
def test_a_wrong_state_is_not_timed(monkeypatch: pytest.MonkeyPatch, spoil: object) -> None:
    update = sluice.causal_conv1d_update

    def broken(x: torch.Tensor, state: torch.Tensor, *args: object, **options: object) -> torch.Tensor:
        before = state.clone()
        result = update(x, state, *args, **options)
        spoil(state, before)
        return result

    monkeypatch.setattr(sluice, "causal_conv1d_update", broken)
    clock = ScriptedClock(1.0)
    with pytest.raises(WrongResultError, match="the state must have the bits"):
        run_case(make(3, 12), CPU, clock, FEW, lambda line: None)
    assert clock.calls == 0


def test_its_table_says_how_it_is_timed() -> None:
    outcome = run_suite(bench.Suite("decode", SMALL[:2]), CPU, ScriptedClock(2.125), FEW, lambda line: None)
    heading, table, note = write_results.decoding(good_document("decode") | {"cases": outcome.rows}).split("\n\n")
    assert heading.endswith("; a call among 100 in a CUDA graph, warm, as are the floor and the peers")
    cells = "| 3x20 K=4 state=3 bf16 | direct | 2.12 | 2.12 | 1.00 | 2.12 | 1.00 |"
    assert table.splitlines()[2] == cells
    assert "`causal_conv1d`, which was not installed on that machine" in note
