"""One call of `map` on devices: learns from the first chunk, then distributes chunks and gathers their results."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import faults
from ..device.engine import EngineDevice
from ..device.layout import DIRECT, LOCAL
from ..device.lent import Lent, Limits
from ..device.pipeline import ORDERS
from ..device.registered import Registered
from ..device.routes import Routes
from ..ending import Workers
from ..modes import Modes
from ..report.stats import Record, record_of
from .arguments import MapArguments
from .base import MapRun
from .learner import Learner
from .ledger import Ledger, StoppedError
from .loop import divide, issue_block
from .outputs import Allocate
from .work import DeviceWork


class StreamedRun(MapRun):
    """A call whose chunks pass through the slots of one or more devices.

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
        routes = Routes(arguments.op, arguments.staging, limits.pinned_budget, limits.ring_bytes, registered)
        super().__init__(Ledger(arguments, limits, routes), limits)
        limit = limits.event_sets if len(lent) == 1 else limits.depth + 1
        self.works = [DeviceWork(self.ledger, functions[device], lent[device], limit) for device in lent]
        if arguments.to_device:
            allocate = _allocator_on(self.works[0].engine)
        else:  # from the budget that registering the inputs has left
            allocate = routes.allocator(any(device.type == "cuda" for device in lent))
        self._learners = [Learner(work, lent[work.device].settled, allocate) for work in self.works]
        if len(self.works) == 1 and self.reporter.is_asked:
            self.ledger.poll = self.reporter.poll
        self._workers: Workers | None = None
        names = [f"inputs[{i}]" for i in range(len(arguments.inputs))]
        sources = self.works[0].sources
        # When the last chunk is issued, threads have read what they copy; the device may not have read its sources.
        late = [source.route in (DIRECT, LOCAL) for source in sources]
        named = list(zip(names, arguments.inputs, late, strict=True))
        self._early = faults.Watch(self.op, {name: tensor for name, tensor, is_late in named if not is_late})
        self._late = faults.Watch(self.op, {name: tensor for name, tensor, is_late in named if is_late})

    # --- the whole ------------------------------------------------------------------------------------------------
    def issue(self) -> None:
        """Calls `fn` for all chunks."""
        for work in self.works:
            work.begin()
        if len(self.works) == 1:
            self._issue_on(self.works[0], self._learn)
        else:
            self._issue_on_workers()
        self._early.check()

    def _learn(self) -> None:
        self._learners[0].learn()
        divide(self.works)

    def _issue_on(self, work: DeviceWork, start: Callable[[], None]) -> None:
        with work.engine.compute():  # once, not per chunk: it takes as long as a small chunk
            start()
            issue = ORDERS[self.arguments.order]
            issue(work, self.limits.depth)
            while work.has_block:
                issue_block(work)
                issue(work, self.limits.depth)
        work.engine.flush()

    def _issue_on_workers(self) -> None:
        modes, first_is_done, ledger = Modes(), threading.Event(), self.ledger

        def learn() -> None:
            self._learn()
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
        """Waits until everything has landed and returns the result."""
        for work in self.works:
            work.settle()
        assert sum(len(work.order_of_chunks) for work in self.works) == len(self.ledger.chunks)
        self._late.check()
        return self._result()

    def has_landed(self) -> bool:
        """Whether all results are complete."""
        return all(work.has_landed() for work in self.works)

    def wait(self, milliseconds: int) -> None:
        """Waits until the results have landed, at most `milliseconds`."""
        for work in list(self.works):
            if not work.has_landed():
                work.engine.wait_issued(work.pipe.stored, milliseconds)
                return

    def end(self, has_failed: bool) -> None:
        """Releases what the run holds."""
        if has_failed:
            self.ledger.stop(StoppedError())
            if self._workers is not None:
                self._workers.join()
            for work in self.works:
                work.abandon()
            self.reporter.close()
        for work in self.works:
            work.engine.kept = None

    def _moved(self) -> int:
        return sum(work.landed_bytes() for work in self.works)

    def _records(self) -> list[Record]:
        return [record_of(work.engine, work.order_of_chunks, work.slots.nbytes) for work in self.works]

    def _forget(self) -> None:
        self.works.clear()
        self._learners.clear()


def _allocator_on(engine: EngineDevice) -> Allocate:
    """Allocates on a device, on the caller's stream, which is current now."""
    caller = torch.cuda.current_stream(engine.device)

    def allocate(sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        with torch.cuda.stream(caller):
            made = torch.empty(tuple(sizes), dtype=dtype, device=engine.device)
        engine.follow(caller.record_event())  # another thread may have used the memory on that stream meanwhile
        engine.barrier()
        return made

    return allocate
