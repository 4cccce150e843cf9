"""Broadcasts and products beside time: expand, repeat, a weight for each channel, einsum and matmul over channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from stream_models import Calls, Padded, assert_refused, assert_whole

Forward = Callable[[Any, torch.Tensor], Any]
TIMES = "takes tensors of other times, of another rate or padding"


def mono(x: torch.Tensor) -> torch.Tensor:
    return x.mean(1, keepdim=True)


def of_sizes(self: Any, x: torch.Tensor) -> torch.Tensor:
    rows, channels, length = x.shape
    return mono(x).expand(rows, channels, length) + mono(x).expand(x.size(0), 2, x.size(-1))[:, :1]


def conditioned(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A vector beside every position."""
    vector = self.vector.expand(x.shape[0], -1, x.shape[-1])
    return self.mix(torch.cat([x, vector], 1))


def conditioned_behind_a_stride(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.down(x)
    return torch.cat([y, self.vector.repeat(y.size(0), 2, y.size(2)), self.gain.expand(y.shape[0], -1, y.shape[2])], 1)


def conditioned_where_results_are_dropped(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.plain(x)
    return torch.cat([self.gain.expand(y.shape[0], 4, y.shape[-1]), y], 1)


def attended(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Channels attend to each other at every position."""
    weights = torch.einsum("bct,bdt->bcdt", x, self.conv(x)).softmax(2)
    return torch.einsum("bcdt,bdt->bct", weights, x)


KEPT: dict[str, Forward] = {
    "sizes of x": of_sizes,
    "minus one": lambda self, x: mono(x).expand(-1, 4, -1) + self.conv(x),
    "a tuple": lambda self, x: mono(x).expand((-1, x.shape[1], x.shape[2])),
    "a shape": lambda self, x: mono(x).expand(x.shape) * x,
    "a size": lambda self, x: mono(x).expand(x.size()) * x,
    "by name": lambda self, x: mono(x).expand(size=(-1, 4, x.size(2))),
    "as another": lambda self, x: mono(x).expand_as(x) + x,
    "more dimensions": lambda self, x: x.expand(3, x.shape[0], 4, x.shape[-1])[1] + x.expand(2, -1, -1, -1)[0],
    "a computed length": lambda self, x: mono(x).expand(-1, 4, 2 * x.shape[-1] // 2),
    "the length with padding": lambda self, x: mono(self.wide(x)).expand(-1, 4, x.shape[-1] + 2)[..., :-2],
    "a permuted tensor": lambda self, x: mono(x).mT.expand(x.shape[0], x.shape[-1], 4).mT,
    "padded values": lambda self, x: self.plain(F.pad(mono(x), (2, 0)).expand(-1, 4, x.shape[-1] + 2)),
    "broadcast_to": lambda self, x: torch.broadcast_to(mono(x), x.shape) + torch.broadcast_to(
        mono(x), (x.shape[0], 4, x.shape[-1])
    ),
    "repeat": lambda self, x: mono(x).repeat(1, 4, 1) + x,
    "repeat by sizes": lambda self, x: self.mix(x.repeat((1, x.shape[1] // 2, 1))[:, :6].repeat(1, 1, 1)),
    "repeat of more dimensions": lambda self, x: x.repeat(2, 1, 1, 1)[0],
    "tile": lambda self, x: mono(x).tile((4, 1)) + torch.tile(x, (1, 1)) + torch.tile(x, dims=(2, 1, 1, 1))[0],
    "repeat_interleave": lambda self, x: x[:, :2].repeat_interleave(2, 1) + mono(x).repeat_interleave(4, dim=1),
    "a constant": lambda self, x: x + self.vector[:, :1].expand(-1, 4, -1) + self.gain.expand(3, -1, 1)[0],
    "a constant as another": lambda self, x: torch.cat([self.gain.expand_as(x), x], 1),
    "a constant of a shape": lambda self, x: torch.cat([self.gain.expand(x.shape), x], 1),
    "a vector": conditioned,
    "a vector behind a stride": conditioned_behind_a_stride,
    "a vector where results are dropped": conditioned_where_results_are_dropped,
    "prelu": lambda self, x: F.prelu(x, self.slope) + torch.prelu(x, self.slope[:1]) + x.prelu(self.slope),
    "prelu by name": lambda self, x: F.prelu(x, weight=self.slope[1:2]) + F.prelu(weight=self.slope, input=x),
    "prelu of four dimensions": lambda self, x: F.prelu(x[:, :, None], self.slope)[:, :, 0],
    "batch_norm": lambda self, x: F.batch_norm(x, self.mean, self.slope, self.gain[:, 0], self.mean, eps=0.1),
    "einsum": lambda self, x: torch.einsum("bct,oc->bot", x, self.matrix),
    "einsum of a list": lambda self, x: torch.einsum("oc, bct -> bot", [self.matrix, x]),
    "einsum without a result": lambda self, x: torch.einsum("bit,ij", x, self.matrix),
    "einsum of the rest": lambda self, x: torch.einsum("...ct,oc->...ot", x, self.matrix),
    "einsum of the rest at the end": lambda self, x: torch.einsum("bc...,oc->bo...", x, self.matrix),
    "einsum of two": lambda self, x: torch.einsum("bct,bdt,dc->bt", x, self.conv(x), self.matrix)[:, None],
    "einsum of heads": lambda self, x: torch.cat(
        torch.einsum("bhct,hoc->bhot", torch.stack(x.chunk(2, 1), 1), self.heads).unbind(1), 1
    ),
    "einsum of one": lambda self, x: torch.einsum("bct->btc", x).mT,
    "einsum of permuted values": lambda self, x: torch.einsum("tbc,oc->bot", x.permute(2, 0, 1), self.matrix),
    "einsum of sizes one": lambda self, x: torch.einsum("bct,bct->bct", x, self.gain[None]),
    "attention of channels": attended,
    "matmul": lambda self, x: self.matrix @ x + torch.matmul(self.matrix[None], x),
    "matmul from the right": lambda self, x: (x.mT @ self.matrix).mT + torch.matmul(x.mT, self.matrix).mT,
    "matmul of a vector": lambda self, x: (x.mT @ self.mean)[:, None] + (self.mean @ x)[:, None],
    "matmul of values with a tensor": lambda self, x: torch.ones(3, 4, device=self.gain.device) @ x,
}  # fmt: skip

NEW_LENGTH = "makes positions of a tensor, as many as are computed with the length"
OTHERS = "takes the length or the rows of the batch for another dimension"
# The function, and a row's op and reason.
REFUSED: dict[str, tuple[Forward, str, str]] = {
    "a number of positions": (lambda self, x: x.expand(-1, -1, 8), "expand", "expands time to a number of positions"),
    "another length": (
        lambda self, x: x.expand(-1, -1, x.shape[-1] + 1), "expand", "expands time to another length",
    ),
    "the length of another tensor": (lambda self, x: mono(x).expand_as(self.wide(x)), "expand_as", TIMES),
    "the shape of another rate": (lambda self, x: mono(x).expand(self.down(x).shape), "expand", TIMES),
    "the shape of another order": (
        lambda self, x: x.expand(x.mT.shape), "expand", "takes tensors whose time or batch is in other dimensions",
    ),
    "a part of a shape": (lambda self, x: x.expand(x.shape[:2]), "expand", "takes a shape that is not known"),
    "rows": (lambda self, x: x.expand(3, -1, -1), "expand", "expands the batch"),
    "channels as rows": (lambda self, x: x.expand(x.shape[1], -1, -1), "expand", "expands the batch"),
    "rows as channels": (lambda self, x: mono(x).expand(-1, x.shape[0], -1), "expand", OTHERS),
    "positions as channels": (lambda self, x: mono(x).expand(-1, x.shape[2], -1), "expand", OTHERS),
    "a new dimension of positions": (lambda self, x: x.expand(x.shape[2], -1, -1, -1), "expand", OTHERS),
    "repeat": (lambda self, x: x.repeat(1, 1, 2), "repeat", "repeats time"),
    "repeat by the length": (lambda self, x: x.repeat(1, 1, x.shape[-1]), "repeat", "repeats time"),
    "repeat of rows": (lambda self, x: x.repeat(2, 1, 1), "repeat", "repeats the batch"),
    "repeat of a shape": (lambda self, x: x.repeat(x.shape), "repeat", "takes a shape that is not known"),
    "tile": (lambda self, x: torch.tile(x, (2,)), "tile", "repeats time"),
    "repeat_interleave": (
        lambda self, x: x.repeat_interleave(2, -1), "repeat_interleave", "takes repeat_interleave along time",
    ),
    "repeat_interleave of all": (
        lambda self, x: x.repeat_interleave(2), "repeat_interleave", "takes repeat_interleave along time",
    ),
    "a constant of positions": (
        lambda self, x: self.heads.expand(x.shape[0], 2, x.shape[-1]), "expand", "takes a constant of 2 positions",
    ),
    "a constant of rows": (
        lambda self, x: self.heads[..., :1].expand(x.shape[0], 2, x.shape[-1]), "expand",
        "takes a constant of 2 rows of a batch",
    ),
    "a constant without rows": (
        lambda self, x: self.gain.expand(4, x.shape[-1]), "expand",
        "makes positions of a tensor without the rows of the batch",
    ),
    "a constant of a computed length": (
        lambda self, x: self.gain.expand(x.shape[0], 4, x.shape[-1] * 2), "expand", NEW_LENGTH,
    ),
    "a constant as padded values": (
        lambda self, x: self.plain(self.gain.expand_as(F.pad(x, (2, 0)))), "expand_as",
        "has padded values, which only a convolution may take",
    ),
    "a constant of sizes": (
        lambda self, x: (self.gain * x.shape[1]).expand_as(x), "expand_as", "takes a tensor that is not known",
    ),
    "prelu along time": (lambda self, x: F.prelu(x.mT, self.slope).mT, "prelu", "works along time"),
    "prelu along the batch": (lambda self, x: F.prelu(x.transpose(0, 1), self.slope), "prelu", "works along the batch"),
    "prelu of the input": (lambda self, x: F.prelu(x, x.amax(1)), "prelu", "takes a weight that depends on the input"),
    "prelu of padded values": (
        lambda self, x: self.plain(F.prelu(F.pad(x, (2, 0)), self.slope)), "prelu",
        "has padded values, which only a convolution may take",
    ),
    "batch_norm in training": (
        lambda self, x: F.batch_norm(x, None, None, training=True), "batch_norm",
        "is in training mode, in which it normalises over time",
    ),
    "batch_norm along time": (
        lambda self, x: F.batch_norm(x.mT, self.mean, self.slope).mT, "batch_norm", "works along time",
    ),
    "einsum over time": (lambda self, x: torch.einsum("bct,oc->bo", x, self.matrix), "einsum", "sums over time"),
    "einsum over the batch": (
        lambda self, x: torch.einsum("bct,oc->ot", x, self.matrix), "einsum", "sums over the batch",
    ),
    "einsum of positions": (
        lambda self, x: torch.einsum("bct,ts->bcs", x, self.matrix), "einsum", "takes a constant of 4 positions",
    ),
    "einsum of rows": (
        lambda self, x: torch.einsum("bct,bc->bct", x, self.matrix), "einsum", "takes a constant of 4 rows of a batch",
    ),
    "attention": (lambda self, x: torch.einsum("bct,bcs->bts", x, x), "einsum", "multiplies different times"),
    "the diagonal": (lambda self, x: torch.einsum("btt->bt", x), "einsum", "multiplies different times"),
    "rows with rows": (
        lambda self, x: torch.einsum("bct,dct->bdt", x, x), "einsum", "multiplies different rows of the batch",
    ),
    "einsum of other times": (
        lambda self, x: torch.einsum("bct,bct->bct", x, self.wide(x)[..., 2:]), "einsum", TIMES,
    ),
    "einsum of padded values": (
        lambda self, x: self.plain(torch.einsum("bct,oc->bot", F.pad(x, (2, 0)), self.matrix)), "einsum",
        "has padded values, which only a convolution may take",
    ),
    "einsum of sizes": (
        lambda self, x: torch.einsum("bct,c->bct", x, self.mean * x.shape[1]), "einsum",
        "multiplies by what is not known",
    ),
    "einsum of other operands": (
        lambda self, x: torch.einsum("bct,oc->bot", x), "einsum", "has an equation of other operands",
    ),
    "einsum of other dimensions": (
        lambda self, x: torch.einsum("bt,oc->bot", x, self.matrix), "einsum", "has an equation of other dimensions",
    ),
    "matmul over time": (lambda self, x: x @ x.mT @ x, "matmul", "sums over time"),
    "matmul of times": (lambda self, x: x.mT @ x, "matmul", "multiplies different times"),
    "matmul of positions": (lambda self, x: x @ self.matrix, "matmul", "takes a constant of 4 positions"),
}  # fmt: skip


def model_of(forward: Forward) -> nn.Module:
    return Calls(
        forward, conv=Padded(nn.Conv1d(4, 4, 3), 2), wide=nn.Conv1d(4, 4, 3, padding=2), plain=nn.Conv1d(4, 4, 3),
        down=Padded(nn.Conv1d(4, 4, 4, 2), 2), mix=nn.Conv1d(6, 4, 1), gain=nn.Parameter(torch.rand(4, 1)),
        vector=nn.Parameter(torch.rand(1, 2, 1)), matrix=nn.Parameter(torch.randn(4, 4)),
        heads=nn.Parameter(torch.randn(2, 2, 2)), slope=nn.Buffer(torch.rand(4)), mean=nn.Buffer(torch.rand(4)),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_results(device: str, name: str) -> None:
    model = model_of(KEPT[name]).to(device)
    assert_whole(model, torch.randn(2, 4, 14, device=device))


@pytest.mark.no_gpu
@pytest.mark.parametrize("name", REFUSED)
def test_reasons(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the module around the function, the function and the reason."""
    function, *row = REFUSED[name]
    assert_refused(nn.Sequential(model_of(function)), ["0", *row], capsys)


@pytest.mark.no_gpu
def test_a_batch_norm_without_running_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    """It normalises over its input in eval mode, too."""
    model = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)).eval()
    assert_refused(model, ["0", "BatchNorm1d", "has no running statistics, so it normalises over time"], capsys)


def test_a_product_shows_what_it_sees(device: str) -> None:
    """The receptive field and the latency go through expand and einsum as through a sum."""
    model = model_of(lambda self, x: torch.einsum("bct,oc->bot", mono(self.plain(x)).expand(-1, 4, -1), self.matrix))
    stream = sluice.streaming(model.to(device))
    assert (stream.receptive_field, stream.latency) == (3, 2)
