"""Streams on the CPU run in the calling thread; where there is no GPU, their tests also run through the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sluice.stream.map import inline

DEVICES = ["cpu", "cuda" if torch.cuda.is_available() else "engine"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param != "engine":
        yield str(request.param)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline, "enabled", False)
        yield "cpu"


@pytest.fixture
def through_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what the engine does."""
    monkeypatch.setattr(inline, "enabled", False)
