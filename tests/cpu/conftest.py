"""Fixtures of tests on the CPU: each instruction set that this machine has, and the number of threads as it was."""

from __future__ import annotations

from collections.abc import Iterator

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
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
