"""`make results` refuses a file of results without the times of a peer that the committed file has."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import pytest

import lost_peers
from bench_documents import good_document, good_row
from common import ROOT

pytestmark = pytest.mark.no_gpu
NAME = "benchmarks/results/nvidia-h200/transform.json"
RULE = "must keep the peers of the last commit, got no time for"


def document(*peers: dict[str, float | None]) -> dict:
    """A case for each of `peers`."""
    rows = [good_row() | {"name": f"case {i}", "peers": one} for i, one in enumerate(peers)]
    return good_document() | {"cases": rows}


def put(root: pathlib.Path, found: dict, name: str = NAME) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(found))


def commit(root: pathlib.Path) -> None:
    who = ["-c", "user.name=a test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "Record"]):
        subprocess.run(["git", *command], cwd=root, check=True)


@pytest.fixture
def recorded(tmp_path: pathlib.Path) -> pathlib.Path:
    """A repository with a committed file: two cases with two peers, one with a peer that could not run."""
    put(tmp_path, document({"torch": 3.0, "cub": 2.0}, {"torch": 3.0, "cub": 2.0}, {"torch": 3.0, "cub": None}))
    commit(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("peers", "rows"),
    [
        ({"torch": 9.0, "cub": 9.0}, {}),
        ({"torch": 9.0, "cub": None}, {"cub": 1}),
        ({"torch": 9.0}, {"cub": 1}),
        ({}, {"torch": 1, "cub": 1}),
        ({"torch": 9.0, "cub": 9.0, "copy": None}, {}),
    ],
)
def test_a_row_loses_a_peer_that_it_had(peers: dict[str, float | None], rows: dict[str, int]) -> None:
    assert lost_peers.lost(document({"torch": 3.0, "cub": 2.0, "copy": None}), document(peers)) == rows


def test_only_the_same_case_is_compared() -> None:
    old = document({"torch": 3.0})
    for changes in ({"name": "another"}, {"params": {"n": 7}}):
        assert lost_peers.lost(old, good_document(**(old["cases"][0] | {"peers": {}} | changes))) == {}
    reordered = dict(reversed(old["cases"][0]["params"].items()))
    assert lost_peers.lost(old, good_document(**(old["cases"][0] | {"peers": {}, "params": reordered}))) == {"torch": 1}


def test_a_lost_peer_is_refused_unless_told_so(
    recorded: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*allowed: str) -> tuple[int, list[str]]:
        monkeypatch.setattr("sys.argv", ["lost_peers.py", *allowed])
        return lost_peers.main(recorded), capsys.readouterr().out.splitlines()

    give_up = "measure again with these peers, or give them up: make results LOSE="
    assert ends() == (0, [])
    put(recorded, document({"torch": 3.0}, {"torch": 3.0}, {"torch": 3.0}))
    assert ends() == (1, [f"{NAME}: suite transform {RULE} cub in 2 rows", f'{give_up}"cub"'])
    assert ends("cub") == (0, [])
    assert ends("torch")[0] == 1
    put(recorded, document({"torch": None}, {"torch": 3.0}, {"torch": 3.0}))
    assert ends()[1] == [f"{NAME}: suite transform {RULE} cub in 2 rows and torch in 1 row", f'{give_up}"cub torch"']
    assert ends("cub")[1] == [f"{NAME}: suite transform {RULE} torch in 1 row", f'{give_up}"cub torch"']
    commit(recorded)
    assert ends() == (0, [])  # given up


def test_a_file_is_compared_with_its_own_commit_only(
    recorded: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(recorded, document({}), "benchmarks/results/nvidia-h200/models.whisper_stem.json")  # new
    (recorded / NAME).unlink()
    assert lost_peers.losses(recorded) == {}
    alone = tmp_path_factory.mktemp("alone")
    put(alone, document({}))
    assert lost_peers.losses(alone) == {}  # without a repository
    put(recorded, document({}))
    assert lost_peers.losses(recorded) == {recorded / NAME: {"torch": 1, "cub": 1}}
    monkeypatch.setenv("PATH", "")
    assert lost_peers.losses(recorded) == {}  # without git


def test_make_results_checks_before_it_writes() -> None:
    rule = re.search(r"^results:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule
    assert rule[1].splitlines()[0] == "\t@$(ANY_PYTHON) tools/lost_peers.py $(LOSE)"
