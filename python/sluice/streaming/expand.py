"""Expand and repeat: time is passed through, or a tensor without time is the same at all positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from .trace import function_name
from .values import Constant, Length, NoStreamError, Other, Shape, Time, Value

EXPANDING = frozenset(["broadcast_to", "expand", "expand_as", "repeat", "tile"])
Sizes = list[Value]


def expanded(node: torch.fx.Node, value_of: Callable[[Any], Value]) -> tuple[Time, tuple[Any, ...] | None]:
    """The result, and the sizes for a chunk where they are others."""
    x, given = value_of(node.args[0]), _sizes(node)
    if not isinstance(given, (tuple, list)):
        like = value_of(given)
        like = like.of if isinstance(like, Shape) else like
        if not isinstance(like, Time) or function_name(node) in ("repeat", "tile"):
            raise NoStreamError("takes a shape that is not known")
        return (_alike(x, like) if isinstance(x, Time) else _constant(x, _sizes_of(like))), None
    sizes = [value_of(size) for size in given]
    if not isinstance(x, Time):
        return _constant(x, sizes), None
    if function_name(node) in ("repeat", "tile"):
        return _repeated(x, sizes), None
    return _passed(x, sizes, given)


def _sizes(node: torch.fx.Node) -> Any:
    given = node.args[1:] or tuple(node.kwargs.values())
    return given[0] if len(given) == 1 and not isinstance(given[0], int) else given


def _alike(x: Time, like: Time) -> Time:
    """A tensor with time, as long as another."""
    more = like.rank - x.rank
    if (x.dim + more, x.batch + more) != (like.dim, like.batch):
        raise NoStreamError("takes tensors whose time or batch is in other dimensions")
    if (x.rate, x.tail - x.start) != (like.rate, like.tail - like.start):
        raise NoStreamError("takes tensors of other times, of another rate or padding")
    return x.moved(like.rank, lambda dim: dim + more)


def _sizes_of(like: Time) -> Sizes:
    sizes: Sizes = [Other() for _ in range(like.rank)]
    sizes[like.dim], sizes[like.batch] = Length(like.rate, like.tail - like.start, like), Other(is_rows=True)
    return sizes


def _passed(x: Time, sizes: Sizes, given: Any) -> tuple[Time, tuple[Any, ...]]:
    """Expand of a tensor with time, which stays as long as it is."""
    more, kept = len(sizes) - x.rank, list(given)
    time, rows = sizes[x.dim + more], sizes[x.batch + more]
    _check_others(sizes, x.dim + more, x.batch + more)
    if isinstance(time, Length):
        if (time.rate, time.more) != (x.rate, x.tail - x.start):
            raise NoStreamError("expands time to another length")
    elif time != Constant(-1):
        raise NoStreamError("expands time to a number of positions")
    if rows not in (Constant(-1), Other(is_rows=True)):
        raise NoStreamError("expands the batch")
    kept[x.dim + more] = kept[x.batch + more] = -1
    return x.moved(len(sizes), lambda dim: dim + more), tuple(kept)


def _repeated(x: Time, counts: Sizes) -> Time:
    """Repeat and tile of a tensor with time, along other dimensions."""
    counts = [Constant(1)] * (x.rank - len(counts)) + counts  # of tile
    more = len(counts) - x.rank
    _check_others(counts, x.dim + more, x.batch + more)
    if counts[x.dim + more] != Constant(1):
        raise NoStreamError("repeats time")
    if counts[x.batch + more] != Constant(1):
        raise NoStreamError("repeats the batch")
    return x.moved(len(counts), lambda dim: dim + more)


def _constant(x: Value, sizes: Sizes) -> Time:
    """A tensor that does not depend on the input, for each row and position."""
    if not isinstance(x, Constant) or not isinstance(x.value, torch.Tensor):
        raise NoStreamError("takes a tensor that is not known")
    sizes = [Constant(1)] * (x.value.dim() - len(sizes)) + sizes
    lengths = [dim for dim, size in enumerate(sizes) if isinstance(size, Length)]
    rows = [dim for dim, size in enumerate(sizes) if size == Other(is_rows=True)]
    if len(lengths) != 1:
        raise NoStreamError("takes sizes that are not known")
    if len(rows) != 1:
        raise NoStreamError("makes positions of a tensor without the rows of the batch")
    (time,), (batch,) = lengths, rows
    like = sizes[time]
    assert isinstance(like, Length)
    if like.of is None:
        raise NoStreamError("makes positions of a tensor, as many as are computed with the length")
    if like.of.is_padded:
        raise NoStreamError("has padded values, which only a convolution may take")
    for dim, what in ((time, "positions"), (batch, "rows of a batch")):
        own = x.value.dim() - len(sizes) + dim
        if own >= 0 and x.value.shape[own] != 1:
            raise NoStreamError(f"takes a constant of {x.value.shape[own]} {what}")
    _check_others(sizes, time, batch)
    return dataclasses.replace(like.of, rank=len(sizes), dim=time, batch=batch, origins=())


def _check_others(sizes: Sizes, time: int, batch: int) -> None:
    for dim, size in enumerate(sizes):
        is_number = isinstance(size, Constant) and isinstance(size.value, int)
        if dim not in (time, batch) and not is_number and size != Other():
            raise NoStreamError("takes the length or the rows of the batch for another dimension")
