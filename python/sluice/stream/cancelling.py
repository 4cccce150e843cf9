"""What another thread may stop."""

from __future__ import annotations

from . import faults
from .faults import CancelledError


class Cancellable:
    """Work that is stopped at its next step.

    Args:
        op: for messages.
        loss: what cancelled work does not give.
    """

    def __init__(self, op: str, loss: str) -> None:
        self.op, self._loss = op, loss
        self._cancelled = self._is_quiet = False

    def cancel(self, is_quiet: bool = False) -> None:
        """Stops it at its next step; at the interpreter's exit silently, by `SystemExit`."""
        self._is_quiet = is_quiet
        self._cancelled = True

    def checkpoint(self) -> None:
        """Raises if it was cancelled."""
        if self._cancelled:
            if self._is_quiet:
                raise SystemExit
            raise CancelledError(f"{self.op}: cancelled by cancel(): {self._loss}")


class CancellableRun(Cancellable):
    """A run that is stopped at its next step."""

    def told(self, error: BaseException) -> BaseException:
        """The error for the caller."""
        return faults.translated(self.op, error)
