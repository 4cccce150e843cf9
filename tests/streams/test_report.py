"""Numbers and pictures of runs, the host link's limits, streams of threads, registered memory."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
import threading
import types
from typing import Any

import pytest
import torch

import sluice
from common import ROOT
from sluice.info import balance
from sluice.stream.report.overlap import covered, merged
from sluice.stream.report.stats import ChunkTimes


def stats_of(*rows: tuple[tuple[float, float], ...], device: str = "cpu", **fields: Any) -> sluice.StreamStats:
    timeline = tuple(ChunkTimes(i, device, *row) for i, row in enumerate(rows))
    return sluice.StreamStats(chunks=len(rows), devices=(device,), timeline=timeline, **fields)


def test_intervals() -> None:
    assert merged([(3, 4), (0, 1), (1, 2), (3.5, 3.7)]) == [(0, 2), (3, 4)]
    assert merged([]) == []
    rows = [[(0.0, 4.0)], [(1.0, 3.0)], [(2.0, 6.0), (5.0, 7.0)]]
    assert [covered(rows, least) for least in (1, 2, 3, 4)] == [7.0, 3.0, 1.0, 0.0]


def test_an_overlap_report_of_known_times() -> None:
    stats = stats_of(
        ((0, 2), (2, 4), (4, 6)), ((2, 4), (4, 6), (6, 8)), bytes_in={"direct": 8}, bytes_out={"pageable": 4}
    )
    report = sluice.overlap_report(stats)
    assert report.seconds == 8
    assert report.busy == {"h2d": 0.5, "compute": 0.5, "d2h": 0.5}
    assert (report.overlap, report.all_three, report.duplex) == (0.5, 0.0, 0.0)
    assert report.pageable_bytes == 4
    assert report.bound_seconds is not None
    assert report.bound_seconds == pytest.approx(4, abs=0.01)  # compute alone bounds so few bytes
    assert report.efficiency == pytest.approx(0.5, abs=0.01)
    sequential = sluice.overlap_report(stats_of(((0, 1), (1, 2), (2, 3)), ((3, 4), (4, 5), (5, 6))))
    assert sequential.overlap == 0


def test_an_overlap_report_of_a_profilers_trace(tmp_path: pathlib.Path) -> None:
    def event(name: str, begin: float, duration: float, kind: str = "gpu_memcpy", phase: str = "X") -> dict[str, Any]:
        return {"ph": phase, "cat": kind, "name": name, "ts": begin, "dur": duration}

    trace = {
        "traceEvents": [
            event("Memcpy HtoD (Pinned -> Device)", 0, 10),
            event("Memcpy HtoD (Pageable -> Device)", 10, 10),
            event("Memcpy DtoH (Device -> Pinned)", 15, 10),
            event("elementwise_kernel", 10, 10, "kernel"),
            event("Memcpy DtoD (Device -> Device)", 20, 2),
            event("cudaMemcpyAsync", 0, 1000, "cuda_runtime"),
            event("step", 0, 1000, "user_annotation", "i"),
        ]
    }
    report = sluice.overlap_report(trace)
    assert report.seconds == pytest.approx(25e-6)
    assert report.busy == pytest.approx({"h2d": 0.8, "compute": 12 / 25, "d2h": 0.4})
    assert report.duplex == pytest.approx(0.2)
    assert report.all_three == pytest.approx(0.2)
    assert report.pageable_copies == 1
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    assert sluice.overlap_report(path) == report
    with pytest.raises(ValueError, match="stats_or_trace must hold a run, got none"):
        sluice.overlap_report({"traceEvents": []})
    with pytest.raises(TypeError, match="stats_or_trace must be StreamStats or a chrome trace, got int"):
        sluice.overlap_report(3)  # type: ignore[arg-type]


def test_a_run_is_drawn(device: str, tmp_path: pathlib.Path) -> None:
    x = torch.randn(200, 500)
    with sluice.Streamer(device) as streamer:
        with pytest.raises(RuntimeError, match="Streamer.trace: there must be a run to draw, got none"):
            streamer.trace(str(tmp_path / "none.json"))
        streamer.map(torch.sigmoid, x, chunk_size=30)
        path = streamer.trace(str(tmp_path / "run.json"))
        events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
        boxes = [event for event in events if event["ph"] == "X"]
        assert len(boxes) == 3 * 7
        assert {event["cat"] for event in boxes} == {"h2d", "compute", "d2h"}
        assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
            "copy in",
            "compute",
            "copy out",
        }
        ours = sluice.overlap_report(path)
        assert ours.overlap == pytest.approx(sluice.overlap_report(streamer.stats()).overlap, abs=1e-3)
        with pytest.raises(ValueError, match=r"Streamer.trace: path must end in .png or .json, got 'run.svg'"):
            streamer.trace("run.svg")
        pytest.importorskip("matplotlib")
        picture = pathlib.Path(streamer.trace(str(tmp_path / "run.png")))
        assert picture.read_bytes()[:4] == b"\x89PNG"
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "matplotlib.figure", None)
            with pytest.raises(ImportError, match="a picture needs matplotlib"):
                streamer.trace(str(tmp_path / "run.png"))


def test_the_trace_command(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "sluice", "trace", "--mebibytes", "8", "--output", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    for order in ("depth_first", "breadth_first", "sequential"):
        assert order in result.stdout
        assert json.loads((tmp_path / f"trace_{order}.json").read_text())["traceEvents"]
    assert (tmp_path / "trace.png").exists()
    assert "default stream" in result.stdout


@pytest.mark.alone
def test_link_limits(device: str) -> None:
    limits = sluice.link_limits(device)
    assert all(rate > 0.1 for rate in dataclasses.astuple(limits))
    assert sluice.link_limits(device) is limits
    assert limits.duplex >= 0.9 * max(limits.h2d, limits.d2h)
    with pytest.raises(ValueError, match="link_limits: devices must be CUDA devices or the CPU, got 'tpu'"):
        sluice.link_limits("tpu")


def test_a_threads_stream_is_its_own(device: str) -> None:
    streams: dict[int, Any] = {}
    together = threading.Barrier(3)

    def work(number: int) -> None:
        streams[number] = sluice.thread_stream(device)
        assert sluice.thread_stream(device) is streams[number]
        with sluice.thread_stream(device):
            assert torch.ones(3, device=device).sum() == 3
        together.wait(20)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id(stream) for stream in streams.values()}) == 3
    if device == "cuda":
        assert len({stream.cuda_stream for stream in streams.values()}) == 3
        assert all(stream.cuda_stream != 0 for stream in streams.values())


def test_run_concurrent(device: str) -> None:
    x = torch.randn(1000, device=device)
    results = sluice.run_concurrent([lambda k=k: (x * k, {"sum": (x * k).sum()}) for k in range(20)], device=device)
    assert all(torch.equal(results[k][0], x * k) for k in range(20))
    assert sluice.run_concurrent([], device=device) == []
    with pytest.raises(TypeError, match="run_concurrent: fns must be a list of callables, got function"):
        sluice.run_concurrent(lambda: 1)  # type: ignore[arg-type]

    def broken() -> None:
        raise LookupError

    with pytest.raises(LookupError) as caught:
        sluice.run_concurrent([lambda: x, broken], device=device)
    assert "run_concurrent: raised by fns[1]" in "".join(caught.value.__notes__)


def test_host_registered(device: str) -> None:
    x = torch.randn(100_000)
    with sluice.host_registered(x) as same:
        assert same is x
        assert x.is_pinned() == (device == "cuda")
        with sluice.host_registered(x[10:20]):
            assert torch.equal(sluice.stream_map(torch.neg, x, devices=device, chunk_size=30_000), -x)
    if device == "cuda":
        assert not x.is_pinned()
    with (
        pytest.raises(TypeError, match="host_registered: tensor must be a torch.Tensor, got list"),
        sluice.host_registered(
            [1.0]  # type: ignore[arg-type]
        ),
    ):
        pass
    with (
        pytest.raises(ValueError, match="host_registered: tensor must be on the host, got meta"),
        sluice.host_registered(x.to("meta")),
    ):
        pass


def test_the_balance_of_a_device() -> None:
    h100 = types.SimpleNamespace(major=9, minor=0, multi_processor_count=132, clock_rate=1980000)
    h100.memory_clock_rate, h100.memory_bus_width = 2619000, 5120
    assert balance(h100) == {"fp32_tflops": 66.9, "memory_tbps": 3.35, "flops_per_byte": 20.0}
    a100 = types.SimpleNamespace(**vars(h100) | {"major": 8, "multi_processor_count": 108, "clock_rate": 1410000})
    assert balance(a100)["fp32_tflops"] == 19.5
    del a100.memory_clock_rate
    assert balance(a100) == {}


def test_the_device_query() -> None:
    for device in sluice.info()["devices"]:
        assert 5 < device["flops_per_byte"] < 100
        assert device["copy_engines"] >= 1
        assert device["concurrent_kernels"] is True
        assert device["overlaps_copies"] is True
