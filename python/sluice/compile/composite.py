"""Stages that are several ops of the graph: decomposed activations, and activations that models write out.

Each function matches a stage that ends in one node, and returns the x that it starts from. It collects the nodes in
between; the caller checks whether anything else reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from torch.fx import Node

from .. import stages
from .nodes import aten, given, is_number, number, readers
from .stage import Call, GraphStage

_MUL = (aten.mul.Tensor, aten.mul.Scalar)
_ADD = (aten.add.Tensor, aten.add.Scalar)
_DIV = (aten.div.Tensor, aten.div.Scalar)
_ROOT_HALF = math.sqrt(0.5)
_TANH_FACTOR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
_MOST_PRODUCTS = 6  # one in another: a cubic with its factor has three; each may double the factors


class _Walk:
    """One attempt: the nodes that it went through."""

    def __init__(self, x: Node) -> None:
        self.x = x
        self.seen: set[Node] = set()

    def is_op(self, value: object, *targets: Any) -> bool:
        """Whether it is one of these ops, and then a node of the stage."""
        if not (isinstance(value, Node) and value is not self.x and value.target in targets):
            return False
        self.seen.add(value)
        return True

    def terms(self, value: Any) -> tuple[Any, Any] | None:
        """The two terms of a sum without a factor."""
        if not self.is_op(value, *_ADD) or given(value, "alpha", 1) != 1:
            return None
        return value.args[0], value.args[1]

    def sum_with(self, value: Any, wanted: float) -> Any:
        """The other term of a sum with that number; None if the value is no such sum."""
        pair = self.terms(value)
        for a, b in () if pair is None else (pair, pair[::-1]):
            if is_number(b, wanted):
                return a
        return None

    def factors(self, value: Any, depth: int = _MOST_PRODUCTS) -> list[Any]:
        """The factors of a product of products; x is one, whatever it is. A division by a number counts as well."""
        if depth == 0:
            return [value]
        if self.is_op(value, *_MUL):
            return self.factors(value.args[0], depth - 1) + self.factors(value.args[1], depth - 1)
        if isinstance(value, Node) and value is not self.x and value.target in _DIV and number(value.args[1]):
            self.seen.add(value)
            divisor = number(value.args[1])
            assert divisor is not None
            return [*self.factors(value.args[0], depth - 1), 1 / divisor]
        exponent = number(value.args[1]) if self.is_op(value, aten.pow.Tensor_Scalar) else None
        if exponent in (2, 3):
            return self.factors(value.args[0], depth - 1) * int(exponent)
        if self.is_op(value, aten.square.default):
            return self.factors(value.args[0], depth - 1) * 2
        return [value]

    def product(self, value: Any) -> tuple[int, float, list[Any]]:
        """How often x is a factor, the product of the numbers, and the other factors."""
        count, constant, others = 0, 1.0, []
        for factor in self.factors(value):
            if factor is self.x:
                count += 1
            elif (found := number(factor)) is not None:
                constant *= found
            else:
                others.append(factor)
        return count, constant, others

    def scale_of_x(self, value: Any) -> float | None:
        """The number that x is multiplied with, 1 for x itself."""
        count, constant, others = self.product(value)
        return constant if count == 1 and not others else None


def _gelu(root: Node, walk: _Walk) -> tuple[Call, ...] | None:
    """`x * 0.5 * (1 + erf(x / sqrt(2)))`, or with tanh of the cubic."""
    count, constant, others = walk.product(root)
    if count != 1 or len(others) != 1 or not is_number(constant, 0.5):
        return None
    inner = walk.sum_with(others[0], 1)
    if walk.is_op(inner, aten.erf.default):
        scale = walk.scale_of_x(inner.args[0])
        return ((stages.gelu, ()),) if scale is not None and is_number(scale, _ROOT_HALF) else None
    if walk.is_op(inner, aten.tanh.default) and _is_cubic(inner.args[0], walk):
        return ((stages.gelu, ("tanh",)),)
    return None


def _is_cubic(value: Any, walk: _Walk) -> bool:
    """`sqrt(2 / pi) * (x + 0.044715 x ** 3)`, with or without x taken out."""
    count, constant, others = walk.product(value)
    pair = walk.terms(others[0]) if len(others) == 1 and is_number(constant, _TANH_FACTOR) else None
    for a, b in () if pair is None else (pair, pair[::-1]):
        is_first = a is walk.x if count == 0 else count == 1 and is_number(a, 1)
        power, factor, rest = walk.product(b)
        if is_first and not rest and power == 3 - count and is_number(factor, _CUBIC):
            return True
    return False


def _silu(root: Node, walk: _Walk) -> tuple[Call, ...] | None:
    """`x * sigmoid(x)`, or `x / (1 + exp(-x))`."""
    if walk.is_op(root, *_DIV) and root.args[0] is walk.x:
        power = walk.sum_with(root.args[1], 1)
        if walk.is_op(power, aten.exp.default) and walk.is_op(power.args[0], aten.neg.default):
            return ((stages.silu, ()),) if power.args[0].args[0] is walk.x else None
        return None
    count, constant, others = walk.product(root)
    is_gated = count == 1 and constant == 1 and len(others) == 1 and walk.is_op(others[0], aten.sigmoid.default)
    return ((stages.silu, ()),) if is_gated and others[0].args[0] is walk.x else None


def _is_above(value: Any, walk: _Walk) -> tuple[Any, float | int] | None:
    """`a > b` of a number b."""
    if not walk.is_op(value, aten.gt.Scalar, aten.gt.Tensor):
        return None
    bound = number(value.args[1])
    return None if bound is None else (value.args[0], bound)


def _where(root: Node, walk: _Walk) -> tuple[Call, ...] | None:
    """The stages written as `where(x > bound, ..., ...)`: leaky_relu, PReLU, elu, softplus."""
    if not walk.is_op(root, aten.where.self):
        return None
    above = _is_above(root.args[0], walk)
    if above is None:
        return None
    compared, bound = above
    if compared is walk.x and bound == 0:
        return _leaky_relu(root, walk) or _elu(root, walk)
    return _softplus(root, compared, bound, walk)


def _leaky_relu(root: Node, walk: _Walk) -> tuple[Call, ...] | None:
    kept, scaled = root.args[1:]
    if kept is not walk.x or not walk.is_op(scaled, *_MUL):
        return None
    assert isinstance(scaled, Node)
    for x, slope in (scaled.args[:2], scaled.args[:2][::-1]):
        if x is walk.x and slope is not walk.x:
            value = number(slope)
            return ((stages.leaky_relu, (slope if value is None else value,)),)
    return None


def _elu(root: Node, walk: _Walk) -> tuple[Call, ...] | None:
    """`where(x > 0, scale * x, scale * alpha * expm1(x))`."""
    scale = walk.scale_of_x(root.args[1])
    count, constant, others = walk.product(root.args[2])
    if not scale or count != 0 or len(others) != 1 or not walk.is_op(others[0], aten.expm1.default):
        return None
    if walk.scale_of_x(others[0].args[0]) != 1:
        return None
    elu: Call = (stages.elu, (constant / scale,))
    return (elu,) if scale == 1 else (elu, (stages.scale, (scale,)))


def _softplus(root: Node, compared: Any, threshold: float | int, walk: _Walk) -> tuple[Call, ...] | None:
    """`where(beta * x > threshold, x, log1p(exp(beta * x)) / beta)`."""
    beta = walk.scale_of_x(compared)
    count, constant, others = walk.product(root.args[2])
    if not beta or root.args[1] is not walk.x or count != 0 or len(others) != 1:
        return None
    if not walk.is_op(others[0], aten.log1p.default) or not walk.is_op(others[0].args[0], aten.exp.default):
        return None
    if walk.scale_of_x(others[0].args[0].args[0]) != beta or not is_number(constant, 1 / beta):
        return None
    return ((stages.softplus, (beta, threshold)),)


def _snake(root: Node, walk: _Walk) -> tuple[Call, ...] | None:
    """`x + sin(alpha * x) ** 2 / (beta + eps)`, the divisor as one or as a reciprocal that is multiplied."""
    pair = walk.terms(root)
    for x, bump in () if pair is None else (pair, pair[::-1]):
        if x is walk.x and bump is not walk.x and (found := _bump(bump, walk)) is not None:
            return ((stages.snake, found),)
    return None


def _bump(value: Any, walk: _Walk) -> tuple[Any, Any, float | int] | None:
    """Alpha, beta and eps of `sin(alpha * x) ** 2 / (beta + eps)`."""
    divisor = None
    if isinstance(value, Node) and value.target in _DIV and number(value.args[1]) is None:
        walk.seen.add(value)
        value, divisor = value.args
    count, constant, others = walk.product(value)
    sines = [factor for factor in others if walk.is_op(factor, aten.sin.default)]
    rest = [factor for factor in others if factor not in sines]
    if count != 0 or constant != 1 or len(sines) != 2 or sines[0] is not sines[1]:
        return None
    if divisor is None and len(rest) == 1:
        divisor = _divisor(rest[0])
    elif rest:
        return None
    power, factor, alphas = walk.product(sines[0].args[0])
    if divisor is None or power != 1 or len(alphas) > 1 or (alphas and factor != 1):
        return None
    beta, eps = _with_eps(divisor)
    return alphas[0] if alphas else factor, beta, eps


def _divisor(value: Any) -> Any:
    """The value whose reciprocal a factor is. Its nodes are not part of the stage, because they do not use x."""
    if isinstance(value, Node) and value.target is aten.reciprocal.default:
        return value.args[0]
    if isinstance(value, Node) and value.target in _DIV and is_number(value.args[0], 1):
        return value.args[1]
    return None


def _with_eps(value: Any) -> tuple[Any, float | int]:
    """A divisor and the number that is added to it."""
    if isinstance(value, Node) and value.target in _ADD and given(value, "alpha", 1) == 1:
        for a, b in (value.args[:2], value.args[:2][::-1]):
            if (eps := number(b)) is not None:
                return a, eps
    return value, 0


_RECOGNIZERS: dict[Any, tuple[Callable[[Node, _Walk], tuple[Call, ...] | None], ...]] = {
    **dict.fromkeys(_MUL, (_gelu, _silu)),
    **dict.fromkeys(_DIV, (_silu, _gelu)),
    **dict.fromkeys(_ADD, (_snake,)),
    aten.where.self: (_where,),
}
# Ops that may stand between x and the end of such a stage.
INTERIOR = frozenset(
    (
        *_MUL, *_ADD, *_DIV, aten.neg.default, aten.exp.default, aten.expm1.default, aten.log1p.default,
        aten.erf.default, aten.tanh.default, aten.sigmoid.default, aten.sin.default, aten.pow.Tensor_Scalar,
        aten.square.default, aten.gt.Scalar, aten.gt.Tensor,
    )
)  # fmt: skip


def composite_stages(root: Node, x: Node) -> Iterator[GraphStage]:
    """The stages that end in `root`, start from `x` and have nodes in between."""
    for recognize in _RECOGNIZERS.get(root.target, ()):
        walk = _Walk(x)
        calls = recognize(root, walk)
        if calls is not None:
            yield GraphStage(x, root, frozenset(walk.seen - {root}), calls)


def starts(root: Node) -> list[Node]:
    """The nodes that a stage with nodes in between, which ends in `root`, may start from."""
    if root.target not in _RECOGNIZERS:
        return []
    found: dict[Node, None] = {}
    level = [root]
    for _ in range(_DEPTH):
        inner = [end for end in level if end is root or end.target in INTERIOR]
        level = list(dict.fromkeys(node for end in inner for node in end.all_input_nodes))
        found.update(dict.fromkeys(level))
    return [node for node in found if len(readers(node)) > 1]


_DEPTH = 9  # levels from the end of gelu's tanh form back to its x
