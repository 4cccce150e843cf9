"""The ops that `plan`, `prepare` and `python -m sluice plan` know by name: the one list of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .causal_conv1d import causal_conv1d
from .causal_conv_transpose1d import causal_conv_transpose1d
from .conv1d import conv1d
from .conv_transpose1d import conv_transpose1d
from .filter2d import filter2d
from .transform import transform


def _none(channels: int, taps: int, channels_out: int | None) -> tuple[int, ...] | None:
    return None


@dataclasses.dataclass(frozen=True)
class Op:
    """An op.

    Attributes:
        function: the public op, whose raw ops have `_plan_<raw op>` and `_prepare_<raw op>`.
        chain: the argument that `prepare` passes its chain as.
        takes_list: whether that may be a list of chains.
        weight: the shape of a weight for `python -m sluice plan`, of the input's channels, the taps and the output
            channels that were given; None for an op without weights.
        channel: the dimension of an input's channels, from the end.
        has_groups: whether a depthwise call says so by its groups.
    """

    function: Callable[..., Any]
    chain: str = "post"
    takes_list: bool = False
    weight: Callable[[int, int, int | None], tuple[int, ...] | None] = _none
    channel: int = -2
    has_groups: bool = False

    @property
    def name(self) -> str:
        """The name that users call it by."""
        return self.function.__name__


OPS: dict[str, Op] = {
    op.name: op
    for op in (
        Op(transform, chain="chain", takes_list=True),
        Op(conv1d, weight=lambda c, k, out: (c, 1, k) if out is None else (out, c, k), has_groups=True),
        Op(conv_transpose1d, weight=lambda c, k, out: (c, out or 1, k), has_groups=True),
        Op(causal_conv1d, weight=lambda c, k, out: (c, k)),
        Op(causal_conv_transpose1d, weight=lambda c, k, out: (c, out or 1, k), has_groups=True),
        Op(filter2d, weight=lambda c, k, out: (k, k), channel=-3),
    )
}


def find(caller: str, name: str) -> Op:
    """The op of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in OPS:
        raise ValueError(f"{caller}: op must be one of {', '.join(OPS)}, got {name!r}")
    return OPS[name]
