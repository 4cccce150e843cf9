"""What a model does to time, op by op: the layers of a stream, or why it is none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import torch

from . import functions as f
from .calls import CONVOLUTIONS, Call
from .expand import EXPANDING, expanded
from .indexing import arithmetic, cut, dimension, indexed, padded
from .layers import Layer
from .modules import convolution, padding_of, treated
from .products import PRODUCTS, product
from .proxies import memory_of
from .trace import bound, function_name, is_in_place, name_of, traced
from .values import Constant, Length, NoStreamError, Other, Parts, Shape, Time, Unknown, Value


@dataclasses.dataclass(frozen=True)
class Row:
    """A part of a model.

    Attributes:
        module: its name, of the nearest module around an op.
        op: its class, or the function's name.
        columns: columns of the state, channels times positions; 0 where it needs none.
        reason: why it cannot be a stream's; empty where it can.
    """

    module: str
    op: str
    columns: int = 0
    reason: str = ""


class Analysis:
    """A model's graph and what each of its nodes becomes.

    Attributes:
        whole: the module whose attributes the graph names.
        graph: of torch.fx.
        rows: the parts that have a state, and the parts that are refused.
        layers: the layers that take the place of nodes.
        skipped: nodes that become their first argument: padding, and slices of time.
        copied: nodes that become a copy of their first argument, because one of the two is changed in place.
        indices: nodes whose index is another for a chunk.
        sizes: nodes whose sizes are others for a chunk.
        constants: nodes that do not depend on the input, with their values.
        result: the time axis of the model's result, if it is a stream.

    It does not look at writes in place: `Memory.check` refuses them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.rows: list[Row] = []
        self.layers: dict[torch.fx.Node, Layer] = {}
        self.skipped: set[torch.fx.Node] = set()
        self.copied: set[torch.fx.Node] = set()
        self.indices: dict[torch.fx.Node, Any] = {}
        self.sizes: dict[torch.fx.Node, tuple[Any, ...]] = {}
        self.constants: dict[torch.fx.Node, Any] = {}
        self.result: Time | None = None
        self._values: dict[torch.fx.Node, Value] = {}
        self._modules: dict[str, torch.nn.Module] = {}
        try:
            self.whole, self.graph = traced(model)
        except NoStreamError as refusal:
            self.rows.append(Row("", type(model).__name__, reason=str(refusal)))
            self.rows += [
                Row(name, type(part).__name__, reason="attends over time: give the parts around it, one by one")
                for name, part in model.named_modules()
                if "attention" in type(part).__name__.lower()
            ]
            return
        self._modules = dict(self.whole.named_modules())
        for node in self.graph.nodes:
            self._values[node] = self._visited(node)

    @property
    def refused(self) -> list[Row]:
        """The parts that are refused."""
        return [row for row in self.rows if row.reason]

    @property
    def times(self) -> Iterable[Time]:
        """All time axes."""
        return [value for value in self._values.values() if isinstance(value, Time)]

    @property
    def multiple(self) -> int:
        """What the length of a chunk must be a multiple of."""
        return math.lcm(1, *(time.rate.denominator for time in self.times))

    def value_of(self, argument: Any) -> Value:
        """The value of a node's argument."""
        return self._values[argument] if isinstance(argument, torch.fx.Node) else Constant(argument)

    def time_of(self, node: torch.fx.Node) -> Time | None:
        """The time axis of a node's value, or None."""
        value = self._values[node]
        return value if isinstance(value, Time) else None

    def has_time(self, node: torch.fx.Node) -> bool:
        """Whether the node's value, or its parts, have a time axis."""
        return isinstance(self._values[node], (Time, Parts))

    def _visited(self, node: torch.fx.Node) -> Value:
        try:
            return self._visit(node)
        except NoStreamError as refusal:
            self.refuse(node, str(refusal))
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            self.refuse(node, f"has arguments that no rule knows: {error}")
        return Unknown()

    def module_of(self, node: torch.fx.Node) -> torch.nn.Module | None:
        """The module that the node calls."""
        return self._modules.get(str(node.target)) if node.op == "call_module" else None

    def refuse(self, node: torch.fx.Node, reason: str) -> None:
        """Adds a row for a node."""
        module = self.module_of(node)
        op = function_name(node) if module is None else type(module).__name__
        self.rows.append(Row(name_of(node), op, reason=reason))

    def _visit(self, node: torch.fx.Node) -> Value:
        if node.op == "placeholder":
            return Time(3, 2)
        if node.op == "get_attr":
            return Constant(_attribute(self.whole, str(node.target)))
        if node.op == "output":
            return self._output(node.args[0])
        values = [self.value_of(argument) for argument in _flat((node.args, node.kwargs))]
        if f.is_lost(values):
            return Unknown()
        if node.op != "call_module":
            f.check_writes(node)
        if f.are_constant(values):
            return self._constant(node, values)
        if node.op == "call_module":
            return self._module(node, values)
        return self._function(node, values)

    def _output(self, returned: Any) -> Value:
        value = self.value_of(returned)
        if isinstance(value, Unknown):
            return value
        if not isinstance(value, Time):
            raise NoStreamError("must return a tensor with a time axis")
        for name, reason in value.origins:
            self.rows = [row for row in self.rows if row.module != name]
            self.rows.append(Row(name, type(self._modules.get(f"model.{name}", self.whole.model)).__name__, 0, reason))
        if value.tail < 0:
            raise NoStreamError(f"drops its last {-value.tail} results, which a stream has")
        if value.is_padded:
            raise NoStreamError("pads its result")
        if value.tail > 0 and not value.origins:
            raise NoStreamError("pads its result on the right")
        if (value.rank, value.dim) != (3, 2):
            raise NoStreamError(f"has time in dimension {value.dim} of {value.rank}, not in dimension 2 of 3")
        if value.batch != 0:
            raise NoStreamError(f"has the batch in dimension {value.batch}, not in dimension 0")
        self.result = value if not self.refused else None
        return value

    def _constant(self, node: torch.fx.Node, values: list[Value]) -> Value:
        if any(isinstance(value, Other) for value in values):
            return Other()
        known: dict[torch.fx.Node, Any] = {n: v.value for n, v in self._values.items() if isinstance(v, Constant)}
        arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        if is_in_place(node, self.module_of(node)):
            self._check_own(arguments[:1])
        with torch.no_grad():
            if node.op == "call_module":
                value = self._modules[str(node.target)](*arguments, **named)
            elif node.op == "call_method":
                value = getattr(arguments[0], str(node.target))(*arguments[1:], **named)
            else:
                value = node.target(*arguments, **named)  # type: ignore[operator]
        self.constants[node] = value
        return Constant(value)

    def _check_own(self, changed: Any) -> None:
        """Raises if a tensor that changes in place is the model's."""
        kept = [v.value for n, v in self._values.items() if n.op == "get_attr" and isinstance(v, Constant)]
        theirs = {memory_of(value) for value in kept if isinstance(value, torch.Tensor)}
        if any(memory_of(value) in theirs for value in _flat(changed) if isinstance(value, torch.Tensor)):
            raise NoStreamError("changes a tensor of the model in place")

    def _module(self, node: torch.fx.Node, values: list[Value]) -> Value:
        module = self._modules[str(node.target)]
        x = values[0]
        extra = [value for value in values[1:] if not (isinstance(value, Constant) and value.value is None)]
        if not isinstance(x, Time) or extra:
            raise NoStreamError("takes more than a tensor with a time axis")
        if (pads := padding_of(module)) is not None:
            self.skipped.add(node)
            return padded(x, *pads)
        result, layer = treated(name_of(node), module, x)
        if layer is not None:
            self.layers[node] = layer
            self.rows.append(Row(name_of(node), type(module).__name__, layer.columns))
        return result

    def _convolution(self, node: torch.fx.Node, name: str, x: Value) -> Value:
        """A function of a weight, as in subclasses of torch's modules that pad themselves."""
        given = bound(node, "input", *CONVOLUTIONS[name])
        tensors = [self.value_of(given.get(key)) for key in ("weight", "bias")]
        known = [value.value for value in tensors if isinstance(value, Constant)]
        if not isinstance(x, Time) or len(known) < 2 or not isinstance(known[0], torch.Tensor):
            raise NoStreamError("takes a weight that depends on the input")
        call = Call(name, known[0], known[1], given)
        result, layer = convolution(name_of(node), call, x)
        self.layers[node] = layer
        self.rows.append(Row(name_of(node), name, layer.columns))
        return result

    def _function(self, node: torch.fx.Node, values: list[Value]) -> Value:
        name, x = function_name(node), values[0]
        if name in ("getattr", "size", "dim", "ndimension", "numel", "__len__"):
            return self._asked(node, name, x)
        if name in ("getitem", "narrow"):
            return self._indexed(node, name, x)
        if name in EXPANDING:
            result, sizes = expanded(node, self.value_of)
            if sizes is not None:
                self.sizes[node] = sizes
            return result
        if name in PRODUCTS:
            return product(node, self.value_of)
        if any(isinstance(value, Length) for value in values) and not any(isinstance(v, Time) for v in values):
            return arithmetic(name, values)
        if name == "pad":
            return self._padded(node, x)
        if name in CONVOLUTIONS:
            return self._convolution(node, name, x)
        if name in ("cat", "concat", "concatenate", "stack"):
            return f.joined(node, self._parts(bound(node, "tensors")["tensors"]))
        if isinstance(x, Time):
            found = self._shaped(node, name, x)
            if found is not None:
                return found
        if name in f.POINTWISE or f.is_of_two(node):
            return f.pointwise(values)
        raise NoStreamError(f.REFUSED.get(name, "is not known to leave time as it is"))

    def _shaped(self, node: torch.fx.Node, name: str, x: Time) -> Value | None:
        if name in f.PERMUTED:
            return f.permuted(node, x)
        if name in f.SQUEEZED:
            return f.squeezed(node, x)
        if name in ("chunk", "split", "tensor_split", "unbind"):
            return f.parted(node, x)
        if name == "glu":
            return f.glued(node, x)
        if name in f.REDUCTIONS and not f.is_of_two(node):
            return f.reduced(node, x)
        if name in f.ALONG:
            return f.along(node, x)
        if name in ("prelu", "batch_norm"):
            return f.per_channel(node, x, self.value_of)
        if name in ("layer_norm", "rms_norm"):
            sizes = bound(node, "input", "normalized_shape")["normalized_shape"]
            if not isinstance(sizes, (tuple, list)):
                raise NoStreamError("normalises over sizes that are not known")
            own = range(x.rank - len(sizes), x.rank)
            x.check_apart(own, "normalises over time", "normalises over the batch")
            return x
        if name == "linear":
            x.check_apart([x.rank - 1], "works along time", "works along the batch")
            return x
        if name in ("dropout", "feature_dropout", "alpha_dropout"):
            given = bound(node, "input", "p", "train")
            if given.get("training", given.get("train", True)):
                raise NoStreamError("is in training mode; call eval()")
        return None

    def _asked(self, node: torch.fx.Node, name: str, x: Value) -> Value:
        """Properties of a tensor."""
        asked = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if name == "getattr" and isinstance(x, Parts) and asked in ("values", "indices"):
            return x.of
        if not isinstance(x, Time):
            raise NoStreamError("is not known to leave time as it is")
        if name == "getattr":
            if asked == "mT":
                return x.moved(x.rank, lambda dim: 2 * x.rank - 3 - dim if dim >= x.rank - 2 else dim)
            if asked not in ("shape", "dtype", "device", "ndim", "is_cuda", "layout", "requires_grad"):
                raise NoStreamError(f"takes {asked!r} of a tensor, which is not known to leave time as it is")
            return Shape(x) if asked == "shape" else Other()
        if name == "size":
            return Shape(x) if asked is None else dimension(Shape(x), asked)
        if name not in ("dim", "ndimension"):
            raise NoStreamError("takes the length, which a stream does not know")
        return Other()

    def _parts(self, tensors: Any) -> list[Value]:
        """The values of a list of tensors, which may be a node's."""
        if not isinstance(tensors, torch.fx.Node):
            return [self.value_of(part) for part in tensors]
        value = self.value_of(tensors)
        return [value.of if isinstance(value, Parts) and value.only is None else value]

    def _indexed(self, node: torch.fx.Node, name: str, x: Value) -> Value:
        if isinstance(x, Shape):
            return dimension(x, node.args[1])
        if isinstance(x, Parts):
            index = node.args[1]
            if x.only is not None and index != x.only:
                raise NoStreamError("takes the state of a recurrent layer")
            return x if isinstance(index, slice) else x.of
        if not isinstance(x, Time):
            raise NoStreamError("is not known to leave time as it is")
        if name == "narrow":
            given = bound(node, "input", "dim", "start", "length")
            if f.place(given["dim"], x.rank) != x.dim:
                return x
            start, length = self.value_of(given["start"]), self.value_of(given["length"])
            ends = [value.value for value in (start, length) if isinstance(value, Constant)]
            end = arithmetic("add", [start, length]) if len(ends) < 2 else Constant(sum(ends))
            self.skipped.add(node)
            return cut(x, start, end)
        result, index = indexed(x, node.args[1], self.value_of)
        self.indices[node] = index
        return result

    def _padded(self, node: torch.fx.Node, x: Value) -> Value:
        if not isinstance(x, Time):
            raise NoStreamError("pads what has no time")
        given = bound(node, "input", "pad", "mode", "value")
        self.skipped.add(node)
        return padded(x, given["pad"], given.get("mode", "constant"), given.get("value"))


def _flat(arguments: Any) -> list[Any]:
    """The nodes and plain values in arguments; indices are read where they are used."""
    found: list[Any] = []
    if isinstance(arguments, dict):
        arguments = tuple(arguments.values())
    if isinstance(arguments, (tuple, list)):
        for argument in arguments:
            found += _flat(argument)
        return found
    return [] if isinstance(arguments, slice) else [arguments]


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
