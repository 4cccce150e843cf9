"""FlopCounterMode: the ops count what torch's convolutions count."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import sluice
from sluice import stages


def count(call: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_convolutions_count_as_torchs_do(device: str) -> None:
    x, b = torch.randn(2, 6, 40, device=device), torch.randn(12, device=device)
    for groups in (1, 2, 6):
        w = torch.randn(12, 6 // groups, 5, device=device)
        wanted = count(lambda w=w, groups=groups: F.conv1d(x, w, b, 2, 3, 2, groups))
        assert wanted > 0
        found = sluice.conv1d(x, w, b, 2, 3, 2, groups)
        for call in (
            lambda w=w, groups=groups: sluice.conv1d(x, w, b, 2, 3, 2, groups, pre="silu", post="gelu"),
            lambda w=w, groups=groups: torch.ops.sluice.conv1d(x, w, b, 2, 3, 2, groups),
            lambda w=w, groups=groups, out=found: sluice.conv1d(x, w, b, 2, 3, 2, groups, out=out),
        ):
            assert count(call) == wanted


def test_transposed_convolutions_count_as_torchs_do(device: str) -> None:
    x = torch.randn(2, 6, 40, device=device)
    for groups in (1, 2, 6):
        w, b = torch.randn(6, 4, 5, device=device), torch.randn(4 * groups, device=device)
        wanted = count(lambda w=w, b=b, groups=groups: F.conv_transpose1d(x, w, b, 2, 3, 1, groups, 2))
        assert wanted > 0
        found = sluice.conv_transpose1d(x, w, b, 2, 3, 1, groups, 2)
        for call in (
            lambda w=w, b=b, groups=groups: sluice.conv_transpose1d(x, w, b, 2, 3, 1, groups, 2, post="gelu"),
            lambda w=w, b=b, groups=groups: torch.ops.sluice.conv_transpose1d(x, w, b, 2, 3, 1, groups, 2),
            lambda w=w, b=b, groups=groups, out=found: sluice.conv_transpose1d(x, w, b, 2, 3, 1, groups, 2, out=out),
        ):
            assert count(call) == wanted


def test_a_single_row(device: str) -> None:
    x, w = torch.randn(6, 40, device=device), torch.randn(4, 6, 5, device=device)
    assert count(lambda: sluice.conv1d(x, w)) == count(lambda: F.conv1d(x, w))
    back = w.transpose(0, 1)
    assert count(lambda: sluice.conv_transpose1d(x, back)) == count(lambda: F.conv_transpose1d(x, back))


def test_causal_convolutions(device: str) -> None:
    x, w = torch.randn(2, 6, 40, device=device), torch.randn(6, 4, device=device)
    wanted = 2 * 2 * 6 * 40 * 4
    assert count(lambda: sluice.causal_conv1d(x, w, activation="silu", return_final_states=True)) == wanted
    assert count(lambda: sluice.causal_conv1d(x, w, out=torch.empty_like(x))) == wanted
    state = torch.randn(2, 6, 5, device=device)
    assert count(lambda: sluice.causal_conv1d_update(x, state, w, activation="silu")) == wanted
    assert count(lambda: sluice.causal_conv1d_update(x, state, w, out=torch.empty_like(x))) == wanted


def test_chunks(device: str) -> None:
    """They count what the convolution of as many results counts, without a history or an overlap."""
    x, states = torch.randn(2, 6, 40, device=device), torch.randn(2, 6, 9, device=device)
    for groups in (1, 2):
        w = torch.randn(12, 6 // groups, 5, device=device)
        numbers, wanted = {"stride": 2, "groups": groups, "dilation": 2}, 2 * 2 * 12 * 20 * 5 * 6 // groups
        out = torch.empty(2, 12, 20, device=device)
        for options in ({}, {"state_cache": states}, {"state_cache": states, "out": out}):
            assert count(lambda w=w, o={**numbers, **options}: sluice.causal_conv1d(x, w, **o)) == wanted
        w = torch.randn(6, 4, 5, device=device)
        wanted, sums = 2 * 2 * 40 * w.numel(), torch.randn(2, 4 * groups, 7, device=device)
        out = torch.empty(2, 4 * groups, 80, device=device)
        for options in ({}, {"overlap_cache": sums}, {"overlap_cache": sums, "out": out}):
            assert count(lambda w=w, o={**numbers, **options}: sluice.causal_conv_transpose1d(x, w, **o)) == wanted


def test_stencils(device: str) -> None:
    x, w = torch.randn(2, 6, 20, 30, device=device), torch.randn(6, 3, 5, device=device)
    wanted = count(lambda: F.conv2d(x, w[:, None], padding="same", groups=6))
    assert count(lambda: sluice.filter2d(x, w)) == wanted
    assert count(lambda: sluice.filter2d(x, w, out=torch.empty_like(x))) == wanted
    assert count(lambda: sluice.filter2d(x, (w[0, :, 0], w[0, 0]))) == 2 * x.numel() * (3 + 5)


def test_pointwise_work_counts_nothing_as_in_torch(device: str) -> None:
    x = torch.randn(8, device=device)
    assert count(lambda: stages.silu()(x)) == count(lambda: F.silu(x)) == 0


def test_under_autocast(device: str) -> None:
    x, w = torch.randn(2, 6, 40, device=device), torch.randn(6, 1, 5, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert count(lambda: torch.ops.sluice.conv1d(x, w, None, 1, 0, 1, 6)) == 2 * 2 * 6 * 36 * 5
