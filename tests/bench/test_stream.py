"""Suite `stream` of the benchmarks, on tiny tensors on the CPU, with a clock that answers by script."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import sys
import types
from collections.abc import Iterator

import pytest
import torch

from bench_documents import CPU, rows_of
from common import ROOT
from sluice import bench
from sluice.bench.schema import PEERS
from sluice.stream.known import is_known

pytestmark = pytest.mark.no_gpu
SUITE = bench.load_suite(ROOT, "stream")
MODULE = sys.modules["bench_stream"]
REAL_OPS = sys.modules["stream_real_ops"]
STREAM_PEERS = sys.modules["stream_peers"]
SMALL = sys.modules["stream_small"]


def small(row: object) -> object:
    """The same row over a few small chunks."""
    chunk = None if row.chunk is None else max(1, row.chunk // 128)
    budget = None if row.memory_budget is None else 1 << 20
    return dataclasses.replace(row, rows=40, columns=600, chunk=chunk, memory_budget=budget)


def test_names_are_unique() -> None:
    names = [case.name for case in SUITE.cases]
    assert len(set(names)) == len(names)


def test_rows() -> None:
    kinds = (MODULE._pinned, MODULE._known, MODULE._one_way, MODULE._pageable)
    rows = [row for rows in kinds for row in rows() if row.ratio == 0]
    unique = {case.name: case for case in (MODULE.stream_case(small(row)) for row in rows)}
    made = rows_of("stream", list(unique.values()))
    assert all(row["floor_kind"] == "link" for row in made)
    peers = {name: us for row in made for name, us in row["peers"].items()}
    loops = {"sequential", "hand_written", "prefetch", "sample_depth_first", "sample_breadth_first"}
    assert set(peers) == {"copy_", "copy_out", "copy_async", "cupy"} | loops <= PEERS
    assert peers["copy_"] == peers["copy_out"] == peers["copy_async"] == 2.0
    assert {row["params"]["source"] for row in made} == {"pinned", "pageable", "mapped file", "strided pageable"}
    assert {row["depth"] for row in made} == {3, 8}


def test_the_loops_use_the_rows_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    monkeypatch.setattr(MODULE, "peers", lambda names, loop: used.append(loop.rows) or {})
    for chunk in (None, 4, 16):
        MODULE.stream_case(MODULE.Row("fn=None", rows=40, columns=600, chunk=chunk)).make(CPU)
    assert used == [64, 4, 16]


def test_one_way_rows_use_one_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[int, int]] = []
    monkeypatch.setattr(MODULE, "floor_seconds", lambda *given, **_: used.append(given[:2]) or 1.0)
    for way in ("both", "upload", "drain"):
        MODULE.stream_case(MODULE.Row("fn=None", rows=40, columns=600, way=way)).make(CPU)
    nbytes = 40 * 600 * 4
    assert used == [(nbytes, nbytes), (nbytes, 0), (0, nbytes)]


def test_small_calls() -> None:
    cases = list(SMALL.small_cases())
    made = rows_of("stream", cases)
    assert [row["efficiency"] for row in made] == [1.0] * len(cases)  # the floor is the call by hand
    assert {name for row in made for name in row["peers"]} == {"copy_async", "copy_out", "sequential"}
    assert all(row["rel_err"] == 0 for row in made)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """CuPy whose copies are the host's, with the streams that they were queued on."""

    @contextlib.contextmanager
    def stream(chosen: object) -> Iterator[None]:
        yield

    made: list[types.SimpleNamespace] = []

    def stream_of(non_blocking: bool) -> types.SimpleNamespace:
        assert non_blocking
        made.append(types.SimpleNamespace(ptr=len(made) + 1, synchronize=lambda: None))
        return made[-1]

    fake = types.SimpleNamespace(copies=[])

    def copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        ctypes.memmove(target, source, nbytes)
        fake.copies.append((kind, stream))

    runtime = types.SimpleNamespace(memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyAsync=copy)
    fake.cuda = types.SimpleNamespace(Stream=stream_of, runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda pointer, device: pointer, raising=False)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    streams = functools.cache(STREAM_PEERS._cupy_streams.__wrapped__)  # the fake streams end with the test
    monkeypatch.setattr(STREAM_PEERS, "_cupy_streams", streams)
    return fake


def test_peers_give_the_result(cupy: types.SimpleNamespace) -> None:
    x = torch.randn(10, 6)
    for fn, expected in ((STREAM_PEERS.identity, x), (torch.square, x * x)):
        for name in ("copy_async", "sequential", "cupy"):
            out = torch.full_like(x, float("nan"))
            STREAM_PEERS._PEERS[name](STREAM_PEERS.Loop(fn, x, out, 3, CPU))
            assert torch.equal(out, expected), name
    assert cupy.copies == 2 * [(kind, stream) for stream in (1, 2, 3, 1) for kind in (1, 2)]


def test_cupy_is_left_out_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = STREAM_PEERS.Loop(torch.square, torch.ones(3), torch.ones(3), 1, torch.device("cuda"))
    for spec, is_there in ((None, False), (object(), True)):
        monkeypatch.setattr(STREAM_PEERS.importlib.util, "find_spec", lambda name, spec=spec: spec)
        found = STREAM_PEERS.peers(["cupy", "copy_out"], loop)
        assert found["copy_out"] is not None
        assert (found["cupy"] is not None) == is_there


def test_rows_of_two_gpus_are_listed_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, devices in ((0, {1}), (1, {1}), (2, {1, 2}), (8, {1, 2})):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        cases = bench.load_suite(ROOT, "stream_devices").cases
        assert {case.params["devices"] for case in cases} == devices
        assert len({case.name for case in cases}) == len(cases) == 4 * len(devices)


def test_real_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    def network(name: str) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(196, 10))

    monkeypatch.setattr(REAL_OPS, "network", network)
    monkeypatch.setattr(REAL_OPS, "compute_seconds", lambda fn, chunk: 1.0)
    used: list[object] = []
    streamed = REAL_OPS.streamed
    monkeypatch.setattr(REAL_OPS, "streamed", lambda *given, **more: used.append(given[1]) or streamed(*given, **more))
    convs = [REAL_OPS.conv_case(4, 5000, 31, chunk) for chunk in (None, 1024)]
    conv, chunked, images = rows_of("stream", [*convs, REAL_OPS.images_case("tiny", 24, 16, 8)])
    assert conv["floor_kind"] == images["floor_kind"] == "link"
    assert max(conv["rel_err"], chunked["rel_err"]) < 1e-6
    assert chunked["name"].endswith("chunks of 16 KiB")
    assert [is_known(fn) for fn in used] == [True, True, False]
    assert images["rel_err"] == 0
    assert images["floor_us"] > 3e6  # three batches of a second each


def test_the_floor_is_the_slowest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = MODULE.sluice.LinkLimits(h2d=50.0, d2h=50.0, duplex=80.0, host_memcpy=20.0)
    monkeypatch.setattr(MODULE.sluice, "link_limits", lambda device: limits)
    floor = MODULE.floor_seconds
    gigabyte = 10**9
    ends = 2 / 50 / 64
    assert floor(gigabyte, gigabyte, CPU, pinned=True) == pytest.approx(2 / 80 * 63 / 64 + ends)
    assert floor(gigabyte, 0, CPU, pinned=True) == floor(0, gigabyte, CPU, pinned=True) == pytest.approx(1 / 50)
    one_way = floor(gigabyte, 0, CPU, pinned=True, compute=0.5)
    assert one_way == pytest.approx(0.5 + 1 / 50 / 64)  # the first chunk's copy in is ahead of the compute
    short = floor(gigabyte, gigabyte, CPU, pinned=True, compute=0.01)
    assert short == pytest.approx(2 / 80 * 63 / 64 + ends + 0.01 / 64)
    assert floor(gigabyte, gigabyte, CPU, pinned=True, compute=0.5) == pytest.approx(0.5 + ends)
    assert floor(gigabyte, gigabyte, CPU, pinned=False) == pytest.approx(2 / 20)
    assert floor(gigabyte, gigabyte, CPU, pinned=False, devices=8) == pytest.approx(2 / 20)
    slow = dataclasses.replace(limits, duplex=40.0)  # both directions slower than one: no limit of one way
    monkeypatch.setattr(MODULE.sluice, "link_limits", lambda device: slow)
    assert floor(gigabyte, 0, CPU, pinned=True) == pytest.approx(1 / 50)
