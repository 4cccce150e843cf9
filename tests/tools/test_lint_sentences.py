"""tools/lint_sentences.py: words that stand for a noun, in the comments of each kind of file."""

from __future__ import annotations

import pathlib

import pytest

import lint_sentences


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The weights, and those of the bias.", ["those"]),
        ("Those channels have one launch each.", []),
        ("A call like the last one.", ["one"]),
        ("The one that is larger", ["one"]),
        ("one utterance and one at a time", []),
        ("Dense ones run on tensor cores.", ["ones"]),
        ("a tensor of `torch.ones(3)`", []),
        ("and such in a chain", ["such"]),
        ("such calls, such as a copy", []),
        ("of the input", ["of"]),
    ],
)
def test_a_comment(line: str, words: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint_sentences, "ROOT", tmp_path)
    texts = {
        "a.py": f"x = 1  # {line}\n",
        "b.py": f'"""{line}"""\n\nx = "those of a text"\n',
        "c.cuh": f"int x;  // {line}\n",
        "d.sh": f"# {line}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = [one.split("'")[1] for one in lint_sentences.findings(tmp_path / name)]
        assert found == words, name


def test_a_page_without_code_and_results(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint_sentences, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "Of sequences, long ones.\n```\nones\n```\n<!-- results:begin -->\nones\n<!-- results:end -->\nThe same\none.\n"
    )
    assert [one.split(": ")[0] for one in lint_sentences.findings(page)] == ["page.md:1", "page.md:8"]
