"""examples/long_sequence.py, alone and on two ranks, its record, and the tables of docs/scaling.md."""

from __future__ import annotations

import importlib
import json
import pathlib
import re
import runpy
import subprocess
import tempfile
from types import ModuleType
from typing import Any

import programs
import pytest
from ranks import Ranks

import scaling_tables
import sluice
from common import ROOT

pytestmark = pytest.mark.no_gpu
EXAMPLE = ROOT / "examples/long_sequence.py"
PARTS = ["projection in", "pack, send", "the piece", "wait", "first outputs", "gate", "projection out"]


def run(*arguments: str, ranks: int | None = None, program: pathlib.Path = EXAMPLE) -> list[str]:
    """What it prints on the CPU on rank 0, with a thread for each rank."""
    group = Ranks(ranks or 1, backend=None)
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store" if ranks else None
        lines = group.run(programs.run_program_here, str(program), list(arguments), store)
    group.close()
    assert not any(lines[1:])
    return lines[0]


def test_alone() -> None:
    title, halo, block, convolution, same = run("--length", "500", "--samples", "2")
    assert title.startswith("500 positions, 1 ranks, 64 channels, 4 taps, torch.float32 by gloo")
    assert halo.startswith("halo: 0 bytes")
    assert block.startswith("block: ")
    assert convolution.startswith("convolution: ")
    assert same == "the first outputs of each rank: the same as unsplit"


def test_two_ranks(tmp_path: pathlib.Path) -> None:
    picture, numbers = tmp_path / "picture.png", tmp_path / "numbers.json"
    lines = run("--length", "5001", "--samples", "2", "--timeline", str(picture), "--json", str(numbers), ranks=2)
    title, halo, block, convolution, first, second, drawn, same = lines
    assert title.startswith("5001 positions, 2 ranks")
    assert halo.startswith(f"halo: {3 * 64 * 4} bytes from a rank to the next, of {2500 * 64 * 4} bytes ")
    assert all("the halo's share" in line for line in (block, convolution))
    for rank, line in enumerate([first, second]):
        assert line.startswith(f"rank {rank}: ")
        assert re.findall(r"(?:: |ms, )([a-z, ]+) [\d.]+", line) == PARTS
    assert same == "the first outputs of each rank: the same as unsplit"
    found = json.loads(numbers.read_text())
    assert found.keys() == {"ranks", "length", "channels", "taps", "halo_bytes", "ms", "timeline"}
    assert (found["ranks"], found["length"], found["halo_bytes"]) == (2, 5001, 3 * 64 * 4)
    assert all(ms > 0 for ms in found["ms"].values())
    if drawn == f"picture: {picture}":
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert drawn.startswith("no picture: it needs matplotlib")


def test_phases() -> None:
    stamps = runpy.run_path(str(EXAMPLE))["Stamps"]()
    stamps.spans = [("projection in", 0.0, 10.0), ("convolution", 10.0, 20.0), ("gate", 20.0, 21.0)]
    around = stamps.spans[:1], stamps.spans[2:]
    assert stamps.phases() == [*around[0], ("the piece", 10.0, 20.0), *around[1]]
    stamps._sent, stamps._waits = [11.0], [(17.0, 17.5), (17.6, 18.0)]
    parts = [("pack, send", 10.0, 11.0), ("the piece", 11.0, 17.0), ("wait", 17.0, 18.0), ("first outputs", 18.0, 20.0)]
    assert stamps.phases() == [*around[0], *parts, *around[1]]


def test_kernels_are_known_by_their_order() -> None:
    kernels = [
        ("nvjet_sm90_a", 0.0, 1.0), ("void at::native::elementwise_kernel<copy", 1.0, 1.1),
        ("ncclDevKernel_SendRecv(", 1.2, 1.6), ("sluice_conv1d_long_filter", 1.3, 2.3), ("void CatArray", 2.4, 2.5),
        ("sluice_conv1d_window_rows", 2.6, 2.7), ("sluice_transform", 2.8, 2.9), ("nvjet_sm90_b", 3.0, 4.0),
    ]  # fmt: skip
    names = ["projection in", "pack, send", "exchange", "the piece", "first outputs", "first outputs", "gate"]
    found = runpy.run_path(str(EXAMPLE))["parts_of"](kernels)
    assert [name for name, *_ in found] == [*names, "projection out"]
    assert [span[1:] for span in found] == [kernel[1:] for kernel in kernels]


def test_the_steps_are_those_of_the_unsplit_call(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "steps.json"
    sizes = ("--channels", "8", "--exponents", "9", "--rounds", "2")
    run(*sizes, "--json", str(path), ranks=2, program=ROOT / "benchmarks/halo_steps.py")
    found = json.loads(path.read_text())
    assert (found["ranks"], found["channels"], found["dtype"], found["graphs"]) == (2, 8, "float32", False)
    for row, taps in zip(found["rows"], (4, 128), strict=True):
        assert (row["taps"], row["positions"]) == (taps, 512)
        assert row["error"] <= 1e-6
        assert row["us"].keys() == {"alone", "split", "by_hand"}


def test_the_table_of_two_gpus(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"taps": 4, "positions": 1 << 14, "us": {"alone": 90.0, "by_hand": 120.0, "split": 100.0}},
             {"taps": 128, "positions": 1 << 14, "us": {"alone": 90.0, "by_hand": 89.0, "split": 90.0}}]  # fmt: skip
    ms = {"block": 4.0, "block, no halo": 3.0, "convolution": 2.0, "convolution, no halo": 1.0}
    block = {"ranks": 1, "length": 64, "channels": 8, "taps": 4, "ms": ms}
    head = {"gpu": "A card", "nccl": "2.1", "torch": "2.11", "date": "2026-01-02", "source_hash": "older"}
    host = {"ranks": 2, "channels": 5120, "dtype": "bfloat16", "rows": steps}
    path = tmp_path / "scaling.json"
    monkeypatch.setattr(scaling_tables, "recording", lambda name: path)
    urgent = {"rows": [{**steps[0], "us": {"alone": 91.0, "split": 96.0}}]}
    path.write_text(json.dumps({**head, "host": host, "host_priority": urgent, "rows": [block]}))
    heading, how, table, block_heading, block_table = scaling_tables.on_gpus().split("\n\n")
    assert heading.startswith("**Measured on 2 GPUs**: ")
    assert heading.endswith("A card, NCCL 2.1, torch 2.11, 2026-01-02, on older sources than this tree's")
    assert how == "In a loop on the host:"
    rows = ["| 4 | 2^14 | 90.0 | 30 | 10 | 5 | 10.0 | 67 |", "| 128 | 2^14 | 90.0 | -1 | 0 | – | 0.0 | – |"]
    assert table.splitlines()[2:] == rows
    assert block_heading.startswith("**Measured**: 64 positions, 8 channels")
    assert block_table.splitlines()[-1].startswith("| 1 | 64 | 4.0 | 3.0 | – |")
    path.write_text(json.dumps({**head, "rows": [block]}))
    assert scaling_tables.on_gpus() == ""
    monkeypatch.setattr(scaling_tables, "recording", lambda name: None)
    assert scaling_tables.on_gpus() == ""


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("record_scaling")


def test_the_record_and_its_table(
    recorder: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun starts the two ranks; a rank alone, which would take as long, is a fork."""
    path = tmp_path / "cpu" / "scaling.json"
    start = subprocess.run

    def started(command: list[str], **options: Any) -> object:
        launch, (ranks, program, *arguments) = command[1:5], command[5:]
        assert launch == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        assert options["env"].items() >= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}.items()
        return start(command, **options) if ranks == "2" else run(*arguments, ranks=1, program=pathlib.Path(program))

    monkeypatch.setattr(recorder.subprocess, "run", started)
    monkeypatch.setattr(
        "sys.argv", ["record_scaling.py", "--device", "cpu", "--length", "900", "--most", "2", "--output", str(path)]
    )
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(sluice.__file__).parent.parent))
    recorder.main()
    found = json.loads(path.read_text())
    assert [row["ranks"] for row in found["rows"]] == [1, 2]
    *_, first, second = scaling_tables.measured(path).splitlines()
    assert first.startswith("| 1 | 900 | ")
    assert first.split(" | ")[4] == "–"
    assert first.endswith(" | 1.00 |")
    assert second.startswith("| 2 | 450 | ")
    assert scaling_tables.measured(tmp_path / "none.json").startswith("Not measured yet")
