"""Writes in place: a stream gives what the model gives, whichever name of a tensor is read afterwards."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from stream_models import Calls, Cut, Padded, assert_whole

Forward = Callable[..., torch.Tensor]


def add_to_input(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = x
    x += 0.5
    return h + x


def statement(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    operator.imul(y, 3.0)  # its result is not used
    return y


def residual(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.mix(x)
    h = y
    y += self.conv(y)
    return h * torch.sigmoid(y)


def residual_of_conv(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    h = y
    y -= x
    return torch.cat([h, y], 1)


def channels(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    part = y[:, 1:3]
    part += 1.0
    part *= x[:, :2]
    return y


def parts(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    a, b = y.chunk(2, 1)
    a /= b.abs() + 1.0
    b **= 2
    return y


def permuted(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    z = y.mT.unsqueeze(1)
    z += self.gain[:, 0]
    return y


def attribute(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    z = y.mT
    z += 1.0
    return y


def older_names(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    a, b = y, y.transpose(1, 2)
    y.add_(1.0)
    F.relu(y, inplace=True)
    torch.relu_(a)
    self.relu(y)
    return self.mix(a) + b.mT


def detached(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    y.detach().mul_(2.0)
    return y


def written_before(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.mix(x)
    z = y * 2.0
    y += z
    z += y
    return y + z


def trimmed(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.wide(x)[..., :-2]
    h = y
    y += x
    return h + y


def trimmed_by_sizes(self: Any, x: torch.Tensor) -> torch.Tensor:
    length = x.shape[-1]
    more = length
    more += 2
    more -= 2
    y = self.wide(x)[..., :more]
    y *= x
    return y[..., :length]


def sizes(self: Any, x: torch.Tensor) -> torch.Tensor:
    count = x.shape[1]
    half = count
    half //= 2
    return torch.cat([x[:, half:count], x[:, :half]], 1)


def late_slice(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.mix(x)
    z = y[..., 2:]
    y += 1.0
    return z


def sliced_again(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.mix(x)
    z = y[..., 2:]
    z += self.plain(x)
    return self.conv(y[..., 2:]) * y[..., 3 - 1 :]


def sizes_behind(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.wide(x)
    z = y.contiguous()
    z += 1.0
    return z[..., : y.shape[-1] - 2] * torch.ones_like(x, dtype=y.dtype)


def constants(self: Any, x: torch.Tensor) -> torch.Tensor:
    gain = self.gain.exp()
    gain *= 2.0
    gain.clamp_(max=4.0).neg_()
    F.relu(gain + 1.0, inplace=True)
    return x * gain


# F.pad copies, whether it pads or not.
def pad_of_nothing(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.pad(x, (0, 0))
    y += 1.0
    return x + y


def pad_of_nothing_by_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    z = self.nothing(y)
    y.relu_()
    return y + z


def pad_and_cut(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.pad(x, (0, 3))
    y *= 2.0
    return x + y[..., :-3]


def pad_in_front(self: Any, x: torch.Tensor) -> torch.Tensor:
    p = F.pad(x, (2, 0))
    x += 1.0
    return self.plain(p) + x


def pads_in_a_row(self: Any, x: torch.Tensor) -> torch.Tensor:
    p = F.pad(x, (1, 0))
    q = F.pad(p, (1, 0))
    F.relu_(x)
    return self.plain(q) + x


def pad_twice(self: Any, x: torch.Tensor) -> torch.Tensor:
    y, z = F.pad(x, (0, 0)), F.pad(x, (0, 0))
    y += 1.0
    z *= y
    return y - z


def negative_pad(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.wide(x)
    z = F.pad(y, (0, -2))
    y.neg_()
    return z + y[..., :-2]


def view_of_pad(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.pad(x, (0, 0))[:, :2]
    y += 1.0
    return x[:, :2] * y


FORWARDS: list[Forward] = [
    add_to_input, statement, residual, residual_of_conv, channels, parts, permuted, attribute, older_names, detached,
    written_before, trimmed, trimmed_by_sizes, sizes, late_slice, sliced_again, sizes_behind,
    constants, pad_of_nothing, pad_of_nothing_by_module,
    pad_and_cut, pad_in_front, pads_in_a_row, pad_twice, negative_pad, view_of_pad,
]  # fmt: skip


def model_of(forward: Forward) -> nn.Module:
    return Calls(
        forward, conv=Padded(nn.Conv1d(4, 4, 3), 2), wide=nn.Conv1d(4, 4, 3, padding=2), plain=nn.Conv1d(4, 4, 3),
        mix=nn.Conv1d(4, 4, 1), relu=nn.ReLU(inplace=True), nothing=nn.ConstantPad1d(0, 0.0),
        gain=nn.Parameter(torch.rand(4, 1)), offset=nn.Buffer(torch.rand(4, 1)),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
def test_results(device: str, forward: Forward) -> None:
    assert_whole(model_of(forward).to(device), torch.randn(2, 4, 14, device=device))


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow"])
@pytest.mark.parametrize("is_input", [True, False])
def test_operators(device: str, name: str, is_input: bool) -> None:
    """Each with a number and with a tensor; what they change is read by its older name."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = x if is_input else self.conv(x)
        y.abs_()
        h, change = y, getattr(operator, name)
        y = change(y, 2.0)
        y = change(y, torch.sigmoid(self.mix(x)) + 0.5)
        return torch.cat([h, y], 1)

    model = model_of(forward).to(device, torch.float64)
    assert_whole(model, torch.randn(2, 4, 14, device=device, dtype=torch.float64))


class Program(nn.Module):
    """A random sequence of writes, views, copies and slices of time, whose values are read again."""

    OPS: ClassVar[dict[str, Forward]] = {
        "silu": F.silu, "relu_": F.relu_, "view": lambda v: v.mT[:, None].mT[:, 0],
        "contiguous": lambda v: v.contiguous(), "slice": lambda v: v[..., 1:], "pad": lambda v: F.pad(v, (0, 0)),
    }  # fmt: skip

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.conv, self.mix = Padded(nn.Conv1d(4, 4, 3), 2), nn.Conv1d(4, 4, 1)
        self.wide, self.plain = Cut(nn.Conv1d(4, 4, 3, padding=2), 0, 2, "slice"), nn.Conv1d(4, 4, 3)
        kinds = ["conv", "mix", "wide", "plain", "silu", "iadd", "iadd", "imul", "isub", "relu_", "pad", "view", "half"]
        kinds += ["slice"] * (draw.random() < 0.5) + ["contiguous"] * (draw.random() < 0.3)
        self.steps = [
            (draw.choice(kinds), draw.choice([n, n, draw.randint(0, n)]), draw.randint(0, n))
            for n in range(draw.randint(3, 9))
        ]
        self.last = draw.sample(range(len(self.steps) + 1), 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = [x]
        for kind, first, second in self.steps:
            a, b = values[first], values[second]
            if kind in ("iadd", "imul", "isub"):
                values.append(getattr(operator, kind)(a, b))
            elif kind == "plain":
                values.append(self.plain(F.pad(a, (2, 0))))
            elif kind == "half":
                part = a[:, 1:3]
                part += 0.5
                values.append(b)
            else:
                values.append(self.OPS[kind](a) if kind in self.OPS else getattr(self, kind)(a))
        return values[self.last[0]] + values[self.last[1]]


@pytest.mark.parametrize("part", range(4))
def test_random_programs(device: str, part: int) -> None:
    """A stream that is not refused has the model's results; most are not refused."""
    accepted = 0
    for _ in range(50):
        draw = random.Random(int(torch.randint(2**62, ())))
        model = Program(draw).eval().to(device, torch.float64)
        x = torch.randn(1, 4, 14, device=device, dtype=torch.float64)
        try:
            model(x.clone())
        except RuntimeError:  # sums of different lengths
            continue
        try:
            sluice.streaming(model)
        except ValueError:
            continue
        accepted += 1
        assert_whole(model, x, f"{model.steps}, {model.last}")
    assert accepted >= 15


def test_a_chunk_stays_as_it_is_where_the_input_does(device: str) -> None:
    """What F.pad and `contiguous` return may be written: both keep the caller's chunk."""
    writes: list[Forward] = [
        lambda self, x: F.pad(x, (0, 0)).relu_(),
        lambda self, x: self.nothing(x).relu_(),
        lambda self, x: self.plain(F.pad(x, (2, 0))).relu_(),
        lambda self, x: F.pad(x, (0, 1)).mul_(2.0)[..., :-1] + x,
        lambda self, x: x.mT.contiguous().relu_().mT,
    ]
    for forward in writes:
        stream = sluice.streaming(model_of(forward).to(device))
        x = torch.randn(1, 4, 6, device=device)
        before = x.clone()
        stream(x)
        assert torch.equal(x, before)


def test_copies_are_made_only_where_they_are_read(device: str) -> None:
    """Padding in front of a convolution is free where a write comes after it, as in a residual sum in place."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.mix(x)
        y += self.plain(F.pad(y, (2, 0)))
        return y

    graph = sluice.streaming(model_of(forward).to(device))._graph.graph
    assert not [node for node in graph.nodes if node.op in ("call_method", "call_function")]


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled(device: str) -> None:
    model = model_of(residual).to(device)
    stream, eager = sluice.streaming(model), sluice.streaming(model)
    compiled, x = torch.compile(stream, fullgraph=True), torch.randn(1, 4, 8, device=device)
    with torch.no_grad():
        for chunk in x.split(4, -1):
            torch.testing.assert_close(compiled(chunk.clone()), eager(chunk.clone()))
