"""Constructed cases in which a replaced model is known to differ: expected failures, by the name of their table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

_SWAP = "torch swaps no tensor with a weak reference, and its fake mode keeps some"
FAULTS: dict[str, dict[str, str]] = {
    "dicts of hooks": {"another order": "Dynamo does not guard the order of hooks"},
    "side effects": {"lru_cache": "Dynamo calls a function at the trace, whatever its cache holds"},
    "changed parts": {"a lazy one": "Dynamo restores the state of the random numbers that a lazy module draws"},
    "changed values": {
        "a shadowed weight": "Dynamo reads a parameter and does not guard what hides it",
        "swapped tensors": _SWAP,
        "to by swapping": _SWAP,
    },
}


def marked(names: Iterable[str], table: str) -> list[Any]:
    """The names as parameters; the names in `FAULTS` are expected to fail."""
    known = FAULTS.get(table, {})
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=known[name], strict=True)) if name in known else name
        for name in names
    ]
