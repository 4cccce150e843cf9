"""Suite `random` and its generator, as far as they run without a GPU."""

from __future__ import annotations

import collections
import importlib
from types import ModuleType

import pytest
import torch

import write_results
from common import ROOT
from sluice import bench
from sluice.bench.runner import run_suite
from sluice.bench.timing import Effort

pytestmark = pytest.mark.no_gpu
CPU = torch.device("cpu")
FEW = Effort(rounds=1, samples=1, warm_up=0, slow_peers=False)


class ConstantClock:
    def measure(self, call, samples):
        call()
        return [4.0] * samples


@pytest.fixture(scope="module")
def module() -> ModuleType:
    bench.load_suite(ROOT, "random")
    return importlib.import_module("random_cases")


def elements(case: bench.Case) -> int:
    sizes = [case.params[name] for name in ("B", "C", "Cin", "L", "H", "W") if name in case.params]
    return int(torch.tensor(sizes).prod())


def test_a_case_is_its_seeds(module: ModuleType) -> None:
    for family in module.FAMILIES:
        first, again = (list(module.cases(family, 7, 20)) for _ in range(2))
        assert [(case.name, case.params) for case in first] == [(case.name, case.params) for case in again]
        assert len({case.name for case in first}) == 20
        assert len({case.params["layout"] for case in first}) == 2


def test_a_third_of_dense_problems_is_float32(module: ModuleType) -> None:
    for family in ("dense", "strided", "transposed"):
        cases = list(module.cases(family, 0, 300))
        labels = collections.Counter(case.params["dtype"] for case in cases)
        assert labels.keys() == {"fp16", "bf16", "fp32", "tf32"}
        assert 70 <= labels["fp32"] + labels["tf32"] <= 130
        assert min(labels.values()) >= 30
        assert all(case.allows_tf32 == bench.ALLOWS_TF32.get(case.params["dtype"]) for case in cases)
    others = [case for family in ("depthwise", "filter2d") for case in module.cases(family, 0, 50)]
    assert all(case.allows_tf32 is None and case.params["dtype"] != "tf32" for case in others)


def test_sizes_do_not_depend_on_the_dtype(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(family: str) -> list[dict]:
        return [{**case.params, "dtype": ""} for case in module.cases(family, 0, 50)]

    families = ("dense", "strided", "transposed")
    drawn = [sizes(family) for family in families]
    monkeypatch.setattr(module, "_or_float32", lambda pick, half_type: half_type)
    assert [sizes(family) for family in families] == drawn


def test_every_family_runs_and_is_right(module: ModuleType) -> None:
    cases = [case for family in module.FAMILIES for case in sorted(module.cases(family, 0, 60), key=elements)[:2]]
    outcome = run_suite(bench.Suite("random", cases), CPU, ConstantClock(), FEW, lambda line: None)
    assert outcome.failures == []
    assert [row["name"] for row in outcome.rows] == [case.name for case in cases]
    assert all(row["peers"]["torch"] == 4.0 for row in outcome.rows)


def test_floors_are_those_of_the_fastest_method(module: ModuleType) -> None:
    operations = module._toeplitz_or_fourier
    assert operations(1000, 7, 7, "fp32") == (2 * 7 * 1000, 0)
    assert operations(1000, 7, 7, "bf16") == (0, 2 * 22 * 1000)
    assert operations(1000, 31, 31 * 31, "fp16") == (0, 2 * 31 * 46 * 1000)
    few, many = operations(1000, 511, 511, "fp32")[0], operations(1000, 4095, 4095, "fp32")[0]
    assert few < 2 * 511 * 1000 / 10
    assert few < many < 1.5 * few
    assert operations(1000, 4095, 4095, "fp16")[0] == many


def test_a_table_says_what_a_family_gains() -> None:
    times = [10.0, 20.0, 40.0]
    cases = [
        {"name": f"dense {i}: x", "params": {"B": 1}, "time_us": time, "floor_us": floor, "efficiency": floor / time}
        | {"peers": {"torch": 20.0}, "schedule": "direct", "depth": 1, "auto": True}
        for i, (time, floor) in enumerate(zip(times, (10.0, 10.0, 1.0), strict=True))
    ]
    head = {"suite": "random", "gpu": "A GPU", "torch": "2.11", "cuda": "13.0", "date": "2026-11-22"}
    lines = write_results.drawn(head | {"source_hash": "0" * 64, "cases": cases}).splitlines()
    (row,) = [line for line in lines if line.startswith("| dense |")]
    assert row == "| dense | 3 | 1.00 | 0.50 | 1 | 2 | 0.50 | 0.50 | 0.75 |"
    assert lines.index("The ten of family dense that gain least:") < len(lines)
    assert [line.split()[2] for line in lines if line.startswith("| dense ") and ":" in line] == ["2:", "1:", "0:"]
