"""Iterators: items are pulled as there is room, results come out as they land.

A source may fill one buffer again and again, or one of several, when it is asked for the next item. So it is asked only
when the item before has been read: when its bytes are staged or, where the copy engine reads them itself, copied; when
`fn` has run, where it was given tensors on a GPU. Nothing less is right. That a source has handed out fresh memory so
far says nothing about the next item; a version counter does not see what NumPy or a thread of the source writes; and a
pool of buffers may be filled long before the same one is seen again.

    source   [item n-1]           [item n  ]           [item n+1]     its own work overlaps with compute and copies out,
    h2d                [copy n-1 ]          [copy n   ]               not with the copy in of the item before
    compute  [ fn n-2      ]       [ fn n-1      ]     [ fn n
    d2h           [copy n-3]           [copy n-2 ]

What it costs is an idle link while the source works, a microsecond or a millisecond for each item. The elements of a
list or a tuple exist already, so that nothing is waited for; there a change that a version counter shows raises.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .. import faults
from ..device.lent import Lent, Limits
from ..device.pipeline import Flight
from ..ending import Channel, Latch, Workers
from ..faults import CancelledError
from ..modes import Modes
from ..process import Owner
from ..report.stats import StreamStats, record_of, stats_of
from .items import Item, ItemWork, tensors_on_gpus

# Between two elements of these no code runs that could write to one.
_OF_WHAT_EXISTS: tuple[type, ...] = (type(iter([])), type(iter(())))


class Source:
    """The caller's iterable: what it raises is kept until the results before it are out."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterator = iter(iterable)
        self.may_refill = type(self._iterator) not in _OF_WHAT_EXISTS
        self.pulled = 0
        self.has_ended = False
        self.error: BaseException | None = None

    def pull(self) -> tuple[int, Any] | None:
        """The next item and its number; None at the end."""
        if self.has_ended:
            return None
        try:
            item = next(self._iterator)
        except StopIteration:
            self.has_ended = True
            return None
        except Exception as error:
            self.has_ended, self.error = True, error
            return None
        self.pulled += 1
        return self.pulled - 1, item

    def ready(self, item: Any) -> list[torch.cuda.Event]:
        """Events after which the item's tensors on GPUs are written, if the source did so on the current streams."""
        places = {tensor.device for tensor in tensors_on_gpus(item)} if self.may_refill else ()
        return [torch.cuda.current_stream(place).record_event() for place in places]

    def close(self) -> None:
        """Closes a generator that was left early."""
        self.has_ended = True
        if (close := getattr(self._iterator, "close", None)) is not None:
            close()


class IterRun:
    """The state of one iterator.

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
        self.op, self.limits, self.ordered = op, limits, ordered
        self.owner = Owner()
        self._cancelled = self._is_quiet = False
        self._began = time.perf_counter()
        self.source = Source(iterable)
        self.works = [ItemWork(op, fn, lent[place], limits, self.checkpoint) for place, fn in functions.items()]
        self.workers: Workers | None = None
        self.tasks: Channel[_Task | None] = Channel()

    def cancel(self, is_quiet: bool = False) -> None:
        """Stops the iterator at its next step; quietly, by `SystemExit`, where the interpreter exits."""
        self._is_quiet = is_quiet
        self._cancelled = True

    def checkpoint(self) -> None:
        """Raises where it was cancelled."""
        if self._cancelled:
            if self._is_quiet:
                raise SystemExit
            raise CancelledError(f"{self.op}: cancelled by cancel(): there are no more results")

    def results(self) -> Iterator[Any]:
        """The results. However it is left, `end` must follow."""
        for work in self.works:
            work.begin()
        return _on_one(self, self.works[0]) if len(self.works) == 1 else _on_several(self)

    def end(self, has_failed: bool) -> None:
        """Waits for what is in flight, gives back what the run has taken, closes the source; may be called again.

        Raises:
            NotInTime: at the interpreter's exit, where that takes too long.
        """
        del has_failed  # who leaves an iterator early has done nothing wrong
        if self.workers is not None:
            self.tasks.clear()
            self.tasks.put(None)
            self.workers.join()
        for work in self.works:
            work.abandon()
            work.engine.kept = None
        self.source.close()

    def told(self, error: BaseException) -> BaseException:
        """What a caller is to see of something that went wrong."""
        return faults.translated(self.op, error)

    def record(self) -> Callable[[], StreamStats]:
        """Takes the numbers of this run, which is over."""
        records = [record_of(work.engine, work.order_of_items, work.slots.nbytes) for work in self.works]
        seconds = time.perf_counter() - self._began
        return functools.cache(functools.partial(stats_of, records, depth=self.limits.depth, seconds=seconds))


def _on_one(run: IterRun, work: ItemWork) -> Iterator[Any]:
    """On the caller's thread: at most depth + 1 items are pulled and not yet given out."""
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
            while fetched and fetched[-1].item.is_resident:
                compute_oldest()
            work.wait_read()
        return source.pull()

    while True:
        try:
            run.checkpoint()
            while error is None and source.pulled - given <= depth and (pulled := pull()) is not None:
                fetched.append(work.fetch(*pulled, source.ready(pulled[1])))
                if len(fetched) >= min(2, depth):  # the next copy in is issued before this call
                    compute_oldest()
            while error is None and fetched:
                compute_oldest()
        except Exception as raised:  # results that came before it are given out first; Ctrl-C does not wait for them
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
    """An item that some worker will take."""

    def __init__(self, index: int, item: Any, ready: list[torch.cuda.Event]) -> None:
        self.index, self.item, self.ready = index, item, ready
        self.read = Latch()  # its memory may be filled anew
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
        if flight.item.is_resident:
            work.compute(flight)
            read(task)
        else:  # not after fn, which may take long: other devices wait for the source meanwhile
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
                    while flying:  # what came before it
                        land()
                    task.error = error
                    task.is_done = True
                    done.put(None)
                    return  # the pipeline is out of step: the consumer ends all of it
            if flying and (task is None or len(flying) >= work.limits.depth):
                land()


def _on_several(run: IterRun) -> Iterator[Any]:
    """A worker for each device; at most depth + 2 items are pulled and not yet given out."""
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
                    return None  # its worker has ended, so that maybe none takes the last item
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
