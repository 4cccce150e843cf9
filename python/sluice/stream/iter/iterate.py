"""Iterators: items are pulled as slots become free, results are yielded as they land.

A source may refill one buffer, or one of several, when the next item is requested. The request therefore waits until
the previous item has been read: until its bytes are in the pinned ring, or copied if the copy engine reads them itself,
or until `fn` has run if it was given tensors on a GPU. Nothing less is correct: a source that has returned fresh memory
so far may reuse it next time, a version counter does not see writes by NumPy or by a thread of the source, and a pool
of buffers may be refilled long before the same buffer is seen again.

    source   [item n-1]           [item n  ]           [item n+1]     its own work overlaps with compute and copies out,
    h2d                [copy n-1 ]          [copy n   ]               not with the copy in of the item before
    compute  [ fn n-2      ]       [ fn n-1      ]     [ fn n
    d2h           [copy n-3]           [copy n-2 ]

The cost is an idle host link while the source works, a microsecond or a millisecond per item. The elements of a list or
a tuple already exist, so there is no wait; there a change that a version counter shows raises.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ..cancelling import CancellableRun
from ..device.lent import Lent, Limits
from ..device.pipeline import Flight
from ..ending import Channel, Latch, Workers
from ..modes import Modes
from ..process import Owner
from ..report.stats import Once, StreamStats, record_of, stats_of
from .items import Item, ItemWork
from .source import Source


class IterRun(CancellableRun):
    """The state of one iterator on devices.

    Args:
        op: for messages.
        functions: `fn` of each device.
        lent: engine and slots of each device.
        limits: depth and budgets.
        iterable: of the items.
        ordered: whether results come in the order of items.
    """

    def __init__(
        self,
        op: str,
        functions: dict[torch.device, Callable[..., Any]],
        lent: dict[torch.device, Lent],
        limits: Limits,
        iterable: Iterable[Any],
        ordered: bool,
    ) -> None:
        super().__init__(op, "there are no more results")
        self.limits, self.ordered = limits, ordered
        self.owner = Owner()
        self._began = time.perf_counter()
        self.source = Source(iterable)
        self.works = [ItemWork(op, fn, lent[device], limits, self.checkpoint) for device, fn in functions.items()]
        self.workers: Workers | None = None
        self.tasks: Channel[_Task | None] = Channel()

    def results(self) -> Iterator[Any]:
        """The results. `end` must follow in any case."""
        for work in self.works:
            work.begin()
        return _on_one(self, self.works[0]) if len(self.works) == 1 else _on_several(self)

    def end(self, has_failed: bool) -> None:
        """Waits for everything in flight, releases what the run holds, closes the source; may be called again.

        Raises:
            NotInTime: that takes too long at the interpreter's exit.
        """
        del has_failed  # leaving an iterator early is not an error
        if self.workers is not None:
            self.tasks.clear()
            self.tasks.put(None)
            self.workers.join()
        for work in self.works:
            work.abandon()
            work.engine.kept = None
        self.source.close()

    def record(self) -> Callable[[], StreamStats]:
        """Takes the raw numbers of this finished run."""
        records = [record_of(work.engine, work.order_of_items, work.slots.nbytes) for work in self.works]
        seconds = time.perf_counter() - self._began
        return Once(functools.partial(stats_of, records, depth=self.limits.depth, seconds=seconds))


def _on_one(run: IterRun, work: ItemWork) -> Iterator[Any]:
    """On the caller's thread: at most depth + 1 items are pulled and not yet yielded."""
    source, depth = run.source, run.limits.depth
    fetched: collections.deque[Flight[Item]] = collections.deque()
    stored: collections.deque[Flight[Item]] = collections.deque()
    error: Exception | None = None
    given = 0

    def compute_oldest() -> None:
        flight = fetched.popleft()
        work.compute(flight)
        stored.append(flight)

    def pull() -> tuple[int, Any] | None:
        if source.may_refill and not source.has_ended:
            while fetched and fetched[-1].item.has_gpu_tensors:
                compute_oldest()
            work.wait_read()
        return source.pull()

    while True:
        try:
            run.checkpoint()
            while error is None and source.pulled - given <= depth and (pulled := pull()) is not None:
                fetched.append(work.fetch(*pulled, source.ready(pulled[1])))
                if len(fetched) >= min(2, depth):  # issues the next copy in before this call
                    compute_oldest()
            while error is None and fetched:
                compute_oldest()
        except Exception as raised:  # earlier results are yielded first; Ctrl-C does not wait for them
            error = raised
        if not stored:
            if error is not None:
                raise error
            if source.error is not None:
                raise source.error
            return
        flight = stored.popleft()
        work.pipe.wait_landed(flight.sequence + 1)
        if not source.may_refill:
            flight.item.watch.check()
        value = flight.item.value()
        del flight
        given += 1
        yield value
        del value
        run.owner.check(run.op, "iterator")


class _Task:
    """An item for any worker."""

    def __init__(self, index: int, item: Any, ready: list[torch.cuda.Event]) -> None:
        self.index, self.item, self.ready = index, item, ready
        self.read = Latch()  # its memory may be refilled
        self.is_done = False
        self.value: Any = None
        self.error: BaseException | None = None


def _work_on(run: IterRun, work: ItemWork, modes: Modes, done: Channel[None]) -> None:
    tasks, may_refill = run.tasks, run.source.may_refill
    flying: collections.deque[tuple[_Task, Flight[Item]]] = collections.deque()

    def land() -> None:
        task, flight = flying.popleft()
        try:
            work.pipe.wait_landed(flight.sequence + 1)
            if not may_refill:
                flight.item.watch.check()
            task.value = flight.item.value()
        except BaseException as error:
            task.error = error
        task.is_done = True
        done.put(None)

    def read(task: _Task) -> None:
        if may_refill:
            work.wait_read()
        task.read.set()

    def start(task: _Task) -> None:
        flight = work.fetch(task.index, task.item, task.ready)
        if flight.item.has_gpu_tensors:
            work.compute(flight)
            read(task)
        else:  # not after fn, which may take long while other devices wait for the source
            read(task)
            work.compute(flight)
        flying.append((task, flight))

    with modes.entered():
        while True:
            task: _Task | None = None
            with contextlib.suppress(IndexError):
                task = tasks.get(None if not flying else 0.0005)
                if task is None:
                    tasks.put(None)  # for the other workers
                    while flying:
                        land()
                    return
                try:
                    start(task)
                except BaseException as error:
                    while flying:  # earlier items first
                        land()
                    task.error = error
                    task.is_done = True
                    done.put(None)
                    return  # the pipeline is inconsistent: the consumer ends the run
            if flying and (task is None or len(flying) >= work.limits.depth):
                land()


def _on_several(run: IterRun) -> Iterator[Any]:
    """A worker for each device; at most depth + 2 items are pulled and not yet yielded."""
    source, depth, modes = run.source, run.limits.depth, Modes()
    done: Channel[None] = Channel()
    run.workers = Workers([functools.partial(_work_on, run, work, modes, done) for work in run.works])
    run.workers.start()
    waiting: collections.deque[_Task] = collections.deque()

    def pull() -> tuple[int, Any] | None:
        if source.may_refill and waiting and not source.has_ended:
            while not waiting[-1].read.wait(0.02):
                run.checkpoint()
                if any(task.error is not None for task in waiting):
                    return None  # its worker has ended, so perhaps none takes the last item
        return source.pull()

    while True:
        while len(waiting) < depth + 2 and (pulled := pull()) is not None:
            waiting.append(_Task(*pulled, source.ready(pulled[1])))
            run.tasks.put(waiting[-1])
        if not waiting:
            if source.error is not None:
                raise source.error
            return
        task = _next_task(waiting, run, done)
        if task.error is not None:
            raise task.error
        value = task.value
        del task
        yield value
        del value
        run.owner.check(run.op, "iterator")


def _next_task(waiting: collections.deque[_Task], run: IterRun, done: Channel[None]) -> _Task:
    while True:
        run.checkpoint()
        candidates = [waiting[0]] if run.ordered else list(waiting)
        for task in candidates:
            if task.is_done:
                waiting.remove(task)
                return task
        with contextlib.suppress(IndexError):
            done.get(0.02)
