"""CUDA graphs of folded graphs: captured at the second call of a signature, then replayed.

Inputs are copied into tensors of the capture, and results are copied out, so that no call overwrites another one's.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from .nodes import is_write, may_alias

_MOST = 16  # captures of a model; the least recently used one is dropped
_MOST_SEEN = 1024  # signatures of calls that were not captured
_capturing = threading.Lock()


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


class Inputs(NamedTuple):
    """Indices of a graph's inputs.

    Attributes:
        moving: tensors that differ from call to call.
        fixed: other tensors that the graph reads.
        numbers: all that are no tensors.
    """

    moving: tuple[int, ...]
    fixed: tuple[int, ...]
    numbers: tuple[int, ...]


class _Capture:
    """One captured call.

    Args:
        run: the function.
        inputs: its arguments.
        places: which of them are what.
        pool: the memory that all captures of a model share.
    """

    def __init__(self, run: Callable[..., Any], inputs: Sequence[Any], places: Inputs, pool: Any) -> None:
        given = list(inputs)
        with torch.inference_mode(False), torch.no_grad():  # calls in any mode write to them
            for i in places.moving:
                given[i] = _copy(given[i])
        self._places, self._moving = places, [given[i] for i in places.moving]
        self._fixed = [inputs[i] for i in places.fixed]
        self._addresses = [one.data_ptr() for one in self._fixed]
        self._graph = torch.cuda.CUDAGraph()
        current, side = torch.cuda.current_stream(), _own_stream(torch.cuda.current_device())
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

    def is_of(self, inputs: Sequence[Any]) -> bool:
        """Whether the fixed tensors are the capture's, in the same memory."""
        fixed = [inputs[i] for i in self._places.fixed]
        return all(map(operator.is_, fixed, self._fixed)) and list(map(_ADDRESS, fixed)) == self._addresses

    def replay(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results for other values of the moving tensors, on the current stream."""
        for to, i in zip(self._moving, self._places.moving, strict=True):
            to.copy_(inputs[i])
        self._graph.replay()
        return tuple([_copy(one) if isinstance(one, torch.Tensor) else one for one in self._results])


_ADDRESS = torch.Tensor.data_ptr


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


@functools.cache
def _own_stream(device: int) -> torch.cuda.Stream:
    """The stream of captures. torch gives its own streams to several callers, whose kernels would be captured too."""
    return torch.cuda.ExternalStream(torch.ops.sluice._transfer_cuda_take_stream(device), torch.device("cuda", device))


class _Order:
    """Orders replays on several streams, since the captures of a model share memory."""

    def __init__(self) -> None:
        self._done, self._of = torch.cuda.Event(), -1

    def __enter__(self) -> None:
        raw = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        if raw != self._of:
            self._stream, self._of = torch.cuda.current_stream(), raw
            self._done.wait(self._stream)

    def __exit__(self, *_: object) -> None:
        self._done.record(self._stream)


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
        self._orders: dict[int, _Order] = {}  # by device
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._captures)

    def run(self, owner: Any, function: Callable[..., Any], inputs: Sequence[Any], places: Inputs) -> Any:
        """`function(*inputs)`, replayed from the second call of a signature on.

        Args:
            owner: the graph of the function.
            function: the function.
            inputs: its arguments.
            places: which of them are what.
        """
        device = next((inputs[i].device for i in (*places.moving, *places.fixed)), None)
        if device is None or device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return function(*inputs)
        if device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self.run(owner, function, inputs, places)
        key = owner, _signature(inputs, places)
        with self._lock:
            found = self._captures.get(key)
            if self._seen.get(key) and (found is None or not found.is_of(inputs)):
                found = self._captured(key, function, inputs, places)
            if found is not None:
                self._captures.move_to_end(key)
                with self._order(device.index):
                    return found.replay(inputs)
            self._seen.setdefault(key, True)
            while len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
        return function(*inputs)

    def _order(self, device: int) -> _Order:
        if device not in self._orders:
            self._orders[device] = _Order()
        return self._orders[device]

    def _captured(
        self, key: Any, function: Callable[..., Any], inputs: Sequence[Any], places: Inputs
    ) -> _Capture | None:
        """A new capture in the place of this key's last capture."""
        if not self._captures or self._pool is None:  # the last capture takes its pool with it
            self._pool = torch.cuda.graph_pool_handle()
        try:
            with _capturing, self._order(torch.cuda.current_device()):
                made = _Capture(function, inputs, places, self._pool)
        except Exception as error:  # whatever its class: the captured calls may raise anything
            self._pool = None  # torch takes it for one that is captured into
            self.reasons[f"a capture failed: {error}".split("\n", 1)[0]] = None
            self._seen[key] = False
            self._captures.pop(key, None)
            _release_random_numbers()
            return None
        self._captures[key] = made
        while len(self._captures) > _MOST:
            self._captures.popitem(last=False)
        return made


def _release_random_numbers() -> None:
    """Ends the capture of torch's generator with a capture of nothing, since one that fails leaves it begun."""
    graph = torch.cuda.CUDAGraph()
    with _capturing, contextlib.suppress(RuntimeError), torch.cuda.stream(_own_stream(torch.cuda.current_device())):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            torch.zeros(1, device="cuda")
        finally:
            graph.capture_end()


def _signature(inputs: Sequence[Any], places: Inputs) -> tuple[Any, ...]:
    """Numbers, and layouts of the tensors that differ from call to call."""
    layouts = [(one.shape, one.stride(), one.dtype, one.device) for i in places.moving for one in (inputs[i],)]
    return (*[inputs[i] for i in places.numbers], *layouts)
