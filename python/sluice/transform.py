"""`transform`: a chain over every element of a tensor, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch

from . import _apply
from ._apply import given_options, needs_references, operand_list
from ._arguments import check_tensor
from ._autograd import check_out, require_forward_only
from ._call import out_result, out_target, run
from ._fake import chain_dtype, check_floating, check_schedule, empty_like_dense, fake_out
from ._library import most_operands
from ._modes import current_mode
from .chain import Chain, as_chain, count_operands, encode_together, given_chain

# Not every sequence of texts: a text is one itself.
Chains = Sequence[Chain] | list[str] | list[Chain | str] | tuple[Chain | str, ...]

_MOST_OPERANDS = most_operands()


@overload
def transform(
    x: torch.Tensor,
    chain: Chain | str,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor: ...
@overload
def transform(
    x: torch.Tensor,
    chain: Chains,
    *,
    out: Sequence[torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> list[torch.Tensor]: ...
def transform(
    x: torch.Tensor,
    chain: Chain | str | Chains,
    *,
    out: Any = None,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor | list[torch.Tensor]:
    """`chain(x)`: the chain's stages one after another on every element, in one pass over memory.

    The chain is evaluated in float32 (float64 for float64) and rounded once, at its end.

    Args:
        x: any shape, any strides; float32, float16, bfloat16 or float64.
        chain: the stages; tensor operands broadcast to x's shape. A chain without tensors may be text:
            "scale(2)|gelu". A list of chains gives a list of results; linked, one pass over x computes all, if
            they have at most 24 stages and 12 tensors together, including all results but one.
        out: written and returned as that object: x's shape, the result's dtype, any strides. It may be x itself
            or an operand itself, but must not overlap them otherwise. For a list of chains, a list; only its
            last tensor may be x or an operand.
        dtype: the result's dtype; by default that of a last `cast`, else x's.
        schedule: "auto", or one of "direct", "sync", "cooperative", "barrier", "single_stage", "two_stage",
            "multi_stage", "producer_consumer", "thread_scope", "primitives" or "bulk" (docs/pipeline.md).
        depth: stages in flight of a schedule with a ring, 1 to 8; None picks one.

    Returns:
        A tensor of x's shape. It keeps x's strides if x is non-overlapping and dense, else it is contiguous.

    Raises:
        TypeError: an unsupported dtype, or an argument that is no tensor or chain.
        ValueError: an operand that does not broadcast to x's shape or is on another device, an `out` that does
            not fit, an unknown schedule, a depth out of range.
        RuntimeError: grad mode is on and an input or `out` requires grad, or one is a dual tensor of forward mode.

    Example:
        >>> import torch, sluice
        >>> from sluice import stages
        >>> x = torch.tensor([-1.0, 0.0, 2.0])
        >>> sluice.transform(x, stages.scale(2.0) | stages.relu())
        tensor([0., 0., 4.])
    """
    if isinstance(chain, (Chain, str)):
        one = chain if isinstance(chain, Chain) else as_chain("transform", "chain", chain)
        return _apply.transform(x, one, out=out, dtype=dtype, schedule=schedule, depth=depth)
    check_tensor("transform", "x", x)
    if not isinstance(chain, (list, tuple)):
        raise TypeError(f"transform: chain must be a chain or a list of chains, got {type(chain).__name__}")
    chains = [given_chain("transform", "a chain of a list", one, x.dim()) for one in chain]
    return _transform_list(x, chains, out, dtype, schedule, depth)


def _transform_list(
    x: torch.Tensor,
    chains: Sequence[Chain],
    outs: Sequence[torch.Tensor] | None,
    dtype: torch.dtype | None,
    schedule: str,
    depth: int | None,
) -> list[torch.Tensor]:
    if outs is not None and not isinstance(outs, (list, tuple)):
        raise TypeError(f"transform: out must be a list of tensors for a list of chains, got {type(outs).__name__}")
    if outs is not None and len(outs) != len(chains):
        raise ValueError(f"transform: out must have one tensor for each of the {len(chains)} chains, got {len(outs)}")
    if len(chains) == 0 or needs_references(x, *chains):
        return [
            _apply.transform(
                x, chain, out=None if outs is None else outs[i], dtype=dtype, schedule=schedule, depth=depth
            )
            for i, chain in enumerate(chains)
        ]
    return _transform_together(x, chains, outs, dtype, schedule, depth)


def _transform_together(
    x: torch.Tensor,
    chains: Sequence[Chain],
    outs: Sequence[torch.Tensor] | None,
    dtype: torch.dtype | None,
    schedule: str,
    depth: int | None,
) -> list[torch.Tensor]:
    """One call of the op, or as many as the chains' tensors need."""
    first = _fitting(chains)
    if first < len(chains):
        if outs is not None:
            for out in outs:
                check_out("transform", "out", out)
        # All results before any write: a later call may read an out.
        results = [
            *_transform_together(x, chains[:first], None, dtype, schedule, depth),
            *_transform_together(x, chains[first:], None, dtype, schedule, depth),
        ]
        if outs is None or current_mode.action:
            return results
        return [_apply.transform(one, Chain(), out=out) for one, out in zip(results, outs, strict=True)]
    # Operands are numbered across all chains.
    texts, operands = encode_together([chain.stages for chain in chains])
    require_forward_only("transform", (x, *operands))
    options = given_options("transform", x, schedule, depth, dtype)
    if operands:
        options["operands"] = operand_list("transform", x, operands)
    if outs is None:
        made: Any = run("transform", (x, texts), options, raw="transform_many")
        return [x] * len(chains) if current_mode.action else list(made)
    targets = [out_target("transform", out) for out in outs]
    run("transform", (x, texts), {**options, "out": targets}, raw="transform_many_out")
    return [out_result(out, target) for out, target in zip(outs, targets, strict=True)]


def _fitting(chains: Sequence[Chain]) -> int:
    """How many of the chains one call takes: at least one, which the op refuses where it has too many tensors."""
    fitting = len(chains)
    while fitting > 1 and count_operands(list(chains[:fitting])) > _MOST_OPERANDS:
        fitting -= 1
    return fitting


def _check_call(input: torch.Tensor, dtype: torch.dtype | None, schedule: str, depth: int | None) -> None:
    check_floating("transform", "input", input.dtype)
    check_schedule("transform", schedule, depth)
    check_floating("transform", "dtype", dtype or input.dtype)


def _empty_result(
    input: torch.Tensor, chain: str, operands: list[torch.Tensor] | None, dtype: torch.dtype | None
) -> torch.Tensor:
    last = chain_dtype("transform", "chain", chain, operands, input, input.shape, input.dtype)
    return empty_like_dense(input, dtype or last)


@torch.library.register_fake("sluice::transform")
def _(
    input: torch.Tensor,
    chain: str,
    operands: list[torch.Tensor] | None = None,
    *,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    _check_call(input, dtype, schedule, depth)
    return _empty_result(input, chain, operands, dtype)


@torch.library.register_fake("sluice::transform_many")
def _(
    input: torch.Tensor,
    chains: list[str],
    operands: list[torch.Tensor] | None = None,
    *,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> list[torch.Tensor]:
    _check_call(input, dtype, schedule, depth)
    return [_empty_result(input, chain, operands, dtype) for chain in chains]


torch.library.register_fake("sluice::transform_many_out")(fake_out)


torch.library.register_fake("sluice::transform_out")(fake_out)
