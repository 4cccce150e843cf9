"""The Fourier method's kernels: loud and infinite values, and histories."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import NARROW_TYPES, assert_close, contiguous, offset_by_one
from convolution_tensors import depthwise
from fourier_problems import columns_of_wider, exact
from marks import ON_GPU

pytestmark = ON_GPU

LAYOUTS = [contiguous, offset_by_one, columns_of_wider]
WHOLE, PARTITIONED = 1500, 6000  # taps of a filter in one partition, and in several


def fourier(x, w, b=None, padding: int = 0, **options) -> torch.Tensor:
    """Computed by the Fourier method."""
    groups = x.shape[1]
    asked = {name: value for name, value in options.items() if name != "out"}
    assert sluice.plan("conv1d", x, w, b, 1, padding, 1, groups, **asked).method == "fourier"
    return sluice.conv1d(x, w, b, 1, padding, 1, groups, **options)


def test_infinite_taps_and_sums_are_what_they_are() -> None:
    x, w, b = depthwise((2, 20, 20001), WHOLE)
    x = x.abs() + 0.5
    w[1, 0, 4] = float("inf")
    b[2] = float("nan")
    result = fourier(x, w, b)
    assert bool((result[:, 1] == float("inf")).all())
    assert bool(result[:, 2].isnan().all())
    assert_close(result[:, 3:], exact(x[:, 3:], w[3:], b[3:], 0))
    assert bool((fourier(x * 1e38, torch.ones_like(w)) == float("inf")).all())
    # Intermediate sums may be large or small, whatever the products are.
    finite = w.nan_to_num(posinf=0.0)
    for loud, quiet in ((1e37, 1e-37), (1e-30, 1e-3), (1e30, 1e3)):
        assert_close(fourier(x * loud, finite * quiet), exact(x * loud, finite * quiet, None, 0))


def test_a_loud_row_does_a_quiet_one_no_harm() -> None:
    x, w, _ = depthwise((4, 20, 2500), WHOLE)
    loudness = torch.tensor([1e-12, 1e12, 1.0, 0.0], device="cuda").reshape(4, 1, 1)
    result = fourier(x * loudness, w, None, WHOLE - 1)
    for batch in range(3):
        assert_close(result[batch : batch + 1], exact(x[batch : batch + 1] * loudness[batch], w, None, WHOLE - 1))
    assert bool((result[3] == 0).all())


@pytest.mark.parametrize("taps", [WHOLE, PARTITIONED])
def test_a_loud_sample_costs_its_segment_what_the_documents_say(taps: int) -> None:
    x, w, _ = depthwise((2, 20, 20001), taps)
    x[..., 5000] = 1e6
    result = fourier(x, w, None, taps - 1)
    bound = 3e-7 * 1.01e6 * w.double().norm(dim=-1)
    assert bool(((result - exact(x, w, None, taps - 1)).abs() <= bound).all())


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("taps", [WHOLE, PARTITIONED])
def test_causal_convolutions_with_states(taps: int, dtype: torch.dtype) -> None:
    x, w, b = depthwise((3, 20, 20001), taps, dtype)
    for states_dtype in (dtype, torch.float32):
        states = torch.randn(3, 20, taps - 1, device="cuda", dtype=dtype).to(states_dtype)
        assert sluice.plan("causal_conv1d", x, w[:, 0], b, initial_states=states).method == "fourier"
        result = sluice.causal_conv1d(x, w[:, 0], b, initial_states=states)
        assert_close(result, exact(torch.cat([states.to(dtype), x], -1), w, b, 0))
