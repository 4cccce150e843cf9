"""The files in .github: workflows run commands that exist, and forms are as GitHub takes them."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest

from common import ROOT

yaml = pytest.importorskip("yaml")

FOLDER = ROOT / ".github"
FORMS = sorted((FOLDER / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: pathlib.Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict), path
    return found


def steps() -> list[dict[str, Any]]:
    jobs = [job for path in (FOLDER / "workflows").glob("*.yml") for job in read(path)["jobs"].values()]
    return [step for job in jobs for step in job["steps"]]


def test_workflows_call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for step in steps() for name in re.findall(r"\bmake ([a-z-]+)$", step.get("run", ""))}
    assert {"demo", "test", "lint", "wheel"} <= called <= targets


def test_every_step_runs_or_uses_something() -> None:
    for step in steps():
        assert ("run" in step) != ("uses" in step), step
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step.get("uses", "actions/checkout@v4")), step


def test_the_workflow_has_the_torch_of_the_environment() -> None:
    pinned = re.search(r"SLUICE_TORCH:-(torch==[\d.]+)}", (ROOT / "tools/setup_venv.sh").read_text())
    assert pinned is not None
    assert read(FOLDER / "workflows/ci.yml")["env"]["SLUICE_TORCH"] == pinned[1] + "+cpu"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_for(path: pathlib.Path) -> None:
    form = read(path)
    assert set(form) == {"name", "description", "labels", "body"}
    names = [field["id"] for field in form["body"]]
    assert len(set(names)) == len(names) > 1
    for field in form["body"]:
        assert field["type"] in ("textarea", "dropdown")
        assert field["attributes"]["label"]
        assert (field["type"] == "dropdown") == ("options" in field["attributes"])
