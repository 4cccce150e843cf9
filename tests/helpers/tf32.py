"""torch's TF32 setting without touching it, and tensors of a GPU that need not be there."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from sluice import _precision

# A setting, and the number of graphs that were compiled until then.
STEPS = (("tf32", 1), ("ieee", 2), ("none", 2), ("tf32", 2), ("ieee", 2))


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
