"""TF32: torch's setting switched on, or only pretended; what is asked of sums whose factors are rounded to TF32."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from common import TOLERANCE, relative_error
from sluice import _precision

TF32_TOLERANCE = 1e-3
IS_TF32 = 1e-5  # a relative error above it shows that torch rounded the factors too
MOST_OF_TORCHS_ERROR = 1.2
# A setting, and the number of graphs that were compiled until then.
STEPS = (("tf32", 1), ("ieee", 2), ("none", 2), ("tf32", 2), ("ieee", 2))


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


def assert_no_element_is_worse(result: torch.Tensor, wanted: torch.Tensor, torchs: torch.Tensor) -> None:
    """The largest error of an element is at most twice torch's largest, plus a unit of the largest result."""
    largest, others = ((one.double() - wanted).abs().max() for one in (result, torchs))
    rounding = torch.finfo(torch.float32).eps * wanted.abs().max()
    assert largest <= 2 * others + rounding, f"largest error {largest:.3g}, torch's {others:.3g}"


class Setting:
    """What torch's getter returns."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def put(self, precision: str) -> None:
        self._patch.setattr(_precision, "_precision", lambda backend, op: precision)


def fakes(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str = "cuda") -> list[FakeTensor]:
    """Tensors of one mode."""
    with FakeTensorMode():
        return [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]  # type: ignore[misc]


def input_and_weight(dtype: torch.dtype = torch.float32, device: str = "cuda") -> list[FakeTensor]:
    """Tensors of a dense convolution, transposed or not."""
    return fakes((2, 4, 30), (4, 4, 3), dtype=dtype, device=device)
