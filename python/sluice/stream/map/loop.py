"""Equal chunks of a function whose call is known: a loop in C++ issues them, and no Python runs in between.

Known functions are `fn=None`, a chain, and an op of sluice with bound arguments. The op is called once for a block of
chunks, in the mode "stream": its raw op `_stream_<op>` gets the arguments as the op would, and calls it for each chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..._modes import call_mode
from .. import faults
from ..arguments import identity
from ..device.layout import LOCAL
from ..known import is_known
from .loop_numbers import Description, describe, fits_slots, has_places, is_straight, layout

if TYPE_CHECKING:
    from .chunks import Chunk
    from .work import DeviceWork

# Fewer equal chunks are not worth the call.
_FEWEST = 3


def divide(works: Sequence[DeviceWork]) -> None:
    """Lets loops issue the equal chunks, if they can, after the first device has learned from the first chunk."""
    learned, ledger = works[0], works[0].ledger
    taken, equal = 1 + len(learned.fetched_ahead), ledger.chunks.equal
    # Chunks that are fetched ahead are in slots; the first block begins with them if that is where it wants them.
    begins_with_them = equal.start < taken and not is_straight(learned)
    if not begins_with_them:
        equal = range(max(equal.start, taken), equal.stop)
    if len(equal) < _FEWEST or not _is_possible(works):
        return
    ledger.divide(taken, equal, len(works))
    if begins_with_them:
        learned.block = ledger.take()


def _is_possible(works: Sequence[DeviceWork]) -> bool:
    """Whether loops can issue the equal chunks, on all devices alike."""
    work, ledger = works[0], works[0].ledger
    arguments, structure = ledger.arguments, ledger.outputs.structure
    if arguments.order != "depth_first" or work.is_lazy or not all(is_known(work.fn) for work in works):
        return False
    assert structure is not None
    is_identity = work.fn is identity
    if not (is_identity or structure.spec is None) or not all(assembly.is_direct for assembly in ledger.assemblies):
        return False
    inputs = [(source.tensor, source.dim) for source in work.sources]
    results = [(a.capacity(), leaf.dim) for a, leaf in zip(ledger.assemblies, ledger.outputs.leaves, strict=True)]
    if is_identity and [layout(*pair) for pair in inputs] != [layout(*pair) for pair in results]:
        return False  # a copy within the device keeps the layout
    on_device = [(source.tensor, source.dim) for source in work.sources if source.route == LOCAL]
    on_device += results if arguments.to_device else []
    widest = ledger.chunks.widest
    return all(has_places(*pair) for pair in on_device) and all(fits_slots(*pair, widest) for pair in inputs + results)


def issue_block(work: DeviceWork) -> None:
    """Issues the device's blocks of equal chunks; leaves them to Python if the op's Python code converts an input."""
    described: Description | None = None
    while work.has_block:
        described = described or describe(work)
        if not _issue(work, work.block, described):
            return
        work.block = work.ledger.take()


def _issue(work: DeviceWork, block: range, described: Description) -> bool:
    ledger, stored = work.ledger, 0
    ahead = fetched = min(len(work.fetched_ahead), len(block))
    is_taken_over = False
    sequence = work.fetched_ahead[0].sequence if fetched else work.pipe.entered
    while stored < len(block):
        ledger.checkpoint()
        ledger.current = chunk = ledger.chunks[block[stored]]
        work.engine.flush()
        head = [sequence, block.start - ledger.equal.start, len(block), fetched, stored]
        told = _call(work, [*head, *described.numbers], described, chunk)
        if not told:
            work.leave_to_python(ahead)
            return False
        if not is_taken_over:  # once: a call may end before it has stored anything
            work.take_over(ahead)
            is_taken_over = True
        before = fetched, stored
        fetched, stored = map(int, told.split())
        work.advance(chunk.index, fetched - before[0], stored - before[1], described.result_bytes)
        work.pipe.raise_error()
    if described.is_through:
        work.pipe.keep_inputs_until_stored()
    return True


def _call(work: DeviceWork, numbers: list[int], described: Description, chunk: Chunk) -> str:
    ledger, engine = work.ledger, work.engine
    if work.fn is identity:
        return str(engine.op("chunks")(engine.handle, numbers))
    options = {
        "inputs": [tensor for tensors in described.inputs for tensor in tensors],
        "outputs": described.results,
        "engine": engine.handle,
        "loop": numbers,
    }
    try:
        with call_mode("stream", **options) as told:
            work.fn(*described.inputs[0], out=described.results[0])
    except BaseException as error:
        faults.add_note(error, f"{ledger.op}: raised by fn for {ledger.name(chunk)} or a later one")
        raise
    return told[0] if told else ""
