"""Suite `models` of the benchmarks and its networks, at small sizes on the CPU with a clock that answers by script."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import sys
import types
from collections.abc import Callable, Iterator

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
COMPILES = importlib.import_module("compile_models")
OWN = ["bigvgan", "whisper_stem", "tcn", "wavenet"]  # without transformers
HERE = [name for name, entry in ZOO.items() if entry.missing() is None]
# Traced within seconds; tests/models/ replaces all networks.
QUICK = [name for name in HERE if name in ("whisper_stem", "wavenet", "conformer_convolution")]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No network of another test, and no gradients."""
    MODULE.release()
    with torch.no_grad():
        yield
    MODULE.release()


def small_case(name: str, dtype: str, way: str, batch: int = 2) -> bench.Case:
    return MODULE.model_case(name, dtype, batch, way, ZOO[name].size("small"))


# --- the suite --------------------------------------------------------------------------------------------------------


def test_every_network_has_its_rows() -> None:
    assert set(OWN) <= set(HERE)
    assert set(MODULE.USERS) <= set(ZOO)
    for name in HERE:
        own = [case for case in SUITE.cases if case.params["op"] == name]
        rows = {(case.params["dtype"], case.params["B"], case.params["fn"]) for case in own}
        assert len(rows) == len(own)
        batches = {MODULE.REPLACE: (1, 8), MODULE.GRAPHS: (1, 8)}
        batches |= dict.fromkeys((MODULE.BACKEND, MODULE.REDUCED), (1, 8) if name in MODULE.USERS else (1,))
        assert rows == {(d, b, way) for d in ("fp32", "fp16") for way, found in batches.items() for b in found}
        assert {case.params["L"] for case in own} == {ZOO[name].user}
    (row,) = [case for case in SUITE.cases if case.name == "whisper_stem fp16 8x3000: replace, CUDA graphs"]
    assert row.params == {"B": 8, "L": 3000, "dtype": "fp16", "op": "whisper_stem", "fn": "replace, CUDA graphs"}


def test_what_users_asked_about_comes_first() -> None:
    users = [name for name in MODULE.USERS if name in HERE]
    parts = list(SUITE.parts())
    assert parts[: 2 * len(users)] == [*users, *(f"{name}_compiled_1" for name in users)]
    assert not SUITE.cudnn_benchmark


def test_the_cpu_has_rows_in_float32() -> None:
    found = SUITE.on_cpu()
    assert found.device == "cpu"
    assert list(found.parts()) == [name for name in MODULE.ON_CPU if name in HERE]
    assert {(case.params["dtype"], case.params["B"]) for case in found.cases} == {("fp32", 1)}
    assert [case.params["fn"] for case in found.parts()["tcn"].cases] == [MODULE.REPLACE, MODULE.BACKEND]


@pytest.mark.parametrize("name", HERE)
def test_eager_torch_is_close_to_float64(name: str) -> None:
    found = MODULE.subject(name, "fp32", ZOO[name].size("small"), CPU)
    assert 0 < found.error < 1e-4
    assert MODULE.subject(name, "fp32", ZOO[name].size("small"), CPU) is found
    assert min(MODULE.costs(found.module, found.x)) > 0


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_replaced_networks(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of("models", [small_case(name, dtype, MODULE.REPLACE) for name in QUICK])
    for row in rows:
        assert row["peers"] == {"torch": 2.0}
        assert row["schedule"] == "model"
        assert row["floor_kind"] == "bytes"  # by the script a copy takes as long as we do
        assert 0 < row["rel_err"] < 0.15
    assert capsys.readouterr().out.count("torch: relative L2 error") == len(rows)


def test_every_way_and_every_peer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Compiled ways of the smallest network, and graphs, which the CPU has not, as plain calls."""
    captured = []
    monkeypatch.setattr(MODULE, "Captured", lambda network: captured.append(network) or network)
    effort = dataclasses.replace(FEW, slow_peers=True)
    rows = rows_of("models", [small_case("whisper_stem", "fp32", way) for way in MODULE.WAYS], effort)
    assert [tuple(row["peers"]) for row in rows] == [*MODULE.WAYS.values()]
    assert {peer for row in rows for peer in row["peers"]} <= PEERS
    assert all(us == 2.0 for row in rows for us in row["peers"].values())
    assert len(captured) == 1
    said = [line.split(":")[0].strip() for line in capsys.readouterr().out.splitlines() if "relative L2" in line]
    assert said == [peer for peers in MODULE.WAYS.values() for peer in peers]


def test_the_way_in_a_graph_has_no_graph_of_eager_that_waits_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ZOO, "whisper_stem", dataclasses.replace(ZOO["whisper_stem"], capturable=False))
    assert list(small_case("whisper_stem", "fp32", MODULE.GRAPHS).make(CPU).peers) == ["torch"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", HERE)
def test_rows_in_graphs(cuda: str, name: str) -> None:
    """sluice's way and eager torch can be captured, and replays are right."""
    suite = bench.Suite("models", [small_case(name, "fp16", MODULE.GRAPHS)])
    outcome = run_suite(suite, torch.device(cuda), ScriptedClock(2.0), FEW, lambda line: None)
    assert outcome.failures == []
    (row,) = outcome.rows
    assert row["peers"] == {"torch": 2.0} | ({"torch_graph": 2.0} if ZOO[name].capturable else {})


@pytest.mark.gpu
def test_rows_that_overwrite_their_results(cuda: str) -> None:
    suite = bench.Suite("models", [small_case("whisper_stem", "fp16", MODULE.REDUCED)])
    effort = dataclasses.replace(FEW, slow_peers=True)
    outcome = run_suite(suite, torch.device(cuda), ScriptedClock(2.0), effort, lambda line: None)
    assert outcome.failures == []
    (row,) = outcome.rows
    assert row["peers"] == {"torch": 2.0, "torch_compile_reduce_overhead": 2.0}


def test_a_wrong_network_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(network: nn.Module) -> object:
        network.conv2.weight.mul_(1.01)
        return dataclasses.make_dataclass("Replacement", ["model"])(network)

    monkeypatch.setattr(MODULE.sluice, "replace", spoiled)
    with pytest.raises(WrongResultError, match=r"whisper_stem, replace: .* must be at most"):
        small_case("whisper_stem", "fp32", MODULE.REPLACE).make(CPU)


# --- what is compiled ahead -------------------------------------------------------------------------------------------


def test_jobs_of_the_parts_that_are_compiled_ahead() -> None:
    assert COMPILES.jobs(["tcn_compiled_8"]) == [
        ("tcn", dtype, 8, compiler) for dtype in ("fp32", "fp16") for compiler in ("torch", "sluice")
    ]
    users = [name for name in MODULE.USERS if name in HERE]
    assert len(COMPILES.jobs([])) == len(users) * 2 * 2 * 2
    assert {name for name, *_ in COMPILES.jobs([])} == set(users)
    with pytest.raises(ValueError, match=r"parts must be among .*tcn_compiled_1.*, got 'tcn'"):
        COMPILES.jobs(["tcn"])
    assert {way for ways in COMPILES.WAYS.values() for way in ways} == {
        *(MODULE.BACKEND, MODULE.REDUCED, MODULE.COMPILED, MODULE.REDUCED_PEER)
    }


def test_a_job_compiles_both_modes_and_says_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(way: str) -> Callable[[], None]:
        def run() -> None:
            if way == MODULE.REDUCED:
                raise RuntimeError("no mode\nat all")

        return run

    asked = []
    monkeypatch.setitem(sys.modules, "bench_models", MODULE)  # other tests load it again
    monkeypatch.setattr(MODULE, "subject", lambda *given: asked.append(given) or types.SimpleNamespace(call=call))
    said = COMPILES.compile_one(("tcn", "fp16", 8, "sluice"))
    assert said == "backend 0 s; backend, reduce-overhead raised RuntimeError: no mode"
    ((name, dtype, size, _),) = asked
    assert (name, dtype, size.batch, size.lengths[0]) == ("tcn", "fp16", 8, 2000)


def test_a_job_has_a_process_that_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], env: dict[str, str], **options: object) -> types.SimpleNamespace:
        assert command[1:] == [COMPILES.__file__, "--job", *job[:2], "8", job[3]]
        assert env["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
        return ends.pop()

    job = ("tcn", "fp16", 8, "torch")
    died = types.SimpleNamespace(returncode=-6, stdout="", stderr="a trace\nout of memory\n")
    ends = [died, types.SimpleNamespace(returncode=0, stdout="a warning\ntorch_compile 3 s\n", stderr="")]
    monkeypatch.setattr(COMPILES.subprocess, "run", run)
    assert COMPILES.in_a_process(job, float("inf")) == "torch_compile 3 s"
    assert COMPILES.in_a_process(job, float("inf")) == "exit status -6: out of memory"
    assert COMPILES.in_a_process(job, 0.0) == "not begun"


def test_choices_of_configurations_are_forgotten(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for name in ("ab/chosen.best_config", "ab/kernel.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    COMPILES.forget_choices()
    assert [path.name for path in tmp_path.glob("*/*")] == ["kernel.py"]


# --- costs, and what is left out --------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match=r"size must be one of \('small', 'real', 'user'\), got 'large'"):
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


def test_the_users_size_is_one_request_of_the_real_network() -> None:
    for entry in ZOO.values():
        size = entry.size("user")
        assert size.options is entry.real.options
        assert (size.batch, size.lengths[0]) == (1, entry.user)
        assert entry.size(size._replace(batch=3)).batch == 3
    assert [x.shape for x in ZOO["tcn"].inputs("cpu", torch.float32, "user")] == [(1, 80, 2000), (1, 80, 1500)]


def test_a_tcns_norms_have_statistics_of_their_own_and_it_is_causal() -> None:
    built = ZOO["tcn"].build("cpu", torch.float64)
    norms = [module for module in built.module.modules() if isinstance(module, nn.BatchNorm1d)]
    assert len(norms) == 6
    for norm in norms:
        assert norm.running_mean.abs().max() > 0.05
        assert 0.3 < norm.running_var.min() < norm.running_var.max() < 1.7
    x = built.inputs[0]
    changed = x.clone()
    changed[..., 40:] += 1
    differs = (built.module(x) != built.module(changed)).any(dim=1).any(dim=0)
    assert not differs[:40].any()
    assert differs[40:].any()


def test_a_wavenets_layers_are_gated_and_summed() -> None:
    built = ZOO["wavenet"].build("cpu", torch.float64)
    net, x = built.module, built.inputs[0]
    y, total = net.first(x), 0.0
    for number, (dilated, mixed) in enumerate(zip(net.dilated, net.mixed, strict=True)):
        a, b = dilated(y).chunk(2, dim=1)
        z = mixed(a.tanh() * b.sigmoid())
        if number < len(net.mixed) - 1:
            rest, z = z.chunk(2, dim=1)
            y = y + rest
        total = total + z
    torch.testing.assert_close(net(x), net.last(total))
    assert [layer.dilation for layer in net.dilated] == [(1,), (2,), (4,)]


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
    parts: types.ModuleType = sys.modules["model_parts"]
    taps = parts.low_pass()
    assert taps.shape == (1, 1, 12)
    assert torch.equal(taps, taps.flip(-1))
    assert float(taps.sum()) == pytest.approx(1.0, abs=1e-6)
    gain = torch.fft.rfft(taps.flatten().double(), 512).abs()
    assert gain[0] == pytest.approx(1.0, abs=1e-6)
    assert float(gain[128]) == pytest.approx(0.5, abs=0.05)  # a quarter of the rate
    assert float(gain[215:].max()) < 0.02
