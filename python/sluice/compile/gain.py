"""What a folded graph gains: a call takes as long as the host's part or the device's, whichever is longer.

    before: max(host, device)        after: max(guards + host, device)

Numbers are reckoned, in microseconds: the host's from calls on an H200's machine with torch 2.11, the device's from its
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from ..nn.packing import HALF_TYPES
from .nodes import aten, fake_value, may_alias

_CALL = 1.5  # microseconds of a function's call by Python's modules
_LAUNCH, _CONVOLUTION, _CONVERSIONS = 6.0, 25.0, 20.0  # cuDNN converts layouts before and after in half types
_BYTES = 2e6  # that a device reads and writes in a microsecond
# Dynamo's guards and the entry. One H200, 71 drawn networks of 1 to 6 blocks, all folded: with these numbers 15 would
# be, 0.97 to 1.73 times as fast as eager (1.25 in the mean); of the others seven gain, up to 1.29. With 50 and 1.5, 31
# would be, from 0.82 on. SpeechT5's vocoder in float32 (117 modules, 1.09) is the closest of whole networks.
GUARDS, GUARDS_OF_MODULE = 85.0, 2.25
_SMALL = 4.0  # times the host takes longer than the device, whose time is reckoned without arithmetic
_LEAST_CALLS = 12  # calls of functions, for a gain on the CPU
_OURS = (torch.ops.sluice.conv1d.default, torch.ops.sluice.conv_transpose1d.default)


class Times(NamedTuple):
    """What a call takes.

    Attributes:
        host: microseconds that the host takes for the ops.
        device: microseconds that the device takes at least, with the sizes of the trace.
    """

    host: float
    device: float


class Gain(NamedTuple):
    """What one graph or several graphs gain.

    Attributes:
        before: microseconds of the calls of Python's modules.
        after: microseconds of the graphs.
    """

    before: Times
    after: Times

    def __add__(self, other: Gain) -> Gain:  # type: ignore[override]
        sums = (Times(a.host + b.host, a.device + b.device) for a, b in zip(self, other, strict=True))
        return Gain(*sums)

    def least(self, modules: int) -> float:
        """How many times the sizes of the trace a call must have to gain: 0 if all do.

        Args:
            modules: how many have guards.
        """
        host = self.after.host + GUARDS + GUARDS_OF_MODULE * modules
        if host <= self.before.host:
            return 0.0
        if self.after.device >= self.before.device:
            return float("inf")
        return host / self.before.device

    def most_small(self) -> float:
        """Up to how many times the sizes of the trace the device has next to nothing to do in Python's calls."""
        return self.before.host / (_SMALL * self.before.device) if 0 < self.before.device < float("inf") else 0.0


ALWAYS = Gain(Times(float("inf"), 0.0), Times(0.0, 0.0))
NONE = Gain(Times(0.0, 0.0), Times(0.0, 0.0))


def on_cpu(changes: int, calls: int) -> Gain:
    """The gain of a graph on the CPU with that many changes, in the place of that many calls of functions."""
    return ALWAYS if changes > 0 or calls >= _LEAST_CALLS else NONE


def times_of(graph: Graph, calls: int = 0) -> Times:
    """The times of a graph in aten ops on a GPU, and of that many calls of functions."""
    nodes = [node for node in graph.nodes if node.op == "call_function" and not may_alias(node) and _tensors([node])]
    return Times(_CALL * calls + sum(map(_host, nodes)), sum(map(_moved, nodes)) / _BYTES)


def _host(node: Node) -> float:
    if node.target in _OURS:
        return _CONVOLUTION
    if node.target is not aten.convolution.default:
        return _LAUNCH
    return _CONVOLUTION + (_CONVERSIONS if _is_converted(node) else 0.0)


def _moved(node: Node) -> float:
    """The bytes that an op reads and writes."""
    moved = sum(_number(x.numel()) * x.dtype.itemsize for x in _tensors([*node.all_input_nodes, node]))
    return 3 * moved if node.target is aten.convolution.default and _is_converted(node) else moved


def _is_converted(node: Node) -> bool:
    """Whether cuDNN converts the input and the result of a convolution."""
    weight = fake_value(node.args[1])
    return (
        weight is not None and weight.dtype in HALF_TYPES and _number(weight.shape[1]) > 1 < _number(weight.shape[-1])
    )


def _tensors(nodes: Sequence[Node]) -> list[torch.Tensor]:
    values = [node.meta.get("val") for node in nodes]
    flat = [one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,))]
    return [one for one in flat if isinstance(one, torch.Tensor)]


def _number(size: Any) -> int:
    """A size; for a symbol, its size at the trace."""
    return size if isinstance(size, int) else size.node.hint or 0
