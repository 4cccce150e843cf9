"""What the analysis of a model knows of a value: above all, how its time axis lies beside the input's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any


class NoStreamError(Exception):
    """A reason why a model is no stream, or no stream that is known."""


@dataclasses.dataclass(frozen=True)
class Time:
    """A tensor with a time axis.

    The first n inputs decide the first n * rate positions, if n is a multiple of a chunk's length. A run over the whole
    input has the positions from `start` to T * rate + `tail`; a stream has the positions from 0 to T * rate.

    Attributes:
        rank: dimensions of the tensor.
        dim: the time axis.
        batch: the dimension of rows, which have slots of their own.
        rate: positions for each position of the model's input.
        start: the first position of a run over the whole input; after padding, zeros from here on.
        lead: the first position with a value. A stream has zeros before it.
        tail: positions that see later inputs, or zeros in their place; negative where a run drops its last results.
        padding: the values before `lead`, "zeros", "replicate" or "reflect".
        origins: the names of modules whose results in the tail depend on what comes later, with reasons.
    """

    rank: int
    dim: int
    rate: Fraction = Fraction(1)
    start: int = 0
    lead: int = 0
    tail: int = 0
    padding: str = "zeros"
    origins: tuple[tuple[str, str], ...] = ()
    batch: int = 0

    @property
    def is_padded(self) -> bool:
        """Whether there are values before the first."""
        return self.start < self.lead

    def moved(self, rank: int, place_of: Callable[[int], int]) -> Time:
        """The same axis in a tensor of other dimensions; `place_of` says where each is."""
        return dataclasses.replace(self, rank=rank, dim=place_of(self.dim), batch=place_of(self.batch))

    def check_apart(self, dims: Iterable[int], time: str, rows: str) -> None:
        """Raises `time` if the time axis is among the dimensions, `rows` if the batch is."""
        found = set(dims)
        if self.dim in found:
            raise NoStreamError(time)
        if self.batch in found:
            raise NoStreamError(rows)

    def trimmed(self, first: int, last: int) -> Time:
        """Without the first and the last positions of a run over the whole input."""
        start, tail = self.start + first, self.tail - last
        lead, origins = max(self.lead, start), self.origins if tail > 0 else ()
        return dataclasses.replace(self, start=start, lead=lead, tail=tail, origins=origins)

    def padded(self, before: int, after: int, padding: str) -> Time:
        """With values before and after."""
        if after > 0 and self.tail < 0:
            raise NoStreamError("pads on the right, where the last results were dropped")
        is_new = before > 0 and self.is_padded and (self.padding != padding or padding == "reflect")
        if is_new or (padding != "zeros" and before > 0 and self.lead > 0):
            raise NoStreamError("pads in two ways, or where the first results were dropped")
        kind = padding if before > 0 else self.padding
        return dataclasses.replace(self, start=self.start - before, tail=self.tail + after, padding=kind)

    def is_beside(self, other: Time) -> bool:
        """Whether both have values of the same times."""
        mine, others = ((t.rate, t.start, t.lead, t.tail) for t in (self, other))
        return mine == others


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value that does not depend on the input."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Length:
    """T * rate + more, T being the length of the model's input.

    Attributes:
        rate: positions for each position of the model's input.
        more: further positions.
        of: the tensor that has it as its size; None where it is computed.
    """

    rate: Fraction
    more: int = 0
    of: Time | None = None


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a tensor with a time axis."""

    of: Time


@dataclasses.dataclass(frozen=True)
class Parts:
    """Several tensors, each like `of`. `only`: the index of the only part that may be used; None for all."""

    of: Time
    only: int | None = None


@dataclasses.dataclass(frozen=True)
class Other:
    """A value that does depend on the input, but is no tensor: a size, a dtype, a device.

    Attributes:
        is_rows: whether it is the size of the batch.
    """

    is_rows: bool = False


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A value of what is refused."""


Value = Time | Constant | Length | Shape | Parts | Other | Unknown


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of a convolution, or a transposed convolution, over time."""

    taps: int
    stride: int
    dilation: int
    before: int = 0  # padding, or results that are cut off, on the left
    after: int = 0
    more: int = 0  # a transposed convolution's output padding

    @property
    def reach(self) -> int:
        """Positions from the first tap to the last tap."""
        return self.dilation * (self.taps - 1) + 1

    @property
    def columns(self) -> int:
        """Columns of the state: inputs before a chunk, or sums after it."""
        return max(0, self.reach - self.stride)

    def convolved(self, name: str, x: Time) -> Time:
        """The time axis of a convolution's result."""
        pads, causal = self.before - x.start, f"where a causal convolution has {self.columns}"
        if self.after > 0 and x.tail < 0:
            raise NoStreamError("pads on the right, where the last results were dropped")
        start, rest = divmod(self.columns - pads, self.stride)
        if rest != 0:
            raise NoStreamError(f"pads {pads} on the left, {causal}: they differ by parts of a stride")
        if start < 0:
            raise NoStreamError(f"pads {pads} on the left, {causal}")
        if x.is_padded and x.padding != "zeros" and (start != 0 or self.before != 0):
            raise NoStreamError(f"pads {x.lead - x.start} on the left by {x.padding!r}, {causal}")
        tail = (x.tail + self.after + max(0, self.stride - self.reach)) // self.stride
        origins = x.origins
        own = self.after + (0 if origins else max(0, x.tail))
        if tail > 0 and own > 0:
            reason = "so its last results see zeros in the place of later inputs"
            origins = (*origins, (name, f"pads {own} on the right, {reason}"))
        rate = x.rate / self.stride
        return Time(3, 2, rate, start, start, tail, origins=origins if tail > 0 else ())

    def spread(self, name: str, x: Time) -> Time:
        """The time axis of a transposed convolution's result."""
        if x.is_padded:
            raise NoStreamError("transposes values that are padded")
        if x.tail < 0:
            raise NoStreamError("transposes values whose last results were dropped")
        start = x.start * self.stride + self.before
        tail = x.tail * self.stride + self.reach - self.stride + self.more - self.after
        origins = x.origins
        if tail > 0:
            reason = f"its last {tail} results depend on later inputs"
            origins = (*origins, (name, f"{reason}; a causal one trims them"))
        return Time(3, 2, x.rate * self.stride, start, start, tail, origins=origins if tail > 0 else ())
