"""Chains with `cpp` stages on the CPU: the compiled stages by the library, the user's by their references."""

from __future__ import annotations

from typing import Any

import torch

from ._library import call, operand_list, out_result, out_target
from .chain import Chain, CppSource, compute_dtype


def needs_reference(x: torch.Tensor, chain: Chain) -> bool:
    """Whether the chain has stages that only their references can compute where x is."""
    return chain.has_cpp and x.device.type == "cpu"


def split(chain: Chain) -> tuple[Chain, Chain]:
    """The stages before the first `cpp` stage, and the rest, which is empty where there is none."""
    at = next((i for i, (name, _) in enumerate(chain.parts) if name == "cpp"), len(chain))
    return Chain(chain.parts[:at]), Chain(chain.parts[at:])


def evaluate(op: str, x: torch.Tensor, chain: Chain) -> torch.Tensor:
    """The chain on x, unrounded: x in `compute_dtype`, and so the result."""
    ahead, rest = split(chain)
    if ahead:
        options: dict[str, Any] = {"dtype": x.dtype, "operands": operand_list(op, x, ahead.operands)}
        x = call(op, x, torch.ops.sluice.transform, x, ahead.text, **options)
    if not rest:
        return x
    return evaluate(op, _call_reference(op, x, *rest.parts[0][1]), Chain(rest.parts[1:]))


def transform(
    x: torch.Tensor, chain: Chain, out: torch.Tensor | None, dtype: torch.dtype | None, **options: Any
) -> torch.Tensor:
    """`sluice.transform` of a chain that needs references."""
    values = call("transform", x, torch.ops.sluice.transform, x, "", dtype=compute_dtype(x.dtype), **options)
    return finish("transform", evaluate("transform", values, chain), out, dtype or chain.result_dtype(x.dtype))


def finish(op: str, values: torch.Tensor, out: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Rounds to `dtype`, into `out` where it is given."""
    if out is None:
        result: torch.Tensor = call(op, values, torch.ops.sluice.transform, values, "", dtype=dtype)
        return result
    target = out_target(op, out)
    call(op, values, torch.ops.sluice.transform_out, values, "", dtype=dtype, out=target)
    return out_result(out, target)


def _call_reference(op: str, x: torch.Tensor, source: Any, *values: Any) -> torch.Tensor:
    assert isinstance(source, CppSource)
    if source.reference is None:
        raise ValueError(
            f"{op}: a cpp stage must be given a reference= to run on the CPU, got {source.name!r} without one"
        )
    named = {
        name: value.to(x.dtype) if isinstance(value, torch.Tensor) else value
        for name, value in zip(source.parameters, values, strict=True)
    }
    result = source.reference(x, **named)
    if not isinstance(result, torch.Tensor) or result.shape != x.shape:
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise ValueError(
            f"{op}: the reference of {source.name!r} must return a tensor of shape {tuple(x.shape)}, got {shape}"
        )
    return result.to(x.dtype)
