"""The examples of docs/scaling.md on several ranks; tests/docs runs them in one process."""

from __future__ import annotations

from collections.abc import Callable

import documents
import pytest
from ranks import Ranks

from common import ROOT

pytestmark = pytest.mark.no_gpu


@pytest.mark.parametrize("size", [2, 4])
def test_the_examples_run_on_several_ranks(size: int, ranks: Callable[[int], Ranks]) -> None:
    text = (ROOT / "docs/scaling.md").read_text()
    assert min(ranks(size).run(documents.run_document, text)) >= 8
