"""Suite `models` of the benchmarks and its networks, at small sizes on the CPU with a clock that answers by script."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import nn

from bench_documents import CPU, FEW, ScriptedClock, rows_of
from common import ROOT
from sluice import bench
from sluice.bench.check import WrongResultError, relative_error
from sluice.bench.runner import run_suite
from sluice.bench.schema import PEERS
from sluice.demo.weights import keep_levels

SUITE = bench.load_suite(ROOT, "models")
MODULE = sys.modules["bench_models"]
ZOO = importlib.import_module("model_zoo").ZOO
OWN = ["bigvgan", "whisper_stem"]  # without transformers
HERE = [name for name, entry in ZOO.items() if entry.missing() is None]
# Have rows in half types; test_signals_keep_their_level and tests/models/ run all networks in float16.
IN_HALF_TYPES = [name for name in HERE if name in (*OWN, "encodec_decoder", "conformer_convolution")]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No network of another test, and no gradients."""
    MODULE.subject.cache_clear()
    with torch.no_grad():
        yield


# --- the suite --------------------------------------------------------------------------------------------------------


def test_every_network_has_its_rows() -> None:
    assert set(OWN) <= set(HERE)
    for name in HERE:
        ways = [case.params["fn"] for case in SUITE.cases if case.params["op"] == name]
        graphs = [way + MODULE.IN_A_GRAPH for way in MODULE.WAYS] if ZOO[name].capturable else []
        assert ways == [*MODULE.WAYS, *graphs]
    (row,) = [case for case in SUITE.cases if case.name == "whisper_stem fp16 8x3000 replace"]
    assert row.params == {"B": 8, "L": 3000, "dtype": "fp16", "op": "whisper_stem", "fn": "replace"}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_replaced_networks(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = HERE if dtype == "fp32" else IN_HALF_TYPES
    right = [name for name in names if MODULE.subject(name, dtype, "small", CPU).error < 0.05]
    assert len(right) >= len(names) - 1  # oneDNN of torch 2.11 has wrong sums of bfloat16 in groups on some CPUs
    rows = rows_of("models", [MODULE.model_case(name, dtype, MODULE.REPLACE, "small") for name in right])
    for row in rows:
        compiled = {"torch_compile": None, "torch_compile_max_autotune": None}  # which a quick run leaves out
        assert row["peers"] == {"torch": 2.0, **compiled}
        assert set(row["peers"]) <= PEERS
        assert row["schedule"] == "model"
        assert row["floor_kind"] == "bytes"  # by the script a copy takes as long as we do
        assert 0 < row["rel_err"] < 0.15
    assert capsys.readouterr().out.count("torch: relative L2 error") == len(rows)


def test_every_way_and_every_peer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Compiled ways of the smallest network, and graphs, which the CPU has not, as plain calls."""
    captured = []
    monkeypatch.setattr(MODULE, "Captured", lambda call: captured.append(call) or call)
    ways = [*MODULE.WAYS, MODULE.REPLACE + MODULE.IN_A_GRAPH]
    effort = dataclasses.replace(FEW, slow_peers=True)
    rows = rows_of("models", [MODULE.model_case("whisper_stem", "fp32", way, "small") for way in ways], effort)
    both = {"torch", "torch_compile"}
    assert [set(row["peers"]) - both for row in rows] == [{"torch_compile_max_autotune"}, set(), set(),
                                                          {"torch_compile_max_autotune"}]  # fmt: skip
    assert all(us == 2.0 for row in rows for us in row["peers"].values())
    assert len(captured) == 4  # of the last row: ours and three peers
    said = [line.split(":")[0].strip() for line in capsys.readouterr().out.splitlines() if "relative L2" in line]
    assert set(said) == {"torch", "torch_compile", "torch_compile_max_autotune"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in HERE if ZOO[name].capturable])
def test_rows_in_graphs(cuda: str, name: str) -> None:
    """sluice's ways and eager torch can be captured, and replays are right."""
    case = MODULE.model_case(name, "fp16", MODULE.REPLACE + MODULE.IN_A_GRAPH, "small")
    suite = bench.Suite("models", [case])
    outcome = run_suite(suite, torch.device(cuda), ScriptedClock(2.0), FEW, lambda line: None)
    assert outcome.failures == []
    (row,) = outcome.rows
    assert row["peers"]["torch"] == 2.0


def test_a_wrong_network_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(network: nn.Module) -> object:
        network.conv2.weight.mul_(1.01)
        return dataclasses.make_dataclass("Replacement", ["model"])(network)

    monkeypatch.setattr(MODULE.sluice, "replace", spoiled)
    with pytest.raises(WrongResultError, match=r"whisper_stem, replace: .* must be at most"):
        MODULE.model_case("whisper_stem", "fp32", MODULE.REPLACE, "small").make(CPU)


def test_costs() -> None:
    network = nn.Sequential(
        nn.Conv1d(4, 6, 3, groups=2, bias=False), nn.ConvTranspose1d(6, 8, 4, stride=2, groups=2), nn.Flatten(1),
        nn.Linear(8 * 18, 5),
    )  # fmt: skip
    traffic, flops = MODULE.costs(network, torch.zeros(2, 4, 10))
    first, second, third = 2 * 6 * 8 * (2 * 3), 2 * 6 * 8 * (4 * 4), 2 * 5 * 144
    assert flops == 2 * (first + second + third)
    elements = (80 + 96 + 36) + (96 + 288 + 96) + (288 + 10 + 720)
    assert traffic == 4 * elements


def test_networks_that_are_missing_are_left_out_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = sys.modules["model_zoo"]
    monkeypatch.setattr(zoo, "_source", lambda folder: None if folder == "vits" else "class MimiEncoder(nn.Module):\n")
    with pytest.warns(UserWarning, match="suite models leaves") as warned:
        cases = MODULE._cases()
    assert {case.params["op"] for case in cases} == set(OWN)
    reasons = {str(warning.message).split(" out: ")[0].split()[-1]: str(warning.message) for warning in warned}
    assert reasons["vits_hifigan"].endswith("transformers is not installed, or has no vits")
    assert reasons["mimi_stream"].endswith("has no mimi.MimiConv1dPaddingCache")
    with pytest.raises(LookupError, match=r"vits_hifigan: transformers is not installed, or has no vits"):
        ZOO["vits_hifigan"].build("cpu", torch.float32)


# --- its networks -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", HERE)
def test_a_network_is_its_seeds(name: str) -> None:
    state = torch.random.get_rng_state()
    first, again, other = (ZOO[name].build("cpu", torch.float32, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not first.module.training
    assert not any(parameter.requires_grad for parameter in first.module.parameters())
    states = [built.module.state_dict() for built in (first, again, other)]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    weights = [key for key, value in states[0].items() if value.is_floating_point() and value.dim() == 3]
    assert weights
    assert not any(torch.equal(states[0][key], states[2][key]) for key in weights if states[0][key].numel() > 24)
    for one, same in zip(first.inputs, again.inputs, strict=True):
        assert torch.equal(one, same)
    assert first.inputs[0].shape != first.inputs[1].shape
    with pytest.raises(ValueError, match=r"size must be one of \('small', 'real'\), got 'large'"):
        ZOO[name].build("cpu", torch.float32, "large")


@pytest.mark.parametrize("name", HERE)
def test_signals_keep_their_level(name: str) -> None:
    """Errors of half types are then rounding errors: nothing overflows or vanishes."""
    built = ZOO[name].build("cpu", torch.float16)
    levels = []

    def look(layer: nn.Module, inputs: object, result: torch.Tensor) -> None:
        levels.append(float(result.float().square().mean().sqrt()))

    for layer in built.module.modules():
        if isinstance(layer, (nn.Conv1d, nn.ConvTranspose1d)):
            layer.register_forward_hook(look)
    result = built.module(built.inputs[0])
    assert result.isfinite().all()
    assert levels
    assert all(0.2 < level < 4 for level in levels), levels
    assert relative_error(result, MODULE.in_float64(built.module, built.inputs[0])) < 1e-2


def test_levels_are_those_of_the_input_that_was_given() -> None:
    network = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 5)), nn.BatchNorm1d(8), nn.Tanh(), nn.Conv1d(8, 8, 3)
    )
    with pytest.raises(ValueError, match="must be in eval mode"):
        keep_levels(network, torch.zeros(1, 4, 40))
    x = 100 * torch.randn(2, 4, 400)
    keep_levels(network.eval(), x)
    assert float(network[0](x).square().mean()) == pytest.approx(1.01, abs=0.05)  # and a bias of 0.1
    assert float(network(x).square().mean()) == pytest.approx(1.01, abs=0.05)
    assert not torch.equal(network[1].running_var, torch.ones(8))
    assert network[1].running_var.min() > 0.3
    assert len({id(module) for module in network.modules() if module._forward_hooks}) == 0


def test_old_weight_norm_is_scaled_too() -> None:
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Conv1d(4, 8, 5, bias=False))
    x = torch.randn(2, 4, 300)
    keep_levels(layer.eval(), x)
    assert float(layer(x).square().mean()) == pytest.approx(1.0, rel=1e-3)


def test_bigvgans_filters_halve_the_band() -> None:
    parts: ModuleType = sys.modules["model_parts"]
    taps = parts.low_pass()
    assert taps.shape == (1, 1, 12)
    assert torch.equal(taps, taps.flip(-1))
    assert float(taps.sum()) == pytest.approx(1.0, abs=1e-6)
    gain = torch.fft.rfft(taps.flatten().double(), 512).abs()
    assert gain[0] == pytest.approx(1.0, abs=1e-6)
    assert float(gain[128]) == pytest.approx(0.5, abs=0.05)  # a quarter of the rate
    assert float(gain[215:].max()) < 0.02
