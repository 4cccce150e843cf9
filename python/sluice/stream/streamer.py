"""`Streamer`: streams, slots and rings shared by several calls; `stream_map` and `stream_iter` borrow one."""

from __future__ import annotations

import atexit
import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch

from . import faults, process
from .arguments import check_budget, check_depth, integer, parse_devices, parse_functions
from .call import Call, Tenancy
from .device.lender import Lender
from .device.limits import default_threads
from .ending import Ending, Holder
from .iter.inline import InlineIterRun
from .iter.iterate import IterRun
from .map import brief, inline
from .map.arguments import MapArguments, parse_map
from .map.base import MapRun
from .map.run import StreamedRun
from .modes import untraced
from .report.stats import StreamStats
from .report.timeline import write_trace

_all: weakref.WeakSet[Streamer] = weakref.WeakSet()


class Streamer:
    """Streams host tensors through `fn` on one or more devices, call after call, with the same slots and rings.

    From the third identical call with `out` given, nothing is allocated or pinned. Two threads that use one Streamer
    are served one after the other; two Streamers run concurrently. It is a context manager that closes at its end. It
    belongs to the process that made it: a child of `fork` makes its own, and a pickle or a copy raises `TypeError`.

    Args:
        devices: a device or a list of them; None is the current GPU, else the CPU.
        depth: slots per device: chunks on it at once.
        memory_budget: bytes per device for slots and one output of `fn`, a hard limit; None: no limit.
        pinned_budget: bytes of pinned memory for rings, results and what `staging="register"` pins; None: a quarter of
            the machine's memory, 4 GiB at most, and half of the machine's memory for registered memory.
        staging_threads: threads of each device that copy pageable memory; None: the cores of the process (all but two
            of more than four), shared by the devices, 16 at most.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range, or a device that does not exist.

    Example:
        >>> import torch, sluice
        >>> x, y = torch.randn(1000, 8), torch.empty(1000, 8)
        >>> with sluice.Streamer(depth=2) as streamer:
        ...     for _ in range(3):
        ...         _ = streamer.map(torch.sigmoid, x, out=y, chunk_size=256)
        >>> torch.testing.assert_close(y, torch.sigmoid(x))
    """

    def __init__(
        self,
        devices: Any = None,
        depth: int = 3,
        memory_budget: int | None = None,
        pinned_budget: int | None = None,
        staging_threads: int | None = None,
    ) -> None:
        op = "Streamer"
        self._devices = parse_devices(op, devices)
        self._given_devices = devices
        depth = check_depth(op, depth)
        budgets = (
            check_budget(op, "memory_budget", memory_budget),
            check_budget(op, "pinned_budget", pinned_budget),
        )
        threads = default_threads(len(self._devices))
        if staging_threads is not None:
            threads = integer(op, "staging_threads", staging_threads, 1)
        self._lender = Lender(len(self._devices), depth, *budgets, threads)
        self._tenancy = Tenancy(self._lender)
        self._iterator: Callable[[], Any] = lambda: None  # a weak reference to the current one
        _all.add(self)

    # --- public ---------------------------------------------------------------------------------------------------
    def map(
        self,
        fn: Any,
        *inputs: Any,
        dim: int = 0,
        out: Any = None,
        chunk_size: int | None = None,
        halo: int | tuple[int, int] = 0,
        order: str = "depth_first",
        staging: str = "auto",
        non_blocking: bool = False,
        progress: Any = None,
        result: str | None = None,
    ) -> Any:
        """`fn(*inputs)`, chunk by chunk along `dim`; arguments as for `stream_map`.

        Raises:
            RuntimeError: the Streamer is closed, or the call comes from within its own run.
        """
        return self._map(
            "stream_map", fn, inputs, dim, out, chunk_size, halo, order, staging, non_blocking, progress, result
        )

    def iter(self, fn: Any, iterable: Iterable[Any], *, ordered: bool = True) -> Iterator[Any]:
        """`fn(item)` for each item, on the device and back; see `stream_iter`.

        Raises:
            RuntimeError: the Streamer is closed, or the call comes from within its own run.
        """
        return self._iter("stream_iter", fn, iterable, ordered)

    def stats(self) -> StreamStats:
        """Numbers of the last complete run."""
        self._tenancy.owner.check("Streamer.stats", "Streamer")
        return self._tenancy.stats()

    def trace(self, path: str) -> str:
        """Draws the last run as a timeline: a row per stream, a box per chunk, overlap and, on a GPU, use of the link.

        Args:
            path: `*.png` for a picture (needs matplotlib), `*.json` for a trace for chrome://tracing and Perfetto.

        Returns:
            The path.

        Raises:
            RuntimeError: there was no run.
            ValueError: another ending.
            ImportError: a picture without matplotlib.
        """
        self._tenancy.owner.check("Streamer.trace", "Streamer")
        return write_trace(self._tenancy.stats(), path)

    def cancel(self) -> None:
        """Stops the current run, from any thread: its call raises `concurrent.futures.CancelledError`."""
        self._tenancy.owner.check("Streamer.cancel", "Streamer")
        running, outstanding = self._tenancy.running, self._tenancy.outstanding
        if running is not None:
            running.cancel()
        elif outstanding is not None:
            outstanding.cancel()

    def close(self) -> None:
        """Waits for what is in flight and frees streams, slots and rings. A second call does nothing."""
        tenancy, holder = self._tenancy, Holder()
        if not tenancy.owner.is_here() or (tenancy.is_closed and not self._lender.lent):
            return

        def end(_: BaseException | None) -> None:
            if tenancy.lock.has(holder):
                tenancy.is_closed = True
                tenancy.free()
            tenancy.lock.give_back(holder)

        with Ending(end), Ending(end):
            tenancy.take("Streamer.close", holder)

    def __enter__(self) -> Streamer:
        self._tenancy.check_open("Streamer")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise faults.not_copied("Streamer", "holds a device's streams and buffers", "make one in each process")

    def __del__(self) -> None:
        tenancy = getattr(self, "_tenancy", None)
        if tenancy is None or tenancy.is_closed or not tenancy.owner.is_here():
            return
        tenancy.is_closed = True
        if tenancy.lock.try_take(Holder()):  # else an iterator that ends with this has it, and frees all
            tenancy.free()

    # --- implementation -------------------------------------------------------------------------------------------
    def _map(self, *arguments: Any) -> Any:
        return untraced(self._map_now, *arguments)

    def _map_now(
        self,
        op: str,
        fn: Any,
        inputs: tuple[Any, ...],
        dim: int,
        out: Any,
        chunk_size: int | None,
        halo: Any,
        order: str,
        staging: str,
        non_blocking: bool,
        progress: Any,
        result: Any,
        finished: Callable[[], None] | None = None,
    ) -> Any:
        call = Call(op, self._tenancy, self, finished)
        with Ending(call.end), Ending(call.end):
            self._tenancy.check_open(op)
            parse = functools.partial(
                parse_map,
                op,
                inputs,
                dim=dim,
                out=out,
                chunk_size=chunk_size,
                halo=halo,
                order=order,
                staging=staging,
                non_blocking=non_blocking,
                progress=progress,
                result=result,
                devices=self._devices,
                any_device=self._given_devices is None,
            )
            is_usual = brief.are_usual(halo, order, staging, non_blocking, progress, result)
            if is_usual and brief.can_run(fn, inputs, dim, out, chunk_size, self._devices, self._lender):
                keeps_slots = finished is None  # nobody else gets this Streamer next
                make = functools.partial(brief.BriefRun, op, fn, inputs, dim, out, self._lender, order, parse)
                call.begin(functools.partial(make, self._devices[0], keeps_slots))
                return call.perform(non_blocking=False, instead=lambda: self._checked(op, fn, parse)())
            call.begin(self._checked(op, fn, parse))
            return call.perform(non_blocking)

    def _checked(self, op: str, fn: Any, parse: Callable[[], MapArguments]) -> Callable[[], MapRun]:
        """Checks the arguments, before anything waits; what is returned makes the run."""
        arguments = parse()
        return functools.partial(self._make_map_run, arguments, parse_functions(op, fn, arguments.devices))

    def _make_map_run(self, arguments: MapArguments, functions: dict[torch.device, Callable[..., Any]]) -> MapRun:
        limits = self._lender.limits(len(functions))
        if inline.can_run(arguments, functions, limits):
            ((device, fn),) = functions.items()
            return inline.InlineRun(arguments, fn, device, limits)
        self._lender.registered.begin((*arguments.inputs, *(arguments.outs or ())))
        return StreamedRun(arguments, functions, self._lender.lend(list(functions)), limits, self._lender.registered)

    def _iter(
        self, op: str, fn: Any, iterable: Iterable[Any], ordered: bool, finished: Callable[[], None] | None = None
    ) -> Iterator[Any]:
        self._tenancy.check_open(op)
        functions = parse_functions(op, fn, self._devices)
        if not isinstance(ordered, bool):
            raise TypeError(f"{op}: ordered must be a bool, got {type(ordered).__name__}")
        if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
            raise TypeError(f"{op}: iterable must be an iterable, got {type(iterable).__name__}")
        itself: list[Callable[[], Any]] = []
        iterator = self._iterate(op, functions, iterable, ordered, finished, itself)
        itself.append(weakref.ref(iterator))
        return iterator

    def _iterate(
        self,
        op: str,
        functions: dict[torch.device, Callable[..., Any]],
        iterable: Iterable[Any],
        ordered: bool,
        finished: Callable[[], None] | None,
        itself: list[Callable[[], Any]],
    ) -> Iterator[Any]:
        call = Call(op, self._tenancy, self, finished)
        with Ending(call.end), Ending(call.end):
            call.begin(lambda: self._make_iter_run(op, functions, iterable, ordered))
            self._iterator = itself[0]
            yield from call.results()

    def _make_iter_run(
        self, op: str, functions: dict[torch.device, Callable[..., Any]], iterable: Iterable[Any], ordered: bool
    ) -> IterRun | InlineIterRun:
        limits = self._lender.limits(len(functions))
        if inline.is_inline(functions, limits):
            ((device, fn),) = functions.items()
            return InlineIterRun(op, fn, device, limits, iterable)
        return IterRun(op, functions, self._lender.lend(list(functions)), limits, iterable, ordered)

    def _cancel_at_exit(self) -> None:
        if (running := self._tenancy.running) is not None:
            running.cancel(is_quiet=True)

    def _close_at_exit(self) -> None:
        """Closes it if its work ends in time; otherwise keeps everything that it uses until the process ends."""
        tenancy, holder = self._tenancy, Holder()
        tenancy.is_closed_at_exit = True
        if (iterator := self._iterator()) is not None:
            with contextlib.suppress(BaseException):  # raised by the source, or because it runs in another thread
                iterator.close()
        try:
            if not tenancy.lock.take(holder, "an iterator could not be closed", process.seconds_left()):
                raise process.NotInTime
            tenancy.is_closed = True
            if (future := tenancy.outstanding) is not None:
                future.end_at_exit()
            tenancy.free()
        except BaseException:
            process.keep_for_ever(self)
        finally:
            tenancy.lock.give_back(holder)


@atexit.register
def _close_all() -> None:
    # Threads of the engines must end before the libraries are unloaded.
    process.begin_exit()
    with contextlib.suppress(BaseException):
        streamers = list(_all)
        for streamer in streamers:
            streamer._cancel_at_exit()
        for streamer in streamers:
            streamer._close_at_exit()
    process.end_exit()


def _forget_all() -> None:
    global _all
    _all = weakref.WeakSet()


process.after_fork(_forget_all)
