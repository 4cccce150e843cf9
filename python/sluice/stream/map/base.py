"""What the two longer ways to run a call of `map` share: cancelling, the result, errors, numbers."""

from __future__ import annotations

import abc
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from .. import faults
from ..device.lent import Limits
from ..report.stats import Once, Record, StreamStats, stats_of
from .arguments import MapArguments
from .ledger import Ledger
from .outputs import raise_versions
from .progress import Reporter


class MapRun(abc.ABC):
    """The state of one call.

    Args:
        ledger: of the call.
        limits: depth and budgets.
    """

    def __init__(self, ledger: Ledger, limits: Limits) -> None:
        self.ledger, self.limits = ledger, limits
        self.arguments: MapArguments = ledger.arguments
        self.op = self.arguments.op
        self.reporter = Reporter(self.op, self.arguments.progress, self.landed_bytes)
        self._began = time.perf_counter()
        self._record: Callable[[], StreamStats] | None = None

    @abc.abstractmethod
    def issue(self) -> None:
        """Calls `fn` for all chunks; returns when the last call is issued. `end` must follow, also after an error."""

    @abc.abstractmethod
    def settle(self) -> Any:
        """Waits until everything has landed and returns the result. May be called again after an interrupt."""

    @abc.abstractmethod
    def has_landed(self) -> bool:
        """Whether all results are complete; never waits."""

    @abc.abstractmethod
    def wait(self, milliseconds: int) -> None:
        """Waits until the results have landed, at most `milliseconds`."""

    @abc.abstractmethod
    def end(self, has_failed: bool) -> None:
        """Releases what the run holds; may be called again. After a failure it waits for everything in flight.

        Raises:
            NotInTime: that takes too long at the interpreter's exit.
        """

    @abc.abstractmethod
    def _moved(self) -> int:
        """Bytes of landed chunks, both directions."""

    @abc.abstractmethod
    def _records(self) -> Sequence[Record]:
        """The raw numbers of each device."""

    def cancel(self, is_quiet: bool = False) -> None:
        """Stops the run at its next chunk; at the interpreter's exit silently, by `SystemExit`."""
        self.ledger.cancel(is_quiet)

    def _result(self) -> Any:
        """The result, when all chunks have landed."""
        tensors = [assembly.finish() for assembly in self.ledger.assemblies]
        self.reporter.finish()
        raise_versions(self.arguments.outs or ())
        if self.arguments.out is not None:
            return self.arguments.out
        structure = self.ledger.outputs.structure
        assert structure is not None
        return structure.rebuild(tensors)

    def told(self, error: BaseException) -> BaseException:
        """The error for the caller: the right type, with notes."""
        told = faults.translated(self.op, error)
        ledger = self.ledger
        if isinstance(told, KeyboardInterrupt) and ledger.current is not None:
            faults.add_note(told, f"{self.op}: interrupted at {ledger.name(ledger.current)}")
        if self.arguments.out is not None and ledger.is_touched:
            raise_versions(self.arguments.outs or ())
            faults.add_note(told, f"{self.op}: out may be partly written")
        return told

    # --- numbers --------------------------------------------------------------------------------------------------
    def landed_bytes(self) -> tuple[int, int]:
        """Bytes moved in both directions, and their total."""
        done = self._moved()
        inside = sum(tensor.nbytes for tensor in self.arguments.inputs)
        outside = sum(assembly.capacity().nbytes for assembly in self.ledger.assemblies)
        return min(done, inside + outside), inside + outside  # uneven results may exceed what was expected

    def record(self) -> Callable[[], StreamStats]:
        """Takes the raw numbers of this finished run; most runs are never asked for `StreamStats`.

        Breaks reference cycles that would keep the inputs until a garbage collection. May be called again.
        """
        if self._record is None:
            ledger, arguments = self.ledger, self.arguments
            seconds, tries = time.perf_counter() - self._began, tuple(ledger.tries)
            numbers = functools.partial(
                stats_of,
                self._records(),
                chunk_size=ledger.chunks.size,
                depth=self.limits.depth,
                order=arguments.order,
                seconds=seconds,
                tries=tries,
                fallbacks=tuple(ledger.routes.fallbacks) if ledger.routes is not None else (),
            )
            self._record = Once(numbers)
        self._forget()
        self.ledger.poll = None
        self.reporter = Reporter(self.op, None, lambda: (0, 0))
        return self._record

    @abc.abstractmethod
    def _forget(self) -> None:
        """Drops what refers to the run."""
