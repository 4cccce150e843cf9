"""An iterator on the CPU: the calling thread pulls an item, calls `fn` with a copy of it, and yields the result."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import faults
from ..arguments import as_tensor, check_modes, identity
from ..calling import call_fn
from ..cancelling import CancellableRun
from ..device import memory
from ..device.layout import as_given, resolved
from ..device.lent import Limits
from ..known import is_known
from ..process import Owner
from ..report.stats import InlineNumbers, Once, StreamStats, stats_of
from ..structure import Structure
from .source import Source, is_streamed, result_of


class InlineIterRun(CancellableRun):
    """The state of one iterator that the calling thread runs.

    Args:
        op: for messages.
        fn: called with the items.
        device: the CPU.
        limits: depth and budgets.
        iterable: of the items.
    """

    def __init__(
        self, op: str, fn: Callable[..., Any], device: torch.device, limits: Limits, iterable: Iterable[Any]
    ) -> None:
        super().__init__(op, "there are no more results")
        self._fn, self._device, self._limits = fn, device, limits
        self._is_pure = is_known(fn) and fn is not identity
        self._owner, self._source = Owner(), Source(iterable)
        self._usual: Structure | None = None  # the structure of the last result
        self._numbers = InlineNumbers()
        self._given: dict[str, torch.Tensor] = {}  # the tensors of this item

    def results(self) -> Iterator[Any]:
        """The results. `end` must follow in any case."""
        source = self._source
        while True:
            self.checkpoint()
            pulled = source.pull()
            if pulled is None:
                if source.error is not None:
                    raise source.error
                return
            value = self._run(*pulled)
            del pulled
            yield value
            del value
            self._owner.check(self.op, "iterator")

    def _run(self, index: int, item: Any) -> Any:
        now = time.perf_counter_ns
        begin = now()
        check_modes(self.op)
        self._given.clear()
        if type(item) is torch.Tensor:
            arguments = [self._argument(index, item)]
        else:
            leaves, spec = pytree.tree_flatten(item if isinstance(item, tuple) else (item,))
            arguments = list(pytree.tree_unflatten([self._argument(index, leaf) for leaf in leaves], spec))
        watch = None if self._source.may_refill else faults.Watch(self.op, self._given)
        copied = now()
        value = call_fn(self.op, self._fn, arguments, lambda: f"item {index}", self._owner)
        computed = now()
        if watch is not None:
            watch.check()
        result = self._result(index, value)
        self._numbers.add(index, begin, copied, computed)
        return result

    def _argument(self, index: int, leaf: Any) -> Any:
        """A leaf of an item as `fn` gets it: a copy of a tensor or an array, anything else as it is."""
        if not is_streamed(leaf):
            return leaf
        tensor = as_tensor(self.op, f"a tensor of item {index}", leaf)
        self._numbers.bytes_in += tensor.nbytes
        if not self._source.may_refill:
            self._given[f"tensor {len(self._given)} of item {index}"] = tensor
        is_guarded = memory.may_be_file(tensor)
        if self._is_pure and not is_guarded:
            return tensor.detach()
        source = resolved(tensor)
        packed = memory.packed_like(source)
        memory.copy_in(source, packed, is_guarded)
        return packed if source is tensor else as_given(packed, tensor)

    def _result(self, index: int, value: Any) -> Any:
        tensors, self._usual = result_of(self.op, index, value, self._device, self._usual)
        results = []
        for tensor in tensors:
            self._numbers.bytes_out += tensor.nbytes
            if self._is_pure:
                results.append(tensor)
                continue
            made = memory.host_tensor(tensor.shape, tensor.dtype, False)
            with torch.no_grad():
                results.append(made.copy_(tensor))
        return self._usual.rebuild(results)

    def end(self, has_failed: bool) -> None:
        """Closes the source; may be called again."""
        del has_failed  # leaving an iterator early is not an error
        self._source.close()

    def record(self) -> Callable[[], StreamStats]:
        """Takes the raw numbers of this finished run."""
        numbers = self._numbers
        seconds = (time.perf_counter_ns() - numbers.began) * 1e-9
        return Once(
            functools.partial(stats_of, [numbers.record(self._device)], depth=self._limits.depth, seconds=seconds)
        )
