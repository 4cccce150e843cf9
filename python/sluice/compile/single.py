"""Stages that are one op of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.fx import Node

from .. import stages
from .nodes import aten, fake_value, given, number, prims, same_sizes
from .stage import Call, GraphStage

# From a node to the stage calls that its op makes of its first argument; None if no stage does that.
Recognizer = Callable[[Node], "tuple[Call, ...] | None"]


def _plain(make: Callable[..., Any], *values: Any) -> Recognizer:
    return lambda node: ((make, values),)


def _numbers(make: Callable[..., Any], **defaults: float) -> Recognizer:
    def recognize(node: Node) -> tuple[Call, ...] | None:
        values = [number(given(node, name, default)) for name, default in defaults.items()]
        return None if None in values else ((make, tuple(values)),)

    return recognize


def _clamp(low: str | None, high: str | None, default: tuple[float | None, float | None]) -> Recognizer:
    def recognize(node: Node) -> tuple[Call, ...] | None:
        bounds = [
            None if name is None else given(node, name, fallback)
            for name, fallback in zip((low, high), default, strict=True)
        ]
        values = tuple(None if bound is None else number(bound) for bound in bounds)
        lost = any(bound is not None and value is None for bound, value in zip(bounds, values, strict=True))
        return None if lost or values == (None, None) else ((stages.clamp, values),)

    return recognize


def _gelu(node: Node) -> tuple[Call, ...]:
    return ((stages.gelu, (given(node, "approximate", "none"),)),)


def _elu(node: Node) -> tuple[Call, ...] | None:
    alpha, scale, input_scale = (number(given(node, name, 1)) for name in ("alpha", "scale", "input_scale"))
    if alpha is None or scale is None or input_scale != 1:
        return None
    elu: Call = (stages.elu, (alpha,))
    return (elu,) if scale == 1 else (elu, (stages.scale, (scale,)))


def _power(node: Node) -> tuple[Call, ...] | None:
    makes = {2.0: stages.square, 0.5: stages.sqrt, -0.5: stages.rsqrt, 1.0: None}
    exponent = number(node.args[1])
    if exponent is None or exponent not in makes:
        return None
    make = makes[exponent]
    return () if make is None else ((make, ()),)


def _cast(node: Node) -> tuple[Call, ...] | None:
    result = fake_value(node)
    changes = {name for name, value in node.kwargs.items() if value is not None and name != "non_blocking"}
    if result is None or not changes <= {"dtype"}:
        return None
    return ((stages.cast, (result.dtype,)),)


def _view(node: Node) -> tuple[Call, ...] | None:
    x, result = fake_value(node.args[0]), fake_value(node)
    if x is None or result is None or not same_sizes(x.shape, result.shape):
        return None
    return ()


def _prelu(node: Node) -> tuple[Call, ...]:
    return ((stages.leaky_relu, (node.args[1],)),)


_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default)
_UNARY: dict[Any, Recognizer] = {
    aten.relu.default: _plain(stages.relu),
    aten.silu.default: _plain(stages.silu),
    aten.gelu.default: _gelu,
    aten.sigmoid.default: _plain(stages.sigmoid),
    aten.tanh.default: _plain(stages.tanh),
    aten.abs.default: _plain(stages.abs),
    aten.neg.default: _plain(stages.neg),
    aten.exp.default: _plain(stages.exp),
    aten.log.default: _plain(stages.log),
    aten.sqrt.default: _plain(stages.sqrt),
    aten.rsqrt.default: _plain(stages.rsqrt),
    aten.square.default: _plain(stages.square),
    aten.pow.Tensor_Scalar: _power,
    aten._prelu_kernel.default: _prelu,
    aten.leaky_relu.default: _numbers(stages.leaky_relu, negative_slope=0.01),
    aten.softplus.default: _numbers(stages.softplus, beta=1, threshold=20),
    aten.elu.default: _elu,
    aten.hardtanh.default: _clamp("min_val", "max_val", (-1, 1)),
    aten.clamp.default: _clamp("min", "max", (None, None)),
    aten.clamp_min.default: _clamp("min", None, (None, None)),
    aten.clamp_max.default: _clamp(None, "max", (None, None)),
    aten._to_copy.default: _cast,
    prims.convert_element_type.default: _cast,
    **dict.fromkeys((*_VIEWS, aten.clone.default), _view),
}


def _add(x: Any, other: Any, node: Node, sign: int, is_swapped: bool) -> tuple[Call, ...] | None:
    """`x + sign * alpha * other` as a stage of x; if swapped, `other + sign * alpha * x`."""
    alpha = number(node.kwargs.get("alpha", 1 if len(node.args) < 3 else node.args[2]))
    if alpha is None:
        return None
    factor, weight = (sign * alpha, 1) if is_swapped else (1, sign * alpha)
    first: tuple[Call, ...] = () if factor == 1 else ((stages.scale, (factor,)),)
    if factor == -1:
        first = ((stages.neg, ()),)
    value = number(other)
    if value is not None:
        return (*first, (stages.shift, (weight * value,)))
    if not isinstance(other, Node):
        return None
    second: Call = (stages.sub, (other, -weight)) if weight < 0 else (stages.add, (other, weight))
    return (*first, second)


def _multiply(other: Any) -> tuple[Call, ...] | None:
    value = number(other)
    if value is not None:
        return ((stages.scale, (value,)),)
    return ((stages.mul, (other,)),) if isinstance(other, Node) else None


def _divide(other: Any) -> tuple[Call, ...] | None:
    value = number(other)
    if value is not None:
        return ((stages.div, (value,)),)
    return ((stages.div, (other,)),) if isinstance(other, Node) else None


def _binary(node: Node, x: Any, other: Any, is_swapped: bool) -> tuple[Call, ...] | None:
    if node.target in (aten.add.Tensor, aten.add.Scalar):
        return _add(x, other, node, 1, is_swapped)
    if node.target in (aten.sub.Tensor, aten.sub.Scalar):
        return _add(x, other, node, -1, is_swapped)
    if node.target in (aten.rsub.Tensor, aten.rsub.Scalar):
        return _add(x, other, node, -1, not is_swapped)
    if node.target in (aten.mul.Tensor, aten.mul.Scalar):
        return _multiply(other)
    if node.target in (aten.div.Tensor, aten.div.Scalar) and not is_swapped:
        return _divide(other)
    return None


_BINARY = (
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
    aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar,
)  # fmt: skip


def single_stages(node: Node) -> Iterator[GraphStage]:
    """The stages that consist of this node alone, one for each argument that can be its x."""
    if node.op != "call_function":
        return
    if (recognizer := _UNARY.get(node.target)) is not None:
        if isinstance(x := node.args[0], Node) and (calls := recognizer(node)) is not None:
            yield GraphStage(x, node, frozenset(), calls)
        return
    if node.target not in _BINARY or len(node.args) < 2:
        return
    a, b = node.args[:2]
    if a is b:
        yield from _of_itself(node, a)
        return
    for x, other, is_swapped in ((a, b, False), (b, a, True)):
        if isinstance(x, Node) and (calls := _binary(node, x, other, is_swapped)) is not None:
            yield GraphStage(x, node, frozenset(), calls)


def _of_itself(node: Node, x: Any) -> Iterator[GraphStage]:
    """The stage of an op on x and x itself, which then is not an operand."""
    if isinstance(x, Node) and node.target is aten.mul.Tensor:
        yield GraphStage(x, node, frozenset(), ((stages.square, ()),))
    if isinstance(x, Node) and node.target is aten.add.Tensor:
        alpha = number(node.kwargs.get("alpha", 1))
        if alpha is not None:
            yield GraphStage(x, node, frozenset(), ((stages.scale, (1 + alpha,)),))


# The ops that a stage may be: each result element is made of the elements at its place.
POINTWISE = frozenset(target for target in (*_UNARY, *_BINARY) if target not in _VIEWS)
