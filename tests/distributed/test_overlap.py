"""The order of a piece's work: the halo is sent first, and waited for after the interior's launch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import sluice
from common import NAN
from sluice.distributed import history as history_module
from sluice.distributed import pieces as pieces_module
from sluice.distributed.exchange import Exchange
from sluice.distributed.halo import Positions, Windows, outputs_of, pieces_of, share_of

pytestmark = pytest.mark.no_gpu


class Pretended(Exchange):
    """An exchange within this process: what other ranks send arrives when it is waited for, and is NaN before."""

    whole: torch.Tensor
    log: list[str]
    arrives = True

    def _add(self, function: Any, peer: int, tensor: torch.Tensor) -> None:
        self.log.append("send" if "isend" in str(function) else "receive")
        if self.log[-1] == "receive":
            tensor.fill_(NAN)

    def start(self) -> None:
        self.log.append("start")

    def wait(self) -> None:
        self.log.append("wait")
        for positions, tensor in self.received if self.arrives else ():
            tensor.copy_(self.whole[..., positions - 0])


@dataclasses.dataclass
class Depthwise:
    """Launches of a depthwise convolution without chains."""

    weight: torch.Tensor
    log: list[str]
    padding: int = 0

    def before(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        return x

    def launch(self, x: torch.Tensor, out: torch.Tensor, *given: Any) -> None:
        self.log.append("launch")
        if self.weight.dim() == 3:
            sluice.conv1d(x, self.weight, groups=x.shape[1], out=out)
        else:
            sluice.causal_conv1d(x, self.weight, initial_states=given[1], out=out)


LENGTHS = (10, 12, 9)


def run(monkeypatch: pytest.MonkeyPatch, rank: int, *, causal: bool, arrives: bool = True) -> tuple[bool, list[str]]:
    """Whether a rank's result is right, and what it did."""
    x, weight = torch.randn(2, 3, sum(LENGTHS)), torch.randn(3, 5)
    log: list[str] = []
    monkeypatch.setattr(Pretended, "whole", x, raising=False)
    monkeypatch.setattr(Pretended, "log", log, raising=False)
    monkeypatch.setattr(Pretended, "arrives", arrives)
    pieces = pieces_of(LENGTHS)
    mine = x[..., pieces[rank] - 0]
    out = torch.full_like(mine, NAN)
    if causal:
        monkeypatch.setattr(history_module, "Exchange", Pretended)
        history = history_module.History(mine, pieces, rank, 4, None, None)
        history_module.convolve_causally(history, out, Depthwise(weight, log))
        expected = sluice.causal_conv1d(x, weight)
    else:
        monkeypatch.setattr(pieces_module, "Exchange", Pretended)
        windows = Windows(1, 4, 2, 2)
        share = share_of(pieces, outputs_of(pieces, windows), windows, rank)
        pieces_module.convolve(mine, out, share, None, Depthwise(weight[:, None], log))
        expected = sluice.conv1d(x, weight[:, None], padding="same", groups=3)
    return torch.equal(out, expected[..., pieces[rank] - 0]), log


def test_the_interior_is_launched_while_the_halo_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    is_right, log = run(monkeypatch, 1, causal=False)
    assert is_right
    assert log == ["send", "send", "receive", "receive", "start", "launch", "wait", "launch", "launch"]


def test_the_piece_is_launched_while_the_history_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    is_right, log = run(monkeypatch, 1, causal=True)
    assert is_right
    assert log == ["send", "receive", "start", "launch", "wait", "launch"]


@pytest.mark.parametrize("causal", [False, True])
def test_the_first_and_the_last_rank_are_right_too(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 2):
        assert run(monkeypatch, rank, causal=causal)[0]


@pytest.mark.parametrize("causal", [False, True])
def test_a_halo_that_is_not_waited_for_shows(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run(monkeypatch, 1, causal=causal, arrives=False)[0]
