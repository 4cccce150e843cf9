"""Functions whose calls are known to do nothing but return a result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..causal_conv1d import causal_conv1d
from ..chain import Chain
from ..conv1d import conv1d
from ..conv_transpose1d import conv_transpose1d
from ..filter2d import filter2d
from ..transform import transform
from .arguments import identity

_OPS = (transform, conv1d, conv_transpose1d, causal_conv1d, filter2d)
# With these an op does more than write its result.
_KEYWORDS_WITH_EFFECTS = ("out", "states", "cache", "residual")


def is_known(fn: Callable[..., Any]) -> bool:
    """Whether a call of `fn` reads its arguments and returns a result, and does nothing else."""
    if fn is identity or isinstance(fn, Chain):
        return True
    if not isinstance(fn, functools.partial) or fn.func not in _OPS:
        return False
    return not any(word in keyword for keyword in fn.keywords for word in _KEYWORDS_WITH_EFFECTS)
