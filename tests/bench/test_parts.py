"""Suites in parts: each has its results file, is picked on the command line, and frees what its cases share."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import pathlib
import sys
import types
import weakref
from collections.abc import Iterator

import pytest
import torch

from bench_documents import CPU, FEW, ScriptedClock, good_document
from common import ROOT
from sluice import bench
from sluice.bench import cli, results
from sluice.bench.ceilings import Ceilings
from sluice.bench.results import write
from sluice.bench.runner import run_suite

bench.load_suite(ROOT, "models")
bench.load_suite(ROOT, "transform")
MODULE = sys.modules["bench_models"]
ZOO = importlib.import_module("model_zoo").ZOO
OWN = ["bigvgan", "whisper_stem", "tcn", "wavenet"]  # without transformers


def parted(*parts: str | None, bad: str = "") -> bench.Suite:
    """A suite with a case of each of `parts`; in the part `bad` it raises."""

    def fail(device: torch.device) -> bench.Workload:
        raise MemoryError("no room")

    cases = []
    for number, part in enumerate(parts):
        case = sys.modules["bench_transform"].chain_case("fp32", 64 + number)
        cases.append(dataclasses.replace(case, part=part, make=fail if part == bad else case.make))
    return bench.Suite("transform", cases, lambda device: ScriptedClock(5.0))


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """What the command line loads as `transform`; its runs take place on a GPU that the CPU plays."""
    holder = types.SimpleNamespace(suite=parted("a", "a", "b", "c"))
    monkeypatch.setattr(cli, "load_suite", lambda root, name: holder.suite)
    monkeypatch.setattr(cli, "_device", lambda kind: CPU)
    monkeypatch.setattr(cli, "ColdClock", lambda device: ScriptedClock(5.0))
    monkeypatch.setattr(cli, "measure_ceilings", lambda clock, device: Ceilings(4.22, 780.0))
    monkeypatch.setattr(cli, "FULL", FEW)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return holder


def written(directory: pathlib.Path) -> dict[str, list[int]]:
    """The files below it, and the sizes of their cases."""
    found = {}
    for path in sorted(directory.glob("*/*")):
        document = json.loads(path.read_text(encoding="utf-8"))
        bench.validate(document)
        assert document["suite"] == "transform"
        found[path.name] = [case["params"]["n"] for case in document["cases"]]
    return found


def test_parts_are_in_the_order_of_their_cases() -> None:
    found = parted("b", "a", "b").parts()
    assert {part: [case.params["n"] for case in suite.cases] for part, suite in found.items()} == {
        "b": [64, 66],
        "a": [65],
    }
    assert list(parted(None, None).parts()) == [None]
    suites = {name: bench.load_suite(ROOT, name) for name in cli.suite_names(ROOT)}
    names = {suite: {case.part for case in found.cases if case.part} for suite, found in suites.items()}
    assert [suite for suite, parts in names.items() if parts] == ["codecs", "models"]
    assert set(OWN) <= names["models"]
    assert {name.partition("_compiled_")[0] for name in names["models"]} <= set(ZOO)
    assert all(name.isidentifier() for parts in names.values() for name in parts)  # names of files and of arguments


def test_a_part_has_its_file(suite: types.SimpleNamespace, tmp_path: pathlib.Path) -> None:
    assert bench.main(["transform", "--output", str(tmp_path)]) == 0
    assert written(tmp_path) == {"transform.a.json": [64, 65], "transform.b.json": [66], "transform.c.json": [67]}


def test_a_file_is_there_before_the_next_part_begins(suite: types.SimpleNamespace, tmp_path: pathlib.Path) -> None:
    seen = []
    first, last = suite.suite.cases[0], suite.suite.cases[-1]

    def interrupted(device: torch.device) -> bench.Workload:
        seen.append(list(written(tmp_path)))
        raise KeyboardInterrupt

    suite.suite = dataclasses.replace(suite.suite, cases=[first, dataclasses.replace(last, make=interrupted)])
    with pytest.raises(KeyboardInterrupt):
        bench.main(["transform", "--output", str(tmp_path)])
    assert seen == [["transform.a.json"]]


def test_a_failed_case_costs_its_own_part(
    suite: types.SimpleNamespace, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.suite = parted("a", "b", "c", bad="b")
    assert bench.main(["transform", "--output", str(tmp_path)]) == 1
    assert list(written(tmp_path)) == ["transform.a.json", "transform.c.json"]
    said = capsys.readouterr()
    assert "transform:b: not written, because 1 of its cases failed" in said.out
    assert "MemoryError: no room" in said.err


def test_parts_are_picked_by_name(suite: types.SimpleNamespace, tmp_path: pathlib.Path) -> None:
    assert bench.main(["transform:c", "transform:a", "transform:c", "--output", str(tmp_path)]) == 0
    assert written(tmp_path) == {"transform.a.json": [64, 65], "transform.c.json": [67]}
    picked = cli._loaded(ROOT, ["transform:c", "transform:a"])
    assert [list(one.parts()) for one in picked] == [["c", "a"]]
    whole = cli._loaded(ROOT, ["transform:c", "transform"])
    assert [list(one.parts()) for one in whole] == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("argument", "part", "parts"),
    [("models:d", "'d'", "a, b, c"), ("models:", "''", "a, b, c"), ("cpu:a", "'a'", "none")],
)
def test_unknown_parts(
    argument: str, part: str, parts: str, suite: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    if parts == "none":
        suite.suite = parted(None)
    assert bench.main([argument]) == 2
    assert capsys.readouterr().err == f"sluice bench: unknown part {part} of suite 'transform'; it has: {parts}\n"


def test_parts_are_listed(suite: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["transform:b", "--list"]) == 0
    assert capsys.readouterr().out == f"transform:b: {suite.suite.cases[2].name}\n"
    assert bench.main(["--list"]) == 0
    assert "transform     4 cases in 3 parts\n" in capsys.readouterr().out


def test_cases_for_the_cpu(
    suite: types.SimpleNamespace, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["transform", "--cpu"]) == 2
    assert capsys.readouterr().err == "sluice bench: suite 'transform' has no cases for the CPU\n"
    suite.suite = dataclasses.replace(suite.suite, cpu_cases=parted("a", "d").cases)
    assert bench.main(["transform", "--cpu", "--list"]) == 0
    assert [line.split(":")[1] for line in capsys.readouterr().out.splitlines()] == ["a", "d"]
    assert bench.main(["transform:d", "--cpu", "--output", str(tmp_path)]) == 0
    assert written(tmp_path) == {"transform.d.json": [65]}
    (path,) = tmp_path.glob("*/*")
    assert path.parent.name == "cpu"
    assert json.loads(path.read_text(encoding="utf-8"))["cuda"] == "none"


def test_what_is_over_the_budget_can_be_run_later(
    suite: types.SimpleNamespace,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter(range(0, 1000, 10))  # a reading at the start, one before each part, one at the end
    monkeypatch.setattr(cli, "time", types.SimpleNamespace(monotonic=lambda: next(seconds)))
    arguments = ["--budget", "15", "--output", str(tmp_path)]
    assert bench.main(["transform", *arguments]) == 0
    assert list(written(tmp_path)) == ["transform.a.json"]
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not begun within 15 s: ")]
    rest = said.removeprefix("not begun within 15 s: ").split()
    assert rest == ["transform:b", "transform:c"]
    assert bench.main([*rest, "--output", str(tmp_path)]) == 0
    assert list(written(tmp_path)) == ["transform.a.json", "transform.b.json", "transform.c.json"]
    assert "not begun" not in capsys.readouterr().out


def test_a_file_is_replaced_at_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, good_document(), "a")
    assert path == tmp_path / "nvidia-h200" / "transform.a.json"
    before = path.read_text(encoding="utf-8")

    def cut_off(self: pathlib.Path, *args: object, **options: object) -> None:
        self.write_bytes(b"{")
        raise KeyboardInterrupt

    monkeypatch.setattr(results.Path, "write_text", cut_off)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, good_document(rel_err=1e-3), "a")
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.glob("*/*.json")) == [path]


@pytest.mark.parametrize(("parts", "said"), [((None, None), "r1r2"), (("a", "a"), "r12fr")])
def test_what_is_compiled_goes_with_its_part(
    parts: tuple[str | None, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resets (r), cases (1, 2) and the suite's release (f), in their order; nothing is compiled."""

    def alone(workload: bench.Workload) -> bench.Workload:
        return dataclasses.replace(workload, peers={})

    log: list[str] = []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: log.append("r"))
    suite = parted(*parts)
    cases = [
        dataclasses.replace(case, make=lambda device, case=case, n=n: log.append(str(n)) or alone(case.make(device)))
        for n, case in enumerate(suite.cases, 1)
    ]
    suite = dataclasses.replace(suite, cases=cases, release=lambda: log.append("f"))
    effort = dataclasses.replace(FEW, slow_peers=True)
    assert run_suite(suite, CPU, ScriptedClock(5.0), effort, lambda line: None).failures == []
    assert "".join(log) == said


# --- the suite `models` -----------------------------------------------------------------------------------------------
@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """torch.compile runs dynamo alone, each time with another backend; the graphs that were compiled."""
    compile_, graphs = torch.compile, []

    def by_dynamo(network: torch.nn.Module, dynamic: bool, **options: object) -> object:
        return compile_(network, dynamic=dynamic, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)

    monkeypatch.setattr(torch, "compile", by_dynamo)
    MODULE.release()
    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield graphs
    MODULE.release()
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["whisper_stem", "encodec_decoder"])
def test_a_network_is_built_and_compiled_once(
    name: str, backends: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EnCodec's padding breaks graphs, so its layers count against dynamo's limit."""
    if (reason := ZOO[name].missing()) is not None:
        pytest.skip(reason)
    built: list[weakref.ref[torch.nn.Module]] = []
    networks: list[str] = []

    class Seen(MODULE.Subject):
        def __init__(self, *args: object) -> None:
            assert not any(module() is not None for module in built), "the network before is still there"
            super().__init__(*args)
            built.append(weakref.ref(self.module))

    network = type(ZOO[name]).network
    monkeypatch.setattr(
        type(ZOO[name]), "network", lambda entry, size: networks.append(entry.name) or network(entry, size)
    )
    monkeypatch.setattr(MODULE, "Subject", Seen)
    monkeypatch.setattr(MODULE, "Captured", lambda network: network)
    ways, batches = ([*MODULE.WAYS], (2, 3)) if name == "whisper_stem" else ([MODULE.BACKEND], (2,))
    small = ZOO[name].size("small")
    cases = [MODULE.model_case(name, "fp32", batch, way, small) for batch in batches for way in ways]
    suite = dataclasses.replace(MODULE.SUITE, cases=cases)
    effort = dataclasses.replace(FEW, slow_peers=True)
    assert run_suite(suite, CPU, ScriptedClock(2.0), effort, lambda line: None).failures == []
    assert networks == [name]
    assert len(built) == len(batches)
    if name == "whisper_stem":
        assert len(backends) == 2 * 4  # torch's and sluice's compilers, in both modes
    backends.clear()
    gc.collect()
    assert built[-1]() is None
