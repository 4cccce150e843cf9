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
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import faults
from .faults import CancelledError
from .items import ItemWork, tensors_on_gpus
from .modes import Modes
from .pipeline import Flight
from .stats import record_of, stats_of

if TYPE_CHECKING:
    from .items import Item
    from .streamer import Streamer


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
        except BaseException as error:
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
    """What `Streamer.cancel` talks to."""

    def __init__(self, op: str) -> None:
        self._op, self._cancelled = op, False

    def cancel(self) -> None:
        """Stops the iterator at its next step."""
        self._cancelled = True

    def checkpoint(self) -> None:
        """Raises where it was cancelled."""
        if self._cancelled:
            raise CancelledError(f"{self._op}: the iterator must not be cancelled to go on, got cancel()")


def iterate(
    streamer: Streamer,
    op: str,
    functions: dict[torch.device, Callable[..., Any]],
    iterable: Iterable[Any],
    ordered: bool,
) -> Iterator[Any]:
    """The results; `streamer` is held by the caller until this ends."""
    run = IterRun(op)
    streamer._running = run
    limits, lent = streamer._limits(len(functions)), streamer._lend(list(functions))
    source = Source(iterable)
    began = time.perf_counter()
    works = [ItemWork(op, fn, lent[place], limits, run.checkpoint) for place, fn in functions.items()]
    try:
        for work in works:
            work.engine.begin()
        if len(works) == 1:
            yield from _on_one(works[0], source, run, limits.depth)
        else:
            yield from _on_several(works, source, run, limits.depth, ordered)
    except GeneratorExit:
        raise
    except BaseException as error:
        told = faults.translated(op, error)
        if told is error:
            raise
        raise told from None
    finally:
        for work in works:
            work.abandon()
        source.close()
        records = [record_of(work.engine, work.order_of_items, work.slots.nbytes) for work in works]
        seconds = time.perf_counter() - began
        streamer._stats = functools.cache(functools.partial(stats_of, records, depth=limits.depth, seconds=seconds))


def _on_one(work: ItemWork, source: Source, run: IterRun, depth: int) -> Iterator[Any]:
    """On the caller's thread: at most depth + 1 items are pulled and not yet given out."""
    fetched: collections.deque[Flight[Item]] = collections.deque()
    stored: collections.deque[Flight[Item]] = collections.deque()
    error: BaseException | None = None
    given = 0

    def compute_oldest() -> None:
        flight = fetched.popleft()
        work.compute(flight)
        stored.append(flight)

    def pull() -> tuple[int, Any] | None:
        if source.may_refill and not source.has_ended:
            while fetched and fetched[-1].chunk.is_resident:
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
        except BaseException as raised:  # results that came before it are given out first
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
            flight.chunk.watch.check()
        value = flight.chunk.value()
        del flight
        given += 1
        yield value
        del value


class _Task:
    """An item that some worker will take."""

    def __init__(self, index: int, item: Any, ready: list[torch.cuda.Event]) -> None:
        self.index, self.item, self.ready = index, item, ready
        self.read = threading.Event()  # its memory may be filled anew
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None


def _work_on(
    work: ItemWork, tasks: queue.Queue[_Task | None], modes: Modes, any_done: threading.Event, may_refill: bool
) -> None:
    flying: collections.deque[tuple[_Task, Flight[Item]]] = collections.deque()

    def land() -> None:
        task, flight = flying.popleft()
        try:
            work.pipe.wait_landed(flight.sequence + 1)
            if not may_refill:
                flight.chunk.watch.check()
            task.value = flight.chunk.value()
        except BaseException as error:
            task.error = error
        task.done.set()
        any_done.set()

    def read(task: _Task) -> None:
        if may_refill:
            work.wait_read()
        task.read.set()

    def start(task: _Task) -> None:
        flight = work.fetch(task.index, task.item, task.ready)
        if flight.chunk.is_resident:
            work.compute(flight)
            read(task)
        else:  # not after fn, which may take long: other devices wait for the source meanwhile
            read(task)
            work.compute(flight)
        flying.append((task, flight))

    with modes.entered():
        while True:
            task: _Task | None = None
            with contextlib.suppress(queue.Empty):
                task = tasks.get(timeout=None if not flying else 0.0005)
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
                    task.done.set()
                    any_done.set()
                    return  # the pipeline is out of step: the consumer ends all of it
            if flying and (task is None or len(flying) >= work.limits.depth):
                land()


def _on_several(works: list[ItemWork], source: Source, run: IterRun, depth: int, ordered: bool) -> Iterator[Any]:
    """A worker for each device; at most depth + 2 items are pulled and not yet given out."""
    tasks: queue.Queue[_Task | None] = queue.Queue()
    any_done, modes = threading.Event(), Modes()
    waiting: collections.deque[_Task] = collections.deque()
    workers: list[threading.Thread] = []
    failed = False

    def pull() -> tuple[int, Any] | None:
        if source.may_refill and waiting and not source.has_ended:
            while not waiting[-1].read.wait(0.02):
                run.checkpoint()
                if any(task.error is not None for task in waiting):
                    return None  # its worker has ended, so that maybe none takes the last item
        return source.pull()

    try:
        for work in works:
            arguments = (work, tasks, modes, any_done, source.may_refill)
            worker = threading.Thread(target=_work_on, args=arguments, daemon=True)
            worker.start()
            workers.append(worker)
        while True:
            while not failed and len(waiting) < depth + 2 and (pulled := pull()) is not None:
                waiting.append(_Task(*pulled, source.ready(pulled[1])))
                tasks.put(waiting[-1])
            if not waiting:
                if source.error is not None:
                    raise source.error
                return
            task = _next_task(waiting, ordered, run, any_done)
            if task.error is not None:
                failed = True
                raise task.error
            value = task.value
            del task
            yield value
            del value
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                tasks.get_nowait()
        tasks.put(None)
        for worker in workers:
            worker.join()


def _next_task(waiting: collections.deque[_Task], ordered: bool, run: IterRun, any_done: threading.Event) -> _Task:
    while True:
        run.checkpoint()
        any_done.clear()
        candidates = [waiting[0]] if ordered else list(waiting)
        for task in candidates:
            if task.done.is_set():
                waiting.remove(task)
                return task
        any_done.wait(0.02)
