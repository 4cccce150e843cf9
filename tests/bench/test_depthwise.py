"""Suite `conv1d_depthwise` of the benchmarks: issues, models, states and sequences, on few channels and positions."""

from __future__ import annotations

import dataclasses
import math
import sys

import pytest
import torch

import sluice
from bench_documents import CPU, FEW, ScriptedClock, rows_of
from common import ROOT, assert_close
from sluice import bench
from sluice.bench.check import WrongResultError
from sluice.bench.runner import run_case
from sluice.bench.schema import PEERS
from sluice.compat import causal_conv1d as stand_in

pytestmark = pytest.mark.no_gpu
SUITE = bench.load_suite(ROOT, "conv1d_depthwise")
OTHERS, SEQUENCES = sys.modules["depthwise_cases"], sys.modules["sequence_cases"]

# Fewer channels, and slices of projections with as many less.
MODELS = [
    dataclasses.replace(
        model,
        channels=8,
        token_stride=8 * model.token_stride // model.channels,
        first=8 * model.first // model.channels,
    )
    for model in OTHERS.MODELS
]
PACKINGS = {"one": (23,), "some": SEQUENCES.shared_out(23, 4), "long and short": (1, 2, 17, 3, 2, 1)}
PROBLEMS = {
    f"{form} {name} {layout}": SEQUENCES.Problem(1, 8, lengths, layout, form)
    for form in ("cu_seqlens", "seq_idx", "paged")
    for name, lengths in PACKINGS.items()
    for layout in ("cf", "cl")
}
PROBLEMS |= {f"states {layout}": SEQUENCES.Problem(2, 8, (9,), layout, "states") for layout in ("cf", "cl")}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def compared(cases: list[bench.Case]) -> list[dict]:
    rows = rows_of("conv1d_depthwise", cases)
    assert all(set(row["peers"]) <= PEERS and row["peers"]["torch"] == 2.0 for row in rows)
    return rows


def prefill(problem: SEQUENCES.Problem) -> SEQUENCES.Prefill:
    return SEQUENCES.FORMS[problem.form](problem, CPU)


def test_the_issues_are_there() -> None:
    found = [case.params for case in SUITE.cases if case.name.endswith("pytorch#192902")]
    sizes = {"B": 1, "C": 12288, "L": 16384, "K": 4, "padding": 0, "groups": 12288, "op": "conv1d"}
    assert all(sizes.items() <= row.items() for row in found)
    assert len({(row["dtype"], row["layout"]) for row in found}) == len(found) == 6
    found = [case.params for case in SUITE.cases if case.name.endswith("pytorch#170138")]
    sizes = {"C": 768, "K": 31, "padding": 15, "groups": 768, "dtype": "fp16", "op": "conv1d"}
    assert all(sizes.items() <= row.items() for row in found)
    assert {(row["B"], row["L"]) for row in found} == {(8, 2048), (16, 1000)}
    assert len({(row["B"], row["layout"]) for row in found}) == len(found) == 4


def test_the_models_are_there() -> None:
    for name, required in {
        "Qwen3-Next": {"C": 8192, "K": 4, "fn": "silu"},
        "Nemotron-H": {"C": 10240, "K": 4, "fn": "silu, bias, token stride 18560"},
        "Kimi-Linear": {"C": 12288, "K": 4, "fn": "silu"},
        "LFM2": {"C": 2048, "K": 3, "fn": "identity, gates, token stride 6144"},
        "LFM3": {"C": 2048, "K": 7, "fn": "identity"},
        "Qwen4-Exp": {"C": 8192, "K": 4, "dilation": 3, "fn": "silu"},
        "Inkling": {"C": 6144, "K": 4, "fn": "identity, residual"},
        "Mamba2": {"C": 5376, "K": 4, "fn": "silu, bias, token stride 10576"},
    }.items():
        found = [case.params for case in SUITE.cases if case.name.endswith(f" {name}")]
        assert [row["B"] for row in found] == [1, 4]
        wanted = required | {"L": 4096, "dtype": "bf16", "layout": "cl", "op": "causal_conv1d"}
        assert all(wanted.items() <= row.items() for row in found)


def test_states_and_sequences_are_there() -> None:
    found = [case.params["fn"] for case in SUITE.cases if case.params["layout"] == "cl"]
    packings = ("1", "32", "1000", "1 long, 1000 short")
    for form in ("cu_seqlens", "seq_idx", "paged"):
        assert [fn for fn in found if f"silu, {form}" in str(fn)] == [f"silu, {form} {name}" for name in packings]
    assert found.count("silu, states") == 1
    assert sum(case.params["layout"] == "cf" and "," in str(case.params["fn"]) for case in SUITE.cases) == 5
    # Their references: the plain call, and batches of equal lengths.
    sizes = [tuple(case.params[size] for size in "BCL") for case in SUITE.cases if case.params["fn"] == "silu"]
    assert all(sizes.count((count, 8192, 16384 // count)) == 2 for count in (1, 32, 1024))


def test_lengths_of_the_packings() -> None:
    for name, count in {"1": 1, "32": 32, "1000": 1000, "1 long, 1000 short": 1001}.items():
        lengths = SEQUENCES.PACKINGS[name]
        assert (len(lengths), sum(lengths)) == (count, 16384)
        assert "long" in name or max(lengths) - min(lengths) <= 1
    assert SEQUENCES.shared_out(10, 4) == (2, 3, 2, 3)


def test_issues_run() -> None:
    # 32 channels: with 16 and fewer oneDNN of torch 2.13 never returns from 31 padded taps in float16 (AVX512-FP16).
    cases = [
        OTHERS.issue_case(1, (2, 32, 50), taps, dtype, layout, padding=padding)
        for taps, padding in ((4, 0), (31, 15))
        for dtype in ("bf16", "fp16", "fp32")
        for layout in ("cf", "cl")
    ]
    rows = compared(cases)
    assert rows[0]["name"] == "2x32x50 K=4 p=0 bf16 cf pytorch#1"
    workload = cases[0].make(CPU)
    assert workload.ours().shape == (2, 32, 47)
    assert workload.traffic == 2 * 32 * (2 * 50 + 4 + 2 * 47)
    assert_close(workload.peers["torch"](), workload.reference())


def test_models_run() -> None:
    rows = compared([OTHERS.model_case(model, batch, 13) for model in MODELS for batch in (1, 4)])
    assert rows[0]["name"] == "1x8x13 K=4 bf16 cl Qwen3-Next"
    assert "4x8x13 K=4 d=3 bf16 cl Qwen4-Exp" in [row["name"] for row in rows]
    assert all(set(row["peers"]) == {"torch", "torch_compile", "causal_conv1d"} for row in rows)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_models_code_computes_what_ours_does(model: OTHERS.Model) -> None:
    given = OTHERS.layer(model, 2, 13, CPU)
    assert given.x.shape == (2, 8, 13)
    assert given.x.stride(2) == (model.token_stride or 8)
    ours = sluice.causal_conv1d(given.x, given.weight, given.bias, **given.options)
    assert_close(given.eager(*given.operands), ours, factor=6)  # rounded after each step


def test_bytes_of_models() -> None:
    make = {model.name: OTHERS.model_case(model, 2, 13).make for model in MODELS}
    activation = 2 * 2 * 8 * 13
    assert make["Qwen3-Next"](CPU).traffic == 2 * activation + 2 * 8 * 4
    assert make["Nemotron-H"](CPU).traffic == 2 * activation + 2 * 8 * 5
    assert make["LFM2"](CPU).traffic == 4 * activation + 2 * 8 * 3
    assert make["Inkling"](CPU).traffic == 2 * activation + 4 * 8 * 4


def test_sequences_run() -> None:
    rows = compared([SEQUENCES.sequence_case(problem, f"({name})") for name, problem in PROBLEMS.items()])
    assert rows[0]["name"] == "1x8x23 K=4 bf16 cf cu_seqlens (cu_seqlens one cf)"
    assert all(set(row["peers"]) == {"torch", "torch_compile", "causal_conv1d"} for row in rows)
    assert {row["schedule"] for row in rows} == {"direct"}


@each_problem
def test_eager_code_computes_what_ours_does(problem: SEQUENCES.Problem) -> None:
    given = prefill(problem)
    cache = None if given.cache is None else given.cache.clone()
    result = given.eager(given.x, given.weight[:, None], cache, *given.operands)
    expected, states = given.expected(torch.float64)
    if problem.form == "states":
        result, cache = result
    assert_close(result, expected, factor=4)
    if cache is not None:
        assert torch.equal(cache, states.to(cache.dtype))


@each_problem
def test_the_package_gets_what_it_takes(problem: SEQUENCES.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "causal_conv1d", stand_in)
    given = prefill(problem)
    call = SEQUENCES.sequence_case(problem).make(CPU).peers["causal_conv1d"]
    assert (call is None) == (given.package is None) == (problem.layout == "cf")
    if call is None:
        return
    assert given.package is not None
    result = stand_in.causal_conv1d_fn(given.x, given.weight, None, **given.package)
    if problem.form == "states":
        assert given.options["initial_states"].stride(1) == 1
        assert_close(result[0], given.expected(torch.float64)[0])
        assert call()[0].shape == given.x.shape
    elif problem.form != "paged":
        assert_close(result, given.expected(torch.float64)[0])
        assert given.package["seq_idx"].dtype == torch.int32


def test_bytes_of_states_and_sequences() -> None:
    weight, state = 2 * 8 * 4, 2 * 8 * 3
    by = {form: SEQUENCES.Problem(1, 8, (9, 2, 12), "cl", form) for form in ("cu_seqlens", "seq_idx", "paged")}
    both = 2 * 2 * 8 * 23 + weight
    assert prefill(by["cu_seqlens"]).traffic() == both + 4 * 4
    assert prefill(by["seq_idx"]).traffic() == both + 4 * 23
    # Starts, slots, flags; three states are written, two are read.
    assert prefill(by["paged"]).traffic() == both + 4 * 4 + 4 * 3 + 3 + 5 * state
    rows = SEQUENCES.Problem(2, 8, (9,), "cf", "states")
    assert prefill(rows).traffic() == 2 * 2 * 2 * 8 * 9 + weight + 2 * 2 * state


def test_slots_of_a_paged_call() -> None:
    given = prefill(SEQUENCES.Problem(1, 8, (1,) * 40, "cl", "paged"))
    slots = given.options["cache_indices"].tolist()
    assert len(set(slots)) == 40
    assert slots != sorted(slots)
    assert given.cache.shape == (80, 8, 3)
    assert given.cache.stride() == (24, 1, 8)
    assert given.options["has_initial_state"].sum() == 20


def test_calls_have_caches_of_their_own() -> None:
    workload = SEQUENCES.sequence_case(PROBLEMS["paged some cl"]).make(CPU)
    first = workload.ours()
    for call in (workload.peers["torch"], workload.ours):
        call()
    out = torch.empty_like(first)
    workload.write(out)
    assert torch.equal(out, first)
    assert not torch.equal(workload.ours(), first)


@pytest.mark.parametrize("name", ["states cf", "paged some cl"])
@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_wrong_state_is_not_timed(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    convolve = sluice.causal_conv1d

    def broken(*args: object, **options: object) -> object:
        result = convolve(*args, **options)
        states = result[1] if isinstance(result, tuple) else options["state_cache"]
        states[-1].fill_(value)
        return result

    monkeypatch.setattr(sluice, "causal_conv1d", broken)
    clock = ScriptedClock(1.0)
    with pytest.raises(WrongResultError, match="the states must have the bits"):
        run_case(SEQUENCES.sequence_case(PROBLEMS[name]), CPU, clock, FEW, lambda line: None)
    assert clock.calls == 0
