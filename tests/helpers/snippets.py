"""The fenced blocks of documents."""

from __future__ import annotations

import re
from typing import NamedTuple

# A fenced block: its indentation, language and text. What stands in one is no link and no table.
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S[^>]* -->\s*$")


class Snippet(NamedTuple):
    language: str
    text: str
    line: int  # number of the block's first line, counted from 1
    skipped: bool


def snippets(text: str) -> list[Snippet]:
    """The fenced blocks of a document."""
    return [
        Snippet(
            match["language"],
            match["text"],
            text.count("\n", 0, match.start("text")) + 1,
            NOT_RUN.search(text, 0, match.start()) is not None,
        )
        for match in FENCE.finditer(text)
    ]
