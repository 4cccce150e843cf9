"""Shared by all tests: dtypes with their tolerances, layouts, and how a result is compared."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sluice
from sluice import bench

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
HALF_TYPES = [torch.float16, torch.bfloat16]
NARROW_TYPES = [torch.float32, *HALF_TYPES]  # many kernels have no float64
NAN = float("nan")
Layout = Callable[[torch.Tensor], torch.Tensor]
Given = dict[str, Any]  # arguments by name
SCHEDULES = list(bench.SCHEDULES)
FIXED_DEPTH = {"direct": 1, "single_stage": 1, "two_stage": 2}
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float64: 1e-12}


def contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous()


def permuted(x: torch.Tensor) -> torch.Tensor:
    """Dense, but with the last two dimensions swapped in memory: channels-last for (B, C, L)."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() > 1 else x.contiguous()


def sliced(x: torch.Tensor) -> torch.Tensor:
    """Every third element of a wider tensor that starts at an odd offset."""
    wide = x.new_zeros((*x.shape[:-1], x.shape[-1] * 3 + 1))
    view = wide[..., 1::3]
    view.copy_(x)
    return view


def offset_by_one(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, but one element past an aligned address."""
    flat = x.new_empty(x.numel() + 1)
    view = flat[1:].view(x.shape)
    view.copy_(x)
    return view


def ends_of_words(x: torch.Tensor) -> torch.Tensor:
    """Unaligned rows, each at another offset: a slice of a wider tensor, with NaN around it."""
    wide = x.new_full((x.shape[0], x.shape[1] + 3, x.shape[2] + 5), float("nan"))
    part = wide[:, 2 : 2 + x.shape[1], 3 : 3 + x.shape[2]]
    part.copy_(x)
    return part


def parts_of_positions(x: torch.Tensor) -> torch.Tensor:
    """Channels-last, a slice of more channels: positions are unaligned, each at another offset."""
    wide = x.new_full((x.shape[0], x.shape[2] + 2, x.shape[1] + 3), float("nan"))
    part = wide[:, 1:-1, 1 : 1 + x.shape[1]].mT
    part.copy_(x)
    return part


LAYOUTS: list[Layout] = [contiguous, permuted, sliced, offset_by_one]


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """The relative L2 error; NaN and infinity must be at the same positions."""
    result, expected = result.detach().cpu().double(), expected.detach().cpu().double()
    finite = torch.isfinite(expected)
    torch.testing.assert_close(torch.where(finite, 0.0, result), torch.where(finite, 0.0, expected), equal_nan=True)
    difference = torch.where(finite, result - expected, 0.0).norm()
    return float(difference / torch.where(finite, expected, 0.0).norm().clamp_min(1e-30))


def error_of_sums(
    result: torch.Tensor, expected: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *numbers: object
) -> float:
    """`relative_error` of F.conv1d(x, w, bias, *numbers), where the few sums of a small result may all cancel.

    The error is relative to the results' norm, or to what it is on average for terms of that size and any signs.
    """
    usual = torch.nn.functional.conv1d(x.double().square(), w.double().square(), None, *numbers).sum().sqrt()
    assert result.isfinite().all()
    return float((result.double() - expected).norm() / torch.maximum(expected.norm(), usual).clamp_min(1e-30))


def assert_close(result: torch.Tensor, expected: torch.Tensor, *, factor: float = 1.0) -> None:
    """`result` against a float64 `expected`, by the tolerance of the result's dtype."""
    assert result.shape == expected.shape
    error = relative_error(result, expected)
    assert error <= factor * TOLERANCE[result.dtype], f"relative L2 error {error:.3g} for {result.dtype}"


def poisoned_like(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """An output full of NaN, so that an unwritten element is detected."""
    return torch.full_like(x, float("nan"), dtype=dtype or x.dtype)


def poisoned(x: torch.Tensor, shape: tuple[int, ...], layout: Layout = contiguous) -> torch.Tensor:
    """The same with another shape, in a layout."""
    return layout(x.new_empty(shape)).fill_(NAN)


def double_chain(chain: sluice.Chain) -> sluice.Chain:
    """The chain with its operands in float64."""
    scaled = tuple(
        (name, tuple(v.double() if isinstance(v, torch.Tensor) else v for v in values))
        for name, values in chain._stages
    )
    return sluice.Chain(scaled)


def in_float64(reference: Callable[..., torch.Tensor], x, w, b=None, *args, pre=None, post=None, **options):
    """A convolution's reference in float64, with `pre` rounded to the input's dtype as the op rounds it."""
    x = sluice.reference.transform(x, pre) if pre is not None else x
    chain = None if post is None else double_chain(post)
    bias = None if b is None else b.double()
    return reference(x.double(), w.double(), bias, *args, post=chain, dtype=torch.float64, **options)


def memory_in_use() -> int:
    """Bytes allocated on the GPU, without garbage of other tests, which a collection would free meanwhile."""
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def load_packaged(path: str, device: str) -> Callable[..., Any]:
    """The model that AOTInductor packaged; skips where torch cannot load its own package."""
    alone = [sys.executable, "-c", f"import torch, sluice; torch._inductor.aoti_load_package({path!r})"]
    if device != "cpu" and subprocess.run(alone, capture_output=True).returncode != 0:
        pytest.skip("torch by itself cannot load what it has compiled")
    return torch._inductor.aoti_load_package(path)
