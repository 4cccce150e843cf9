"""Suite `stream` of the benchmarks, on tiny tensors on the CPU, with a clock that answers by script."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

from bench_documents import CPU, rows_of
from common import ROOT
from sluice import bench
from sluice.bench.schema import PEERS

pytestmark = pytest.mark.no_gpu
SUITE = bench.load_suite(ROOT, "stream")
MODULE = sys.modules["bench_stream"]
REAL_OPS = sys.modules["stream_real_ops"]


def small(row: object) -> object:
    """The same row over a few small chunks."""
    chunk = None if row.chunk is None else max(1, row.chunk // 128)
    budget = None if row.memory_budget is None else 1 << 20
    return dataclasses.replace(row, rows=40, columns=600, chunk=chunk, memory_budget=budget)


def test_rows() -> None:
    rows = [row for rows in (MODULE._pinned, MODULE._pageable) for row in rows() if row.ratio == 0]
    unique = {case.name: case for case in (MODULE.stream_case(small(row)) for row in rows)}
    made = rows_of("stream", list(unique.values()))
    assert all(row["floor_kind"] == "link" for row in made)
    peers = {name: us for row in made for name, us in row["peers"].items()}
    loops = {"sequential", "hand_written", "prefetch", "sample_depth_first", "sample_breadth_first"}
    assert set(peers) == {"copy_", "copy_out"} | loops <= PEERS
    assert peers["copy_"] == peers["copy_out"] == 2.0
    assert {row["params"]["source"] for row in made} == {"pinned", "pageable", "mapped file", "strided pageable"}


def test_two_gpus_are_listed_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, rows in ((0, 0), (1, 0), (2, 2), (8, 2)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert len(list(MODULE._two_gpus())) == rows


def test_real_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    def network(name: str) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(196, 10))

    monkeypatch.setattr(REAL_OPS, "network", network)
    monkeypatch.setattr(REAL_OPS, "compute_seconds", lambda fn, chunk: 1.0)
    conv, images = rows_of("stream", [REAL_OPS.conv_case(4, 5000, 31), REAL_OPS.images_case("tiny", 24, 16, 8)])
    assert conv["floor_kind"] == images["floor_kind"] == "link"
    assert conv["rel_err"] < 1e-6
    assert images["rel_err"] == 0
    assert images["floor_us"] > 3e6  # three batches of a second each


def test_the_floor_is_the_slowest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = MODULE.sluice.LinkLimits(h2d=50.0, d2h=50.0, duplex=80.0, host_memcpy=20.0)
    monkeypatch.setattr(MODULE.sluice, "link_limits", lambda device: limits)
    floor = MODULE.floor_seconds
    gigabyte = 10**9
    ends = 2 / 50 / 64
    assert floor(gigabyte, gigabyte, CPU, pinned=True) == pytest.approx(2 / 80 * 63 / 64 + ends)
    assert floor(gigabyte, 0, CPU, pinned=True) == pytest.approx(1 / 50)
    short = floor(gigabyte, gigabyte, CPU, pinned=True, compute=0.01)
    assert short == pytest.approx(2 / 80 * 63 / 64 + ends + 0.01 / 64)
    assert floor(gigabyte, gigabyte, CPU, pinned=True, compute=0.5) == pytest.approx(0.5 + ends)
    assert floor(gigabyte, gigabyte, CPU, pinned=False) == pytest.approx(2 / 20)
    assert floor(gigabyte, gigabyte, CPU, pinned=False, devices=8) == pytest.approx(2 / 20)
