"""The stage of a chain that computes a node of a trace, if there is one."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from .. import stages
from ..chain import Chain
from .classes import has_other_hooks
from .known import chain_of_module

# Stages that cost so little that two convolutions may each evaluate them.
_CHEAP = frozenset(("leaky_relu", "relu", "scale", "shift", "div", "neg", "abs", "clamp", "square"))


@dataclasses.dataclass(frozen=True)
class OperandRef:
    """An operand of a folded node, by its number."""

    number: int


@dataclasses.dataclass(frozen=True)
class TracedStage:
    """A node that a chain computes.

    Attributes:
        label: for the table.
        value: the node whose values the stage changes.
        operands: the other nodes that it reads, in the order of their numbers.
        module: the name of the submodule that it calls, or None.
        make: makes the chain from the operands or the module, None if the module no longer has one.
        apply: forward's function of the value, and the operands or the module.
        mutates: whether forward writes into `value`.
        is_constant: whether the chain is always the same.
    """

    label: str
    value: fx.Node
    operands: tuple[fx.Node, ...]
    module: str | None
    make: Callable[..., Chain | None]
    apply: Callable[..., Any]
    mutates: bool = False
    is_constant: bool = True

    @property
    def is_cheap(self) -> bool:
        """Whether it may be evaluated twice."""
        return self.label.partition("(")[0] in _CHEAP and self.is_constant and not self.mutates


def stage_of(node: fx.Node, modules: dict[str, torch.nn.Module], value: fx.Node | None = None) -> TracedStage | None:
    """The stage that computes `node` from `value`, by default from the only value that it can be."""
    if node.op == "call_module":
        return _of_module(node, modules, value)
    if node.op == "call_function":
        found = _FUNCTIONS.get(node.target)
        name = getattr(node.target, "__name__", "")
    elif node.op == "call_method":
        found, name = _METHODS.get(str(node.target)), str(node.target)
    else:
        return None
    if found is None or "out" in node.kwargs:
        return None
    return found(node, name, value)


def _of_module(node: fx.Node, modules: dict[str, torch.nn.Module], value: fx.Node | None) -> TracedStage | None:
    module = modules[str(node.target)]
    if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], fx.Node):
        return None
    if value is not None and node.args[0] is not value:
        return None
    chain = chain_of_module(module)
    if chain is None or any(has_other_hooks(part) for part in module.modules()):
        return None
    return TracedStage(
        repr(chain) if chain else "nothing",
        node.args[0],
        (),
        str(node.target),
        chain_of_module,
        _call,
        _writes(module),
        is_constant=False,
    )


def _call(x: Any, module: torch.nn.Module) -> Any:
    return module(x)


def _writes(module: torch.nn.Module) -> bool:
    return any(getattr(part, "inplace", False) is True for part in module.modules())


# --- functions of one value and numbers -------------------------------------------------------------------------------
def _number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)


def _unary(names: tuple[str, ...], make: Callable[..., Chain], **defaults: Any) -> Callable[..., TracedStage | None]:
    """The maker of stages for a function of a value and of constants by these names."""

    def of(node: fx.Node, name: str, value: fx.Node | None) -> TracedStage | None:
        first = node.args[0] if node.args else node.kwargs.get("input")
        given = dict(defaults)
        rest = node.args[1:]
        if len(rest) > len(names) or not isinstance(first, fx.Node) or (value is not None and first is not value):
            return None
        given.update(zip(names, rest, strict=False))
        given.update({k: v for k, v in node.kwargs.items() if k != "input"})
        mutates = given.pop("inplace", False)
        if mutates not in (True, False) or any(isinstance(v, fx.Node) for v in given.values()):
            return None
        try:
            chain = make(**given)
        except (TypeError, ValueError):
            return None
        if not all(_number(one) for _, values in chain.stages for one in values):
            return None
        is_method = node.op == "call_method"
        mutates = bool(mutates) or name.endswith("_")
        label, applied = repr(chain) if chain else "nothing", _applied(node, is_method, first, ())
        return TracedStage(label, first, (), None, lambda: chain, applied, mutates)

    return of


def _applied(node: fx.Node, is_method: bool, value: fx.Node, operands: tuple[fx.Node, ...]) -> Callable[..., Any]:
    """Forward's operation at the node, as a function of the value and the operands."""
    numbers = {value: 0, **{one: i + 1 for i, one in enumerate(operands)}}

    def refs(a: Any) -> Any:
        return fx.node.map_arg(a, lambda n: OperandRef(numbers[n]))  # type: ignore[arg-type,return-value]

    args, kwargs, target = refs(node.args), refs(node.kwargs), node.target

    def apply(*values: Any) -> Any:
        def fill(a: Any) -> Any:
            return values[a.number] if isinstance(a, OperandRef) else a

        given = [fill(a) for a in args]
        named = {k: fill(a) for k, a in kwargs.items()}
        if is_method:
            return getattr(given[0], str(target))(*given[1:], **named)
        return target(*given, **named)  # type: ignore[operator]

    return apply


def _gelu(approximate: str = "none") -> Chain:
    return stages.gelu(approximate)


def _dropout(p: float = 0.5, training: bool = True) -> Chain:
    if training is not False:
        raise ValueError("dropout of training")
    return Chain()


def _pow(exponent: Any) -> Chain:
    if exponent != 2 or isinstance(exponent, bool):
        raise ValueError("only squares")
    return stages.square()


# --- functions of two values ------------------------------------------------------------------------------------------
def _binary(kind: str, *, reversible: bool, in_place: bool = False) -> Callable[..., TracedStage | None]:
    def of(node: fx.Node, name: str, value: fx.Node | None) -> TracedStage | None:
        if len(node.args) != 2:
            return None
        kwargs = dict(node.kwargs)
        alpha = kwargs.pop("alpha", 1)
        if kwargs or not _number(alpha) or (alpha != 1 and kind not in ("add", "sub")):
            return None
        left, right = node.args
        if left is right:
            return None
        first = value if value is not None else left if isinstance(left, fx.Node) else right
        if not isinstance(first, fx.Node):
            return None
        is_first = first is left
        other = right if is_first else left
        if not is_first and (first is not right or in_place or not reversible or alpha != 1):
            return None
        make = _maker(kind, alpha, is_first)
        apply_method = node.op == "call_method"
        if isinstance(other, fx.Node):
            label = {"add": "add", "sub": "sub" if is_first else "rsub", "mul": "mul", "div": "div"}[kind]
            applied = _applied(node, apply_method, first, (other,))
            return TracedStage(
                f"{label}({other.name})", first, (other,), None, make, applied, in_place, is_constant=False
            )
        if not _number(other) or (kind == "div" and other == 0):
            return None
        chain = make(other)
        return TracedStage(
            repr(chain), first, (), None, lambda: chain, _applied(node, apply_method, first, ()), in_place
        )

    return of


def _maker(kind: str, alpha: Any, is_first: bool) -> Callable[..., Chain]:
    def make(other: Any) -> Chain:
        if kind == "add":
            return stages.add(other, alpha) if isinstance(other, torch.Tensor) else stages.shift(other * alpha)
        if kind == "sub" and is_first:
            return stages.sub(other, alpha) if isinstance(other, torch.Tensor) else stages.shift(-other * alpha)
        if kind == "sub":
            return stages.neg() | (stages.add(other) if isinstance(other, torch.Tensor) else stages.shift(other))
        if kind == "mul":
            return stages.mul(other) if isinstance(other, torch.Tensor) else stages.scale(other)
        return stages.div(other)

    return make


_CLAMP = _unary(("min", "max"), stages.clamp, min=None, max=None)
_LEAKY = _unary(("negative_slope", "inplace"), stages.leaky_relu, negative_slope=0.01)
_FUNCTIONS: dict[Any, Callable[..., TracedStage | None]] = {
    F.leaky_relu: _LEAKY,
    F.relu: _unary(("inplace",), stages.relu),
    torch.relu: _unary((), stages.relu),
    F.relu6: _unary(("inplace",), lambda: stages.clamp(0.0, 6.0)),
    F.elu: _unary(("alpha", "inplace"), stages.elu, alpha=1.0),
    F.gelu: _unary((), _gelu),
    F.silu: _unary(("inplace",), stages.silu),
    F.tanh: _unary((), stages.tanh),
    torch.tanh: _unary((), stages.tanh),
    F.sigmoid: _unary((), stages.sigmoid),
    torch.sigmoid: _unary((), stages.sigmoid),
    F.softplus: _unary(("beta", "threshold"), stages.softplus, beta=1.0, threshold=20.0),
    F.hardtanh: _unary(
        ("min_val", "max_val", "inplace"), lambda min_val, max_val: stages.clamp(min_val, max_val),
        min_val=-1.0, max_val=1.0,
    ),
    F.dropout: _unary(("p", "training", "inplace"), _dropout),
    torch.clamp: _CLAMP,
    torch.clip: _CLAMP,
    torch.square: _unary((), stages.square),
    torch.pow: _unary(("exponent",), _pow),
    operator.pow: _unary(("exponent",), _pow),
    torch.neg: _unary((), stages.neg),
    operator.neg: _unary((), stages.neg),
    torch.abs: _unary((), stages.abs),
    torch.add: _binary("add", reversible=True),
    operator.add: _binary("add", reversible=True),
    operator.iadd: _binary("add", reversible=True, in_place=True),
    torch.sub: _binary("sub", reversible=True),
    operator.sub: _binary("sub", reversible=True),
    operator.isub: _binary("sub", reversible=True, in_place=True),
    torch.mul: _binary("mul", reversible=True),
    operator.mul: _binary("mul", reversible=True),
    operator.imul: _binary("mul", reversible=True, in_place=True),
    torch.div: _binary("div", reversible=False),
    operator.truediv: _binary("div", reversible=False),
    operator.itruediv: _binary("div", reversible=False, in_place=True),
}  # fmt: skip
_METHODS: dict[str, Callable[..., TracedStage | None]] = {
    "relu": _unary((), stages.relu),
    "relu_": _unary((), stages.relu),
    "tanh": _unary((), stages.tanh),
    "tanh_": _unary((), stages.tanh),
    "sigmoid": _unary((), stages.sigmoid),
    "sigmoid_": _unary((), stages.sigmoid),
    "clamp": _CLAMP,
    "clamp_": _CLAMP,
    "clip": _CLAMP,
    "square": _unary((), stages.square),
    "pow": _unary(("exponent",), _pow),
    "neg": _unary((), stages.neg),
    "abs": _unary((), stages.abs),
    "add": _binary("add", reversible=True),
    "add_": _binary("add", reversible=True, in_place=True),
    "sub": _binary("sub", reversible=True),
    "sub_": _binary("sub", reversible=True, in_place=True),
    "mul": _binary("mul", reversible=True),
    "mul_": _binary("mul", reversible=True, in_place=True),
    "div": _binary("div", reversible=False),
    "div_": _binary("div", reversible=False, in_place=True),
}
