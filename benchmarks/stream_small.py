"""Rows of the suite `stream` whose bytes are few: what a call, or an item of an iterator, costs.

The floor is the call by hand in the same run, because a call's cost does not follow from its bytes; `floor_kind` has no
name for that and says "bytes".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch

import sluice
from sluice.bench import Case, Workload
from stream_data import random_source, result_like
from stream_peers import Function, Loop, copy_async, identity, peers
from stream_work import DEPTH, stream_plan

_SHAPE = (100, 4)
_LARGER = (256, 1024)  # 1 MiB
_ITEMS = 100  # of an iterator: its start and its end are little beside them


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]} fp32"


def _double(x: torch.Tensor) -> torch.Tensor:
    """One kernel, which Python launches."""
    return x * 2


_FUNCTIONS: dict[str, Function | None] = {"x * 2": _double, "fn=None": None}


def _make_call(name: str, op: str, source: str, shape: tuple[int, int], device: torch.device) -> Workload:
    x = random_source(source, shape, torch.float32, device)
    out = result_like(source, shape, torch.float32)
    fn = _FUNCTIONS[op]
    calls: dict[str, Callable[..., torch.Tensor]] = {
        "Streamer.map": sluice.Streamer([device], depth=DEPTH).map,
        "sluice.stream_map": sluice.stream_map,
    }
    call = calls[name]
    # A pageable copy blocks anyway.
    by_hand = "copy_async" if source == "pinned" else "copy_out"
    return Workload(
        ours=lambda: call(fn, x, out=out),
        write=lambda target: call(fn, x, out=target),
        reference=lambda: (fn or identity)(x.double()),
        plan=stream_plan(),
        traffic=x.nbytes + out.nbytes,
        peers=peers([by_hand], Loop(fn or identity, x, out, len(x), device)),
        linked=False,
        floor_peer=by_hand,
    )


def _make_iter(device: torch.device) -> Workload:
    rows, columns = _SHAPE
    x = random_source("pinned", (_ITEMS * rows, columns), torch.float32, device)
    out = result_like("pinned", x.shape, x.dtype)
    items = x.split(rows)
    loops = [Loop(_double, item, to, rows, device) for item, to in zip(items, out.split(rows), strict=True)]

    def ours() -> torch.Tensor:
        return torch.cat(list(sluice.stream_iter(_double, items)))  # for the check; a microsecond an item at most

    def by_hand() -> None:
        for loop in loops:
            copy_async(loop)

    return Workload(
        ours=ours,
        write=lambda target: target.copy_(ours()),
        reference=lambda: x.double() * 2,
        plan=stream_plan(),
        traffic=x.nbytes + out.nbytes,
        peers={"copy_async": by_hand, **peers(["sequential"], Loop(_double, x, out, rows, device))},
        linked=False,
        floor_peer="copy_async",
    )


def _case(name: str, fn: str, op: str, source: str, elements: int, make: Callable[[torch.device], Workload]) -> Case:
    params: dict[str, int | str] = {"n": elements, "dtype": "fp32", "op": op, "source": source, "order": "depth_first"}
    return Case(name=name, params={**params, "fn": fn, "devices": 1}, make=make)


def small_cases() -> Iterator[Case]:
    """A call of each kind, and an iterator over 100 items."""
    for fn, op, source, shape in (
        ("Streamer.map", "x * 2", "pinned", _SHAPE),
        ("Streamer.map", "x * 2", "pageable", _SHAPE),
        ("Streamer.map", "fn=None", "pinned", _SHAPE),
        ("sluice.stream_map", "x * 2", "pinned", _SHAPE),
        ("Streamer.map", "x * 2", "pinned", _LARGER),
        ("Streamer.map", "x * 2", "pageable", _LARGER),
    ):
        name = f"{fn}, {op}, {_size(shape)} {source}"
        yield _case(name, fn, op, source, math.prod(shape), functools.partial(_make_call, fn, op, source, shape))
    name = f"sluice.stream_iter, x * 2, {_ITEMS} items of {_size(_SHAPE)} pinned"
    yield _case(name, "sluice.stream_iter", "x * 2", "pinned", _ITEMS * math.prod(_SHAPE), _make_iter)
