"""The definition of every op, in plain torch; the tests compare with it.

These functions are slow and allocate, and are exact in float64: call them with float64 tensors for a reference.
"""

from .causal import causal_conv1d, causal_conv1d_update
from .chunks import causal_conv_transpose1d, columns_before
from .convolution import conv1d, conv_transpose1d, filter2d
from .stages import STAGES, transform

__all__ = [
    "STAGES",
    "causal_conv1d",
    "causal_conv1d_update",
    "causal_conv_transpose1d",
    "columns_before",
    "conv1d",
    "conv_transpose1d",
    "filter2d",
    "transform",
]
