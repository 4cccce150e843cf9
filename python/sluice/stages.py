"""Stages: the elementwise steps that a chain is composed of.

A chain is made with these functions and `|`, and is itself a function on tensors:

    >>> import torch
    >>> from sluice import stages
    >>> chain = stages.scale(1.5) | stages.shift(0.25) | stages.silu()
    >>> chain
    scale(1.5) | shift(0.25) | silu()
    >>> chain(torch.zeros(2))
    tensor([0.1405, 0.1405])

Wherever a stage takes a number it takes a tensor as well: any strides, any floating dtype, broadcast to the
chain's input by torch's rules. A number is a constant of a compiled graph; a 0-d tensor in its place is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union

import torch

Parameter = Union[float, int, torch.Tensor]

__all__ = [
    "Chain",
    "abs",
    "add",
    "cast",
    "clamp",
    "div",
    "elu",
    "exp",
    "gelu",
    "leaky_relu",
    "log",
    "mul",
    "neg",
    "relu",
    "rsqrt",
    "scale",
    "shift",
    "sigmoid",
    "silu",
    "snake",
    "softplus",
    "sqrt",
    "square",
    "sub",
    "tanh",
]

_DTYPE_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}


class Chain:
    """An immutable sequence of stages. `a | b` is a, then b; `chain(x)` is `sluice.transform(x, chain)`."""

    __slots__ = ("_operands", "_parts", "_text")

    _parts: tuple[tuple[str, tuple[Parameter | str, ...]], ...]
    _text: str
    _operands: tuple[torch.Tensor, ...]

    def __init__(self, parts: tuple[tuple[str, tuple[Parameter | str, ...]], ...] = ()) -> None:
        self._parts = parts
        self._text, self._operands = encode(parts)

    @property
    def text(self) -> str:
        """The chain as the raw ops take it: `scale(1.5)|add($0,1.0)|silu()`."""
        return self._text

    @property
    def operands(self) -> tuple[torch.Tensor, ...]:
        """The tensors that the text calls `$0`, `$1`, ...: the caller's own, never copies."""
        return self._operands

    def __or__(self, other: object) -> Chain:
        if not isinstance(other, Chain):
            return NotImplemented
        return Chain(self._parts + other._parts)

    def __call__(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        """`sluice.transform(x, self, **options)`."""
        from .transform import transform

        return transform(x, self, **options)

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Chain]:
        return (Chain((part,)) for part in self._parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain):
            return NotImplemented
        same = len(self._operands) == len(other._operands)
        return self._text == other._text and same and all(map(_is, self._operands, other._operands))

    def __hash__(self) -> int:
        return hash((self._text, tuple(map(id, self._operands))))

    def __reduce__(self) -> tuple[type[Chain], tuple[Any, ...]]:
        return Chain, (self._parts,)

    def __repr__(self) -> str:
        def show(value: Parameter | str) -> str:
            if isinstance(value, torch.Tensor):
                return f"Tensor{tuple(value.shape)}"
            return str(value)

        parts = (f"{name}({', '.join(map(show, values))})" for name, values in self._parts)
        return " | ".join(parts) if self._parts else "Chain()"


def _is(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b


def _number_text(value: float) -> str:
    # hex() is what torch.compile turns a symbolic number into a constant at; repr() it does not trace.
    return repr(float.fromhex(float(value).hex()))


def encode(
    parts: tuple[tuple[str, tuple[Parameter | str, ...]], ...],
) -> tuple[str, tuple[torch.Tensor, ...]]:
    """The text of a chain and the tensors that it refers to."""
    operands: list[torch.Tensor] = []
    texts: list[str] = []
    for name, values in parts:
        arguments: list[str] = []
        for value in values:
            if isinstance(value, torch.Tensor):
                index = next((i for i, known in enumerate(operands) if known is value), len(operands))
                if index == len(operands):
                    operands.append(value)
                arguments.append(f"${index}")
            else:
                arguments.append(value if isinstance(value, str) else _number_text(value))
        texts.append(f"{name}({','.join(arguments)})")
    return "|".join(texts), tuple(operands)


def result_dtype(text: str, dtype: torch.dtype) -> torch.dtype:
    """The dtype of a chain's result for an input of `dtype`: a last `cast` decides it."""
    last = text.rsplit("|", 1)[-1].strip()
    return _DTYPES.get(last[len("cast(") : -1].strip(), dtype) if last.startswith("cast(") else dtype


def _stage(name: str, *values: Parameter | str) -> Chain:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_complex() or not value.is_floating_point():
                raise TypeError(f"{name}: a tensor parameter must have a floating dtype, got {value.dtype}")
        elif not isinstance(value, (float, int, str, torch.SymFloat, torch.SymInt)):
            raise TypeError(f"{name}: a parameter must be a number or a tensor, got {type(value).__name__}")
    return Chain(((name, values),))


def scale(factor: Parameter) -> Chain:
    """`factor * x`."""
    return _stage("scale", factor)


def shift(offset: Parameter) -> Chain:
    """`x + offset`."""
    return _stage("shift", offset)


def add(other: Parameter, alpha: Parameter = 1) -> Chain:
    """`x + alpha * other`, as `torch.add`."""
    return _stage("add", other, alpha)


def sub(other: Parameter, alpha: Parameter = 1) -> Chain:
    """`x - alpha * other`, as `torch.sub`."""
    return _stage("sub", other, alpha)


def mul(other: Parameter) -> Chain:
    """`x * other`, as `torch.mul`."""
    return _stage("mul", other)


def div(other: Parameter) -> Chain:
    """`x / other`, as `torch.div`."""
    return _stage("div", other)


def square() -> Chain:
    """`x * x`."""
    return _stage("square")


def abs() -> Chain:
    """`|x|`."""
    return _stage("abs")


def neg() -> Chain:
    """`-x`."""
    return _stage("neg")


def exp() -> Chain:
    """`e ** x`."""
    return _stage("exp")


def log() -> Chain:
    """The natural logarithm of x."""
    return _stage("log")


def sqrt() -> Chain:
    """The square root of x."""
    return _stage("sqrt")


def rsqrt() -> Chain:
    """`1 / sqrt(x)`."""
    return _stage("rsqrt")


def clamp(min: Parameter | None = None, max: Parameter | None = None) -> Chain:
    """`torch.clamp(x, min, max)`; at least one bound is given, and NaN stays NaN.

    Raises:
        ValueError: neither bound is given.
    """
    if min is None and max is None:
        raise ValueError("clamp: at least one of min and max must be given, got neither")
    return _stage("clamp", float("-inf") if min is None else min, float("inf") if max is None else max)


def relu() -> Chain:
    """`max(x, 0)`."""
    return _stage("relu")


def leaky_relu(negative_slope: Parameter = 0.01) -> Chain:
    """`x if x > 0 else negative_slope * x`, as `F.leaky_relu`."""
    return _stage("leaky_relu", negative_slope)


def elu(alpha: Parameter = 1.0) -> Chain:
    """`x if x > 0 else alpha * (e ** x - 1)`, as `F.elu`."""
    return _stage("elu", alpha)


def silu() -> Chain:
    """`x * sigmoid(x)`, as `F.silu`."""
    return _stage("silu")


def gelu(approximate: str = "none") -> Chain:
    """`x * Phi(x)`, as `F.gelu`: by the error function, or by tanh with `approximate="tanh"`.

    Raises:
        ValueError: `approximate` is neither "none" nor "tanh".
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return _stage("gelu" if approximate == "none" else "gelu_tanh")


def sigmoid() -> Chain:
    """`1 / (1 + e ** -x)`."""
    return _stage("sigmoid")


def tanh() -> Chain:
    """The hyperbolic tangent of x."""
    return _stage("tanh")


def softplus(beta: Parameter = 1.0, threshold: Parameter = 20.0) -> Chain:
    """`log(1 + e ** (beta * x)) / beta`, and x where `beta * x > threshold`, as `F.softplus`."""
    return _stage("softplus", beta, threshold)


def snake(alpha: Parameter, beta: Parameter | None = None, eps: float = 1e-9) -> Chain:
    """`x + sin(alpha * x) ** 2 / (beta + eps)`; without beta it is alpha.

    The periodic activation of Ziyin et al., "Neural Networks Fail to Learn Periodic Functions and How to Fix It"
    (2020), in the two-parameter form of BigVGAN. Per channel of (B, C, L) a parameter has shape (C, 1).
    """
    return _stage("snake", alpha, alpha if beta is None else beta, eps)


def cast(dtype: torch.dtype) -> Chain:
    """Rounds to `dtype` where it stands. As the last stage it sets the result's dtype.

    Raises:
        TypeError: `dtype` is not float32, float16, bfloat16 or float64.
    """
    if dtype not in _DTYPE_NAMES:
        raise TypeError(f"cast: dtype must be float32, float16, bfloat16 or float64, got {dtype}")
    return _stage("cast", _DTYPE_NAMES[dtype])
