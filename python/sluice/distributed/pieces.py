"""A rank's piece of a convolution: the halo travels while the interior is computed, then the edges follow.

    current stream   pack | interior ........... | edges
    communication         | halo ..... |
                          start                  wait

All launches write into one output, so nothing is concatenated but the few inputs of an edge. They are sent after `pre`,
which rounds to the input's dtype: a chain's tensors stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from .._fake import is_channels_last
from .exchange import Exchange
from .halo import Edge, Positions, Share


class Convolution(Protocol):
    """How a convolution without padding is launched on a part of a piece."""

    def before(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        """`pre` of these positions of the piece, of x's dtype."""

    def launch(self, x: torch.Tensor, out: torch.Tensor, outputs: Positions, positions: Positions | None) -> None:
        """Writes outputs of the windows of x; `pre` has run unless x's positions are given."""


def convolve(
    x: torch.Tensor, out: torch.Tensor, share: Share, group: dist.ProcessGroup | None, convolution: Convolution
) -> None:
    """Computes a rank's outputs.

    Args:
        x: (B, C, n), its piece.
        out: (B, C_out, outputs of the rank), written.
        share: the rank's part.
        group: the ranks.
        convolution: launches.
    """

    def launch(values: torch.Tensor, outputs: Positions, positions: Positions | None) -> None:
        target = out[..., outputs - share.outputs.start]
        if target.numel() > 0:
            convolution.launch(values, target, outputs, positions)

    def values_at(positions: Positions) -> torch.Tensor:
        return x[..., positions - share.piece.start]

    exchange = Exchange(group)
    for message in share.sends:
        exchange.send(message.peer, convolution.before(values_at(message.positions), message.positions))
    for message in share.receives:
        exchange.receive(message.peer, message.positions, x)
    exchange.start()
    if share.interior:
        read = share.windows.inputs(share.interior)
        launch(values_at(read), share.interior, read)
    exchange.wait()
    for edge in share.edges:
        parts = list(exchange.received)
        if own := edge.inputs & share.piece:
            parts.append((own, convolution.before(values_at(own), own)))
        launch(_inputs(edge, parts, share.length, x), edge.outputs, None)


def _inputs(
    edge: Edge, parts: Sequence[tuple[Positions, torch.Tensor]], length: int, like: torch.Tensor
) -> torch.Tensor:
    """The inputs of an edge: zeros outside of the sequence, and the parts in the order of their positions."""
    reads = edge.inputs
    tensors = [like.new_zeros((*like.shape[:-1], (reads & Positions(reads.start, 0)).count))]
    for positions, tensor in sorted(parts, key=lambda part: part[0].start):
        if inside := reads & positions:
            tensors.append(tensor[..., inside - positions.start])
    tensors.append(like.new_zeros((*like.shape[:-1], (reads & Positions(length, reads.stop)).count)))
    return joined([tensor for tensor in tensors if tensor.shape[-1] > 0], like)


def joined(tensors: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The tensors (B, C, positions) one after another, channels-last if `like` is."""
    if len(tensors) == 1:
        return tensors[0]
    if is_channels_last(like):
        return torch.cat([tensor.mT for tensor in tensors], dim=1).mT
    return torch.cat(list(tensors), dim=2)
