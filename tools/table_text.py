"""Cells and lines of the tables that tools write into docs/."""

from collections.abc import Iterable, Sequence

MICROSECONDS, MILLISECONDS = ("microseconds", 1.0), ("milliseconds", 1e-3)


def cell(us: float | None, scale: float = 1.0, digits: int | None = None) -> str:
    if us is None:
        return "–"
    if digits is None:
        digits = 2 if scale < 1 else 1 if us < 10000 else 0
    return f"{us * scale:.{digits}f}"


def lines_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; a `|` within a cell does not end it."""
    escaped = [[text.replace("|", r"\|") for text in row] for row in (header, *rows)]
    written = [f"| {' | '.join(row)} |" for row in escaped]
    return [written[0], "|---" * len(header) + "|", *written[1:]]
