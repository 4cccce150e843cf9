"""The rows that `sluice.replace` reports, one per module, and their text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Row:
    """One module.

    Attributes:
        module: its name in the model.
        was: its class before, and whether it is parametrised.
        now: its class now; the same if it was not replaced.
        folded: the chains folded into it, by the module that calls it.
        note: why it was not replaced, why nothing is folded, or what would save more.
    """

    module: str
    was: str
    now: str
    folded: str = ""
    note: str = ""


def table(rows: Sequence[Row]) -> str:
    """The rows in columns."""
    head = ("module", "was", "is now", "folded", "why not")
    cells = [head, *((r.module or "(the model)", r.was, r.now, r.folded, r.note) for r in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head) - 1)]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return "\n".join(lines)
