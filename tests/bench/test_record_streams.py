"""benchmarks/record_streams.py and the pictures of its recordings: structure and order, not durations."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import itertools
import json
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from common import ROOT
from nvcc_program import nvcc_program

STEPS = ["copy in", "compute", "copy out"]
ORDERS = ["sequential", "depth_first", "breadth_first"]
HOST = ["blocking call, then host work", "host work before the result"]
KERNELS = [
    "legacy default stream",
    "eight streams",
    "eight threads, legacy default stream",
    "eight threads, thread_stream",
]
SAMPLE = [("sequential", 4), *itertools.product(ORDERS[1:], (4, 16))]


def recorded(device: str, mebibytes: int, path: pathlib.Path, *more: str) -> tuple[dict[str, Any], str]:
    """The recording and the printed text."""
    options = ["--device", device, "--mebibytes", str(mebibytes), "--output", str(path), *more]
    command = [sys.executable, str(ROOT / "benchmarks/record_streams.py"), *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text()), result.stdout


def labels(recording: dict[str, Any], what: str) -> list[str]:
    return sorted(one["label"] for one in recording["timelines"] if one["what"] == what)


def steps_of(one: dict[str, Any]) -> dict[int, list[tuple[float, float]]]:
    """When each chunk was copied in, computed and copied out."""
    chunks: dict[int, list[tuple[float, float]]] = {}
    for step in STEPS:
        for span in one["rows"]:
            if span["row"] == step:
                chunks.setdefault(span["item"], []).append((span["begin_ms"], span["end_ms"]))
    return dict(sorted(chunks.items()))


def check_document(recording: dict[str, Any], mebibytes: int) -> None:
    assert list(recording) == ["date", "gpu", "torch", "cuda", "source_hash", "mebibytes", "timelines"]
    assert recording["mebibytes"] == mebibytes
    assert len(recording["source_hash"]) == 64
    for one in recording["timelines"]:
        assert {"what", "label", "total_ms", "overlap", "rows"} <= one.keys()
        assert all(list(span) == ["row", "item", "begin_ms", "end_ms"] for span in one["rows"])
        assert min(span["begin_ms"] for span in one["rows"]) == 0
        assert max(span["end_ms"] for span in one["rows"]) == pytest.approx(one["total_ms"], abs=1e-3)
        assert all(span["begin_ms"] <= span["end_ms"] for span in one["rows"])
        assert 0 <= one["overlap"] <= 1
        if one["what"] not in ("kernels", "cases"):
            check_chunks(one)
        if one["what"] == "host":
            assert [span["item"] for span in one["rows"] if span["row"] == "host"] == [0]
            assert 0 <= one["hidden"] <= 1
            assert one["hidden"] == 0 or not one["label"].startswith("blocking")
            assert one["error_ms"] >= 0


def check_chunks(one: dict[str, Any]) -> None:
    """A chunk's steps follow each other, and so do the copies of one direction."""
    chunks = steps_of(one)
    assert list(chunks) == list(range(len(chunks)))
    for steps in chunks.values():
        assert len(steps) == 3
        assert all(before[1] <= behind[0] for before, behind in itertools.pairwise(steps))
    for row in (0, 2):
        copies = sorted(steps[row] for steps in chunks.values())
        assert all(before[1] <= behind[0] for before, behind in itertools.pairwise(copies))


def check_sequential(one: dict[str, Any]) -> None:
    chunks = list(steps_of(one).values())
    assert len(chunks) > 2
    assert all(before[2][1] <= behind[0][0] for before, behind in itertools.pairwise(chunks))


# --- on the CPU -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def of_cpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    return recorded("cpu", 4, tmp_path_factory.mktemp("recording") / "new" / "streams.json")


def test_a_recording_of_the_cpu(of_cpu: tuple[dict[str, Any], str]) -> None:
    recording, printed = of_cpu
    check_document(recording, 4)
    assert recording["gpu"] == "cpu"
    assert {one["what"] for one in recording["timelines"]} == {"lanes", "host"}
    assert labels(recording, "lanes") == sorted(f"{order}, pageable" for order in ORDERS)
    assert labels(recording, "host") == sorted(HOST)
    assert "left out, because they need a CUDA device: pinned memory, the sample's forms, eight kernels" in printed
    for one in recording["timelines"]:
        assert f"{one['what']}: {one['label']}: {one['total_ms']:.2f} ms, overlap " in printed
        assert len(steps_of(one)) == (16 if one["what"] == "lanes" else 8)


def test_sequential_does_not_overlap(of_cpu: tuple[dict[str, Any], str]) -> None:
    (one,) = [one for one in of_cpu[0]["timelines"] if one["label"] == "sequential, pageable"]
    check_sequential(one)


def test_arguments(recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (["--device", "tpu"], "--device must be CUDA devices or the CPU, got 'tpu'"),
        (["--device", "cpu", "--mebibytes", "0"], "--mebibytes must be at least 1, got 0"),
    ):
        monkeypatch.setattr(sys, "argv", ["record_streams.py", *options])
        with pytest.raises(SystemExit):
            recorder.main()
        assert message in capsys.readouterr().err


# --- on mock streams: what is launched where, and in which order ------------------------------------------------------
@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("record_streams")


@dataclasses.dataclass
class HostStream:
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))


class HostEvent:
    """Complete when it is recorded; the time is the number of events so far."""

    count = itertools.count()

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.when = next(self.count)

    def elapsed_time(self, other: HostEvent) -> float:
        return float(other.when - self.when)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, object]]:
    """Threads and streams in the order in which streams become current; the host does CUDA's work."""
    entered: list[tuple[int, object]] = []

    @contextlib.contextmanager
    def stream(chosen: object) -> Iterator[None]:
        entered.append((threading.get_ident(), chosen))
        yield

    default = HostStream()
    for name, value in {
        "Event": HostEvent,
        "stream": stream,
        "synchronize": lambda device=None: None,
        "default_stream": lambda device=None: default,
        "_sleep": lambda cycles: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    return entered


@pytest.mark.parametrize(("order", "chunks"), SAMPLE)
def test_the_samples_forms(recorder: ModuleType, entered: list[tuple[int, object]], order: str, chunks: int) -> None:
    (job,) = recorder.make_jobs(1, torch.device("cpu"))
    streams = [HostStream() for _ in range(1 if order == "sequential" else 4)]
    one = recorder.record_sample(job, streams, order, chunks)
    assert (one["what"], one["label"], one["overlap"]) == ("sample", f"{order}, pageable, {chunks} chunks", 0)
    check_chunks(one)
    launched = sorted(one["rows"], key=lambda span: span["begin_ms"])
    wave = 4 if order == "breadth_first" else 1
    assert [(span["item"], span["row"]) for span in launched] == [
        (item, step) for first in range(0, chunks, wave) for step in STEPS for item in range(first, first + wave)
    ]
    assert len(entered) == 2 * len(launched)  # two runs
    used = [stream for _, stream in entered[len(launched) :]]
    assert all(used[i] is streams[span["item"] % len(streams)] for i, span in enumerate(launched))


def test_a_wrong_result_is_no_recording(recorder: ModuleType, entered: list[tuple[int, object]]) -> None:
    (job,) = recorder.make_jobs(1, torch.device("cpu"))
    job.expected[-1, -1] += 1
    with pytest.raises(RuntimeError, match="depth_first, pageable, 4 chunks must give the job's result"):
        recorder.record_sample(job, [HostStream()], "depth_first", 4)


def test_a_copy_begins_when_its_engine_is_free(recorder: ModuleType) -> None:
    span = recorder.Span
    issued = [span("copy in", 0, 0, 1), span("copy in", 1, 0, 2), span("compute", 0, 1, 3), span("compute", 1, 2, 4)]
    landed = [span("copy out", 0, 3, 5), span("copy out", 1, 4, 7)]
    assert recorder.one_engine([*issued, *landed]) == [
        *(span("copy in", 0, 0, 1), span("compute", 0, 1, 3), span("copy out", 0, 3, 5)),
        *(span("copy in", 1, 1, 2), span("compute", 1, 2, 4), span("copy out", 1, 5, 7)),
    ]


def test_eight_kernels(recorder: ModuleType, entered: list[tuple[int, object]]) -> None:
    found = {one["label"]: one["rows"] for one in recorder.record_kernels(torch.device("cpu"))}
    assert list(found) == KERNELS
    for label, rows in found.items():
        assert [span["item"] for span in rows] == list(range(8))
        assert len({span["row"] for span in rows}) == (1 if "legacy" in label else 8)
        spans = sorted((span["begin_ms"], span["end_ms"]) for span in rows)
        assert all(before[1] < behind[0] for before, behind in itertools.pairwise(spans))
    of_threads = [thread for thread, _ in entered[-32:]]  # two ways, two runs, eight threads
    assert all(len(set(of_threads[i : i + 8])) == 8 for i in range(0, 32, 8))


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    """Prints what the program of cases prints, with eight kernels one after another."""
    path = tmp_path / "stream_cases"
    spans = [[1000 * i, 1000 * i + 900] for i in range(8)]
    answer = json.dumps({"case": "CASE", "gpu": "A GPU", "spans_us": spans})
    path.write_text(f"#!/bin/sh\necho '{answer}' | sed s/CASE/$1/\n")
    path.chmod(0o755)
    return path


def test_the_texts_cases(recorder: ModuleType, program: pathlib.Path) -> None:
    found = list(recorder.record_cases(program))
    assert [one["label"] for one in found] == list(recorder.CASES.values())
    for one in found:
        assert (one["what"], one["total_ms"], one["overlap"]) == ("cases", 7.9, 0)
        assert [(span["item"], span["begin_ms"]) for span in one["rows"]] == [(i, float(i)) for i in range(8)]


def test_the_program_has_the_cases(recorder: ModuleType) -> None:
    text = (ROOT / "tests" / "gpu" / "stream_cases.cu").read_text()
    assert re.findall(r'^    \{"(\w+)", \[\]', text, re.MULTILINE) == list(recorder.CASES)


# --- pictures ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def pictures() -> ModuleType:
    pytest.importorskip("matplotlib")
    return importlib.import_module("draw_streams")


def drawn(pictures: ModuleType, recording: dict[str, Any], folder: pathlib.Path) -> set[str]:
    names = {name for name, draw in pictures.PICTURES.items() if draw(recording, folder / name)}
    assert {path.name for path in folder.iterdir()} == names
    assert all((folder / name).read_bytes()[:4] == b"\x89PNG" for name in names)
    return names


def test_pictures_of_the_cpu(pictures: ModuleType, of_cpu: tuple[dict[str, Any], str], tmp_path: pathlib.Path) -> None:
    assert drawn(pictures, of_cpu[0], tmp_path) == {"streams.png", "streams_host.png"}


def test_pictures_of_everything(
    pictures: ModuleType,
    recorder: ModuleType,
    entered: list[tuple[int, object]],
    program: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    cpu = torch.device("cpu")
    (pageable,) = recorder.make_jobs(1, cpu)
    jobs = [dataclasses.replace(pageable, memory="pinned"), pageable]
    streams = [HostStream() for _ in range(4)]
    timelines = [one for job in jobs for one in recorder.record_lanes(job, cpu)]
    timelines += [recorder.record_sample(job, streams, order, chunks) for job in jobs for order, chunks in SAMPLE]
    timelines += [*recorder.record_kernels(cpu), *recorder.record_host(pageable, cpu), *recorder.record_cases(program)]
    recording = {"gpu": "NVIDIA H100 80GB HBM3", "mebibytes": 1, "timelines": timelines}
    assert drawn(pictures, recording, tmp_path / "pictures") == set(pictures.PICTURES)


def test_without_a_recording_nothing_is_drawn(
    pictures: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pictures.result_files, "recording", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["draw_streams.py", "--output", str(tmp_path)])
    pictures.main()
    assert not list(tmp_path.iterdir())
    said = "no picture of streams: benchmarks/recordings must have a GPU's streams.json, got none\n"
    assert capsys.readouterr().out == said


def test_spans_that_overlap_take_strips(pictures: ModuleType) -> None:
    spans = [{"begin_ms": begin, "end_ms": end} for begin, end in ((0, 2), (1, 3), (1.5, 4), (2, 5), (6, 7))]
    assert pictures.strips(spans) == [0, 1, 2, 0, 0]


# --- on a GPU ---------------------------------------------------------------------------------------------------------
def test_a_recording_of_a_gpu(cuda: str, recorder: ModuleType, tmp_path: pathlib.Path) -> None:
    options = ["-O3", "--expt-relaxed-constexpr"]
    program = nvcc_program(tmp_path / "stream_cases", ["tests/gpu/stream_cases.cu"], *options)
    recording, printed = recorded("cuda:0", 8, tmp_path / "streams.json", "--cases", str(program))
    check_document(recording, 8)
    assert recording["gpu"] == torch.cuda.get_device_name(0)
    memories = ("pinned", "pageable")
    assert labels(recording, "lanes") == sorted(f"{order}, {memory}" for order in ORDERS for memory in memories)
    wanted = [f"{order}, {memory}, {chunks} chunks" for order, chunks in SAMPLE for memory in memories]
    assert labels(recording, "sample") == sorted(wanted)
    assert labels(recording, "host") == sorted(HOST)
    assert labels(recording, "kernels") == sorted(KERNELS)
    assert labels(recording, "cases") == sorted(recorder.CASES.values())
    assert "left out" not in printed
    for one in recording["timelines"]:
        if one["label"].startswith("sequential"):
            check_sequential(one)
        if "legacy" in one["label"]:
            spans = [(span["begin_ms"], span["end_ms"]) for span in sorted(one["rows"], key=lambda s: s["begin_ms"])]
            assert all(before[1] <= behind[0] for before, behind in itertools.pairwise(spans))
    if importlib.util.find_spec("matplotlib"):
        pictures = importlib.import_module("draw_streams")
        assert drawn(pictures, recording, tmp_path / "pictures") == set(pictures.PICTURES)
