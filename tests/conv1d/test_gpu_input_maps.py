"""Dense conv1d of channels-last inputs, which a tensor map copies: their strides and sizes, and memory around them."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import NARROW_TYPES
from dense_problems import Problem
from marks import ON_TENSOR_CORES
from sluice import stages
from tf32 import assert_accurate

pytestmark = ON_TENSOR_CORES


def in_infinities(x: torch.Tensor) -> torch.Tensor:
    """The values channels-last, a whole word of infinite channels beside them, and infinite positions and samples."""
    batch, channels, length = x.shape
    around = x.new_full((batch + 2, length + 20, channels + 16), float("inf"))
    own = around[1:-1, 10:-10, 8:-8]
    own.copy_(x.transpose(1, 2))
    return own.transpose(1, 2)


def checked(x: torch.Tensor, problem: Problem, w: torch.Tensor, b: torch.Tensor | None) -> None:
    for pre in (None, stages.leaky_relu(0.1)):
        found = sluice.plan("conv1d", x, w, b, *problem.numbers, pre=pre)
        assert found.method == "dense" or x.dtype == torch.float32, found  # cuDNN may be faster in TF32
        result = sluice.conv1d(x, w, b, *problem.numbers, pre=pre)
        wanted = problem.expected(x, w, b, pre=pre)
        assert_accurate(result, wanted, lambda: torch.conv1d(x, w, b, *problem.numbers))


PROBLEMS = [
    Problem((3, 64, 700), 48, 3, 1, 1),
    Problem((2, 40, 900), 64, 7, 1, 9, 3),
    Problem((2, 128, 2000), 64, 5, 2, 4),
    Problem((1, 16, 3000), 32, 11, 3, 7, 2),
    Problem((2, 96, 2300), 72, 4, 7, 3),
    Problem((2, 64, 4000), 64, 9, 8, 20),
    Problem((2, 64, 4000), 64, 9, 9, 4),  # a tensor map has no stride of nine
    Problem((2, 128, 600), 128, 5, 1, 2, groups=2),
    Problem((2, 96, 600), 96, 5, 2, 2, groups=2),  # 48 channels of a group are no k-block
    Problem((1, 24, 400), 24, 33, 1, 40),
]


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_memory_around_the_input_is_not_summed(problem: Problem, dtype: torch.dtype) -> None:
    x, w, b = problem.make("cuda", dtype)
    checked(in_infinities(x), problem, w, b)


@pytest.mark.usefixtures("tf32_of_float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_strides_of_samples_and_positions(stride: int, dtype: torch.dtype) -> None:
    problem = Problem((4, 64, 500), 64, 5, stride, 2)
    x, w, b = problem.make("cuda", dtype)
    last = x.transpose(1, 2).contiguous()
    batch, length, channels = last.shape
    views = {
        "one sample of all": last[:1].expand(4, -1, -1),
        "one position of all": last[:, :1].expand(-1, 500, -1),
        "overlapping windows": last.flatten().as_strided((4, 500, 64), (channels, channels, 1)),
        "every second position": last.flatten(0, 1)[: batch * length].view(4, 250, 2, 64)[:, :, 1],
        "a sample at an odd distance": last.flatten()[: length * channels].as_strided(
            (1, length, 64), (7, channels, 1)
        ),
    }
    for name, view in views.items():
        own = view.transpose(1, 2)
        assert own.stride(1) == 1, name
        checked(own, Problem(tuple(own.shape), 64, 5, stride, 2), w, b)


def test_empty_and_shortest_inputs() -> None:
    w = torch.randn(64, 64, 3, device="cuda", dtype=torch.float16)
    for shape in ((2, 64, 1), (1, 64, 20), (0, 64, 20)):
        batch, channels, length = shape
        last = torch.randn(batch, length, channels, device="cuda", dtype=torch.float16).transpose(1, 2)
        result = sluice.conv1d(last, w, padding=40)
        wanted = torch.conv1d(last.double(), w.double(), padding=40)
        assert result.shape == wanted.shape
        torch.testing.assert_close(result.double(), wanted, rtol=1e-2, atol=1e-1)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_under_sanitizers(dtype: torch.dtype) -> None:
    """Half types are multiplied as they are copied; float32, split in two parts, is changed in place."""
    for problem in PROBLEMS[:5]:
        x, w, b = problem.make("cuda", dtype)
        own = in_infinities(x)
        assert sluice.plan("conv1d", own, w, b, *problem.numbers).method == "dense"
        assert bool(sluice.conv1d(own, w, b, *problem.numbers).isfinite().all())
    torch.cuda.synchronize()
