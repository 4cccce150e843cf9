"""Fixtures of tests on the CPU: each instruction set that this machine has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from sluice import _library


@pytest.fixture(params=_library.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _library.instruction_set()
    torch.ops.sluice._set_instruction_set(request.param)
    yield request.param
    torch.ops.sluice._set_instruction_set(before)


@pytest.fixture
def each_instruction_set() -> Iterator[Callable[[], Iterator[str]]]:
    """Runs a loop's body under each set, for tests whose expected result takes longer than the op."""
    before = _library.instruction_set()

    def each() -> Iterator[str]:
        for name in _library.instruction_sets():
            torch.ops.sluice._set_instruction_set(name)
            yield name

    yield each
    torch.ops.sluice._set_instruction_set(before)
