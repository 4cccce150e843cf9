"""Equal chunks of a function whose call is known: one call into C++ issues them, and no Python runs in between.

Known functions are `fn=None`, a chain, and an op of sluice with bound arguments. The op is called once, for the first
slot, in the mode "stream": its raw op `_stream_<op>` gets the arguments as the op would, and calls it for each chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..._library import call_mode
from .. import faults
from ..arguments import identity
from ..device.layout import DIRECT, Endpoint
from ..device.slots import SlotViews
from ..known import is_known

if TYPE_CHECKING:
    from .work import DeviceWork

# Fewer equal chunks are not worth the call.
_FEWEST = 3


def _end(endpoint: Endpoint, row: int, extent: int, step: int, pointers: Sequence[int]) -> list[int]:
    """The numbers of a loop's end: its chunks are `step` rows apart."""
    copy = endpoint.copy(row, extent, pointers[0])
    return [endpoint.copy(row + step, extent, pointers[0])[0] - copy[0], *pointers, *copy]


class EqualChunks:
    """The chunks of one device that have the size of the first, all but it and perhaps the last.

    Args:
        work: the device's, after it has learned from the first chunk.
    """

    def __init__(self, work: DeviceWork) -> None:
        self._work, ledger = work, work.ledger
        chunks = ledger.chunks
        self._rows = chunks[0].rows
        is_last_equal = chunks[len(chunks) - 1].rows == self._rows
        self._count = len(chunks) - 1 - (not is_last_equal)

    def is_possible(self) -> bool:
        """Whether the loop may run."""
        work, arguments, outputs = self._work, self._work.ledger.arguments, self._work.ledger.outputs
        assert outputs.structure is not None
        is_simple = is_known(work.fn) and (work.fn is identity or outputs.structure.spec is None)
        return (
            is_simple
            and self._count >= _FEWEST
            and arguments.order == "depth_first"
            and not any(arguments.halo)
            and work.are_chunks_plain
            and all(assembly.is_direct for assembly in work.ledger.assemblies)
        )

    def run(self) -> None:
        """Issues them; leaves all to the caller if Python has converted an input of the op."""
        work, ledger = self._work, self._work.ledger
        leaves = ledger.outputs.leaves
        used = min(work.pipe.depth, len(ledger.chunks))
        slots = [slot if slot < used else 0 for slot in range(work.pipe.depth)]  # others do not exist
        extents = [leaf.sizes[leaf.dim] for leaf in leaves]
        targets = [
            work.target(i, assembly.capacity(), extent)
            for i, (assembly, extent) in enumerate(zip(ledger.assemblies, extents, strict=True))
        ]
        is_identity = work.fn is identity
        if is_identity and [source.order for source in work.sources] != [target.order for target in targets]:
            return
        through = is_identity and all(target.route == DIRECT for target in targets)
        inside = [work.input_views(slot, self._rows) for slot in slots]
        outside = inside if through else [work.output_views(slot, extents) for slot in slots]
        numbers: list[int] = []
        for i, source in enumerate(work.sources):
            numbers += _end(source, self._rows, self._rows, self._rows, [views.pointers[i] for views in inside])
        for i, (target, extent) in enumerate(zip(targets, extents, strict=True)):
            numbers += _end(target, extent, extent, extent, [views.pointers[i] for views in outside])
        fetched, stored, index = len(work.fetched_ahead), 0, 1
        head = [work.pipe.depth, work.pipe.event_sets, work.pipe.limit, work.pipe.entered - fetched, self._count]
        tail = [len(work.sources), len(targets), *numbers]
        while stored < self._count:
            ledger.checkpoint()
            ledger.current = ledger.chunks[index + stored]
            work.engine.flush()
            told = self._call([*head, int(through), fetched, stored, *tail], inside, outside)
            if not told:
                return
            if stored == 0:
                work.take_over()
            before = fetched, stored
            fetched, stored = map(int, told.split())
            work.advance(index + before[1], fetched - before[0], stored - before[1], outside[0].nbytes)
            work.pipe.raise_error()
        ledger.start_over(index + stored)
        if through:
            work.pipe.keep_inputs_until_stored()

    def _call(self, loop: list[int], inside: list[SlotViews], outside: list[SlotViews]) -> str:
        work = self._work
        if work.fn is identity:
            return str(work.engine.op("chunks")(work.engine.handle, loop))
        options = {
            "inputs": [tensor for views in inside for tensor in views.tensors],
            "outputs": [views.tensors[0] for views in outside],
            "engine": work.engine.handle,
            "loop": loop,
        }
        try:
            with call_mode("stream", **options) as told:
                work.fn(*inside[0].tensors, out=outside[0].tensors[0])
        except BaseException as error:
            ledger = work.ledger
            assert ledger.current is not None
            faults.add_note(error, f"{ledger.op}: raised by fn for {ledger.name(ledger.current)} or a later one")
            raise
        return told[0] if told else ""
