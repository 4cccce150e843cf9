"""Modules that tests of streams use, and how chunks are compared with a run over the whole input."""

from __future__ import annotations

import copy
import dataclasses
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from common import NAN

UNKNOWN, LENGTH = "is not known to leave time as it is", "computes with the length, which a stream does not know"
EPSILON = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-13}


class Calls(nn.Module):
    """A module whose forward is a function of itself and the input; further modules are its attributes."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any], **modules: Any) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


class Padded(nn.Module):
    """F.pad on the left, then a convolution."""

    def __init__(self, conv: nn.Module, before: int, mode: str = "constant") -> None:
        super().__init__()
        self.conv, self.before, self.mode = conv, before, mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (self.before, 0), mode=self.mode))


class Cut(nn.Module):
    """A convolution whose first and last results are cut off.

    Attributes:
        form: "slice", "shape", "narrow"; or "input", which takes `rate` results for each input.
    """

    def __init__(self, conv: nn.Module, first: int, last: int, form: str, rate: int = 1) -> None:
        super().__init__()
        self.conv, self.first, self.last, self.form, self.rate = conv, first, last, form, rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        if self.form == "narrow":
            return y.narrow(2, self.first, y.size(-1) - self.first - self.last)
        if self.form == "shape":
            return y[:, :, self.first : y.shape[-1] - self.last]
        if self.form == "input" and self.first == 0:
            return y[..., : x.shape[-1] * self.rate]
        return y[..., self.first : -self.last or None]


@dataclasses.dataclass
class Caller:
    """A row of x that goes through a slot, `done` units of it so far."""

    slot: int
    row: int
    done: int = 0
    results: list[torch.Tensor] = dataclasses.field(default_factory=list)


def streamed(stream: Any, x: torch.Tensor, draw: random.Random, units: list[int]) -> list[Caller]:
    """Rows of x through slots in any order, chunk by chunk; some are given up before their end, and begin again.

    Args:
        stream: with room for as many rows as x has, at least.
        x: (B, C, T).
        draw: decides who comes when, with how long a chunk, in which slot.
        units: lengths of chunks, in multiples of `stream.multiple`; the first chunks have `stream.least_first`.
    """
    size, least = stream.multiple, stream.least_first // stream.multiple
    total, waiting, free = x.shape[2] // size, list(range(x.shape[0])), list(range(stream.slots))
    is_plain, given_up, active, ended = draw.random() < 0.3, 0, [], []
    for state in stream.state.values():
        state.fill_(NAN)  # a slot must not see another slot
    while waiting or active:
        while waiting and (not active or draw.random() < 0.7):
            active.append(Caller(free.pop(0 if is_plain else draw.randrange(len(free))), waiting.pop(0)))
            stream.reset(torch.tensor([active[-1].slot, -1], device=x.device, dtype=torch.int32))
        chosen = draw.sample(active, draw.randint(1, len(active)))
        if is_plain:
            chosen = sorted(active, key=lambda caller: caller.slot)
        if any(caller.done == 0 for caller in chosen):
            chosen = [caller for caller in chosen if total - caller.done >= least]
        step = max([draw.choice(units), *(least for caller in chosen if caller.done == 0)])
        step = min([step, *(total - caller.done for caller in chosen)])
        rows: list[Caller | None] = [*chosen]
        for _ in range(0 if is_plain else draw.choice([0, 0, 1, 2])):
            rows.insert(draw.randint(0, len(rows)), None)
        batch = x.new_full((len(rows), x.shape[1], step * size), NAN)
        for n, caller in enumerate(rows):
            if caller is not None:
                batch[n] = x[caller.row, :, caller.done * size : (caller.done + step) * size]
        places = [draw.choice([-1, -1, stream.slots, 99]) if caller is None else caller.slot for caller in rows]
        slots = torch.tensor(places, device=x.device, dtype=draw.choice([torch.int32, torch.int64]))
        y = stream(batch) if is_plain and places == list(range(len(places))) else stream(batch, slots)
        for caller, result in zip(rows, y, strict=True):
            if caller is None:
                assert not result.any()
                continue
            caller.done += step
            caller.results.append(result)
        for caller in chosen:
            gives_up = given_up < 2 and caller.done < total and draw.random() < 0.1
            if caller.done == total or gives_up:
                given_up += gives_up
                waiting += [caller.row] * gives_up
                active.remove(caller)
                ended.append(caller)
                free.append(caller.slot)
                free.sort()
    return ended


def check_stream(model: nn.Module, x: torch.Tensor, draw: random.Random, *, like: nn.Module | None = None) -> Any:
    """The model's stream, whose results of any cut are no further from float64 than three times the model's own.

    Args:
        model: in eval mode.
        x: (B, C, T), of the model's dtype.
        draw: decides the cut, the slots, and the rows of each chunk.
        like: a model of the same results, whose own error counts instead.
    """
    like = model if like is None else like
    with torch.no_grad():
        expected = copy.deepcopy(like).double()(x.double().clone())  # it may change its input
        eager = like(x.clone())
        stream = sluice.streaming(model, slots=x.shape[0] + draw.choice([0, 2]), dtype=x.dtype)
        found: list[tuple[torch.Tensor, ...]] = []
        for caller in streamed(stream, x, draw, [1, 1, 2, 3, 5]):
            result = torch.cat(caller.results, dim=-1)
            assert not result[:, : stream.lead].any()
            result = result[:, stream.lead :]
            if caller.done * stream.multiple == x.shape[2]:
                assert result.shape == expected.shape[1:]
            parts = result, *(whole[caller.row, :, : result.shape[1]] for whole in (expected, eager))
            found.append(tuple(part.double().flatten() for part in parts))
    result, wanted, theirs = (torch.cat(parts) for parts in zip(*found, strict=True))
    assert result.isfinite().all()
    error, limit = (result - wanted).norm(), 3 * (theirs - wanted).norm() + EPSILON[x.dtype] * wanted.norm()
    assert error <= limit, f"error {error:.3g} of {wanted.norm():.3g}, limit {limit:.3g}: {model}"
    return stream


def assert_whole(model: nn.Module, x: torch.Tensor, text: str = "") -> Any:
    """The model's stream, whose chunks of random cuts have the whole run's results; each gets inputs of its own.

    Args:
        model: in eval mode.
        x: (B, C, T).
        text: what a failure shows.
    """
    with torch.no_grad():
        whole, stream, begin = model(x.clone()), sluice.streaming(model, slots=x.shape[0]), 0
        chunks = []
        while begin < x.shape[2]:
            end = begin + stream.multiple * int(torch.randint(1, 6, ()))
            chunks.append(stream(x[..., begin:end].clone()))
            begin = end
        result = torch.cat(chunks, dim=-1)[..., stream.lead :]
        torch.testing.assert_close(result, whole, msg=lambda found: f"{found}: {text or model}")
    return stream


def assert_refused(model: nn.Module, row: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The model is refused with a table that has the row (module, op, reason); a dry run prints it as well."""
    pattern = re.compile(r"^{}\s+{}\s+{}$".format(*map(re.escape, row)), re.MULTILINE)
    title = "^streaming: the model must be causal, got\nmodule +op +state  why not\n"
    with pytest.raises(ValueError, match=title) as refusal:
        sluice.streaming(model)
    assert pattern.search(str(refusal.value)), refusal.value
    assert sluice.streaming(model, dry_run=True) is None
    assert pattern.search(capsys.readouterr().out)
