"""Helpers of the cases of stream_life.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import sluice

Case = Callable[[str], None]
ROWS, CHUNK = 64, 8
CASES: dict[str, Case] = {}
HELD: list[Any] = []  # objects alive when the process ends


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def source(rows: int = ROWS) -> torch.Tensor:
    # Not from a random generator, whose lock a fork could leave locked.
    return torch.arange(50.0 * rows).sin().view(rows, 50)


def mapped(device: Any, x: torch.Tensor, **options: Any) -> Any:
    return sluice.stream_map(lambda x: x + 1, x, devices=device, chunk_size=CHUNK, **options)


def assert_works(device: Any) -> None:
    x = source()
    assert torch.equal(mapped(device, x), x + 1)
    assert [float(y) for y in sluice.stream_iter(lambda x: x.sum(), [torch.ones(3)] * 4, devices=device)] == [3.0] * 4


def items(count: int = 9) -> Iterator[torch.Tensor]:
    for i in range(count):
        yield torch.full((5,), float(i))


def half_read(device: Any, streamer: sluice.Streamer | None = None) -> Iterator[Any]:
    make = streamer.iter if streamer is not None else sluice.stream_iter
    options = {} if streamer is not None else {"devices": device}
    iterator = make(lambda x: x + 1, items(), **options)
    next(iterator)
    return iterator


def two(device: str) -> list[str]:
    if device == "cpu":
        return ["cpu:0", "cpu:1"]
    return [f"cuda:{i}" for i in range(min(2, torch.cuda.device_count()))]
