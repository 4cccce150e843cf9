"""Chains: every stage, and a pass of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .._apply import compute_dtype
from ..chain import Chain, CppSource


def _snake(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    return x + torch.sin(alpha * x).square() / (beta + eps)


def _softplus(x: torch.Tensor, beta: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


STAGES: dict[str, Callable[..., torch.Tensor]] = {
    "scale": lambda x, a: x * a,
    "shift": lambda x, b: x + b,
    "add": lambda x, other, alpha: x + alpha * other,
    "sub": lambda x, other, alpha: x - alpha * other,
    "mul": lambda x, other: x * other,
    "div": lambda x, other: x / other,
    "square": torch.square,
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "clamp": lambda x, low, high: torch.clamp(x, low, high),
    "relu": F.relu,
    "leaky_relu": lambda x, slope: torch.where(x > 0, x, x * slope),
    "elu": lambda x, alpha: torch.where(x > 0, x, alpha * torch.expm1(x)),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": _softplus,
    "snake": _snake,
    "gate": lambda x, other: x * torch.sigmoid(other),
}


def _is_value(parameter: object) -> bool:
    return not isinstance(parameter, (str, CppSource))


def transform(x: torch.Tensor, chain: Chain, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """`chain(x)`, evaluated in float32 (float64 for float64) and rounded once at its end."""
    compute = compute_dtype(x.dtype)
    value = x.to(compute)
    for name, parameters in chain.for_dim(x.dim()).stages:
        if name == "cast":
            value = value.to(getattr(torch, str(parameters[0]))).to(compute)
            continue
        values = [torch.as_tensor(p, dtype=compute, device=x.device) for p in parameters if _is_value(p)]
        source = parameters[0] if parameters else None
        if isinstance(source, CppSource):
            if source.reference is None:
                raise ValueError(f"reference: {source.name!r} must have a reference=, got none")
            value = source.reference(value, **dict(zip(source.parameters, values, strict=True)))
        else:
            value = STAGES[name](value, *values)
    return value.to(dtype or chain.result_dtype(x.dtype))
