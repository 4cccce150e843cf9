"""Rows of a table in one test: a test for each would cost more than what it computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def naming(*row: object) -> Iterator[None]:
    """A failure inside begins with the row."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{', '.join(map(str, row))}: {error}") from error
