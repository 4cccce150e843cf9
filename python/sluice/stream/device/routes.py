"""How each tensor's bytes travel: directly, through the pinned ring, or without a host link."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from . import memory
from .layout import DIRECT, LOCAL, PAGEABLE, RING, SHARED, Endpoint
from .registered import Registered


class Routes:
    """Decides for the tensors of one run, and pins where that is requested.

    Args:
        op: for messages.
        staging: "auto", "register", "ring" or "pageable".
        pinned_budget: bytes for rings and results.
        ring_bytes: of all rings, if they are needed; 0 if they do not fit the budget.
        registered: pins in place.
    """

    def __init__(self, op: str, staging: str, pinned_budget: int, ring_bytes: int, registered: Registered) -> None:
        self._op, self._staging, self._budget = op, staging, pinned_budget
        self._ring_bytes, self._registered = ring_bytes, registered
        self.fallbacks: list[str] = []
        if staging == "pageable":
            text = f'{op}: staging="pageable" copies pageable memory directly, slowly and without overlap; '
            warnings.warn(text + 'use it only to compare with "auto"', UserWarning, stacklevel=8)

    def of(self, tensor: torch.Tensor, dim: int, extent: int, device: torch.device, name: str) -> Endpoint:
        """The caller's end of a copy; a usual chunk has `extent` rows."""
        if tensor.is_cuda:
            return Endpoint(tensor, dim, LOCAL)
        if device.type == "cpu":
            route = RING if self._staging == "ring" else SHARED
            return Endpoint(tensor, dim, route, memory.mapping_kind(tensor))
        pinned = memory.is_pinned(tensor) or (self._staging == "register" and self._register(tensor, name))
        direct = Endpoint(tensor, dim, DIRECT)
        if self._staging == "pageable":
            return direct if pinned else Endpoint(tensor, dim, PAGEABLE, memory.mapping_kind(tensor, 1))
        if pinned and self._staging != "ring" and direct.is_direct(extent):
            return direct
        if self._ring_bytes == 0:
            least = memory.smallest_pinned_budget(1)
            raise ValueError(f"{self._op}: pinned_budget must be at least {least} to stage {name}, got {self._budget}")
        return Endpoint(tensor, dim, RING, 0 if pinned else memory.mapping_kind(tensor))

    def _register(self, tensor: torch.Tensor, name: str) -> bool:
        if tensor.numel() == 0:
            return False
        if error := self._registered.lock(tensor):
            self.fallbacks.append(f"{name} is staged, because it could not be page-locked: {error}")
            return False
        return True

    def allocator(self, cuda: bool) -> Allocator:
        """The allocator of this run's results."""
        return Allocator(self._budget - self._ring_bytes - self._registered.charged if cuda else 0)


class Allocator:
    """Host memory for results: pinned while the budget lasts, then pageable."""

    def __init__(self, pinned_left: int) -> None:
        self._left = pinned_left

    def __call__(self, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An empty tensor."""
        nbytes = dtype.itemsize
        for size in sizes:
            nbytes *= size
        charge = memory.pinned_charge(nbytes)
        pinned = nbytes > 0 and charge <= self._left
        if pinned:
            try:
                made = memory.host_tensor(sizes, dtype, True)
            except RuntimeError:  # the machine pins less than the budget allows
                self._left = 0
            else:
                self._left -= charge
                return made
        return memory.host_tensor(sizes, dtype, False)
