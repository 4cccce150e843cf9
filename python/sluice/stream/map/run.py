"""One call of `map`: learns from the first chunk, then distributes chunks to devices and gathers their results."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import faults
from ..device.layout import DIRECT, LOCAL
from ..device.lent import Lent, Limits
from ..device.pipeline import ORDERS
from ..device.registered import Registered
from ..device.routes import Routes
from ..ending import Workers
from ..modes import Modes
from ..report.stats import StreamStats, record_of, stats_of
from .arguments import MapArguments
from .learner import Learner
from .ledger import Ledger, StoppedError
from .loop import EqualChunks
from .outputs import Allocate
from .progress import Reporter
from .work import DeviceWork


class MapRun:
    """The state of one call.

    Args:
        arguments: checked.
        functions: `fn` of each device.
        lent: engine and slots of each device.
        limits: depth and budgets.
        registered: pins in place, and unpins memory that is gone or whose budget is needed.
    """

    def __init__(
        self,
        arguments: MapArguments,
        functions: dict[torch.device, Callable[..., Any]],
        lent: dict[torch.device, Lent],
        limits: Limits,
        registered: Registered,
    ) -> None:
        self.arguments, self.op, self.limits = arguments, arguments.op, limits
        routes = Routes(self.op, arguments.staging, limits.pinned_budget, limits.ring_bytes, registered)
        self.ledger = Ledger(arguments, limits, routes)
        limit = limits.event_sets if len(lent) == 1 else limits.depth + 1
        self.works = [DeviceWork(self.ledger, functions[device], lent[device], limit) for device in lent]
        if arguments.to_device:
            allocate = _allocator_on(self.works[0].device)
        else:  # from the budget that registering the inputs has left
            allocate = routes.allocator(any(device.type == "cuda" for device in lent))
        self._learners = [Learner(work, lent[work.device].settled, allocate) for work in self.works]
        self.reporter = Reporter(self.op, arguments.progress, self.landed_bytes)
        if len(self.works) == 1 and self.reporter.is_asked:
            self.ledger.poll = self.reporter.poll
        self._began = time.perf_counter()
        self._workers: Workers | None = None
        self._record: Callable[[], StreamStats] | None = None
        names = [f"inputs[{i}]" for i in range(len(arguments.inputs))]
        sources = self.works[0].sources
        # Sources that threads copy have been read when the last chunk is issued; those that the device reads may not.
        late = [source.route in (DIRECT, LOCAL) for source in sources]
        named = list(zip(names, arguments.inputs, late, strict=True))
        self._early = faults.Watch(self.op, {name: tensor for name, tensor, is_late in named if not is_late})
        self._late = faults.Watch(self.op, {name: tensor for name, tensor, is_late in named if is_late})

    def cancel(self, is_quiet: bool = False) -> None:
        """Stops the run at its next chunk; at the interpreter's exit silently, by `SystemExit`."""
        self.ledger.cancel(is_quiet)

    # --- the whole ------------------------------------------------------------------------------------------------
    def issue(self) -> None:
        """Calls `fn` for all chunks; returns when the last call is issued. `end` must follow, also after an error."""
        for work in self.works:
            work.begin()
        if len(self.works) == 1:
            self._issue_on(self.works[0], self._learners[0].learn)
        else:
            self._issue_on_workers()
        self._early.check()

    def _issue_on(self, work: DeviceWork, start: Callable[[], None]) -> None:
        with work.engine.compute():  # once, not per chunk: it takes as long as a small chunk
            start()
            if len(self.works) == 1 and (equal := EqualChunks(work)).is_possible():
                equal.run()
            ORDERS[self.arguments.order](work, self.limits.depth)
        work.engine.flush()

    def _issue_on_workers(self) -> None:
        modes, first_is_done, ledger = Modes(), threading.Event(), self.ledger

        def learn() -> None:
            self._learners[0].learn()
            first_is_done.set()

        def work_on(work: DeviceWork, learner: Learner) -> None:
            def prepare() -> None:
                while not first_is_done.wait(0.02):
                    ledger.checkpoint()
                learner.prepare()

            try:
                with modes.entered():
                    self._issue_on(work, learn if work is self.works[0] else prepare)
            except StoppedError:
                pass
            except BaseException as error:  # raised by the thread that waits for all workers
                ledger.stop(error)

        pairs = zip(self.works, self._learners, strict=True)
        self._workers = Workers([functools.partial(work_on, work, learner) for work, learner in pairs])
        self._workers.start()
        while not self._workers.wait(0.01):
            self.reporter.poll()
        if ledger.stopped_by is not None:
            raise ledger.stopped_by

    def settle(self) -> Any:
        """Waits until everything has landed and returns the result. May be called again after an interrupt."""
        for work in self.works:
            work.settle()
        self._late.check()
        tensors = [assembly.finish() for assembly in self.ledger.assemblies]
        self.reporter.finish()
        self._raise_versions()
        if self.arguments.out is not None:
            return self.arguments.out
        structure = self.ledger.outputs.structure
        assert structure is not None
        return structure.rebuild(tensors)

    def has_landed(self) -> bool:
        """Whether all results are complete; never waits."""
        return all(work.has_landed() for work in self.works)

    def wait(self, milliseconds: int) -> None:
        """Waits until the results have landed, at most `milliseconds`."""
        for work in list(self.works):
            if not work.has_landed():
                work.engine.wait_issued(work.pipe.stored, milliseconds)
                return

    def end(self, has_failed: bool) -> None:
        """Releases what the run holds; may be called again. After a failure it waits for everything in flight.

        Raises:
            NotInTime: that takes too long at the interpreter's exit.
        """
        if has_failed:
            self.ledger.stop(StoppedError())
            if self._workers is not None:
                self._workers.join()
            for work in self.works:
                work.abandon()
            self.reporter.close()
        for work in self.works:
            work.engine.kept = None

    def told(self, error: BaseException) -> BaseException:
        """The error for the caller: the right type, with notes."""
        told = faults.translated(self.op, error)
        ledger = self.ledger
        if isinstance(told, KeyboardInterrupt) and ledger.current is not None:
            faults.add_note(told, f"{self.op}: interrupted at {ledger.name(ledger.current)}")
        if self.arguments.out is not None and ledger.is_touched:
            self._raise_versions()
            faults.add_note(told, f"{self.op}: out may be partly written")
        return told

    def _raise_versions(self) -> None:
        """Tells autograd that `out` was written, which torch does not see."""
        for out in self.arguments.outs or []:
            if not out.is_inference():
                torch.autograd.graph.increment_version(out)

    # --- numbers --------------------------------------------------------------------------------------------------
    def landed_bytes(self) -> tuple[int, int]:
        """Bytes moved in both directions, and their total."""
        done = sum(work.landed_bytes() for work in self.works)
        inside = sum(tensor.nbytes for tensor in self.arguments.inputs)
        outside = sum(assembly.capacity().nbytes for assembly in self.ledger.assemblies)
        return min(done, inside + outside), inside + outside  # uneven results may exceed what was expected

    def record(self) -> Callable[[], StreamStats]:
        """Takes the raw numbers of this finished run; most runs are never asked for `StreamStats`.

        Breaks reference cycles that would keep the inputs until a garbage collection. May be called again.
        """
        if self._record is None:
            self._record = self._take_record()
        self.works.clear()
        self._learners.clear()
        self.ledger.poll = None
        self.reporter = Reporter(self.op, None, lambda: (0, 0))
        return self._record

    def _take_record(self) -> Callable[[], StreamStats]:
        records = [record_of(work.engine, work.order_of_chunks, work.slots.nbytes) for work in self.works]
        known = {
            "chunk_size": self.ledger.chunks.size,
            "depth": self.limits.depth,
            "order": self.arguments.order,
            "seconds": time.perf_counter() - self._began,
            "tries": tuple(self.ledger.tries),
            "fallbacks": tuple(self.ledger.routes.fallbacks),
        }
        return functools.cache(functools.partial(stats_of, records, **known))


def _allocator_on(device: torch.device) -> Allocate:
    """Allocates on a device, on the caller's stream, which is current now."""
    caller = torch.cuda.current_stream(device)

    def allocate(sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        with torch.cuda.stream(caller):
            return torch.empty(tuple(sizes), dtype=dtype, device=device)

    return allocate
