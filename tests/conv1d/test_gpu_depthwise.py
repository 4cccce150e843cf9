"""The depthwise kernels on a GPU: histories, several outputs of a channel, and every way to share a row."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import TOLERANCE, relative_error
from gpu_tensors import placed
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU


def test_one_filter_for_several_outputs_and_a_history() -> None:
    for taps in (4, 9, 65):
        x, w = torch.randn(2, 7, 1003, device="cuda"), torch.randn(21, 1, taps, device="cuda")
        wanted = torch.nn.functional.conv1d(x.double(), w.double(), padding=taps // 2, groups=7)
        assert relative_error(sluice.conv1d(x, w, padding=taps // 2, groups=7), wanted) <= 1e-6
        for last in (False, True):
            x = torch.randn(2, 37, 1003, device="cuda")
            x = x.transpose(1, 2).contiguous().transpose(1, 2) if last else x
            w, states = torch.randn(37, taps, device="cuda"), torch.randn(2, 37, taps - 1, device="cuda")
            got = sluice.causal_conv1d(x, w, initial_states=states)
            whole = torch.cat([states, x], 2).double()
            wanted = torch.nn.functional.conv1d(whole, w[:, None].double(), groups=37)
            assert relative_error(got, wanted) <= 1e-6, (taps, last)


@pytest.mark.sanitize
def test_every_way_to_share_a_row() -> None:
    for length in (1, 9, 40, 100, 300, 1100):
        for dtype in (torch.float16, torch.float32):
            x = placed((2, 3, length), "cf", 1, 1, float("nan"), dtype)
            x.copy_(torch.randn(x.shape, device="cuda"))
            w = torch.randn(6, 1, 5, device="cuda", dtype=dtype)
            for stride, dilation in ((2, 1), (1, 2), (3, 3)):
                numbers = (stride, 2 * dilation, dilation, 3)
                wanted = torch.nn.functional.conv1d(x.double(), w.double(), None, *numbers)
                result = sluice.conv1d(x, w, None, *numbers, post=stages.relu())
                assert relative_error(result, wanted.relu()) <= TOLERANCE[dtype], (length, dtype, stride, dilation)
