"""Which inputs a result of a stream sees."""

from __future__ import annotations

import math

import torch

from .analysis import Analysis
from .layers import Convolution


def receptive_field(analysis: Analysis) -> float:
    """Input positions from the first to the last that a result sees, at most; infinity with a recurrent layer.

    It goes back through the graph with an interval of positions for each result of a shortest chunk.
    """
    result = analysis.result
    assert result is not None
    own = torch.arange(int(analysis.multiple * result.rate))
    nodes = list(analysis.graph.nodes)
    seen = {nodes[-1]: (own, own)}
    for node in reversed(nodes):
        if node not in seen:
            continue
        first, last = seen[node]
        if node.op == "placeholder":
            return int((last - first).max()) + 1
        if (layer := analysis.layers.get(node)) is not None:
            if not isinstance(layer, Convolution):
                return math.inf
            numbers = layer.numbers
            if layer.transposed:
                first, last = -((numbers.reach - 1 - first) // numbers.stride), last // numbers.stride
            else:
                first = first * numbers.stride - numbers.columns
                last = last * numbers.stride - numbers.columns + numbers.reach - 1
        for source in node.all_input_nodes:
            if analysis.has_time(source):
                before = seen.get(source, (first, last))
                seen[source] = torch.minimum(before[0], first), torch.maximum(before[1], last)
    return 0
