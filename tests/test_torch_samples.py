"""torch's own samples of the convolutions, in every dtype that it has: equal results, and equal refusals."""

from __future__ import annotations

import functools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, TOLERANCE, relative_error

OPS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "conv1d": (sluice.conv1d, F.conv1d),
    "conv_transpose1d": (sluice.conv_transpose1d, F.conv_transpose1d),
}
OTHER_DTYPES = [torch.int64, torch.complex64]


@functools.cache
def samples_of(op: str) -> Any:
    """torch's OpInfo. Its module wants expecttest, of which no sample needs anything."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ImportError:
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
            sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return next(info for info in op_db if info.name == f"nn.functional.{op}")


def outcome(function: Callable[..., torch.Tensor], sample: Any, **options: Any) -> torch.Tensor | Exception:
    try:
        return function(sample.input, *sample.args, **sample.kwargs, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        return error


def assert_equal(result: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor) -> None:
    """torch's shape and dtype, and values as near to float64's as torch's are, or as the dtype allows."""
    assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
    allowed = max(TOLERANCE[result.dtype], relative_error(wanted, exact))
    assert relative_error(result, exact) <= allowed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_results(device: str, op: str, dtype: torch.dtype) -> None:
    ours, theirs = OPS[op]
    count = 0
    for sample in samples_of(op).sample_inputs(device, dtype):
        wanted = theirs(sample.input, *sample.args, **sample.kwargs)
        double = sample.transform(lambda value: value.double() if isinstance(value, torch.Tensor) else value)
        exact = theirs(double.input, *double.args, **double.kwargs)
        assert_equal(ours(sample.input, *sample.args, **sample.kwargs), wanted, exact)
        out = torch.full_like(wanted, float("nan"))
        assert ours(sample.input, *sample.args, **sample.kwargs, out=out) is out
        assert_equal(out, wanted, exact)
        count += 1
    assert count >= 8


@pytest.mark.parametrize("dtype", OTHER_DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_dtypes_that_are_refused(op: str, dtype: torch.dtype) -> None:
    for sample in samples_of(op).sample_inputs("cpu", dtype):
        error = outcome(OPS[op][0], sample)
        assert isinstance(error, TypeError)
        assert str(error).startswith(f"{op}: input must have dtype float32, float16, bfloat16 or float64, got ")


@pytest.mark.parametrize("op", OPS)
def test_refusals(device: str, op: str) -> None:
    info = samples_of(op)
    if info.error_inputs_func is None:
        pytest.skip("torch has no wrong samples of it")
    count = 0
    for wrong in info.error_inputs(device):
        error = outcome(OPS[op][0], wrong.sample_input)
        assert isinstance(error, (TypeError, ValueError)), wrong.sample_input
        assert str(error).startswith(f"{op}: ")
        count += 1
    assert count >= 8


def wrong_numbers() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None, dict[str, Any]]]:
    """The shapes of input, weight and bias, and numbers, as torch's wrong samples of conv1d have them."""
    x, w = (1, 2, 4), (2, 3, 2)
    yield (1, 3, 4), w, None, {}  # other channels than the weight's
    yield x, (2, 3), None, {}
    yield (4,), w, None, {}
    yield (1, 1, 2, 4), w, None, {}
    yield x, w, (2,), {}
    yield x, w, (1, 3), {}
    for name, value in (
        ("stride", -1), ("stride", 0), ("padding", -1), ("output_padding", -1), ("dilation", 0), ("dilation", -1),
        ("groups", 0), ("groups", -1), ("groups", 3), ("stride", (1, 1)), ("padding", (1, 1)), ("dilation", (1, 1)),
        ("output_padding", (0, 0)), ("output_padding", 1), ("padding", 3), ("padding", "same"), ("stride", 1.5),
    ):  # fmt: skip
        yield x, w, None, {name: value}
    yield x, w, None, {"stride": 2, "output_padding": 2}
    yield x, w, None, {"stride": 2, "dilation": 3, "output_padding": 3}
    yield (1, 2, 0), w, None, {}
    yield (1, 0, 4), (0, 3, 2), None, {}
    yield x, (2, 0, 2), None, {}
    yield x, (2, 3, 0), None, {}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conv_transpose1d_refuses_what_torch_refuses(device: str, dtype: torch.dtype) -> None:
    for shape, weight, bias, numbers in wrong_numbers():
        x, w = torch.randn(shape, device=device).to(dtype), torch.randn(weight, device=device).to(dtype)
        b = None if bias is None else torch.randn(bias, device=device).to(dtype)
        with pytest.raises((RuntimeError, TypeError)):
            F.conv_transpose1d(x, w, b, **numbers)
        with pytest.raises((TypeError, ValueError), match="^conv_transpose1d: "):
            sluice.conv_transpose1d(x, w, b, **numbers)
