"""Loops over many small cases in one test, which cost less than a test for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def case(*names: object) -> Iterator[None]:
    """Adds the case to the message of what it asserts."""
    try:
        yield
    except AssertionError as error:
        parts = [getattr(name, "__name__", str(name)) for name in names]
        raise AssertionError(f"{', '.join(parts)}: {error}") from error
