"""The demo's table, as text."""

from __future__ import annotations

from collections.abc import Sequence

from .measure import Row

HEADINGS = ("job", "dtype", "shape", "error", "ours", "torch", "ratio", "device", "result")
_LEFT = {"job", "dtype", "device", "result"}


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.job,
        row.dtype_name,
        " x ".join(map(str, row.shape)),
        f"{row.error:.1e}",
        _time(row.ours),
        _time(row.torch),
        f"{row.ratio:.2f}",
        row.device,
        "ok" if row.ok else "WRONG",
    )


def format_table(rows: Sequence[Row]) -> str:
    """A line of headings, then one line per row; names are left-aligned, numbers right-aligned."""
    lines = [HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = tuple("-" * width for width in widths)

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if heading in _LEFT else cell.rjust(width)
            for cell, width, heading in zip(cells, widths, HEADINGS, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join(map(line, (HEADINGS, rule, *lines[1:])))
