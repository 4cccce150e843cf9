"""Calls in TF32: torch's setting switched on, and what is asked of float32 sums with factors rounded to TF32."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from common import TOLERANCE, relative_error

TF32_TOLERANCE = 1e-3
IS_TF32 = 1e-5  # a relative error above it shows that torch rounded the factors too
MOST_OF_TORCHS_ERROR = 1.2


@contextlib.contextmanager
def tf32_allowed(allowed: bool = True) -> Iterator[None]:
    """The setting, which tests/conftest.py switches off for all other tests."""
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = False


def tolerance_in_tf32(dtype: torch.dtype) -> float:
    return TF32_TOLERANCE if dtype == torch.float32 else TOLERANCE[dtype]


def assert_accurate(result: torch.Tensor, wanted: torch.Tensor, torchs_result: Callable[[], torch.Tensor]) -> None:
    """By the dtype of the result. float32 in TF32 is compared with torch's own result too, if that is in TF32."""
    error = relative_error(result, wanted)
    assert error <= tolerance_in_tf32(result.dtype), f"relative L2 error {error:.3g} for {result.dtype}"
    if result.dtype == torch.float32:
        torchs = relative_error(torchs_result(), wanted)
        assert torchs <= IS_TF32 or error <= MOST_OF_TORCHS_ERROR * torchs, f"errors {error:.3g}, torch's {torchs:.3g}"
