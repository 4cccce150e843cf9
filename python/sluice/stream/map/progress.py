"""Progress: a bar, or the caller's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arguments import Progress


class Reporter:
    """Reports how many bytes have moved whenever there are more.

    Args:
        op: names the bar.
        progress: True for a tqdm bar (none if tqdm is not installed), a callable, or None.
        count: gives (done, total) in bytes.
    """

    def __init__(self, op: str, progress: Progress | bool | None, count: Callable[[], tuple[int, int]]) -> None:
        self._count, self._told = count, -1
        self._call: Progress | None = None
        self._bar: Any = None
        if progress is True:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped]
            except ImportError:
                return
            self._bar = tqdm(desc=op, unit="B", unit_scale=True, unit_divisor=1000)
        elif callable(progress):
            self._call = progress

    @property
    def is_asked(self) -> bool:
        """Whether there is a bar or a callable."""
        return self._call is not None or self._bar is not None

    def poll(self) -> None:
        """Reports progress if there is any."""
        if not self.is_asked:
            return
        done, total = self._count()
        if done <= total:
            self._tell(done, total)

    def finish(self) -> None:
        """Reports that everything is done."""
        if not self.is_asked:
            return
        _, total = self._count()
        self._tell(total, total)
        self.close()

    def _tell(self, done: int, total: int) -> None:
        if done == self._told:
            return
        self._told = done
        if self._call is not None:
            self._call(done, total)
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Closes the bar."""
        if self._bar is not None:
            self._bar.close()
