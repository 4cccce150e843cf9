"""What both ways to run an iterator share: its source and its results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..arguments import check_memory
from ..structure import Structure, describe, flatten

# Between two elements of these iterators no code runs that could write to one.
_OF_WHAT_EXISTS: tuple[type, ...] = (type(iter([])), type(iter(())))


class Source:
    """The caller's iterable: its error is kept until the results before it are yielded."""

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
        """Events after which the item's GPU tensors are written, if the source wrote them on the current streams."""
        if not self.may_refill or (type(item) is torch.Tensor and item.is_cpu):
            return []
        devices = {tensor.device for tensor in tensors_on_gpus(item)}
        return [torch.cuda.current_stream(device).record_event() for device in devices]

    def close(self) -> None:
        """Closes a generator that is left early, and lets go of any other iterator; may be called again.

        A DataLoader's workers end with its iterator. Garbage collection would end their queues first, and torch then
        waits five seconds for each.
        """
        self.has_ended = True
        iterator, self._iterator = self._iterator, iter(())
        if (close := getattr(iterator, "close", None)) is not None:
            close()


def tensors_on_gpus(item: Any) -> list[torch.Tensor]:
    """The tensors within an item that `fn` gets unchanged."""
    return [leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, torch.Tensor) and leaf.is_cuda]


def is_streamed(leaf: Any) -> bool:
    """Whether `fn` gets a copy of a leaf of an item: a tensor of the host, or a NumPy array."""
    if isinstance(leaf, torch.Tensor):
        return leaf.device.type == "cpu"
    return type(leaf).__module__.partition(".")[0] == "numpy" and hasattr(leaf, "__array_interface__")


def result_of(
    op: str, index: int, value: Any, device: torch.device, usual: Structure | None = None
) -> tuple[list[torch.Tensor], Structure]:
    """The tensors that `fn` returned for an item, and their structure, probably the `usual` one.

    Raises:
        TypeError: `fn` returned anything but tensors with memory of their own.
        ValueError: a tensor is on another device.
    """
    taken = flatten(value, usual)
    if taken is None:
        rule = "return a tensor or a pytree of tensors"
        raise TypeError(f"{op}: fn must {rule}, got {describe(value)} for item {index}")
    for tensor in taken[0]:
        if tensor.device != device and not (device.type == tensor.device.type == "cpu"):
            raise ValueError(f"{op}: fn must return tensors on {device}, got one on {tensor.device} for item {index}")
        check_memory(op, "the result", tensor, f" for item {index}")
    return taken
