"""Chunks: the rows of the inputs that each call of `fn` sees, and their number."""

from __future__ import annotations

import dataclasses
import math

# A chunk's cost beside its bytes: its call, and the waits of streams for each other.
_SECONDS_PER_CHUNK = 20e-6
# A shorter copy takes less time than the host needs to issue a chunk.
_SHORTEST_SECONDS = 60e-6
# One long copy must not delay another of the same direction by more than a millisecond.
_LARGEST_BYTES = 32 << 20


@dataclasses.dataclass(slots=True)
class Chunk:
    """Rows [begin, end) of the result, computed from rows [low, high) of the inputs, which include the halo."""

    index: int
    begin: int
    end: int
    low: int
    high: int

    @property
    def rows(self) -> int:
        """Rows without the halo."""
        return self.end - self.begin

    @property
    def extent(self) -> int:
        """Rows with the halo."""
        return self.high - self.low


@dataclasses.dataclass(frozen=True)
class Chunks:
    """The rows of an extent in chunks of `size`; the last chunk may be shorter. An empty extent is one empty chunk.

    halo (2, 1), size 4, extent 10
    rows     0 1 2 3 4 5 6 7 8 9
    chunk 0  * * * * .                 *: its rows   .: halo
    chunk 1      . . * * * * .
    chunk 2              . . * *
    """

    extent: int
    size: int
    halo: tuple[int, int] = (0, 0)
    count: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", max(1, -(-self.extent // self.size)))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Chunk:
        if not 0 <= index < self.count:
            raise IndexError(index)
        begin = index * self.size
        end = min(begin + self.size, self.extent)
        left, right = self.halo
        return Chunk(index, begin, end, max(0, begin - left), min(self.extent, end + right))

    @property
    def equal(self) -> range:
        """The chunks after the first that have `size` rows and all rows of the halo; the others are narrower."""
        left, right = self.halo
        first = max(1, -(-left // self.size))
        return range(first, max(first, (self.extent - right) // self.size))

    @property
    def widest(self) -> int:
        """The most rows of a chunk, halo included."""
        return min(self.extent, self.size + sum(self.halo))


def automatic_size(extent: int, bytes_per_row: float, gigabytes_per_second: float) -> int:
    """The chunk size for a host link of that speed, in rows.

    n chunks of c bytes take (n + 2) (c / B + t): the pipeline's fill and drain favour small chunks, the cost t of each
    chunk favours large chunks. The minimum is at c = sqrt(total t B / 2).
    """
    if extent == 0 or bytes_per_row == 0:
        return max(extent, 1)
    rate = gigabytes_per_second * 1e9
    best = math.sqrt(extent * bytes_per_row * _SECONDS_PER_CHUNK * rate / 2)
    wanted = min(max(best, _SHORTEST_SECONDS * rate), _LARGEST_BYTES)
    return min(max(1, round(wanted / bytes_per_row)), extent)
