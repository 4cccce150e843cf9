"""A forward's conditions on shapes, as expressions that are evaluated before anything is computed."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .classes import OURS, own_class
from .fused import result_shape
from .observe import Refused
from .source import Source
from .stage import stage_of

_ARITHMETIC: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
    operator.mod: "%", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.and_: "&", operator.or_: "|",
}  # fmt: skip
_OF_ARGUMENTS = ("dtype", "device", "is_cuda", "layout")


def expression(node: fx.Node, source: Source, modules: dict[str, torch.nn.Module]) -> str:
    """The condition of a node as a Python expression of the arguments' shapes.

    Raises:
        Refused: it needs values.
    """
    return _Expression(source, modules).of(node)


class _Expression:
    def __init__(self, source: Source, modules: dict[str, torch.nn.Module]) -> None:
        self.source, self.modules = source, modules

    def of(self, a: Any) -> str:
        """The text of a constant, or of a node that is not a tensor."""
        if isinstance(a, tuple | list):
            return "(" + "".join(self.of(one) + ", " for one in a) + ")"
        if isinstance(a, slice):
            return f"slice({self.of(a.start)}, {self.of(a.stop)}, {self.of(a.step)})"
        if not isinstance(a, fx.Node):
            return self.source.constant(a)
        if a.op == "call_method" and a.target in ("size", "dim", "numel", "ndimension"):
            return self._method(a)
        if a.op != "call_function" or a.kwargs:
            raise Refused("forward branches on values")
        if a.target is getattr:
            return self._attribute(a)
        if a.target is operator.getitem:
            return f"{self.of(a.args[0])}[{self.of(a.args[1])}]"
        if a.target is operator.neg:
            return f"(-{self.of(a.args[0])})"
        if a.target is operator.not_:
            return f"(not {self.of(a.args[0])})"
        if a.target not in _ARITHMETIC:
            raise Refused("forward branches on values")
        return f"({self.of(a.args[0])} {_ARITHMETIC[a.target]} {self.of(a.args[1])})"

    def _method(self, node: fx.Node) -> str:
        shape, rest = self.shape(node.args[0]), node.args[1:]
        if node.target == "size" and not node.kwargs:
            return f"{shape}[{self.of(rest[0])}]" if rest else shape
        if node.target in ("dim", "ndimension") and not rest:
            return f"len({shape})"
        raise Refused("forward branches on values")

    def _attribute(self, node: fx.Node) -> str:
        owner, name = node.args
        if name == "shape":
            return self.shape(owner)
        if name == "ndim":
            return f"len({self.shape(owner)})"
        if isinstance(owner, fx.Node) and owner.op == "placeholder" and name in _OF_ARGUMENTS:
            return f"{self.source.name(owner)}.{name}"
        raise Refused(f"forward branches on {name}")

    def shape(self, a: Any) -> str:
        """The text of a tensor's shape."""
        if not isinstance(a, fx.Node):
            raise Refused("forward branches on values")
        if a.op == "placeholder":
            return f"{self.source.name(a)}.shape"
        if a.op == "call_module" and len(a.args) == 1 and not a.kwargs:
            module = self.modules[str(a.target)]
            if own_class(module) in OURS:
                function = self.source.constant(result_shape)
                return f"{function}({self.source.module(str(a.target))}, {self.shape(a.args[0])})"
        if a.op == "get_attr":
            return f"{self.source.call(a)}.shape"
        stage = stage_of(a, self.modules)
        if stage is None:
            raise Refused("forward branches on the shape of what it computes")
        if not stage.operands:
            return self.shape(stage.value)
        others = ", ".join(map(self.shape, stage.operands))
        return f"{self.source.constant(torch.broadcast_shapes)}({self.shape(stage.value)}, {others})"
