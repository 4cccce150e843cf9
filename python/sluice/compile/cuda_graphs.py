"""CUDA graphs of folded graphs: captured at the second call of a signature, then replayed.

Inputs are copied into tensors of the capture, and results are copied out, so that no call overwrites another one's.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from .nodes import is_write, may_alias

_MOST = 16  # captures of a model; the least recently used one is dropped
_MOST_SEEN = 1024  # signatures of calls that were not captured


def why_not_captured(graph: Graph) -> str:
    """Why a graph in aten ops cannot be captured once and replayed; empty if it can."""
    inputs = graph.find_nodes(op="placeholder")
    shared = set(inputs)
    for node in graph.nodes:
        if node.op == "output":
            returned = next((one for one in node.all_input_nodes if one in shared and _is_tensor(one)), None)
            return "" if returned is None else "a result may be memory of an input"
        if node.op != "call_function":
            continue
        if is_write(node) and any(one in shared for one in node.all_input_nodes):
            return f"{node} writes to an input"
        if may_alias(node) and isinstance(node.target, torch._ops.OpOverload):
            shared.update({node} if any(one in shared for one in node.all_input_nodes) else ())
        if isinstance(node.target, torch._ops.OpOverload) and not _HOST.isdisjoint(node.target.tags):
            return f"{node} draws random numbers or waits for the GPU"
    return ""


_HOST = frozenset((
    torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
))  # fmt: skip


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


class _Capture:
    """One captured call.

    Args:
        run: the function.
        inputs: its arguments.
        moving: the indices of tensors that differ from call to call.
        pool: the memory that all captures of a model share.
    """

    def __init__(self, run: Callable[..., Any], inputs: Sequence[Any], moving: Sequence[int], pool: Any) -> None:
        given = list(inputs)
        with torch.inference_mode(False), torch.no_grad():  # calls in any mode write to them
            for i in moving:
                given[i] = _copy(given[i])
        self._moving, self._inputs = moving, [given[i] for i in moving]
        self._fixed = _fixed(inputs, moving)
        self._addresses = [one.data_ptr() for one in self._fixed]
        self._graph = torch.cuda.CUDAGraph()
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._results = run(*given)
            finally:
                self._graph.capture_end()
        current.wait_stream(side)
        storages = [one.untyped_storage()._cdata for one in self._results if isinstance(one, torch.Tensor)]
        if len(set(storages)) < len(storages):
            raise RuntimeError("two results share memory")
        self._done = torch.cuda.Event()
        self._done.record()

    def is_of(self, fixed: Sequence[torch.Tensor]) -> bool:
        """Whether the tensors that stay are the ones of the capture, in the same memory."""
        if not all(map(operator.is_, fixed, self._fixed)):
            return False
        return [one.data_ptr() for one in fixed] == self._addresses

    def replay(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results for other values of the moving tensors, on the current stream."""
        self._done.wait()  # of another stream's replay
        if self._inputs:
            torch._foreach_copy_(self._inputs, [inputs[i] for i in self._moving])
        self._graph.replay()
        results = tuple([_copy(one) if isinstance(one, torch.Tensor) else one for one in self._results])
        self._done.record()
        return results


def _fixed(inputs: Sequence[Any], moving: Sequence[int]) -> list[torch.Tensor]:
    """The tensors among the inputs that stay."""
    return [one for i, one in enumerate(inputs) if i not in moving and isinstance(one, torch.Tensor)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


class CudaGraphs:
    """The captures of a model.

    Attributes:
        reasons: why calls were not captured.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, None] = {}
        self._captures: OrderedDict[Any, _Capture] = OrderedDict()
        self._seen: OrderedDict[Any, bool] = OrderedDict()  # whether a signature may be captured
        self._pool: Any = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._captures)

    def run(self, owner: Any, function: Callable[..., Any], inputs: Sequence[Any], moving: Sequence[int]) -> Any:
        """`function(*inputs)`, replayed from the second call of a signature on.

        Args:
            owner: the graph of the function.
            function: the function.
            inputs: its arguments.
            moving: the indices of tensors whose values and memory differ from call to call.
        """
        device = next((one.device for one in inputs if isinstance(one, torch.Tensor)), None)
        if device is None or device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return function(*inputs)
        key = owner, _signature(inputs, moving)
        with self._lock, torch.cuda.device(device):
            found = self._captures.get(key)
            if found is not None and not found.is_of(_fixed(inputs, moving)):
                del self._captures[key]
                found = None
            if found is None and self._seen.get(key):
                found = self._captured(key, function, inputs, moving)
            if found is not None:
                self._captures.move_to_end(key)
                return found.replay(inputs)
            self._seen.setdefault(key, True)
            while len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
        return function(*inputs)

    def _captured(
        self, key: Any, function: Callable[..., Any], inputs: Sequence[Any], moving: Sequence[int]
    ) -> _Capture | None:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            made = _Capture(function, inputs, moving, self._pool)
        except Exception as error:  # of any class: whatever the captured calls raise
            self.reasons[f"a capture failed: {error}".split("\n", 1)[0]] = None
            self._seen[key] = False
            return None
        self._captures[key] = made
        while len(self._captures) > _MOST:
            self._captures.popitem(last=False)
        return made


def _signature(inputs: Sequence[Any], moving: Sequence[int]) -> tuple[Any, ...]:
    """Numbers, and layouts of the tensors that differ from call to call."""
    tensors = [inputs[i] for i in moving]
    numbers = [one for one in inputs if not isinstance(one, torch.Tensor)]
    return (*numbers, *((one.shape, one.stride(), one.dtype, one.device) for one in tensors))
