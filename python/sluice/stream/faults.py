"""Errors while chunks are in flight, and how they are reported."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping

import torch

CancelledError = concurrent.futures.CancelledError


class TransferError(RuntimeError):
    """A copy failed; the text is the engine's."""


def add_note(error: BaseException, note: str) -> None:
    """`error.add_note(note)`, also on Python 3.10; adds a note only once."""
    notes = getattr(error, "__notes__", [])
    if note in notes:
        return
    try:
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined]
    except (AttributeError, TypeError):  # an exception without a dictionary: the note is lost, the error is not
        return


def not_copied(what: str, why: str, instead: str) -> TypeError:
    """The error of a pickle or a copy of an object that belongs to its process."""
    return TypeError(f"{what}: a {what} must not be pickled or copied, because it {why}: {instead}")


def in_a_fork(op: str) -> RuntimeError:
    """The error of a run whose `fn` has forked, and which goes on in the child."""
    return RuntimeError(f"{op}: the run must end in the process that began it, got a fork of it")


def translated(op: str, error: BaseException) -> BaseException:
    """An error of the engine, with the type that a caller expects; other errors unchanged."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith("_transfer: engine must be used by the process"):
        return in_a_fork(op)
    if not isinstance(error, TransferError):
        return error
    if text.startswith("a file ended"):
        return OSError(f"{op}: a memory-mapped tensor must keep its file's length during the call, got {text}")
    if text.startswith("out of page-locked memory"):
        return MemoryError(f"{op}: {text}")
    return RuntimeError(f"{op}: a copy failed: {text}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means out of memory, so that smaller chunks may succeed."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)  # the CPU has no type of its own


def version_of(tensor: torch.Tensor) -> int | None:
    """The number of in-place changes of a tensor; None for inference tensors, which have no counter."""
    return None if tensor.is_inference() else int(tensor._version)


class Watch:
    """Detects by the version counter that a caller changes a source while it is read."""

    def __init__(self, op: str, tensors: Mapping[str, torch.Tensor]) -> None:
        self._op = op
        self._watched = [(tensor, name, version_of(tensor)) for name, tensor in tensors.items()]

    def check(self) -> None:
        """Raises `RuntimeError` if a source has changed."""
        for tensor, name, version in self._watched:
            check_version(self._op, name, tensor, version)


def check_version(op: str, name: str, tensor: torch.Tensor, version: int | None) -> None:
    """Raises `RuntimeError` if a source has changed since it had this version."""
    if version is not None and (changes := int(tensor._version) - version):
        raise RuntimeError(f"{op}: {name} must not change while it is streamed, got {changes} changes in place")
