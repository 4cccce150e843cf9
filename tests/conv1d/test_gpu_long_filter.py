"""The long filters' kernel on rows: few positions, and thousands of taps."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import HALF_TYPES, assert_close, contiguous, ends_of_words, offset_by_one
from marks import ON_GPU

pytestmark = ON_GPU

LAYOUTS = [contiguous, offset_by_one, ends_of_words]


def long_filter(x, w, b=None, padding: int = 0, dilation: int = 1, **options) -> torch.Tensor:
    """By the kernel of that name, and no other."""
    groups = x.shape[1]
    asked = {name: value for name, value in options.items() if name != "out"}
    assert sluice.plan("conv1d", x, w, b, 1, padding, dilation, groups, **asked).method == "long_filter"
    return sluice.conv1d(x, w, b, 1, padding, dilation, groups, **options)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize(("length", "taps"), [(128, 5), (130, 8), (131, 31), (128, 64), (129, 50), (200, 100)])
def test_short_rows(length: int, taps: int, dtype: torch.dtype) -> None:
    for channels in (1, 5, 64):
        for layout in LAYOUTS:
            x = layout(torch.randn(33, channels, length, device="cuda", dtype=dtype))
            w = torch.randn(channels, 1, taps, device="cuda", dtype=dtype) / taps**0.5
            for padding in (taps - 1, taps // 2):
                wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=padding, groups=channels)
                assert_close(long_filter(x, w, None, padding), wanted)


def test_thousands_of_taps() -> None:
    for taps in (1000, 2048, 4096):
        x = torch.randn(2, 3, 9001, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(3, 1, taps, device="cuda", dtype=torch.bfloat16) / taps**0.5
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=taps - 1, groups=3)
        assert_close(long_filter(x, w, None, taps - 1), wanted)
