"""Indices, slices and padding: what becomes of the time axis, and what is left of them for a chunk."""

from __future__ import annotations

from typing import Any

from .values import Constant, Length, NoStreamError, Other, Shape, Time, Value


def cut(x: Time, first: Value | None, last: Value | None) -> Time:
    """The positions [first:last] of a run over the whole input."""
    begin = 0 if first is None else _number(first, "begins a slice of time at")
    if begin < 0:
        raise NoStreamError("takes the last positions")
    if last is None:
        return x.trimmed(begin, 0)
    if isinstance(last, Length):
        if last.rate != x.rate:
            raise NoStreamError("ends a slice of time at the length of another rate")
        return x.trimmed(begin, max(0, x.tail - x.start - last.more))
    end = _number(last, "ends a slice of time at")
    if end >= 0:
        raise NoStreamError(f"takes the first {end} positions")
    return x.trimmed(begin, -end)


def _number(value: Value, what: str) -> int:
    if not isinstance(value, Constant) or not isinstance(value.value, int):
        raise NoStreamError(f"{what} what is not a number")
    return value.value


def indexed(x: Time, index: Any, value_of: Any) -> tuple[Time, tuple[Any, ...]]:
    """The result of x[index], and the index of a chunk, which takes all of time.

    Args:
        x: the tensor.
        index: torch's, with nodes in it.
        value_of: gives the value of a part of the index.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    given = sum(part is not None and part is not Ellipsis for part in parts)
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    spot = next(i for i, part in enumerate(parts) if part is Ellipsis)
    parts[spot : spot + 1] = [slice(None)] * (x.rank - given)
    result, dim, rank = x, 0, 0
    kept: list[Any] = []
    places: dict[int, int] = {}
    for part in parts:
        if part is None:
            kept.append(part)
            rank += 1
            continue
        if dim != x.dim:
            if not isinstance(part, (int, slice)):
                raise NoStreamError("takes an index that is not a number or a slice")
            if dim == x.batch and part != slice(None):
                raise NoStreamError("takes some rows of the batch")
        elif isinstance(part, slice):
            result, part = _sliced(result, part, value_of), slice(None)
        else:
            raise NoStreamError("takes single positions")
        places[dim] = rank
        rank += isinstance(part, slice)
        kept.append(part)
        dim += 1
    return result.moved(rank, places.__getitem__), tuple(kept)


def _sliced(x: Time, part: slice, value_of: Any) -> Time:
    if part.step not in (None, 1):
        raise NoStreamError(f"takes a slice of time with a step of {part.step}")
    first, last = (None if end is None else value_of(end) for end in (part.start, part.stop))
    return cut(x, first, last)


def padded(x: Time, pads: Any, mode: Any, value: Any) -> Time:
    """F.pad: pairs of sides from the last dimension on."""
    if isinstance(pads, int) or not all(isinstance(side, int) for side in pads):
        raise NoStreamError("pads by numbers that are not known")
    pairs = dict(enumerate(zip(pads[::2], pads[1::2], strict=True)))
    before, after = pairs.pop(x.rank - 1 - x.dim, (0, 0))
    if any(side != 0 for pair in pairs.values() for side in pair):
        raise NoStreamError("pads other dimensions than time")
    if mode not in ("constant", "replicate", "reflect"):
        raise NoStreamError(f"pads by {mode!r}, which takes the last inputs")
    if mode == "constant" and value not in (None, 0, 0.0):
        raise NoStreamError(f"pads by {value}, where a stream has zeros")
    if mode != "constant" and after > 0:
        raise NoStreamError("pads by the last inputs, which a stream does not know")
    if before < 0 or after < 0:
        x = x.trimmed(max(0, -before), max(0, -after))
    kind = "zeros" if mode == "constant" else mode
    return x.padded(max(0, before), max(0, after), kind) if before > 0 or after > 0 else x


def dimension(shape: Shape, index: Any) -> Value:
    """A number of a shape, or some."""
    time = shape.of
    if isinstance(index, slice):
        if time.dim in range(time.rank)[index]:
            raise NoStreamError("takes a part of the shape with the length, which a stream does not know")
    elif not isinstance(index, int):
        raise NoStreamError("takes a size whose dimension is not a number")
    elif index % time.rank == time.dim:
        return Length(time.rate, time.tail - time.start, time)
    elif index % time.rank == time.batch:
        return Other(is_rows=True)
    return Other()


def arithmetic(name: str, values: list[Value]) -> Value:
    """A length plus, minus, times or divided by a number."""
    left, right = [v.value if isinstance(v, Constant) else v for v in values] if len(values) == 2 else (None, None)
    if isinstance(right, Length) and name in ("add", "mul"):
        left, right = right, left
    if isinstance(left, Length) and isinstance(right, int):
        if name in ("add", "sub"):
            return Length(left.rate, left.more + (right if name == "add" else -right))
        if name == "mul":
            return Length(left.rate * right, left.more * right)
        if name == "floordiv" and left.more % right == 0:  # a slice has that rate, so it divides a stream's lengths
            return Length(left.rate / right, left.more // right)
    raise NoStreamError("computes with the length, which a stream does not know")
