"""What tests of the benchmarks share: a clock that answers by script, and a document of results that is right."""

from __future__ import annotations

import torch

from sluice import bench
from sluice.bench.runner import run_suite
from sluice.bench.schema import validate
from sluice.bench.timing import Effort

CPU = torch.device("cpu")
FEW = Effort(rounds=2, samples=3, warm_up=1, slow_peers=False)


class ScriptedClock:
    """Runs each call once and returns the times of its script, cyclically."""

    def __init__(self, *times: float) -> None:
        self.times = times
        self.calls = 0

    def measure(self, call, samples):
        call()
        self.calls += samples
        return [self.times[i % len(self.times)] for i in range(samples)]


def good_row():
    row = {"name": "bf16 2^26", "params": {"n": 2**26, "offset": 0, "dtype": "bf16", "op": "silu"}, "time_us": 70.0}
    row |= {"floor_us": 68.6, "floor_kind": "bytes", "efficiency": 0.98, "peers": {"torch": 273.0, "cub": None}}
    return row | {"schedule": "direct", "depth": 1, "auto": True, "linked": False, "rel_err": 1.7e-3}


def good_document(suite="transform", **row):
    document = {"suite": suite, "gpu": "NVIDIA H200", "torch": "2.11.0+cu130", "cuda": "13.0", "date": "2026-11-21"}
    document |= {"source_hash": "0" * 64, "copy_tbps": 4.22, "matmul_tflops": 780.0}
    return document | {"cases": [good_row() | row]}


def rows_of(suite: str, cases: list[bench.Case], effort: Effort = FEW) -> list[dict]:
    """What a run of the cases on the CPU writes: no failure, a valid document, 2 us for torch."""
    outcome = run_suite(bench.Suite(suite, cases), CPU, ScriptedClock(2.0), effort, lambda line: None)
    assert outcome.failures == [], outcome.failures
    validate(good_document() | {"suite": suite, "cases": outcome.rows})
    return outcome.rows
