"""The tool that compares results bit by bit: same calls, same digests; a changed result is detected."""

from __future__ import annotations

import importlib
import json
import pathlib
from types import ModuleType

import pytest
import torch

import sluice
from common import ROOT


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    module = importlib.import_module("result_bits")
    monkeypatch.setattr(module, "DEVICE", "cpu")
    return module


def test_the_same_seed_gives_the_same_calls(tool: ModuleType, tmp_path: pathlib.Path) -> None:
    for name in ("old", "new"):
        tool.write(tmp_path / name, 10, 0, 0)
    old, new = (json.loads((tmp_path / name).read_text()) for name in ("old", "new"))
    assert tool.compare(old, new) == 0
    assert {name.split()[0] for name in old} == set(tool.OPS)
    tool.write(tmp_path / "other", 10, 0, 1)
    assert tool.compare(old, json.loads((tmp_path / "other").read_text())) == 1


def test_a_bit_and_a_stride_count(tool: ModuleType) -> None:
    x = torch.randn(4, 6)
    changed = x.clone()
    changed.view(torch.int32)[1, 2] ^= 1
    digests = [tool.digest(lambda y=y: y) for y in (x, changed, x.t().contiguous().t())]
    assert len(set(digests)) == 3
    assert tool.digest(x.clone) == digests[0]


def test_a_refusal_counts_by_its_text(tool: ModuleType) -> None:
    def refused() -> torch.Tensor:
        return sluice.conv1d(torch.ones(1, 2, 4), torch.ones(2, 1, 9), groups=2)

    assert tool.digest(refused).startswith("ValueError: conv1d: ")
