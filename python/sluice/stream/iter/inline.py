"""An iterator on the CPU: the calling thread pulls an item, calls `fn` with a copy of it, and yields the result."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import faults
from ..arguments import as_tensor, check_memory, check_modes, identity
from ..device import memory
from ..device.layout import ROUTES, SHARED, as_given, resolved
from ..device.lent import Limits
from ..known import is_known
from ..modes import mark_step
from ..process import Owner
from ..report.stats import Once, Record, StreamStats, stats_of
from ..structure import Structure, describe, flatten
from .source import CancellableRun, Source

_MOST_TIMES = 1 << 16  # items whose times are kept


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
        super().__init__(op)
        self._fn, self._device, self._limits = fn, device, limits
        self._is_pure = is_known(fn) and fn is not identity
        self._owner, self._source = Owner(), Source(iterable)
        self._usual: Structure | None = None  # of the last result
        self._began, self._items = time.perf_counter_ns(), 0
        self._in, self._out = 0, 0  # bytes
        self._times: list[int] = []
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
        times = [now()]
        check_modes(self.op)
        self._given.clear()
        arguments: Any
        if type(item) is torch.Tensor:
            arguments = [self._argument(index, item)]
        else:
            leaves, spec = pytree.tree_flatten(item if isinstance(item, tuple) else (item,))
            arguments = pytree.tree_unflatten([self._argument(index, leaf) for leaf in leaves], spec)
        watch = None if self._source.may_refill else faults.Watch(self.op, self._given)
        times += [now()] * 2
        mark_step()
        try:
            value = self._fn(*arguments)
        except BaseException as error:
            faults.add_note(error, f"{self.op}: raised by fn for item {index}")
            raise
        finally:
            arguments = ()
        times += [now()] * 2
        if watch is not None:
            watch.check()
        result = self._result(index, value)
        times.append(now())
        if self._items < _MOST_TIMES:
            self._times += [at - self._began for at in times]
        self._items += 1
        return result

    def _argument(self, index: int, leaf: Any) -> Any:
        """A leaf of an item as `fn` gets it: a copy of a tensor or an array, anything else as it is."""
        is_array = type(leaf).__module__.partition(".")[0] == "numpy" and hasattr(leaf, "__array_interface__")
        if not is_array and not (isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"):
            return leaf
        tensor = as_tensor(self.op, f"a tensor of item {index}", leaf)
        self._in += tensor.nbytes
        if not self._source.may_refill:
            self._given[f"tensor {len(self._given)} of item {index}"] = tensor
        if self._is_pure:
            return tensor.detach()
        source = resolved(tensor)
        packed = memory.packed_like(source)
        memory.copy_in(source, packed)
        return packed if source is tensor else as_given(packed, tensor)

    def _result(self, index: int, value: Any) -> Any:
        taken = flatten(value, self._usual)
        if taken is None:
            rule = "return a tensor or a pytree of tensors"
            raise TypeError(f"{self.op}: fn must {rule}, got {describe(value)} for item {index}")
        tensors, self._usual = taken
        results = []
        for tensor in tensors:
            if tensor.device.type != "cpu":
                raise ValueError(f"{self.op}: fn must return tensors on {self._device}, got one on {tensor.device} "
                                 f"for item {index}")  # fmt: skip
            check_memory(self.op, "the result", tensor, f" for item {index}")
            self._out += tensor.numel() * tensor.element_size()
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

    def told(self, error: BaseException) -> BaseException:
        """The error for the caller."""
        return faults.translated(self.op, error)

    def record(self) -> Callable[[], StreamStats]:
        """Takes the raw numbers of this finished run."""
        counters = [0] * (2 * len(ROUTES) + 1)
        counters[SHARED], counters[len(ROUTES) + SHARED] = self._in, self._out
        record = Record(str(self._device), list(range(self._items)), counters, self._times, 0)
        seconds = (time.perf_counter_ns() - self._began) * 1e-9
        return Once(functools.partial(stats_of, [record], depth=self._limits.depth, seconds=seconds))
