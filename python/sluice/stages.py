"""Stages: the elementwise steps that a chain is composed of.

A chain is made with these functions and `|`, and is itself a function on tensors:

    >>> import torch
    >>> from sluice import stages
    >>> chain = stages.scale(1.5) | stages.shift(0.25) | stages.silu()
    >>> chain
    scale(1.5) | shift(0.25) | silu()
    >>> chain(torch.zeros(2))
    tensor([0.1405, 0.1405])

A stage's number may also be a tensor: any strides, any floating dtype, broadcast to the
chain's input by torch's rules. A number is a constant of a compiled graph; a 0-d tensor is not.

A module keeps the tensors of its chains as parameters or buffers and composes the chains in `forward`, which costs
some microseconds, and nothing in compiled code. They then follow `.to()`, `.double()` and
`load_state_dict(assign=True)`, which replace tensors; a chain composed in `__init__` would keep the old tensors:

    >>> class Gain(torch.nn.Module):
    ...     def __init__(self, channels):
    ...         super().__init__()
    ...         self.gain = torch.nn.Parameter(torch.ones(channels, 1), requires_grad=False)
    ...     def forward(self, x):
    ...         return (stages.mul(self.gain) | stages.silu())(x)
    >>> Gain(4).double()(torch.zeros(1, 4, 3, dtype=torch.float64)).dtype
    torch.float64
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import torch

from ._arguments import check_string
from ._library import stage_signatures
from .chain import Chain, CppSource, Parameter, PerChannel

__all__ = [
    "Chain",
    "abs",
    "add",
    "cast",
    "clamp",
    "cpp",
    "div",
    "elu",
    "exp",
    "from_module",
    "gate",
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

_DEFAULTS = stage_signatures()
_DTYPE_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
}


def _stage(name: str, *values: Parameter | str | CppSource) -> Chain:
    return Chain(((name, tuple([_checked(name, value) for value in values])),))


def _checked(name: str, value: Any) -> Any:
    """The value of a stage, with NumPy's numbers as Python's."""
    if isinstance(value, torch.Tensor):
        if value.is_complex() or not value.is_floating_point():
            raise TypeError(f"{name}: a tensor parameter must have a floating dtype, got {value.dtype}")
        return value
    if isinstance(value, (float, int, str, CppSource, PerChannel, torch.SymFloat, torch.SymInt)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{name}: a parameter must be a number or a tensor, got {type(value).__name__}")


def _or_default(value: Parameter | None, stage: str, parameter: str) -> Parameter:
    default = _DEFAULTS[stage][parameter]
    assert default is not None
    return default if value is None else value


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
    return _stage("clamp", _or_default(min, "clamp", "min"), _or_default(max, "clamp", "max"))


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
    (2020), in BigVGAN's version with two parameters. For each channel of (B, C, L) a parameter has shape (C, 1).
    """
    return _stage("snake", alpha, alpha if beta is None else beta, eps)


def gate(other: Parameter) -> Chain:
    """`x * sigmoid(other)`, as `F.glu` computes of two halves.

    `tanh() | gate(other)` is WaveNet's gated activation unit.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks" (2017); van den Oord et al., "WaveNet:
    A Generative Model for Raw Audio" (2016).

    Example:
        >>> import torch, sluice
        >>> x = torch.randn(2, 8, 30)
        >>> a, b = x.chunk(2, dim=1)
        >>> y = sluice.transform(a, sluice.stages.gate(b))
        >>> torch.testing.assert_close(y, torch.nn.functional.glu(x, dim=1))
    """
    return _stage("gate", other)


def cast(dtype: torch.dtype) -> Chain:
    """Rounds to `dtype` at this stage. As the last stage it sets the result's dtype.

    Raises:
        TypeError: `dtype` is not float32, float16, bfloat16 or float64.
    """
    if not isinstance(dtype, torch.dtype) or dtype not in _DTYPE_NAMES:
        raise TypeError(f"cast: dtype must be float32, float16, bfloat16 or float64, got {dtype}")
    return _stage("cast", _DTYPE_NAMES[dtype])


def cpp(
    expression: str,
    *,
    name: str = "cpp",
    reference: Callable[..., torch.Tensor] | None = None,
    **parameters: Parameter,
) -> Chain:
    """A stage of your own, in CUDA C++; compiled and linked into the kernel at its first call on a GPU.

    `x` is the value, a float (a double for float64 tensors); so are the parameters, given as numbers or as tensors: a
    new value never compiles again. A new number in the expression does, and a process takes at most 4096 different
    expressions. The stage is code that runs in your process, like an extension.

    Args:
        expression: an expression, or several statements with a `return`. CUDA's mathematical functions are available.
        name: an identifier, for messages.
        reference: the stage on the CPU: a function of a tensor `x` and the parameters by name that returns a tensor
            of x's shape. Without it a chain with this stage runs on CUDA devices only.
        **parameters: numbers, or tensors that broadcast to the chain's input.

    Raises:
        ValueError: `name` or a parameter's name is no identifier. The compiler's errors about the expression are
            a ValueError at the first call; a torch.OutOfMemoryError there means that the GPU had no memory for the
            kernel, and the next call tries again.

    Example:
        >>> import torch
        >>> from sluice import stages
        >>> soft = stages.cpp("x / (1.0f + a * fabsf(x))", a=2.0, reference=lambda x, a: x / (1 + a * x.abs()))
        >>> (stages.scale(2.0) | soft)(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.4000,  0.0000,  0.4000])
    """
    if not isinstance(expression, str) or not expression.strip():
        raise ValueError(f"cpp: expression must be a non-empty string, got {expression!r}")
    check_string("cpp", "name", name)
    if reference is not None and not callable(reference):
        raise TypeError(f"cpp: reference must be a function, got {type(reference).__name__}")
    for identifier in (name, *parameters):
        if not (identifier.isidentifier() and identifier.isascii()) or identifier == "x":
            raise ValueError(f"cpp: a name must be an identifier other than x, got {identifier!r}")
    return _stage("cpp", CppSource(expression, name, tuple(parameters), reference), *parameters.values())


def from_module(module: torch.nn.Module) -> Chain:
    """The chain that computes an elementwise module, with its current parameters.

    Parameters become the chain's tensors, not copies: values written in place later count, new tensors need a new
    chain. Values for each channel belong to dimension 1 of the chain's input, whatever its rank, as in torch.
    Subclasses are not accepted, because their `forward` may differ.

    Args:
        module: of `torch.nn` Identity, ReLU, ReLU6, LeakyReLU, PReLU, ELU, SELU, GELU, SiLU, Sigmoid, LogSigmoid, Tanh,
            Softplus, Hardtanh, and Dropout in eval mode; from transformers the Snakes, ReLUSquaredActivation, and these
            activations under other names; a Sequential of such modules.

    Raises:
        TypeError: another module, or none.

    Example:
        >>> import torch
        >>> from sluice import stages
        >>> stages.from_module(torch.nn.Sequential(torch.nn.LeakyReLU(0.1), torch.nn.Hardtanh(-1, 2)))
        leaky_relu(0.1) | clamp(-1, 2)
    """
    if type(module) is torch.nn.Sequential:
        chain = Chain()
        for part in module:
            chain = chain | from_module(part)
        return chain
    kind = type(module)
    make = _MODULES.get(kind) or _NAMED_MODULES.get(f"{kind.__module__}.{kind.__qualname__}")
    chain_or_none = None if make is None else make(module)
    if chain_or_none is None:
        raise TypeError(f"from_module: module must be an activation with a stage, in eval mode, got {kind.__name__}")
    return chain_or_none


def _per_channel(parameter: torch.Tensor) -> Parameter:
    """A parameter with a value for each channel, which is dimension 1 whatever the input's rank."""
    return parameter if parameter.shape == (1,) else PerChannel(parameter)


def _snake_of(module: Any, beta: torch.Tensor | None, is_logarithm: bool) -> Chain:
    """The stage of a module that has `alpha`, or its logarithm, and `no_div_by_zero`."""
    alpha: torch.Tensor = module.alpha[None, :, None]  # as these forwards do, whatever the input's rank
    beta = None if beta is None else beta[None, :, None]
    if is_logarithm:
        alpha, beta = alpha.exp(), None if beta is None else beta.exp()
    return snake(alpha, beta, module.no_div_by_zero)


def _snake_of_logarithms(module: Any) -> Chain:
    return _snake_of(module, module.beta, True)


_MODULES: dict[type, Callable[[Any], Chain | None]] = {
    torch.nn.Identity: lambda m: Chain(),
    torch.nn.Dropout: lambda m: None if m.training and m.p > 0 else Chain(),
    torch.nn.ReLU: lambda m: relu(),
    torch.nn.ReLU6: lambda m: clamp(0.0, 6.0),
    torch.nn.LeakyReLU: lambda m: leaky_relu(m.negative_slope),
    torch.nn.PReLU: lambda m: leaky_relu(_per_channel(m.weight)),
    torch.nn.ELU: lambda m: elu(m.alpha),
    torch.nn.SELU: lambda m: elu(1.6732632423543772) | scale(1.0507009873554805),
    torch.nn.GELU: lambda m: gelu(m.approximate),
    torch.nn.SiLU: lambda m: silu(),
    torch.nn.Sigmoid: lambda m: sigmoid(),
    torch.nn.LogSigmoid: lambda m: neg() | softplus() | neg(),
    torch.nn.Tanh: lambda m: tanh(),
    torch.nn.Softplus: lambda m: softplus(m.beta, m.threshold),
    torch.nn.Hardtanh: lambda m: clamp(m.min_val, m.max_val),
}
# By name: transformers is not imported for them.
_NAMED_MODULES: dict[str, Callable[[Any], Chain | None]] = {
    "transformers.activations.GELUTanh": lambda m: gelu("tanh"),
    "transformers.activations.NewGELUActivation": lambda m: gelu("tanh"),
    "transformers.activations.FastGELUActivation": lambda m: gelu("tanh"),
    "transformers.activations.GELUActivation": lambda m: gelu(),
    "transformers.activations.LinearActivation": lambda m: Chain(),
    "transformers.activations.ReLUSquaredActivation": lambda m: relu() | square(),
    "transformers.activations.SiLUActivation": lambda m: silu(),
    "transformers.models.dac.modeling_dac.Snake1d": lambda m: snake(_per_channel(m.alpha)),
    "transformers.models.pe_audio.modeling_pe_audio.Snake1d": lambda m: snake(_per_channel(m.alpha)),
    "transformers.models.qwen2_5_omni.modeling_qwen2_5_omni.Qwen2_5OmniSnakeBeta": _snake_of_logarithms,
    "transformers.models.qwen2_5_omni.modeling_qwen2_5_omni.SnakeBeta": _snake_of_logarithms,
    "transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe.Qwen3OmniMoeSnakeBeta": _snake_of_logarithms,
    "transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe.SnakeBeta": _snake_of_logarithms,
}
