"""Suite `codecs` of the benchmarks, at small sizes on the CPU with a clock that answers by script."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import codec_tables
import sluice
import write_results
from bench_documents import CPU, FEW, ScriptedClock, good_document, rows_of
from common import ROOT
from sluice import bench
from sluice.bench.check import WrongResultError, relative_error
from sluice.bench.runner import run_case, run_suite
from sluice.bench.schema import PEERS

SUITE = bench.load_suite(ROOT, "codecs")
LAYERS, STREAMS, PARTS, ZOO, CLOCK = (
    importlib.import_module(name)
    for name in ("codec_layers", "codec_streams", "codec_parts", "codec_zoo", "direct_clock")
)
HERE = [name for name, entry in ZOO.CODECS.items() if entry.missing() is None]
NAMES = ["sluice_eager", "torch", "torch_graph", "torch_compile"]
WITH_COMPILERS = dataclasses.replace(FEW, slow_peers=True)

CONV, TRANSPOSED = "causal_conv1d", "causal_conv_transpose1d"
# Chunks that are shorter than the state, as long, and longer.
SMALL = [
    *(LAYERS.Layer(CONV, batch, 12, 20, length, 7, 1) for batch, length in ((1, 1), (3, 6), (2, 8))),
    *(LAYERS.Layer(CONV, batch, 6, 10, length, 8, 4) for batch, length in ((1, 4), (2, 12))),
    *(LAYERS.Layer(TRANSPOSED, batch, 12, 6, length, 8, 4) for batch, length in ((1, 1), (3, 5))),
    LAYERS.Layer(TRANSPOSED, 2, 6, 5, 1, 10, 2),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No network of another test, and no gradients."""
    STREAMS.release()
    with torch.no_grad():
        yield
    STREAMS.release()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """CUDA graphs, which the CPU has not, are plain calls, and torch.compile runs dynamo alone; what was compiled."""
    compile_, found = torch.compile, []

    def by_dynamo(function: object, **options: object) -> object:
        options.pop("mode", None)
        return compile_(function, backend=lambda graph, inputs: found.append(graph) or graph.forward, **options)

    monkeypatch.setattr(torch, "compile", by_dynamo)
    monkeypatch.setattr(STREAMS, "Captured", lambda network: network)
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


def ids(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


# --- the suite --------------------------------------------------------------------------------------------------------
def test_the_required_layers_are_there() -> None:
    rows = [case.params for case in SUITE.cases if "Cin" in case.params]
    numbers = [
        *((CONV, 512, 512, 7, 1, length, batch) for length in (1, 8) for batch in (1, 16)),
        *((CONV, 512, 1024, 16, 8, length, batch) for length in (8, 16) for batch in (1, 8)),
        *((TRANSPOSED, 512, 256, 16, 8, length, batch) for length in (1, 8) for batch in (1, 16)),
    ]
    assert len(rows) == len(numbers) * len(bench.DTYPES)
    for values in numbers:
        wanted = dict(zip(("op", "Cin", "Cout", "K", "stride", "L", "B"), values, strict=True))
        assert {row["dtype"] for row in rows if wanted.items() <= row.items()} == set(bench.DTYPES)
    names = [case.name for case in SUITE.cases]
    assert {"16x512x8 to 512 K=7 tf32", "8x512x16 to 1024 K=16 s=8 fp32"} <= set(names)
    assert "1x512x1 to 256 K=16 s=8 transposed bf16" in names


def test_every_network_has_its_rows() -> None:
    steps = {"mimi_encoder": 1920, "mimi_decoder": 1, "encodec_encoder": 1920, "encodec_decoder": 6, "code2wav": 4}
    assert steps.keys() == ZOO.CODECS.keys()
    for name in HERE:
        rows = [case for case in SUITE.cases if case.part == name]
        assert [(row.params["dtype"], row.params["B"]) for row in rows] == [
            *(("fp32", 1), ("fp32", 8), ("bf16", 1), ("bf16", 8))
        ]
        assert {row.params["L"] for row in rows} == {steps[name]}
        assert all(row.allows_tf32 is None for row in rows)
    assert list(SUITE.parts()) == ["dense", "strided", "transposed", *HERE]
    assert not SUITE.cudnn_benchmark


def test_networks_that_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["model_zoo"], "_source", lambda folder: None)
    with pytest.warns(UserWarning, match="suite codecs leaves") as warned:
        assert STREAMS.stream_cases() == []
    said = [str(warning.message) for warning in warned]
    assert "suite codecs leaves mimi_encoder out: transformers is not installed, or has no mimi" in said
    assert len(said) == len(ZOO.CODECS)


def test_direct_calls_are_timed_in_blocks_and_others_in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SUITE.clock is CLOCK.StepClock
    clock, calls = CLOCK.StepClock(CPU), []
    monkeypatch.setattr(clock, "_in_graphs", ScriptedClock(7.0))
    monkeypatch.setattr(clock, "_in_blocks", ScriptedClock(50.0))
    assert clock.measure(lambda: calls.append(1), 3) == [7.0] * 3
    assert len(calls) == 1
    assert clock.measure(CLOCK.Direct(lambda: calls.append(1)), 2) == [2.0] * 2
    assert len(calls) == 1 + CLOCK.STEPS == 26
    assert all(us > 0 for us in CLOCK.StepClock(CPU).measure(CLOCK.Direct(lambda: None), 2))


# --- layers -----------------------------------------------------------------------------------------------------------
def test_small_layers_run(graphs: list[object]) -> None:
    dtypes = [(layer, dtype) for layer in SMALL for dtype in bench.DTYPES]
    rows = rows_of("codecs", [LAYERS.layer_case(*each, "dense") for each in dtypes], WITH_COMPILERS)
    assert rows[0]["name"] == "1x12x1 to 20 K=7 bf16"
    assert rows[-1]["name"] == "2x6x1 to 5 K=10 s=2 transposed tf32"
    for row in rows:
        assert row["peers"] == dict.fromkeys(NAMES, 2.0)
        assert (row["schedule"], row["floor_kind"], row["linked"]) == ("chunk", "bytes", False)
    assert set(NAMES) <= PEERS
    assert len(graphs) == len(rows)


def test_what_is_timed_in_a_graph() -> None:
    workload = LAYERS.layer_case(SMALL[0], "fp32", "dense").make(CPU)
    direct = {name for name, call in workload.peers.items() if isinstance(call, CLOCK.Direct)}
    assert direct == {"sluice_eager", "torch"}
    assert not isinstance(workload.ours, CLOCK.Direct)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("layer", SMALL, ids=ids)
def test_layers_by_hand_are_the_definition(layer: LAYERS.Layer, dtype: str) -> None:
    step = LAYERS.Step(layer, dtype, CPU)
    function, arguments = step.by_hand()
    tolerance = 4 * LAYERS.tolerance_of(dtype)
    state = step.state.clone()
    for _ in range(3):  # each finds what the step before has left
        expected = step.expected[0]
        assert relative_error(function(*arguments), expected) <= tolerance
        assert relative_error(step.run(state), expected) <= tolerance
        step.check_state(state, tolerance)
        step.state = step.expected[1].to(step.state.dtype)
        step.__dict__.pop("expected")


def test_bytes_and_products_of_layers() -> None:
    plain = LAYERS.layer_case(LAYERS.Layer(CONV, 3, 12, 20, 8, 8, 4), "bf16", "strided").make(CPU)
    states = 2 * 3 * 12 * 4
    assert plain.traffic == 2 * (20 * 12 * 8 + 20 + 3 * 12 * 8 + 3 * 20 * 2 + states) + 4 * 3
    assert plain.matmul_flops == 2 * 3 * 20 * 2 * 12 * 8
    spread = LAYERS.layer_case(LAYERS.Layer(TRANSPOSED, 3, 12, 20, 2, 8, 4), "bf16", "transposed").make(CPU)
    sums = 2 * 3 * 20 * 4
    assert spread.traffic == 2 * (20 * 12 * 8 + 20 + 3 * 12 * 2 + 3 * 20 * 8) + 4 * sums + 4 * 3
    assert spread.matmul_flops == 2 * 3 * 12 * 2 * 20 * 8


@pytest.mark.parametrize("op", [CONV, TRANSPOSED])
@pytest.mark.parametrize("spoil", ["kept", "one column", "another slot"])
def test_a_wrong_state_is_not_timed(op: str, spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = getattr(sluice, op)

    def broken(*args: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
        cache = options["state_cache" if op == CONV else "overlap_cache"]
        before = cache.clone()
        result = function(*args, **options)
        used = options["cache_indices"].long()
        unused = [slot for slot in range(len(cache)) if slot not in used.tolist()]
        if spoil == "kept":
            cache.copy_(before)
        else:
            cache[used if spoil == "one column" else unused, :, 0] += 1
        return result

    monkeypatch.setattr(sluice, op, broken)
    clock = ScriptedClock(1.0)
    with pytest.raises(WrongResultError, match=r"the state must have the bits|overlaps must have an error"):
        run_case(LAYERS.layer_case(LAYERS.Layer(op, 2, 6, 5, 4, 8, 4), "fp32", "dense"), CPU, clock, FEW, print)
    assert clock.calls == 0


def torch_is_right(name: str) -> bool:
    """Whether eager torch's network of bfloat16 is near float64's: torch 2.11's encoders are not on every CPU."""
    network, (x, _) = ZOO.CODECS[name].build("cpu", torch.bfloat16, ZOO.size_of(name, 3, "small"))
    return relative_error(network(x), copy.deepcopy(network).double()(x.double())) < 0.15


# --- networks ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_small_networks(dtype: str, graphs: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """Ours and all peers are near the whole run; the networks by hand compile without a graph break."""
    if not HERE:
        pytest.skip("transformers has no codec")
    names = [name for name in HERE if dtype == "fp32" or torch_is_right(name)]
    if not names:
        pytest.skip("torch's convolutions of bfloat16 are wrong on this CPU")
    rows = rows_of("codecs", [STREAMS.stream_case(name, dtype, 3, "small") for name in names], WITH_COMPILERS)
    assert [row["params"]["op"] for row in rows] == names
    for row in rows:
        assert row["peers"] == dict.fromkeys(NAMES, 2.0)
        assert row["schedule"] == "model"
        assert 0 < row["rel_err"] < (1e-5 if dtype == "fp32" else 0.15)
    assert len(graphs) == len(rows)
    assert capsys.readouterr().out.count("relative L2 error") == len(NAMES) * len(rows)


@pytest.mark.gpu
@pytest.mark.parametrize("name", HERE)
def test_rows_in_graphs(cuda: str, name: str) -> None:
    """Steps of sluice, by hand and compiled can be captured, and replays are right."""
    suite = bench.Suite("codecs", [STREAMS.stream_case(name, "bf16", 3, "small")])
    outcome = run_suite(suite, torch.device(cuda), ScriptedClock(2.0), WITH_COMPILERS, print)
    assert outcome.failures == [], outcome.failures
    peers = dict(outcome.rows[0]["peers"])
    if name.startswith("encodec"):  # torch 2.11 does not compile an LSTM of bfloat16 on a GPU
        assert peers["torch_compile"] in (2.0, None)
        peers["torch_compile"] = 2.0
    assert peers == dict.fromkeys(NAMES, 2.0)


@pytest.mark.gpu
def test_layers_in_graphs(cuda: str) -> None:
    """By the suite's clock, which captures ours, the floor and peers."""
    cases = [LAYERS.layer_case(layer, dtype, "dense") for layer in SMALL[::3] for dtype in ("fp16", "tf32")]
    device = torch.device(cuda)
    outcome = run_suite(bench.Suite("codecs", cases), device, CLOCK.StepClock(device), WITH_COMPILERS, print)
    assert outcome.failures == []
    assert all(us is not None for row in outcome.rows for us in row["peers"].values())


@pytest.mark.parametrize("name", HERE)
def test_networks_by_hand_are_the_whole_run(name: str) -> None:
    size = ZOO.size_of(name, 2, "small")
    found = STREAMS.Subject(name, "fp32", size, CPU)
    results = [torch.cat(found.results(way), dim=-1) for way in (STREAMS.BY_HAND, STREAMS.EAGER)]
    lead, length = found.stream.lead, found.reference.shape[-1] // len(found.chunks)
    assert 0 < found.error < 1e-5
    assert relative_error(results[1][..., lead:], found.reference) < 1e-5
    if lead == 0:
        assert relative_error(results[0], found.reference) < 1e-5
    assert relative_error(results[0][..., -length:], found.reference[..., -length:]) < 1e-5
    if lead > 0:  # the last chunk does not see the beginning, which is another there
        assert found.stream.receptive_field <= size.lengths[0] - size.lengths[1]
    found.rewind(STREAMS.BY_HAND)
    assert torch.equal(found.step(STREAMS.BY_HAND), results[0][..., -found.last().shape[-1] :])


def test_a_wrong_network_is_not_timed(monkeypatch: pytest.MonkeyPatch, graphs: list[object]) -> None:
    if not HERE:
        pytest.skip("transformers has no codec")
    case = STREAMS.stream_case(HERE[0], "fp32", 2, "small")
    row, _ = run_case(case, CPU, ScriptedClock(2.0), FEW, print)
    assert row["peers"]["torch"] == 2.0
    with monkeypatch.context() as patched:
        right = PARTS.convolved_chunk
        patched.setattr(PARTS, "convolved_chunk", lambda x, state, *rest: right(x, torch.zeros_like(state), *rest))
        lines: list[str] = []
        row, _ = run_case(case, CPU, ScriptedClock(2.0), FEW, lines.append)
    assert row["peers"]["torch"] is None
    assert any("torch not measured" in line for line in lines)
    streaming = sluice.streaming

    def spoiled(module: nn.Module, **options: int) -> object:
        other = copy.deepcopy(module)
        next(other.parameters()).mul_(1.01)
        return streaming(other, **options)

    monkeypatch.setattr(sluice, "streaming", spoiled)
    with pytest.raises(WrongResultError, match=r"sluice_eager: relative L2 error must be at most"):
        case.make(CPU)


def test_other_convolutions_have_no_version_by_hand() -> None:
    with pytest.raises(ValueError, match=r"by_hand: convolutions must be in .* got 0\.0"):
        PARTS.by_hand(nn.Sequential(nn.Conv1d(2, 2, 3, padding=1)), 1)
    with pytest.raises(ValueError, match=r"by_hand: an LSTM must have torch's default options"):
        PARTS.by_hand(nn.Sequential(nn.LSTM(2, 2, batch_first=True)), 1)


def test_costs_of_networks() -> None:
    class MimiConv1d(nn.Module):
        def __init__(self, conv: nn.Module) -> None:
            super().__init__()
            self.conv = conv

    class MimiConvTranspose1d(MimiConv1d):
        pass

    class Turned(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.mT)

    layers = MimiConv1d(nn.Conv1d(4, 6, 3, groups=2)), MimiConvTranspose1d(nn.ConvTranspose1d(6, 8, 4, stride=2))
    hand = PARTS.by_hand(nn.Sequential(*layers, Turned(8, 5)), 2)
    traffic, flops = PARTS.costs(hand, torch.zeros(2, 4, 10))
    assert flops == 2 * (2 * 6 * 10 * (2 * 3) + 2 * 6 * 10 * (8 * 4) + 2 * 20 * 5 * 8)
    first = 2 * 4 * 10 + 2 * 6 * 10 + 6 * 2 * 3 + 6 + 2 * (2 * 4 * 2)
    second = 2 * 6 * 10 + 2 * 8 * 20 + 6 * 8 * 4 + 8 + 2 * (2 * 8 * 2)
    third = 2 * 8 * 20 + 2 * 5 * 20 + 5 * 8 + 5
    assert traffic == 4 * (first + second + third)


# --- the table --------------------------------------------------------------------------------------------------------
def test_its_tables() -> None:
    outcome = run_suite(
        bench.Suite("codecs", [LAYERS.layer_case(SMALL[0], "fp32", "dense")]), CPU, ScriptedClock(2.125), FEW, print
    )
    row = outcome.rows[0] | {"rel_err": 1e-7}
    network = row | {"name": "a codec", "params": {"B": 8, "L": 4, "dtype": "bf16", "op": "a", "fn": "streaming"}}
    network |= {"peers": dict.fromkeys(NAMES, 4.25), "time_us": 100.0}
    document = good_document("codecs") | {"cases": [row, network]}
    assert write_results.FORMS["codecs"] == (write_results.RESULTS, codec_tables.codecs)
    head, _, said, layers, of_networks, networks = codec_tables.codecs(document).split("\n\n")
    assert head.startswith("**codecs**, NVIDIA H200")
    assert said.startswith("Layers, microseconds a call among 100 in a graph, warm")
    assert layers.splitlines()[2] == (
        "| 1x12x1 to 20 K=7 fp32 | 2.12 | 2.12 | 1.00 | 2.12 (1.00) | 2.12 (1.00) | 2.12 (1.00) | – | 1.0e-07 |"
    )
    assert of_networks == "Networks, milliseconds for 25 steps, a graph each."
    assert networks.splitlines()[2].startswith("| a codec | 2.50 | 0.05 | 1.00 | 0.11 (0.04) |")
    assert codec_tables.STEPS == CLOCK.STEPS
    assert codec_tables.PEERS.keys() == set(NAMES)
