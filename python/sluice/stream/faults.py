"""What goes wrong while chunks are on their way, and how it is told."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping

import torch

CancelledError = concurrent.futures.CancelledError


class TransferError(RuntimeError):
    """A copy failed; the text is the engine's."""


def add_note(error: BaseException, note: str) -> None:
    """`error.add_note(note)`, on Python 3.10 too; once."""
    notes = getattr(error, "__notes__", [])
    if note in notes:
        return
    try:
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined]
    except (AttributeError, TypeError):  # an exception without a dictionary: the note is lost, the error is not
        return


def translated(op: str, error: BaseException) -> BaseException:
    """What the engine reported, under the type that a caller expects; other errors as they are."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith("_transfer: engine must be used by the process"):
        return RuntimeError(f"{op}: the run must end in the process that began it, got a fork of it")
    if not isinstance(error, TransferError):
        return error
    if text.startswith("a file ended"):
        return OSError(f"{op}: a memory-mapped tensor must keep its file's length during the call, got {text}")
    if text.startswith("out of page-locked memory"):
        return MemoryError(f"{op}: {text}")
    return RuntimeError(f"{op}: a copy failed: {text}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether less memory would have helped."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)  # the CPU has no type of its own


def version_of(tensor: torch.Tensor) -> int | None:
    """How often a tensor was changed in place; inference tensors do not count."""
    return None if tensor.is_inference() else int(tensor._version)


class Watch:
    """Notices that a caller changes a source while it is read, where its version counter shows it."""

    def __init__(self, op: str, tensors: Mapping[str, torch.Tensor]) -> None:
        self._op = op
        self._watched = [(tensor, name, version_of(tensor)) for name, tensor in tensors.items()]

    def check(self) -> None:
        """Raises `RuntimeError` where a source has changed."""
        for tensor, name, version in self._watched:
            if version is not None and version_of(tensor) != version:
                changes = int(tensor._version) - version
                raise RuntimeError(f"{self._op}: {name} must not change while it is streamed, "
                                   f"got {changes} changes in place")  # fmt: skip
