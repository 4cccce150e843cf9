"""torch's own samples of the convolutions, in every dtype that it has: equal results, and equal refusals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, ROOT, TOLERANCE, relative_error

Samples = dict[Any, list[tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]]]

OPS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "conv1d": (sluice.conv1d, F.conv1d),
    "conv_transpose1d": (sluice.conv_transpose1d, F.conv_transpose1d),
}


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Samples]:
    path = tmp_path_factory.mktemp("samples") / "samples.pt"
    subprocess.run([sys.executable, str(ROOT / "tests/helpers/torch_samples.py"), str(path), *OPS], check=True)
    return torch.load(path, weights_only=False)


def moved(value: Any, device: str, dtype: torch.dtype) -> Any:
    """Tensors to a device and a dtype, wherever they are."""
    if isinstance(value, (tuple, list)):
        return type(value)(moved(one, device, dtype) for one in value)
    return value.to(device, dtype) if isinstance(value, torch.Tensor) else value


def assert_equal(result: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor) -> None:
    """torch's shape and dtype, and values as near to float64's as torch's are, or as the dtype allows."""
    assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
    allowed = max(TOLERANCE[result.dtype], relative_error(wanted, exact))
    assert relative_error(result, exact) <= allowed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_results(samples: dict[str, Samples], device: str, op: str, dtype: torch.dtype) -> None:
    ours, theirs = OPS[op]
    assert len(samples[op][dtype]) >= 8
    for x, args, options in samples[op][dtype]:
        x, args = moved((x, args), device, dtype)
        wanted = theirs(x, *args, **options)
        exact = theirs(x.double(), *moved(args, device, torch.float64), **options)
        assert_equal(ours(x, *args, **options), wanted, exact)
        out = torch.full_like(wanted, float("nan"))
        assert ours(x, *args, **options, out=out) is out
        assert_equal(out, wanted, exact)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_dtypes_that_are_refused(samples: dict[str, Samples], device: str, op: str, dtype: torch.dtype) -> None:
    assert samples[op][dtype]
    for x, args, options in samples[op][dtype]:
        x, args = moved((x, args), device, dtype)
        with pytest.raises(
            TypeError, match=f"^{op}: input must have dtype float32, float16, bfloat16 or float64, got "
        ):
            OPS[op][0](x, *args, **options)


def test_conv1d_refuses_what_torch_refuses(samples: dict[str, Samples], device: str) -> None:
    assert len(samples["conv1d"]["wrong"]) >= 8
    for x, args, options in samples["conv1d"]["wrong"]:
        x, args = x.to(device), tuple(one.to(device) if isinstance(one, torch.Tensor) else one for one in args)
        with pytest.raises(RuntimeError):
            F.conv1d(x, *args, **options)
        with pytest.raises((TypeError, ValueError), match="^conv1d: "):
            sluice.conv1d(x, *args, **options)


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
        if weight[1] > 0:  # without output channels torch 2.11 gives an empty result, later versions refuse
            with pytest.raises((RuntimeError, TypeError)):
                F.conv_transpose1d(x, w, b, **numbers)
        with pytest.raises((TypeError, ValueError), match="^conv_transpose1d: "):
            sluice.conv_transpose1d(x, w, b, **numbers)
