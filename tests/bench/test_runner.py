"""The benchmark harness, as far as it runs without a GPU: schema, source hash, statistics, suites, command line."""

from __future__ import annotations

import dataclasses
import json
import math
import sys

import pytest
import torch

from bench_documents import CPU, FEW, ScriptedClock, good_document, good_row
from common import ROOT, SCHEDULES
from sluice import bench
from sluice.bench import cli
from sluice.bench.ceilings import Ceilings, measure_ceilings
from sluice.bench.check import WrongResultError
from sluice.bench.results import gpu_slug, write
from sluice.bench.runner import run_case, run_suite
from sluice.bench.schema import PARAMETERS, PEERS, SUITES, validate
from sluice.bench.timing import FULL, HostClock

pytestmark = pytest.mark.no_gpu


def pairs(**bad):
    return [(key, value) for key, values in bad.items() for value in values]


BAD_HEAD = pairs(suite=["elementwise", ["transform"]], gpu=[""], cuda=[None], date=["21.11.2026"], cases=[[], {}])
BAD_HEAD += pairs(source_hash=["0" * 63], copy_tbps=[0, math.nan], matmul_tflops=["780"], extra=[1])
BAD_CASE = pairs(params=[{}, {"dtype": "bfloat16"}, {"dtype": ["bf16"]}, {"layout": "nhwc"}, {"op": 1.5}, {"n": 2.0}])
BAD_CASE += pairs(params=[{"chain": "x"}, {"n": True}, {"n": -1}], peers=[[], {"triton": 7.0}, {"torch": 0}])
BAD_CASE += pairs(name=[""], time_us=[0, math.inf, True], floor_us=[None], floor_kind=["host"], efficiency=[0.5])
BAD_CASE += pairs(
    schedule=["auto", None], depth=[0, None], auto=[1], linked=[None], rel_err=[math.nan, -1.0], extra=[1]
)


class TestSchema:
    def test_accepts_each_floor_kind(self):
        for kind in ("bytes", "flops", "link"):
            validate(good_document(floor_kind=kind))

    @pytest.mark.parametrize("key", list(good_document()))
    def test_rejects_a_missing_key(self, key):
        document = good_document()
        del document[key]
        with pytest.raises(ValueError, match=key):
            validate(document)

    @pytest.mark.parametrize("key", list(good_row()))
    def test_rejects_a_missing_key_of_a_case(self, key):
        document = good_document()
        del document["cases"][0][key]
        with pytest.raises(ValueError, match=rf"cases\[0\] must have the keys.*{key}"):
            validate(document)

    @pytest.mark.parametrize(("key", "value"), BAD_HEAD)
    def test_rejects_a_bad_head(self, key, value):
        with pytest.raises(ValueError, match=key):
            validate(good_document() | {key: value})

    @pytest.mark.parametrize(("key", "value"), BAD_CASE)
    def test_rejects_a_bad_case(self, key, value):
        with pytest.raises(ValueError, match=key):
            validate(good_document(**{key: value}))

    def test_rejects_two_cases_of_one_name(self):
        with pytest.raises(ValueError, match="different names"):
            validate(good_document() | {"cases": [good_row(), good_row()]})

    @pytest.mark.parametrize("document", [None, [], "transform"])
    def test_rejects_what_is_no_object(self, document):
        with pytest.raises(ValueError, match="must be an object"):
            validate(document)

    def test_results_in_the_tree_are_valid(self):
        for path in sorted((ROOT / "benchmarks" / "results").glob("*/*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            validate(document)
            assert path.stem.partition(".")[0] == document["suite"]
            assert path.parent.name == gpu_slug(document["gpu"])


class TestWriting:
    def test_writes_what_it_was_given(self, tmp_path):
        document = good_document()
        path = write(tmp_path, document)
        assert path == tmp_path / "nvidia-h200" / "transform.json"
        assert json.loads(path.read_text(encoding="utf-8")) == document

    def test_writes_nothing_invalid(self, tmp_path):
        with pytest.raises(ValueError, match="suite"):
            write(tmp_path, good_document() | {"suite": "?"})
        assert list(tmp_path.iterdir()) == []

    def test_slug(self):
        assert gpu_slug("NVIDIA A100-SXM4-80GB") == "nvidia-a100-sxm4-80gb"
        assert gpu_slug("A  (B)") == "a-b"


def test_ceilings():
    ceilings = measure_ceilings(ScriptedClock(2.0), CPU, traffic=4000, side=8)
    assert ceilings == Ceilings(pytest.approx(4000 / 2e6), pytest.approx(2 * 8**3 / 2e6))
    assert ceilings.copy_tbps == pytest.approx(4000 / 2e-6 / 1e12)


def suite_names():
    return cli.suite_names(ROOT)


class TestSuites:
    def test_the_first_suites_are_there(self):
        assert {"transform", "conv1d_depthwise", "overhead"} <= set(suite_names()) <= SUITES

    @pytest.mark.parametrize("name", suite_names())
    def test_cases_are_listed_without_a_gpu(self, name):
        suite = bench.load_suite(ROOT, name)
        names = [case.name for case in suite.cases]
        assert len(set(names)) == len(names) > 0
        for case in suite.cases:
            assert set(case.params) <= PARAMETERS
            assert "dtype" in case.params
            validate(good_document(name, name=case.name, params=dict(case.params)))

    def test_the_required_rows_are_there(self):
        rows = [case.params for case in bench.load_suite(ROOT, "conv1d_depthwise").cases if case.auto]
        for layout in ("cf", "cl"):
            required = {"B": 8, "C": 5120, "L": 2048, "K": 4, "dtype": "bf16", "layout": layout, "fn": "silu"}
            assert sum(required.items() <= row.items() for row in rows) == 1
        rows = [case.params for case in bench.load_suite(ROOT, "transform").cases if case.auto]
        for offset in (0, 1):
            required = {"n": 2**26, "offset": offset, "dtype": "bf16", "op": "silu(1.5*x + 0.25) * 0.7"}
            assert sum(required.items() <= row.items() for row in rows) == 1


def module_of(suite):
    bench.load_suite(ROOT, suite)
    return sys.modules[f"bench_{suite}"]


def small_case(**changes):
    """A case of the suite `transform`, with another workload where `changes` says so."""
    case = module_of("transform").chain_case("fp32", 64)
    workload = dataclasses.replace(case.make(CPU), **changes)
    return dataclasses.replace(case, make=lambda device: workload)


class TestRunning:
    """Tiny cases of the real suites on the CPU, with a clock that answers by script."""

    def rows(self, suite, cases, effort=FEW):
        lines = []
        outcome = run_suite(bench.Suite(suite, cases), CPU, ScriptedClock(2.0, 3.0, 4.0), effort, lines.append)
        assert outcome.failures == []
        validate(good_document() | {"suite": suite, "cases": outcome.rows})
        assert len(lines) >= 1 + len(cases)
        return outcome.rows

    def test_transform(self):
        make = module_of("transform").chain_case
        cases = [make(dtype, 1003, offset=offset) for dtype in ("bf16", "fp16", "fp32") for offset in (0, 1)]
        cases += [make("bf16", 8192 * 4, op) for op in module_of("transform").OPS]
        cases += [make("bf16", 1003, schedule=name) for name in SCHEDULES]
        rows = self.rows("transform", cases)
        assert rows[0]["params"]["n"] == 1003
        assert rows[0]["time_us"] == 3.0
        assert rows[0]["efficiency"] == 1.0
        assert rows[0]["peers"] == {"torch": 3.0, "torch_compile": None, "jiterator": None, "copy": 3.0}
        assert set(rows[0]["peers"]) <= PEERS
        forced = [(row["auto"], row["schedule"]) for row in rows[-len(SCHEDULES) :]]
        assert forced == [(False, name) for name in SCHEDULES]
        (ring,) = [row for row in rows if row["name"] == "bf16 1003 silu(1.5*x + 0.25) * 0.7, multi_stage"]
        assert ring["depth"] == 1  # it has one tile

    def test_peers_that_cannot_run_are_null(self):
        def refuse():
            raise RuntimeError("no such\nGPU")

        case = small_case(peers={"torch": lambda: None, "jiterator": refuse, "cub": None})
        lines = []
        row, timings = run_case(case, CPU, ScriptedClock(2.0), FULL, lines.append)
        assert row["peers"] == {"torch": 2.0, "jiterator": None, "cub": None}
        assert set(timings) == {"sluice", "floor", "torch"}
        assert lines == ["    jiterator not measured: RuntimeError: no such"]

    def test_depthwise(self):
        make = module_of("conv1d_depthwise").depthwise_case
        rows = self.rows(
            "conv1d_depthwise",
            [make((2, 8, 50), 4, dtype, layout) for dtype in ("bf16", "fp16", "fp32") for layout in ("cf", "cl")]
            + [make((1, 3, 600), 511, "fp32", "cf")]
            + [make((2, 8, 50), 4, "bf16", "cl", schedule=name) for name in SCHEDULES],
        )
        assert set(rows[0]["peers"]) == {"torch", "torch_compile", "causal_conv1d"}
        assert [row["schedule"] for row in rows[-len(SCHEDULES) :]] == SCHEDULES
        assert all(row["floor_kind"] == "bytes" for row in rows)  # by the script a copy takes as long as we do

    def test_dense(self, monkeypatch):
        module = module_of("conv1d_dense")
        monkeypatch.setattr(module, "SEARCHED", [module.Shape(2, 6, 6, 40, 3, 1, 1)])
        cases = [module.dense_case((2, 6, 6, 40, 3, 1, 1), dtype, layout, fn)
                 for dtype in ("bf16", "fp16") for layout in ("cf", "cl")
                 for fn in (*module.BEHIND, *module.RESIDUAL)]  # fmt: skip
        cases += [module.dense_case((1, 3, 5, 30, 4, 2, 2), "bf16", "cl", "snake"),
                  module.dense_case((1, 8, 12, 30, 4, 2, 2, 3, 2), "fp16", "cf", "gelu")]  # fmt: skip
        rows = self.rows("conv1d_dense", cases)
        assert rows[-1]["name"] == "1x8x30 to 12 K=4 d=2 s=3 g=2 fp16 cf gelu"
        assert (rows[-1]["params"]["stride"], rows[-1]["params"]["groups"]) == (3, 2)
        assert set(rows[0]["peers"]) == {"torch", "conv2d_channels_last"}
        assert sum("torch_compile" in row["peers"] for row in rows) == 2

    def test_a_floor_by_tensor_cores(self):
        case = module_of("conv1d_dense").dense_case((1, 4, 4, 4096, 3, 1, 1), "bf16", "cf", "gelu")
        row, _ = run_case(case, CPU, ScriptedClock(0.0001), FEW, lambda line: None, matmul_tflops=0.001)
        assert row["floor_kind"] == "flops"
        assert row["floor_us"] == pytest.approx(2 * 4 * 4 * 4096 * 3 / 1e9 * 1e6, abs=1e-3)

    def test_a_floor_by_flops(self):
        case = module_of("conv1d_depthwise").depthwise_case((1, 4, 4096), 128, "fp32", "cf")
        row, _ = run_case(case, CPU, ScriptedClock(0.01), FEW, lambda line: None)
        assert row["floor_kind"] == "flops"
        assert row["floor_us"] == pytest.approx(2 * 4 * 4096 * 128 / 60e12 * 1e6, abs=1e-3)

    def test_overhead(self):
        suite = bench.load_suite(ROOT, "overhead")
        outcome = run_suite(suite, CPU, HostClock(CPU, calls=2), FEW, lambda line: None)
        assert outcome.failures == []
        validate(good_document() | {"suite": "overhead", "cases": outcome.rows})
        for row in outcome.rows:
            assert row["floor_us"] == row["peers"]["torch"]
        called = {row["params"]["fn"] for row in outcome.rows}
        package = "sluice.compat.causal_conv1d.causal_conv1d_"
        update = {"sluice.causal_conv1d_update", "torch.ops.sluice.causal_conv1d_update", f"{package}update"}
        assert update | {f"{package}fn"} <= called

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            ({"reference": lambda: torch.ones(64, dtype=torch.float64)}, "relative L2 error"),
            ({"write": lambda out: None}, "got nan"),
            ({"ours": lambda: torch.zeros(64)}, "same bits"),
        ],
    )
    def test_a_wrong_result_is_not_timed(self, broken, message):
        case = small_case(**broken)
        clock = ScriptedClock(1.0)
        with pytest.raises(WrongResultError, match=message):
            run_case(case, CPU, clock, FEW, lambda line: None)
        assert clock.calls == 0

    def test_torch_kernels_may_add_in_another_order(self):
        case = small_case()
        right = case.make(CPU)
        right = dataclasses.replace(right, plan=dataclasses.replace(right.plan, schedule="aten"))

        def scaled(factor):
            workload = dataclasses.replace(right, ours=lambda: right.ours() * factor)
            return dataclasses.replace(case, make=lambda device: workload)

        run_case(scaled(1 + 2**-22), CPU, ScriptedClock(1.0), FEW, lambda line: None)
        with pytest.raises(WrongResultError, match="relative L2 error"):
            run_case(scaled(1 + 2**-15), CPU, ScriptedClock(1.0), FEW, lambda line: None)

    def test_a_bad_case_does_not_stop_the_others(self):
        def fail(device):
            raise MemoryError("no room")

        right = small_case()
        cases = [dataclasses.replace(right, name="bad", make=fail), right]
        outcome = run_suite(bench.Suite("transform", cases), CPU, ScriptedClock(1.0), FEW, lambda line: None)
        assert outcome.failures == ["transform: bad: MemoryError: no room"]
        assert [row["name"] for row in outcome.rows] == [right.name]


class TestCommandLine:
    def test_names_that_are_not_there(self, capsys):
        assert bench.main(["elementwise"]) == 2
        assert "unknown suite 'elementwise'" in capsys.readouterr().err
        assert bench.main(["transform", "--only", "int8"]) == 2
        assert "'int8'" in capsys.readouterr().err

    def test_list(self, capsys):
        assert bench.main(["transform", "--list", "--only", "fp16 2^26 silu(1.5"]) == 0
        assert capsys.readouterr().out == "transform: fp16 2^26 silu(1.5*x + 0.25) * 0.7, offset 1\n"

    def test_no_gpu(self, capsys, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert bench.main(["transform", "--quick"]) == 2
        assert "needs a CUDA device" in capsys.readouterr().err

    def test_no_cuda_kernels(self, capsys, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(cli._library, "cuda_unavailable_reason", "it was built without CUDA")
        assert bench.main(["transform"]) == 2
        assert "it was built without CUDA" in capsys.readouterr().err

    def test_no_checkout(self, capsys, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(bench.checkout_root.__globals__, "__file__", str(tmp_path / "source_hash.py"))
        assert bench.main(["transform"]) == 2
        assert "checkout" in capsys.readouterr().err

    def test_a_file_without_a_suite(self, tmp_path):
        (tmp_path / "benchmarks").mkdir()
        (tmp_path / "benchmarks" / "bench_decode.py").write_text("SUITE = 1\n")
        with pytest.raises(cli.BenchError, match="must define SUITE"):
            bench.load_suite(tmp_path, "decode")

    def test_bad_option(self):
        with pytest.raises(SystemExit) as stop:
            bench.main(["--fast"])
        assert stop.value.code == 2

    def test_a_run_on_the_cpu_needs_no_gpu(self, monkeypatch, tmp_path):
        cases = [module_of("cpu").chain_case("fp32", 64, "1.5 * x", torch.get_num_threads())]
        suite = dataclasses.replace(module_of("cpu").SUITE, cases=cases)
        monkeypatch.setattr(cli, "load_suite", lambda root, name: suite)
        monkeypatch.setattr(cli, "FULL", FEW)
        assert bench.main(["cpu", "--output", str(tmp_path)]) == 0
        document = json.loads((tmp_path / "cpu" / "cpu.json").read_text(encoding="utf-8"))
        validate(document)
        assert document["gpu"] == "cpu"
        assert document["cuda"] == "none"
        assert document["cases"][0]["peers"].keys() == {"torch", "torch_compile", "clone"}

    def test_a_run_writes_its_results(self, monkeypatch, tmp_path, capsys):
        suite = bench.Suite(
            "transform", [module_of("transform").chain_case("fp32", 64)], lambda device: ScriptedClock(5.0)
        )
        monkeypatch.setattr(cli, "load_suite", lambda root, name: suite)
        monkeypatch.setattr(cli, "_device", lambda kind: CPU)
        monkeypatch.setattr(cli, "ColdClock", lambda device: ScriptedClock(5.0))
        monkeypatch.setattr(cli, "measure_ceilings", lambda clock, device: Ceilings(4.22, 780.0))
        monkeypatch.setattr(cli, "FULL", FEW)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        assert bench.main(["transform", "--quick", "--output", str(tmp_path)]) == 0
        assert list(tmp_path.iterdir()) == []
        assert bench.main(["transform", "--output", str(tmp_path)]) == 0
        document = json.loads((tmp_path / "nvidia-h200" / "transform.json").read_text(encoding="utf-8"))
        validate(document)
        assert document["source_hash"] == bench.source_hash(ROOT)
        assert document["cases"][0]["time_us"] == 5.0
        assert "wrote" in capsys.readouterr().out
