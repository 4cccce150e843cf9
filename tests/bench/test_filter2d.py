"""Suite `filter2d` of the benchmarks, on tiny images, with a clock that answers by script."""

from __future__ import annotations

import sys

import pytest
import torch

from bench_documents import rows_of
from common import ROOT, SCHEDULES
from sluice import bench
from sluice.bench.schema import PEERS

pytestmark = pytest.mark.no_gpu
MODULE_SUITE = bench.load_suite(ROOT, "filter2d")
MODULE = sys.modules["bench_filter2d"]


def test_the_required_rows_are_there() -> None:
    rows = [case.params for case in MODULE_SUITE.cases if case.auto]
    for batch in (1, 64):
        for size in (3, 5, 11, 31):
            required = {"B": batch, "C": 1, "H": 1080, "W": 1920, "K": size, "dtype": "fp32"}
            assert sum(required.items() <= row.items() and "fn" not in row for row in rows) == 1
    texts = [(case.params["K"], case.name.split(" ", 3)[3]) for case in MODULE_SUITE.cases if not case.auto]
    assert sorted(texts) == sorted(
        (size, name) for size in (3, 5, 7, 9, 11, 31) for name in ("sync 1", "two_stage", "multi_stage 3")
    )


def test_rows() -> None:
    make = MODULE.stencil_case
    cases = [make((2, 3, 20, 30), size, dtype) for size in (3, 11) for dtype in ("fp16", "fp32")]
    cases.append(make((2, 1, 40, 30), 7, "fp32", separable=True))
    cases += [make((1, 1, 20, 30), 5, "fp32", schedule=name) for name in SCHEDULES]
    rows = rows_of("filter2d", cases)
    assert rows[0]["params"] == {"B": 2, "C": 3, "H": 20, "W": 30, "K": 3, "dtype": "fp16", "op": "filter2d"}
    assert rows[4]["params"]["fn"] == "separable"
    assert set(rows[0]["peers"]) == {"torch", "torch_compile", "torchvision"} <= PEERS
    assert [row["schedule"] for row in rows[-len(SCHEDULES) :]] == SCHEDULES
    assert all(not row["peers"] for row in rows[-4:])


def test_peers_compute_what_ours_does() -> None:
    x, column, row = torch.randn(2, 3, 20, 30), torch.randn(3, 5), torch.randn(3, 5)
    dense = column[:, :, None] * row[:, None]
    wanted = MODULE._torch(x, dense)
    torch.testing.assert_close(MODULE._torch_separable(x, column, row), wanted)
