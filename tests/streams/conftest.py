"""Streams on the CPU run in the calling thread; their tests also run through the engine, as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sluice.stream.map import inline

DEVICES = ["cpu", "engine", *(["cuda"] if torch.cuda.is_available() else [])]


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
