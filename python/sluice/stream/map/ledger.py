"""State that the devices of one call share: remaining chunks, targets of results, whether to continue."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from ..cancelling import Cancellable
from ..device.layout import Endpoint, resolved
from ..device.lent import Limits
from ..device.routes import Routes
from ..structure import Structure
from .arguments import MapArguments
from .chunks import Chunk, Chunks
from .outputs import Allocate, Assembly, Outputs, chunk_name

# Chunks that are worth a loop's call, which takes the host as long as some chunks.
_SMALLEST_BLOCK = 8


class StoppedError(Exception):
    """Another device's worker has failed; the call raises the error of that worker."""


def blocks_of(chunks: range, devices: int, depth: int) -> list[range]:
    """Blocks that become smaller, so that faster devices take more of them and all end together."""
    blocks: list[range] = []
    while chunks:
        size = max(len(chunks) // (2 * devices), 2 * depth, _SMALLEST_BLOCK)
        blocks.append(chunks[:size])
        chunks = chunks[size:]
    return blocks


class Ledger(Cancellable):
    """The state of one call that is not per device.

    Args:
        arguments: checked.
        limits: depth and budgets.
        routes: how the bytes of tensors travel; None if they do not.
    """

    def __init__(self, arguments: MapArguments, limits: Limits, routes: Routes | None) -> None:
        super().__init__(arguments.op, "there is no result")
        self.arguments, self.limits, self.routes = arguments, limits, routes
        self.outputs = Outputs(arguments)
        self.assemblies: list[Assembly] = []
        self.tries: list[str] = []
        self.chunks = Chunks(arguments.extent, max(arguments.extent, 1), arguments.halo)
        self.current: Chunk | None = None  # computed last
        self.is_touched = False  # whether a byte of the result may be written
        self.poll: Callable[[], object] | None = None  # shows progress while a device's thread waits
        self.stopped_by: BaseException | None = None
        self.start_over()

    # --- chunks ---------------------------------------------------------------------------------------------------
    def take(self) -> range:
        """The next chunks for the calling device: one, or several that a loop may issue; none at the end."""
        number = next(self._next)
        if self._blocks is None:
            return range(number, min(number + 1, self.chunks.count))
        return self._blocks[number] if number < len(self._blocks) else range(0)

    def start_over(self) -> None:
        """Restarts with the second chunk; the learner runs the first chunk itself."""
        self._blocks: list[range] | None = None  # None: each chunk by itself
        self.equal = range(0)  # chunks that loops issue, where they can
        self._next = itertools.count(1)

    def divide(self, taken: int, equal: range, devices: int) -> None:
        """Restarts with chunk `taken`, or with `equal` if it begins before. Chunks of `equal` come in blocks.

        Only one device may take chunks meanwhile.
        """
        self.equal = equal
        before, after = range(taken, equal.start), range(max(taken, equal.stop), self.chunks.count)
        blocks = [equal] if devices == 1 else blocks_of(equal, devices, self.limits.depth)
        self._blocks = [range(i, i + 1) for i in before] + blocks + [range(i, i + 1) for i in after]
        self._next = itertools.count()

    def checkpoint(self) -> None:
        """Called while the host waits: shows progress, and raises if the run must stop."""
        super().checkpoint()
        if self.stopped_by is not None:
            raise StoppedError
        if (poll := self.poll) is not None:
            poll()

    def stop(self, error: BaseException) -> None:
        """Stops all devices, because one has failed; the first error is kept."""
        self.stopped_by = self.stopped_by or error

    # --- inputs and results ---------------------------------------------------------------------------------------
    def sources(self, device: torch.device, rows: int) -> list[Endpoint]:
        """The inputs as sources of copies to a device."""
        pairs, routes = zip(self.arguments.inputs, self.arguments.dims, strict=True), self.routes
        assert routes is not None
        return [routes.of(resolved(tensor), dim, rows, device, f"inputs[{i}]") for i, (tensor, dim) in enumerate(pairs)]

    def settle_on(self, chunks: Chunks, allocate: Allocate) -> None:
        """Allocates the results, whose sizes are known now that the first chunk has run."""
        self.chunks = chunks
        structure = self.outputs.structure
        assert structure is not None
        outs: list[torch.Tensor | None] = [None] * len(self.outputs.leaves)
        if self.arguments.outs is not None:
            outs = list(self._matched_outs(structure, self.arguments.outs))
        self.assemblies = [
            Assembly(self.arguments, leaf, name, chunks, out, allocate)
            for leaf, name, out in zip(self.outputs.leaves, structure.names, outs, strict=True)
        ]

    def _matched_outs(self, structure: Structure, outs: list[torch.Tensor]) -> list[torch.Tensor]:
        given = self.arguments.out_structure
        assert given is not None
        if len(outs) == len(structure.names) and given.is_flat:
            return outs
        matched = structure.arrange(outs, given)
        if matched is None:
            both = (structure.names, given.names)
            wanted, got = (", ".join(f"out{name}" for name in names) or "no tensor" for names in both)
            raise ValueError(f"{self.op}: out must have the structure of fn's result, {wanted}, got {got}")
        return matched

    def name(self, chunk: Chunk) -> str:
        """A chunk's name in messages."""
        return f"{chunk_name(chunk, self.arguments.dim)} ({len(self.chunks)} chunks)"
