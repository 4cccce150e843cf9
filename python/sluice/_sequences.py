"""`causal_conv1d` of sequences: the raw ops with ids, packed sequences and a cache of states, and their fakes."""

from __future__ import annotations

from typing import Any

import torch

from ._apply import compute_dtype, given_options, needs_references, with_references
from ._apply import transform as apply_chain
from ._arguments import check_tensor
from ._autocast import register as register_autocast
from ._autocast import without_autocast
from ._autograd import check_out
from ._call import is_negated, out_result, out_target, run, with_its_memory
from ._fake import (
    check_cache,
    check_flags,
    check_result,
    check_sequences,
    check_states,
    empty_like_layout,
    fake_out,
    is_strided,
)
from ._skipped import skipped_sequences, skipped_tokens
from .chain import Chain

_OP = "causal_conv1d"


def of_sequences(
    x: torch.Tensor,
    others: tuple[Any, ...],
    options: dict[str, Any],
    before: Chain | None,
    behind: Chain | None,
    *,
    wants_states: bool,
    states_out: torch.Tensor | None,
    out: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The result and, if wanted, the final states.

    Args:
        x: (B, C, L).
        others: weight, bias, activation and initial states.
        options: keyword arguments of the raw op except chains, including tensors of indices.
        before: the chain `pre`.
        behind: the chain `post`.
        wants_states: whether final states are returned.
        states_out: memory for them.
        out: memory for the result.
    """
    goes_elsewhere = (before is not None or behind is not None) and has_own_stages(before, behind)
    if not goes_elsewhere and (out is not None or states_out is not None):
        allocates = x.is_nested if states_out is not None else wants_states
        goes_elsewhere = allocates or is_negated(out) or is_negated(states_out)
    if goes_elsewhere:
        check_call(
            "causal_conv1d_sequences", (x, *others), options, before, behind, out=out, final_states_out=states_out
        )
    x, before = _prepared(x, before, behind)
    if behind is not None and behind.has_cpp:
        return _of_sums(x, others, options, behind, wants_states=wants_states, states_out=states_out, out=out)
    options = {**options, **given_options(_OP, x, "auto", None, pre=before, post=behind)}
    if out is None and states_out is None:
        options["return_final_states"] = wants_states
        results = run(_OP, (x, *others), options, raw="causal_conv1d_sequences")
        return results[0], results[1] if wants_states else None
    result = empty_like_layout(x, x.shape, x.dtype) if out is None else out
    target = out_target(_OP, result)
    if not wants_states:
        run(_OP, (x, *others), {**options, "out": target}, raw="causal_conv1d_sequences_out")
        return out_result(result, target), None
    states = _new_states(x, others[0], options) if states_out is None else states_out
    states_target = out_target(_OP, states, "final_states_out")
    options |= {"out": target, "final_states_out": states_target}
    run(_OP, (x, *others), options, raw="causal_conv1d_sequences_out")
    return out_result(result, target), out_result(states, states_target)


def _of_sums(
    x: torch.Tensor,
    others: tuple[Any, ...],
    options: dict[str, Any],
    behind: Chain,
    *,
    wants_states: bool,
    states_out: torch.Tensor | None,
    out: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`of_sequences` of a checked call whose chain runs after the kernels.

    The states go to new memory of their dtype: the dtype of the sums would round them twice, and `states_out` must not
    change if the chain fails.
    """
    kept: torch.Tensor | None = None
    if wants_states:
        kept = _new_states(x, others[0], options) if states_out is None else torch.empty_like(states_out)
    wide = x.to(compute_dtype(x.dtype))
    with without_autocast(x.device.type):
        sums, _ = of_sequences(wide, others, options, None, None, wants_states=wants_states, states_out=kept, out=None)
    result = _apply_behind(x, sums, behind, options, None, out)
    if states_out is None or kept is None:
        return result, kept
    return result, states_out.copy_(kept)


def _new_states(x: torch.Tensor, weight: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """Memory for the final states of arguments that fit."""
    starts = options.get("cu_seqlens")
    sequences = x.shape[0] if starts is None else starts.shape[0] - 1
    return x.new_empty((sequences, x.shape[1], (weight.shape[1] - 1) * options.get("dilation", 1)))


def of_cache(
    x: torch.Tensor,
    state_cache: torch.Tensor,
    others: tuple[Any, ...],
    options: dict[str, Any],
    before: Chain | None,
    behind: Chain | None,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """The result; `state_cache` is changed in place. `others` are weight, bias and activation."""
    if is_negated(state_cache) or (out is not None and is_negated(out)) or has_own_stages(before, behind):
        check_call("causal_conv1d_paged", (x, state_cache, *others), options, before, behind, out=out)
    x, before = _prepared(x, before, behind)
    states = state_cache.resolve_neg() if is_negated(state_cache) else state_cache
    if behind is None or not behind.has_cpp:
        options = {**options, **given_options(_OP, x, "auto", None, pre=before, post=behind)}
        result = run(_OP, (x, states, *others), options, out, raw="causal_conv1d_paged")
    else:
        # If the chain fails, the states do not change.
        states = states.clone()
        arguments = x.to(compute_dtype(x.dtype)), states, *others
        with without_autocast(x.device.type):
            sums = run(_OP, arguments, options, raw="causal_conv1d_paged")
        result = _apply_behind(x, sums, behind, options, states.shape[0], out)
    if states is not state_cache:
        state_cache.copy_(states)
    return result


def has_own_stages(before: Chain | None, behind: Chain | None) -> bool:
    """Whether a chain has stages that these kernels cannot run."""
    return (before is not None and before.has_cpp) or (behind is not None and behind.has_cpp)


def check_call(
    name: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    before: Chain | None,
    behind: Chain | None,
    **written: torch.Tensor | None,
) -> None:
    """Raises what the raw op of that name refuses, before anything is allocated, computed or written.

    It is for calls that pass other tensors to the op than they were given: the op would refuse less, or with another
    message.
    """
    if torch.compiler.is_compiling():
        return
    x, *rest = arguments
    options = {**options, **given_options(_OP, x, "auto", None, pre=before, post=behind)}
    for argument, tensor in written.items():
        if tensor is not None:
            check_out(_OP, argument, tensor)
            options[argument] = with_its_memory(tensor)
    if name == "causal_conv1d_paged":
        rest[0] = with_its_memory(rest[0])
    run(_OP, (x, *rest), options, raw="_check_" + name)


def check_flat(x: torch.Tensor, out: torch.Tensor | None, before: Chain | None, behind: Chain | None) -> None:
    """Raises the raw op's errors about shapes for x (C, T), which the op gets as (1, C, T)."""
    shape = tuple(x.shape)
    if out is not None:
        check_tensor(_OP, "out", out)
        if is_strided(out) and out.shape != x.shape:
            raise ValueError(f"{_OP}: out must have shape {shape}, got {tuple(out.shape)}")
    for name, chain in (("pre", before), ("post", behind)):
        for k, operand in enumerate(() if chain is None else chain.operands):
            if is_strided(operand) and not _broadcasts(operand, x):
                rule = f"must broadcast to the result's shape {shape}"
                raise ValueError(f"{_OP}: {name} operand {k} {rule}, got {tuple(operand.shape)}")


def _broadcasts(operand: torch.Tensor, x: torch.Tensor) -> bool:
    sizes = zip(reversed(operand.shape), reversed(x.shape), strict=False)
    return operand.dim() <= x.dim() and all(extent == size or extent == 1 for extent, size in sizes)


def _prepared(x: torch.Tensor, before: Chain | None, behind: Chain | None) -> tuple[torch.Tensor, Chain | None]:
    """Runs `pre` before the kernels if they cannot run it, or would run it on another dtype than x's."""
    if before is not None and (before.has_cpp or (behind is not None and behind.has_cpp)):
        return apply_chain(x, before, dtype=x.dtype), None
    return x, before


def _apply_behind(
    x: torch.Tensor,
    sums: torch.Tensor,
    behind: Chain,
    options: dict[str, Any],
    slots: int | None,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """The chain on unrounded sums, and zeros for tokens without a sequence or slot."""
    if needs_references(sums, behind):
        result = with_references(_OP, _apply_ahead, sums, post=behind, out=out, dtype=x.dtype)
    else:
        result = apply_chain(sums, behind, out=out, dtype=x.dtype)
    ids, starts = options.get("seq_idx"), options.get("cu_seqlens")
    zeros = None if ids is None else ids < 0
    skipped: torch.Tensor | None = None
    if slots is not None:
        numbers = options.get("pad_slot_id", -1), options.get("null_slot_id")
        skipped = skipped_sequences(options.get("cache_indices"), slots, *numbers)
    if starts is not None:
        zeros = skipped_tokens(starts, x.shape[2], skipped)[None]
    elif skipped is not None:
        zeros = skipped[: x.shape[0], None] if zeros is None else zeros | skipped[: x.shape[0], None]
    return result if zeros is None else result.masked_fill_(zeros[:, None], 0)


def _apply_ahead(
    sums: torch.Tensor, *, pre: Any, post: Any, out: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """For `with_references`: the stages before the first `cpp` stage."""
    return apply_chain(sums, post, out=out, dtype=dtype)


@torch.library.register_fake("sluice::causal_conv1d_sequences")
def _fake_sequences(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    initial_states: torch.Tensor | None = None,
    *,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    dilation: int = 1,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
    return_final_states: bool = False,
) -> list[torch.Tensor]:
    chains = {"pre": (pre, pre_operands), "post": (post, post_operands)}
    sequences, history = check_sequences(_OP, x, weight, bias, activation, seq_idx, cu_seqlens, dilation, chains)
    check_states(_OP, "initial_states", initial_states, x, sequences, history)
    result = empty_like_layout(x, x.shape, x.dtype)
    return [result, x.new_empty((sequences, x.shape[1], history))] if return_final_states else [result]


torch.library.register_fake("sluice::causal_conv1d_sequences_out")(fake_out)


@torch.library.register_fake("sluice::causal_conv1d_paged")
def _fake_paged(
    x: torch.Tensor,
    state_cache: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    *,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    dilation: int = 1,
    pre: str = "",
    pre_operands: list[torch.Tensor] | None = None,
    post: str = "",
    post_operands: list[torch.Tensor] | None = None,
) -> torch.Tensor:
    chains = {"pre": (pre, pre_operands), "post": (post, post_operands)}
    sequences, history = check_sequences(_OP, x, weight, bias, activation, seq_idx, cu_seqlens, dilation, chains)
    least = f"(K - 1) * dilation = {history}"
    check_cache(_OP, "state_cache", x, state_cache, x.shape[1], (history, least), sequences, cache_indices)
    check_flags(_OP, has_initial_state, x, sequences)
    return empty_like_layout(x, x.shape, x.dtype)


@torch.library.register_fake("sluice::_check_causal_conv1d_sequences")
def _(
    x: torch.Tensor,
    *arguments: Any,
    out: torch.Tensor | None = None,
    final_states_out: torch.Tensor | None = None,
    **options: Any,
) -> None:
    states = _fake_sequences(x, *arguments, **options, return_final_states=True)[1]
    check_result(_OP, out, x)
    check_states(_OP, "final_states_out", final_states_out, x, states.shape[0], states.shape[2])


@torch.library.register_fake("sluice::_check_causal_conv1d_paged")
def _(x: torch.Tensor, *arguments: Any, out: torch.Tensor | None = None, **options: Any) -> None:
    _fake_paged(x, *arguments, **options)
    check_result(_OP, out, x)


torch.library.register_fake("sluice::causal_conv1d_paged_out")(fake_out)


register_autocast("causal_conv1d_sequences")
register_autocast("causal_conv1d_paged", behind=1)
