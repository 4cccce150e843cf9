"""Tables and captions made from benchmarks/results are current, and say when sources have changed since."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

import draw_results
import recorded_tables
import result_files
import write_results
from common import ROOT

pytestmark = pytest.mark.no_gpu


def document(**changes: object) -> dict:
    case = {"name": "x / (1 + |x|)", "params": {"n": 1}, "time_us": 10.0, "floor_us": 9.0, "efficiency": 0.9}
    case |= {"peers": {"torch": 30.0, "cub": None}, "schedule": "direct", "depth": 1, "auto": True}
    head = {"suite": "transform", "gpu": "A GPU", "torch": "2.11", "cuda": "13.0", "date": "2026-11-22"}
    return head | {"source_hash": result_files.tree_hash(), "cases": [case | changes]}


def test_what_stands_in_the_documents_is_todays() -> None:
    for path, text in write_results.render().items():
        between = write_results.MARKERS.search(path.read_text())
        assert between, path
        begin, end = "<!-- results:begin -->\n", "<!-- results:end -->"
        assert between[0] == f"{begin}{text}\n{end}", f"{path.relative_to(ROOT)} is stale: run `make results`"


def test_a_file_of_other_sources_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["write_results.py", "--check"])
    (found,) = [document for document in result_files.documents() if document["suite"] == "overhead"]
    said = f"measured on older sources than this tree's ({found['date']})"
    for tree, older in (("0" * 64, True), (found["source_hash"], False)):
        monkeypatch.setattr(result_files, "tree_hash", lambda tree=tree: tree)
        write_results.main()
        assert (f"{found['path']}: {said}" in capsys.readouterr().out) == older
        assert ("on older sources" in write_results.overhead(found).splitlines()[0]) == older


def test_the_first_card_that_has_a_suite_is_shown(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    first, second = result_files.CARDS
    for card, suite in (
        (first, "transform"),
        (second, "transform"),
        (second, "stream"),
        ("a-card", "stream"),
        ("a-card", "depth"),
    ):
        path = tmp_path / "benchmarks" / "results" / card / f"{suite}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        made = document() | {"suite": suite, "date": "2026-11-24" if card == second else "2026-11-23"}
        path.write_text(json.dumps(made))
    result_files._all_documents.cache_clear()
    first_cards, newest = (
        [found["path"].split("/")[-2:] for found in find()] for find in (result_files.documents, result_files.newest)
    )
    result_files._all_documents.cache_clear()
    assert first_cards == [["a-card", "depth.json"], [first, "transform.json"], [second, "stream.json"]]
    assert newest == [["a-card", "depth.json"], [second, "stream.json"], [second, "transform.json"]]


def test_a_column_without_a_time_is_left_out_and_named() -> None:
    text = write_results.table(document())
    assert "| case | schedule | sluice | floor | efficiency | torch | torch / sluice |" in text
    assert text.endswith("No column for `cub`, which has no Python binding.")
    assert "No column" not in write_results.table(document(peers={"torch": 30.0}))


def test_a_bar_in_a_name_does_not_end_its_cell() -> None:
    row = write_results.table(document()).splitlines()[4]
    assert row == r"| x / (1 + \|x\|) | direct | 10.0 | 9.0 | 0.90 | 30.0 | 3.00 |"


def test_every_peer_is_explained() -> None:
    shown = [*result_files.documents(), *result_files.newest()]
    timed = {name for d in shown for c in d["cases"] for name, us in c["peers"].items() if us}
    assert timed <= set(write_results.PEERS)
    text = write_results.render()[write_results.RESULTS]
    assert set(re.findall(r"^- `(\w+)`: ", text, re.MULTILINE)) == timed


def test_the_picture_shows_losses_too() -> None:
    verdicts = [draw_results.verdict(bar.ratio) for bar in result_files.PICTURE]
    assert any("slower" in verdict for verdict in verdicts)
    assert draw_results.OUTPUT.is_file()
    ratios = {0.5: "2.0 x faster", 0.99: "as fast", 1.01: "as fast", 2.0: "2.0 x slower"}
    assert [draw_results.verdict(ratio) for ratio in ratios] == [*ratios.values()]


def test_issues_are_a_line_for_both_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_results.issues(document()) == ""
    (case,) = document(name="1x4x9 K=4 p=0 bf16 cf pytorch#7")["cases"]
    (other,) = document(name="1x4x9 K=4 p=0 bf16 cl pytorch#7", time_us=20.0, efficiency=0.45)["cases"]
    (alone,) = document(name="2x4x9 K=4 p=0 bf16 cl pytorch#7")["cases"]
    found = document() | {"suite": "conv1d_depthwise"}
    found["cases"] += [case, other, alone]
    link = "[#7](https://github.com/pytorch/pytorch/issues/7)"
    assert write_results.issues(found).splitlines()[2:] == [
        f"| {link}: 1x4x9 K=4 p=0 bf16 | 30.0 | 10.0 | 0.90 | 30.0 | 20.0 | 0.45 |",
        f"| {link}: 2x4x9 K=4 p=0 bf16 | – | – | – | 30.0 | 10.0 | 0.90 |",
    ]
    picture = write_results.picture()
    measured = [d | {"cases": d["cases"] + [case] * (d["suite"] == found["suite"])} for d in result_files.documents()]
    monkeypatch.setattr(write_results, "documents", lambda: measured)
    assert write_results.picture().startswith(picture.partition("Two issues")[0])
    assert write_results.picture().endswith(write_results.issues({"cases": [case]}).splitlines()[-1])


def test_the_first_cards_recording_is_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    assert result_files.recording("streams.json") is None
    for card in ("cpu", "another", *reversed(result_files.CARDS)):
        path = tmp_path / "benchmarks" / "recordings" / card / "streams.json"
        path.parent.mkdir(parents=True)
        path.touch()
        assert result_files.recording("streams.json") == (None if card == "cpu" else path)


def test_layers_are_a_line_each_and_those_left_out_are_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    assert recorded_tables.layers() == ""
    case = {"layer": "Mixer", "what": "decode", "dtype": "fp16", "batch": 3, "tokens": 1}
    before = {"conv_us": 20.0, "layer_us": 100.0, "conv_share": 0.2}
    after = {"conv_us": 4.0, "layer_us": 80.0, "conv_share": 0.05}
    cases = [case | {"channels": 8, "before": before, "after": after}, case | {"left_out": "no memory"}]
    head = {"gpu": "A GPU", "torch": "2.11", "cuda": "13.0", "transformers": "5.17", "scans": "torch code"}
    path = tmp_path / "benchmarks" / "recordings" / "a-card" / "layers.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(head | {"date": "2026-11-25", "cases": cases}))
    *_, row, blank, left_out = recorded_tables.layers().splitlines()
    assert row == "| Mixer decode 3 x 1 fp16, C = 8 | 20.0 | 4.0 | 100.0 | 80.0 | 20.00 | 5.00 |"
    assert (blank, left_out) == ("", "Left out: Mixer decode 3 x 1 fp16 (no memory).")


def test_the_parts_of_a_suite_are_one_document(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read() -> dict:
        result_files._all_documents.cache_clear()
        (found,) = result_files.documents()
        assert result_files.newest() == [found]
        return found

    tree = result_files.tree_hash()
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    folder = tmp_path / "benchmarks" / "results" / "a-card"
    folder.mkdir(parents=True)
    days = {"b": "2026-11-25", "a": "2026-11-23", "c": "2026-11-24"}
    for part, day in days.items():
        params = {"op": part, "dtype": "fp16", "B": 1, "L": 9, "fn": "replace"}
        made = document(name=part, params=params, rel_err=1e-3) | {"suite": "models", "date": day}
        (folder / f"models.{part}.json").write_text(
            json.dumps(made | {"source_hash": "0" * 64 if part == "c" else tree})
        )
    found = read()
    assert [case["name"] for case in found["cases"]] == ["a", "b", "c"]
    assert found["date"] == "2026-11-25"
    assert result_files.is_older(found)
    heading, table = write_results.networks(found).split("\n\n")
    assert "measured 2026-11-23 and 2026-11-25, 2026-11-24 on older sources than this tree's" in heading
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == [f"| {name} fp16 1x9" for name in "abc"]

    monkeypatch.setattr("sys.argv", ["write_results.py", "--check"])
    monkeypatch.setattr(write_results, "render", dict)
    write_results.main()
    said = capsys.readouterr().out
    assert (
        said == f"benchmarks/results/a-card/models.c.json: measured on older sources than this tree's ({days['c']})\n"
    )

    (folder / "models.b.json").unlink()  # a network that was not measured
    (folder / "models.c.json").unlink()
    assert [case["name"] for case in read()["cases"]] == ["a"]
    (folder / "models.json").write_text((folder / "models.a.json").read_text())
    with pytest.raises(ValueError, match=r"names that differ: .*models\.a\.json, .*models\.json"):
        read()
    result_files._all_documents.cache_clear()


def model_rows(name: str, dtype: str, batch: int) -> list[dict]:
    """What suite `models` writes for a network; 6 ms eager, 4 compiled."""
    ways = {
        "replace": (3000.0, {"torch": 6000.0}),
        "replace, CUDA graphs": (1000.0, {"torch": 5000.0, "torch_graph": 2000.0}),
        "backend": (2500.0, {"torch": 8000.0, "torch_compile": 4000.0}),
        "backend, reduce-overhead": (900.0, {"torch": 6000.0, "torch_compile_reduce_overhead": None}),
    }
    head = {"op": name, "dtype": dtype, "B": batch, "L": 9}
    return [
        {"name": f"{name} {dtype} {batch}: {way}", "params": head | {"fn": way}, "time_us": us, "peers": peers}
        | {"rel_err": us * 1e-6}
        for way, (us, peers) in ways.items()
    ]


def test_a_network_is_a_line_for_each_dtype_and_batch() -> None:
    cases = [*model_rows("a", "fp32", 1), *model_rows("a", "fp32", 8)[:1]]
    _, _, header, _, *lines = write_results.networks(document() | {"suite": "models", "cases": cases}).splitlines()
    titles = ["network", "eager", "`replace`", "eager in a graph", "`replace` with graphs", "torch.compile", "backend"]
    assert header == f"| {' | '.join([*titles, 'backend, reduce-overhead', 'error'])} |"
    assert lines == [
        "| a fp32 1x9 | 6.00 | 3.00 (2.00) | 2.00 | 1.00 (2.00) | 4.00 | 2.50 (1.60) | 0.90 | 3.0e-03 |",
        "| a fp32 8x9 | 6.00 | 3.00 (2.00) | – | – | – | – | – | 3.0e-03 |",
    ]
    # Where torch cannot be captured, a graph is compared with eager torch.
    captured = model_rows("a", "fp32", 1)[1]
    captured["peers"].pop("torch_graph")
    text = write_results.networks(document() | {"suite": "models", "cases": [captured]})
    assert text.splitlines()[-1] == "| a fp32 1x9 | 5.00 | 1.00 (5.00) | 1.0e-03 |"


def test_the_picture_opens_with_the_networks_that_are_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (vocoder, *_, stem) = result_files.NETWORKS
    assert len(result_files.NETWORKS) == 4
    assert "fp32" in {network.dtype for network in result_files.NETWORKS}
    one, other = (model_rows(network.name, network.dtype, network.batch) for network in (vocoder, stem))
    found = [d for d in result_files.documents() if d["suite"] != "models"]
    models = document() | {"suite": "models", "cases": [*one, *other[:1]]}
    monkeypatch.setattr(result_files, "documents", lambda: found)
    monkeypatch.setattr(write_results, "documents", lambda: found)
    assert result_files.networks_shown() == []
    assert "2026-11-22" not in write_results.picture()
    found += [models, models | {"gpu": "cpu", "cases": []}]
    assert result_files.networks_shown() == [vocoder]
    assert vocoder.times() == {
        "eager": (6000.0, 1.0), "torch.compile": (4000.0, 0.5), "replace": (3000.0, 0.5),
        "replace, CUDA graphs": (1000.0, 0.2),
    }  # fmt: skip
    assert set(vocoder.times()) <= set(draw_results.NETWORK_COLORS)
    assert "2026-11-22" in write_results.picture()
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(draw_results, "OUTPUT", tmp_path / "results.png")
    draw_results.draw()
    assert draw_results.OUTPUT.stat().st_size > 10_000


def test_the_cpus_results_of_a_suite_stand_beside_a_cards(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    for folder, gpu, day in (("cpu", "cpu", "2026-11-29"), (result_files.CARDS[0], "NVIDIA H100", "2026-11-28")):
        path = tmp_path / "benchmarks" / "results" / folder / "models.a.json"
        path.parent.mkdir(parents=True)
        made = document() | {"suite": "models", "gpu": gpu, "date": day, "cases": model_rows("a", "fp32", 1)}
        path.write_text(json.dumps(made))
    result_files._all_documents.cache_clear()
    both = [[d["gpu"] for d in find()] for find in (result_files.documents, result_files.newest)]
    monkeypatch.setattr(write_results, "picture", lambda: "")  # the picture shows other suites
    text = write_results.render()[write_results.MEASUREMENTS / "models.md"]
    result_files._all_documents.cache_clear()
    assert both == [["cpu", "NVIDIA H100"]] * 2
    headings = [line for line in text.splitlines() if line.startswith("**models**")]
    assert [line.split(", ")[2] for line in headings] == ["NVIDIA H100", "cpu"]
