"""Constructed cases in which a replaced model is known to differ: expected failures, by the name of their table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

FAULTS: dict[str, dict[str, str]] = {
    "dicts of hooks": {"another order": "Dynamo does not guard the order of hooks"},
}


def marked(names: Iterable[str], table: str) -> list[Any]:
    """The names as parameters; those of `FAULTS` are expected to fail."""
    known = FAULTS.get(table, {})
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=known[name], strict=True)) if name in known else name
        for name in names
    ]
