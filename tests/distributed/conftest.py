"""Groups of processes that the tests of this folder share: starting one takes seconds."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # what the processes import

from ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Callable[[int], Ranks]]:
    """A group of that size; a new group after a test that has failed in the old group."""
    groups: dict[int, Ranks] = {}

    def of_size(size: int) -> Ranks:
        if size not in groups or not groups[size].is_alive:
            groups[size] = Ranks(size)
        return groups[size]

    yield of_size
    for group in groups.values():
        if group.is_alive:
            group.close()
