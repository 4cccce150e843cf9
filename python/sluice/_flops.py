"""FlopCounterMode's formulas for the raw ops: two operations per tap and result, as for torch's convolutions.

Pointwise work counts nothing there, so `transform` and the other ops' chains count nothing either.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

_Shape = tuple[int, ...]
_ops = torch.ops.sluice


@register_flop_formula([_ops.conv1d, _ops.conv1d_out])
def _conv1d(input: _Shape, weight: _Shape, *_: Any, out_shape: _Shape, out: _Shape = (), **__: Any) -> int:
    return 2 * math.prod(out_shape or out) * math.prod(weight[1:])


@register_flop_formula([_ops.conv_transpose1d, _ops.conv_transpose1d_out])
def _conv_transpose1d(input: _Shape, weight: _Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(input[:-2]) * input[-1] * math.prod(weight)


@register_flop_formula(
    [
        _ops.causal_conv1d,
        _ops.causal_conv1d_out,
        _ops.causal_conv1d_sequences,
        _ops.causal_conv1d_sequences_out,
    ]
)
def _causal_conv1d(x: _Shape, weight: _Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * weight[-1]


@register_flop_formula(
    [
        _ops.causal_conv1d_update,
        _ops.causal_conv1d_update_out,
        _ops.causal_conv1d_paged,
        _ops.causal_conv1d_paged_out,
    ]
)
def _with_states(x: _Shape, states: _Shape, weight: _Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * weight[-1]


@register_flop_formula([_ops.causal_conv1d_chunk, _ops.causal_conv1d_chunk_out])
def _chunk(x: _Shape, states: _Shape, weight: _Shape, *_: Any, out_shape: _Shape, out: _Shape = (), **__: Any) -> int:
    return 2 * math.prod(out_shape or out) * math.prod(weight[1:])


@register_flop_formula([_ops.causal_conv_transpose1d_chunk, _ops.causal_conv_transpose1d_chunk_out])
def _transposed_chunk(x: _Shape, states: _Shape, weight: _Shape, *_: Any, **__: Any) -> int:
    return 2 * x[0] * x[2] * math.prod(weight)


@register_flop_formula([_ops.filter2d, _ops.filter2d_out])
def _filter2d(
    image: _Shape,
    kernel: _Shape,
    *_: Any,
    out_shape: _Shape,
    out: _Shape = (),
    row_kernel: _Shape | None = None,
    **__: Any,
) -> int:
    taps = kernel[-2] * kernel[-1] if row_kernel is None else kernel[-1] + row_kernel[-1]
    return 2 * math.prod(out_shape or out) * taps
