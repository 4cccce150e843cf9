"""Memory of the caller's that a Streamer pins in place, until its tensors are gone or others need the budget.

Tensors are held here, so that none is freed while it is pinned. The next call checks whether anyone else holds them: a
batch that its caller has dropped is unpinned then.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from . import memory
from .layout import span_bytes

_Range = tuple[int, int]  # first byte and bytes


def _range(tensor: torch.Tensor) -> _Range:
    return tensor.data_ptr(), span_bytes(tensor)


def _holders(tensor: torch.Tensor) -> int:
    count = torch._C._storage_Use_Count  # type: ignore[attr-defined]
    return int(count(tensor.untyped_storage()._cdata))


class Registered:
    """Memory that is pinned in place.

    Args:
        budget: bytes; a tensor that does not fit is not pinned.
        shared: whether pinned results use the same budget.
    """

    def __init__(self, budget: int, shared: bool) -> None:
        self._budget, self._shared = budget, shared
        self._held: dict[_Range, torch.Tensor] = {}  # least recently used first
        self._wanted: list[_Range] = []  # by the call that runs

    @property
    def is_used(self) -> bool:
        """Whether there is any; safe while another thread's call changes it."""
        return bool(self._held)

    @property
    def nbytes(self) -> int:
        """All registered bytes."""
        return sum(nbytes for _, nbytes in self._held)

    @property
    def charged(self) -> int:
        """Bytes taken from the budget of results."""
        return self.nbytes if self._shared else 0

    def begin(self, tensors: Iterable[torch.Tensor]) -> None:
        """Begins a call that uses these tensors; unpins others that nobody else holds."""
        self._wanted = [_range(tensor) for tensor in tensors if tensor.device.type == "cpu"]
        if not self._held:
            return
        one = _holders(torch.empty(1, device="cpu"))  # the count for a tensor that nobody else holds
        for where in list(self._held):
            if self._is_wanted(where):
                self._held[where] = self._held.pop(where)
            elif _holders(self._held[where]) <= one:
                self._let_go(where)

    def lock(self, tensor: torch.Tensor) -> str:
        """Pins a tensor's memory; the text says why not, and is empty on success."""
        where = _range(tensor)
        if where in self._held:
            return ""
        if where[1] > self._budget:
            return f"it has {where[1]} bytes, but pinned_budget allows {max(self._budget, 0)}"
        for other in list(self._held):
            if self.nbytes + where[1] > self._budget and not self._is_wanted(other):
                self._let_go(other)
        if self.nbytes + where[1] > self._budget:
            return f"it has {where[1]} bytes, but pinned_budget allows {self._budget - self.nbytes}"
        error = memory.register(tensor)
        if not error:
            self._held[where] = tensor.detach()  # keeps the storage if the caller drops the tensor
            self._wanted.append(where)
        return error

    def release(self) -> None:
        """Unpins everything."""
        for where in list(self._held):
            self._let_go(where)

    def _is_wanted(self, where: _Range) -> bool:
        begin, nbytes = where
        return any(begin < other + size and other < begin + nbytes for other, size in self._wanted)

    def _let_go(self, where: _Range) -> None:
        memory.unregister(self._held.pop(where))
