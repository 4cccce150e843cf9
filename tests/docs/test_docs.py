"""The documents: snippets run, links lead somewhere, tables are complete, examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import re
from typing import Any

import pytest
import torch

import sluice
from common import ROOT, SCHEDULES
from snippets import FENCE, snippets

SNIPPETS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = [
    *SNIPPETS,
    ROOT / "CHANGELOG.md",
    *(page for folder in ("examples", "kernels") for page in sorted((ROOT / folder).rglob("*.md"))),
]

CELL_END = re.compile(r"(?<!\\)\|")


def run_snippets(text: str, name: str) -> int:
    """Runs the python blocks in one namespace, with the document's line numbers, and returns how many there were."""
    namespace: dict[str, Any] = {"__name__": name}
    ran = 0
    for snippet in snippets(text):
        if snippet.language != "python" or snippet.skipped:
            continue
        code = compile("\n" * (snippet.line - 1) + snippet.text, name, "exec")
        exec(code, namespace)
        ran += 1
    return ran


def anchors(text: str) -> set[str]:
    """The link anchors of a document's headings."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(text: str, document: pathlib.Path) -> list[str]:
    """The relative links of a document that lead nowhere: no such file, or no such heading."""
    broken = []
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = document if path == "" else (document.parent / path).resolve()
        inside = found.is_relative_to(ROOT) and found.exists()
        if not inside or (anchor and anchor not in anchors(text if found == document else found.read_text())):
            broken.append(target)
    return broken


def relative(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", SNIPPETS, ids=relative)
def test_snippets_run(document: pathlib.Path) -> None:
    torch._dynamo.reset()
    state = torch.is_grad_enabled()
    run_snippets(document.read_text(), relative(document))
    assert torch.is_grad_enabled() == state


def test_the_readme_has_snippets_that_run() -> None:
    blocks = [block for block in snippets((ROOT / "README.md").read_text()) if block.language == "python"]
    assert len([block for block in blocks if not block.skipped]) >= 3


def test_a_snippet_that_fails_is_caught() -> None:
    with pytest.raises(AssertionError):
        run_snippets("text\n\n```python\nassert False\n```\n", "broken.md")
    with pytest.raises(NameError, match="missing"):
        run_snippets("```python\nx = 1\n```\n\n```python\nx + missing\n```\n", "broken.md")
    skipped = "<!-- not run: shows an error -->\n```python\nassert False\n```\n\n```python\nx = 1\n```\n"
    assert run_snippets(skipped, "fine.md") == 1


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_lead_to_files_and_headings(document: pathlib.Path) -> None:
    assert broken_links(document.read_text(), document) == []


def test_a_broken_link_is_caught() -> None:
    text = "# A title\n[a](README.md) [b](missing.md) [c](#a-title) [d](#another) [e](https://example.org) [f](../x.md)"
    assert broken_links(text, ROOT / "CONTRIBUTING.md") == ["missing.md", "#another", "../x.md"]


def module_names() -> list[str]:
    package = pathlib.Path(sluice.__file__).parent
    paths = [path.relative_to(package.parent).with_suffix("") for path in sorted(package.rglob("*.py"))]
    return [".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__"]


@pytest.mark.parametrize("name", module_names())
def test_examples_in_docstrings_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0, "pytest's captured output shows the examples that failed"


@pytest.mark.parametrize("name", [n for n in sluice.__all__ if n not in ("reference", "stages")])
def test_public_names_are_documented_with_an_example(name: str) -> None:
    text = getattr(sluice, name).__doc__
    assert text
    if name not in ("Chain", "Plan"):
        assert ">>> " in text, f"sluice.{name} has no example"


def public_ops() -> set[str]:
    return {name for name in sluice.__all__ if hasattr(torch.ops.sluice, name)} | set(sluice._registry.OPS)


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a document: rows of cells, the header first, without the rule below it."""
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", FENCE.sub("", text), re.MULTILINE)
    rows = [[[cell.strip() for cell in CELL_END.split(line)[1:-1]] for line in block.splitlines()] for block in blocks]
    return [[table[0], *table[2:]] for table in rows]


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_no_row_breaks_its_table(document: pathlib.Path) -> None:
    for table in tables(document.read_text()):
        assert {len(row) for row in table} == {len(table[0])}, table[0]


def test_a_bar_in_a_cell_is_caught() -> None:
    (whole,) = tables("| a | b |\n|---|---|\n| \\|x\\| | 1 |\n")
    assert [len(row) for row in whole] == [2, 2]
    (broken,) = tables("| a | b |\n|---|---|\n| |x| | 1 |\n")
    assert [len(row) for row in broken] == [2, 4]


PAGE = (ROOT / "docs" / "adding_an_op.md").read_text().replace("&lt;", "<").replace("&gt;", ">").replace("\\_", "_")


def pattern(path: str) -> str:
    """A glob for a path with placeholders; the op is the page's example."""
    return re.sub(r"<\w+>", "*", path.replace("<op>", "transform"))


def missing_paths(text: str) -> list[str]:
    """The paths from the checkout's root that a text names and that are not there."""
    named = re.findall(r"(?<![\w/.])(?:kernels|ops|python|tests|benchmarks|docs|tools)/[\w<>./-]*", text)
    # A method that the page makes up.
    real = {path.rstrip(".") for path in named if "/dense" not in path}
    return sorted(path for path in real if not any(ROOT.glob(pattern(path).rstrip("/"))))


def test_the_page_on_ops_names_paths_that_exist() -> None:
    assert missing_paths(PAGE) == []
    wrong = "`tests/<op>/test_results.py`, ops/missing.cpp and kernels/operators/<op>/gone.h, but ../tests/nothing.py"
    assert missing_paths(wrong) == ["kernels/operators/<op>/gone.h", "ops/missing.cpp"]


def test_the_page_on_ops_lists_the_files_of_its_example() -> None:
    (table,) = [table for table in tables(PAGE) if table[0] == ["file", "what it must contain"]]
    listed = {path for row in table[1:] for path in re.findall(r"`(\S+)`", row[0])}
    folder = ROOT / "kernels/operators/transform"
    found = {name: {path.name for path in folder.glob(pattern(name))} for name in listed}
    assert not [name for name, files in found.items() if not files]
    assert set().union(*found.values()) == {path.name for path in folder.iterdir()}


def test_the_page_on_ops_lists_files_that_name_every_op() -> None:
    (table,) = [table for table in tables(PAGE) if table[0] == ["file", "what it gets", "missed by"]]
    listed = [(ROOT / "docs" / link).resolve() for row in table[1:] for link in re.findall(r"\]\((\S+)\)", row[0])]
    assert len(table) - 1 <= 10
    assert len(listed) == 15
    for path in listed:
        text = path.read_text()
        assert not [op for op in ("transform", "filter2d") if op not in text], path


def test_the_readmes_op_table_names_every_public_op() -> None:
    (table,) = [table for table in tables((ROOT / "README.md").read_text()) if table[0][0] == "op"]
    assert all(len(row) == len(table[0]) for row in table)
    assert public_ops() >= {"transform", "conv1d", "causal_conv1d"}
    named = {name for row in table[1:] for name in re.findall(r"`(\w+)`", row[0])}
    assert named == public_ops() | {"streaming"}  # which takes a model, and calls the ops of other rows


def test_the_readme_names_every_stage() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [name for name in sluice.stages.__all__ if name != "Chain" and f"`{name}`" not in text]
    assert not missing


def test_the_readme_opens_with_the_two_commands() -> None:
    first = snippets((ROOT / "README.md").read_text())[0]
    commands = [line.partition("#")[0].strip() for line in first.text.splitlines()]
    assert [command for command in commands if command] == ["make demo", "make test"]
    assert first.line <= 5


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_make_targets_are_named(name: str) -> None:
    text, makefile = (ROOT / name).read_text(), (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z-]+)`", text))
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    wanted = {"help", "demo", "test", "wheel", "bench", "results", "lint", "format", "sanitize", "gpu-check", "receipt"}
    assert wanted <= named <= targets


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "Makefile"])
def test_parts_of_the_gpu_check_are_called_what_they_are(name: str) -> None:
    gpu_check = importlib.import_module("gpu_check")
    for parts in re.findall(r'PARTS="([^"]*)"', (ROOT / name).read_text()):
        assert set(parts.split()) - {"..."} <= set(gpu_check.PARTS), parts


@pytest.mark.parametrize("op", sluice._registry.OPS)
def test_docstrings_list_every_schedule(op: str) -> None:
    listed = re.search(r"^ +schedule: (.*?)^ +depth: ", getattr(sluice, op).__doc__, re.MULTILINE | re.DOTALL)
    assert listed
    assert re.findall(r'"(\w+)"', listed[1]) == ["auto", *SCHEDULES]


def test_the_table_of_what_is_supported_lists_every_schedule() -> None:
    found = [row for table in tables((ROOT / "docs/usage.md").read_text()) for row in table if row[0] == "schedules"]
    (row,) = found
    assert re.findall(r"`(\w+)`", row[1]) == ["auto", *SCHEDULES]


def test_the_readme_has_one_place_for_results() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"<!-- results:(\w+) -->", text) == ["begin", "end"]


SYSTEMS = 26  # that the five texts describe


def test_every_system_of_the_sources_names_what_is_behind_it() -> None:
    text = (ROOT / "docs" / "sources.md").read_text()
    rows = [[cell.strip() for cell in CELL_END.split(line)[1:-1]] for line in text.splitlines()]
    systems = {int(row[0]): row for row in rows if len(row) == 6 and row[0].isdigit()}
    assert list(systems) == list(range(1, SYSTEMS + 1))
    for number, (_, _, where, picture, evidence, claim) in systems.items():
        assert where, number
        assert "](" in picture, number
        assert claim.endswith("."), number
        named = re.findall(r"`([^`]+)`", evidence)
        assert named, number
        for name in named:
            assert_is_evidence(name)


def assert_is_evidence(name: str) -> None:
    """A test, or a file that a suite or a recording wrote on some GPU."""
    if name.endswith(".json"):
        assert list(ROOT.glob(f"benchmarks/re*/nvidia-*/{name}")), name
        return
    file, _, function = name.partition("::")
    assert file.startswith("tests/"), name
    assert (ROOT / file).is_file(), name
    assert not function or re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.MULTILINE), name


def test_facts_and_traps_of_the_sources_name_what_is_behind_them() -> None:
    text = (ROOT / "docs" / "sources.md").read_text()
    facts = re.search(r"## Facts that the texts name\n\n(.*?)\n\n##", text, re.DOTALL)
    assert facts
    for fact in facts[1].split("\n- "):
        (named,) = re.findall(r"\(`([^`]+)`\)\.$", fact)
        assert_is_evidence(named)
    traps = re.search(r"## Traps\n(.*?)\n##", text, re.DOTALL)
    assert traps
    program = (ROOT / "tests" / "gpu" / "traps.cu").read_text()
    assert re.findall(r"^\| `(\w+)` \|", traps[1], re.MULTILINE) == re.findall(
        r'^    \{"(\w+)", run_', program, re.MULTILINE
    )
