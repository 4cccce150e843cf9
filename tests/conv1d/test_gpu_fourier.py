"""The Fourier method's kernels: random problems, the same bits in both forms and in every run, non-finite values."""

from __future__ import annotations

import functools
import random

import pytest
import torch

import sluice
from common import NARROW_TYPES, TOLERANCE, assert_close, contiguous, offset_by_one, relative_error
from convolution_tensors import depthwise
from fourier_problems import columns_of_wider, exact
from linked_forms import assert_forms_agree, link_mode
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU

LAYOUTS = [contiguous, offset_by_one, columns_of_wider]
WHOLE, PARTITIONED = 1500, 6000  # taps of a filter in one partition, and in several


def fourier(x, w, b=None, padding: int = 0, **options) -> torch.Tensor:
    """Computed by the Fourier method."""
    groups = x.shape[1]
    asked = {name: value for name, value in options.items() if name != "out"}
    assert sluice.plan("conv1d", x, w, b, 1, padding, 1, groups, **asked).method == "fourier"
    return sluice.conv1d(x, w, b, 1, padding, 1, groups, **options)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_random_problems(dtype: torch.dtype, layout) -> None:
    rng = random.Random(torch.initial_seed())
    done = 0
    for _ in range(100):
        taps, multiplier = int(2 ** rng.uniform(6, 14)), rng.choice([1, 1, 1, 3])
        padding = rng.choice([0, taps // 2, taps - 1, rng.randint(0, taps + 9)])
        length = max(int(2 ** rng.uniform(8, 16)), taps + 1 - 2 * padding)
        problem = (rng.randint(1, 5), rng.randint(1, 24), length, taps, padding, multiplier)
        x, w, b = depthwise(problem[:3], problem[3], dtype, layout, multiplier)
        results = length + 2 * padding - taps + 1
        around = torch.full((problem[0], w.shape[0] + 4, results + 6), 7.0, device="cuda", dtype=dtype)
        out = around[:, 2 : 2 + w.shape[0], 3 : 3 + results].fill_(float("nan"))
        if sluice.plan("conv1d", x, w, b, 1, padding, 1, problem[1], out=out).method != "fourier":
            continue
        done += 1
        sluice.conv1d(x, w, b, 1, padding, 1, problem[1], out=out)
        assert relative_error(out, exact(x, w, b, padding)) <= TOLERANCE[dtype], problem
        out.fill_(7.0)
        assert bool((around == 7.0).all()), problem
    assert done >= 10


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("taps", [WHOLE, PARTITIONED])
def test_the_same_bits_in_both_forms_and_every_run(taps: int, layout, dtype: torch.dtype, linked_always: None) -> None:
    x, w, b = depthwise((3, 20, 20001), taps, dtype, layout)
    gain = torch.rand(20, 1, device="cuda") + 0.5
    plain = fourier(x, w, b, taps // 2)
    assert_close(plain, exact(x, w, b, taps // 2))
    residual = torch.randn_like(plain)
    assert_forms_agree(functools.partial(fourier, x, w, b, taps // 2), residual, gain)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("taps", [WHOLE, PARTITIONED])
def test_chains(taps: int, dtype: torch.dtype) -> None:
    x, w, b = depthwise((3, 20, 20001), taps, dtype, offset_by_one)
    # shift(0.5) shows whether padding is zero after `pre`, as it must be.
    pre = stages.shift(0.5) | stages.snake(torch.rand(20, 1, device="cuda") + 0.5) | stages.leaky_relu(0.1)
    residual = torch.randn(3, 20, 20001 + 2 * (taps // 2) - taps + 1, device="cuda", dtype=dtype)
    post = stages.silu() | stages.add(residual)
    sums = exact(sluice.reference.transform(x, pre), w, b, taps // 2)
    wanted = torch.nn.functional.silu(sums) + residual.double()
    for mode in ("always", "never"):
        with link_mode(mode):
            assert_close(fourier(x, w, b, taps // 2, pre=pre, post=post), wanted, factor=2)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("taps", [WHOLE, PARTITIONED])
def test_infinities_stay_within_their_windows(taps: int, dtype: torch.dtype, value: float) -> None:
    x, w, _ = depthwise((2, 20, 20001), taps, dtype)
    w = w.abs() + 0.01
    padding = taps // 2
    wanted = exact(x, w, None, padding)
    for position in (0, 7, 3583, 3584, 10000, 20000):
        other = x.clone()
        other[1, 1, position] = value
        result = fourier(other, w, None, padding)
        touched = torch.zeros_like(result, dtype=torch.bool)
        touched[1, 1, max(position + padding - (taps - 1), 0) : position + padding + 1] = True
        assert bool(result[~touched].isfinite().all())
        assert relative_error(result[~touched], wanted[~touched]) <= TOLERANCE[dtype]
        if value != value:
            assert bool(result[touched].isnan().all())
        else:
            assert bool((result[touched] == value).all())


def test_infinities_have_the_same_bits_in_both_forms(linked_always: None) -> None:
    for taps in (WHOLE, PARTITIONED):
        x, w, b = depthwise((2, 20, 20001), taps)
        x[torch.rand_like(x) < 1e-5] = float("inf")
        x[torch.rand_like(x) < 1e-5] = float("nan")
        post = stages.silu() | stages.add(torch.randn(20, 1, device="cuda"))
        result = fourier(x, w, b, taps - 1, post=post)
        with link_mode("never"):
            other = fourier(x, w, b, taps - 1, post=post)
        torch.testing.assert_close(result, other, rtol=0, atol=0, equal_nan=True)


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
    bound = 2e-7 * 1.01e6 * w.double().norm(dim=-1)
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


def test_graphs_replay_with_new_inputs() -> None:
    x, w, b = depthwise((3, 20, 20001), WHOLE)
    out = torch.empty_like(fourier(x, w, b, WHOLE - 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fourier(x, w, b, WHOLE - 1, out=out)
    for _ in range(3):
        x.normal_()
        w.normal_()
        graph.replay()
        assert torch.equal(out, fourier(x, w, b, WHOLE - 1))


@pytest.mark.large
def test_over_2_31_elements() -> None:
    batch, channels, length = 3, 1024, 2**31 // (2 * 1024) + 13
    x = torch.empty(batch, channels, length, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    w = torch.randn(channels, 1, 4001, device="cuda", dtype=torch.bfloat16)
    y = fourier(x, w, None, 2000)
    for b, c in ((0, 0), (1, 700), (2, 1023)):
        assert_close(y[b : b + 1, c : c + 1], exact(x[b : b + 1, c : c + 1], w[c : c + 1], None, 2000))
    assert not y.isnan().any()


@pytest.mark.sanitize
@pytest.mark.parametrize("mode", ["never", "always"], ids=["interpreted", "linked"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_under_sanitizers(layout, mode: str) -> None:
    for taps in (WHOLE, PARTITIONED):
        x, w, _ = depthwise((2, 20, 7001), taps, torch.float32, layout)
        states = torch.randn(2, 20, taps - 1, device="cuda")
        gain = torch.rand(20, 1, device="cuda")
        with link_mode(mode):
            for chains in ({}, {"pre": stages.relu(), "post": stages.gelu() | stages.mul(gain)}):
                fourier(x, w, None, taps - 1, **chains)
            sluice.causal_conv1d(x, w[:, 0], activation="silu", initial_states=states)
            x[0, 1, 300] = float("inf")
            fourier(x, w, None, taps - 1)
    torch.cuda.synchronize()
