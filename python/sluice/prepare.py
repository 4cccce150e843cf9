"""`prepare`: linking before the first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._modes import call_mode
from ._registry import find
from .chain import Chain, as_chain


def prepare(
    chain: Chain | str | Sequence[Chain | str], x: torch.Tensor, *args: Any, op: str = "transform", **kwargs: Any
) -> str:
    """Links the chain into the kernel that a call would run, without running it.

    Use it in servers that must not stall at a first call, and before a CUDA graph's capture, in which nothing can be
    linked. Sizes, strides and numbers are kernel arguments, so one preparation serves all calls with the same chain,
    dtypes and layout.

    Args:
        chain: `transform`'s chain or list of chains; the other ops' `post`.
        x: the op's input; only its shape, strides, dtype and device count.
        *args: the op's arguments after its input (for `transform`, after its chain).
        op: "transform", "conv1d", "conv_transpose1d", "causal_conv1d", "causal_conv_transpose1d" or "filter2d".
        **kwargs: the op's keyword arguments.

    Returns:
        An empty string if the call will run linked; else the reason why not, as a sentence.

    Raises:
        TypeError: `chain` is no chain, and for `transform` no list of them either.
        ValueError: an unknown op, arguments that the op refuses, or a `cpp` stage that does not compile.

    Example:
        >>> import torch, sluice
        >>> from sluice import stages
        >>> sluice.prepare(stages.silu(), torch.zeros(4))
        'the CPU needs no linking'
    """
    called = find("prepare", op)
    if not called.takes_list:
        chain = as_chain("prepare", "chain", chain)  # type: ignore[arg-type]
    with call_mode("prepare") as reasons:
        called.function(x, *args, **{called.chain: chain}, **kwargs)
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
