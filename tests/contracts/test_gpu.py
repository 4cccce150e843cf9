"""Properties that only a GPU shows: streams, tensors over 2^31 elements, repeatability, no synchronisation."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import FIXED_DEPTH, SCHEDULES, assert_close, permuted
from marks import ON_GPU
from sluice import stages

pytestmark = ON_GPU


def depthwise(x: torch.Tensor, w: torch.Tensor, **options) -> torch.Tensor:
    return sluice.conv1d(x, w, padding=2, groups=x.shape[1], **options)


def chunks(x: torch.Tensor) -> list[torch.Tensor]:
    """The results and the caches of calls with a cache, with weights that are all 1."""
    batch, channels, _ = x.shape
    weight = x.new_ones(32, channels, 4)
    states, sums = x.new_ones(batch, channels, 3), x.new_ones(batch, channels, 2, dtype=torch.float32)
    result = sluice.causal_conv1d(x, weight, state_cache=states, pre="elu", post="silu", padding_mode="replicate")
    longer = sluice.causal_conv_transpose1d(result, weight, stride=2, overlap_cache=sums, pre="elu", post="silu")
    return [result, states, longer, sums]


def test_runs_on_the_current_stream() -> None:
    side = torch.cuda.Stream()
    x, w = torch.zeros(8, 64, 4096, device="cuda"), torch.randn(64, 1, 5, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # a reader that does not wait for this stream reads zeros
        x.fill_(1.0)
        results = [depthwise(x, w), sluice.transform(x, stages.scale(2.0)), sluice.causal_conv1d(x, w[:, 0])]
        results.append(sluice.filter2d(x, w[:3, 0]))
        results.append(sluice.conv_transpose1d(x, w, None, 2, groups=64))
        results += chunks(x)
    side.synchronize()
    assert torch.equal(results[0], depthwise(torch.ones_like(x), w))
    assert torch.equal(results[1], torch.full_like(x, 2.0))
    assert torch.equal(results[2], sluice.causal_conv1d(torch.ones_like(x), w[:, 0]))
    assert torch.equal(results[3], sluice.filter2d(torch.ones_like(x), w[:3, 0]))
    assert torch.equal(results[4], sluice.conv_transpose1d(torch.ones_like(x), w, None, 2, groups=64))
    for found, wanted in zip(results[5:], chunks(torch.ones_like(x)), strict=True):
        assert torch.equal(found, wanted)


def test_a_call_does_not_synchronise() -> None:
    x, w = torch.randn(8, 64, 4096, device="cuda"), torch.randn(64, 1, 5, device="cuda")

    def call_all() -> None:
        for schedule in SCHEDULES:
            sluice.transform(x, stages.silu(), schedule=schedule)
            depthwise(x, w, schedule=schedule)
            sluice.causal_conv1d(x, w[:, 0], schedule=schedule, return_final_states=True)
            sluice.filter2d(x, w[:3, 0], schedule=schedule)
            sluice.conv_transpose1d(x, w, None, 2, groups=64, schedule=schedule)
            sluice.causal_conv_transpose1d(x, w, stride=2, groups=64, schedule=schedule)
        chunks(x)

    call_all()  # the first launch of a kernel loads it
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(200_000_000)  # some 0.1 s
        call_all()
        done = torch.cuda.Event()
        done.record()
        assert not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_results_are_bitwise_repeatable(schedule: str) -> None:
    for x in (torch.randn(4, 96, 5000, device="cuda"), permuted(torch.randn(4, 96, 5000, device="cuda").half())):
        w = torch.randn(96, 1, 5, device="cuda", dtype=x.dtype)
        first = depthwise(x, w, post=stages.gelu(), schedule=schedule)
        for _ in range(10):
            assert torch.equal(depthwise(x, w, post=stages.gelu(), schedule=schedule), first)


def test_all_schedules_give_the_same_bits() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for x in (
            torch.randn(3, 72, 3001, device="cuda", dtype=dtype),
            permuted(torch.randn(3, 72, 3001, device="cuda", dtype=dtype)),
        ):
            w = torch.randn(72, 1, 5, device="cuda", dtype=dtype)
            wanted = depthwise(x, w, pre=stages.relu(), post=stages.silu(), schedule="direct")
            for schedule in SCHEDULES:
                assert torch.equal(depthwise(x, w, pre=stages.relu(), post=stages.silu(), schedule=schedule), wanted)


def test_launches_on_the_inputs_device() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    x = torch.randn(100, device="cuda:1")
    assert_close(sluice.transform(x, stages.silu()), torch.nn.functional.silu(x.double()))
    assert torch.cuda.current_device() == 0


@pytest.mark.large
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_transform_over_2_31_elements(schedule: str) -> None:
    n = 2**31 + 4099
    x = torch.empty(n, device="cuda", dtype=torch.bfloat16).uniform_(-2, 2)
    y = torch.empty(n, device="cuda", dtype=torch.bfloat16).uniform_(-2, 2)
    out = torch.full_like(x, float("nan"))
    sluice.transform(x, stages.scale(0.5) | stages.add(y) | stages.relu(), out=out, schedule=schedule)
    for part in (slice(0, 5000), slice(2**31 - 5000, 2**31 + 4099), slice(2**30, 2**30 + 999)):
        assert_close(out[part], (x[part].double() * 0.5 + y[part].double()).relu())
    assert not out.isnan().any()


@pytest.mark.large
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", ["cf", "cl"])
def test_conv1d_over_2_31_elements(schedule: str, layout: str) -> None:
    batch, channels, length = 3, 1024, 2**31 // (2 * 1024) + 13
    x = torch.empty(batch, channels, length, device="cuda", dtype=torch.bfloat16)
    if layout == "cl":
        x = x.new_empty(batch, length, channels).transpose(1, 2)
    x.uniform_(-1, 1)
    w = torch.randn(channels, 1, 4, device="cuda", dtype=torch.bfloat16)
    y = sluice.conv1d(x, w, padding=3, groups=channels, schedule=schedule)
    for b, c in ((0, 0), (1, 700), (2, 1023)):
        wanted = torch.nn.functional.conv1d(x[b, c].double()[None, None], w[c].double()[None], padding=3)
        assert_close(y[b, c], wanted[0, 0])
    assert not y.isnan().any()


@pytest.mark.large
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_filter2d_over_2_31_elements(schedule: str) -> None:
    height, width = 20_003, 36_000
    x = torch.empty(3, height, width, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    assert x.numel() > 2**31
    w = torch.randn(5, 5, device="cuda", dtype=torch.bfloat16)
    y = sluice.filter2d(x, w, schedule=schedule)
    for plane in range(3):
        for rows in (slice(0, 40), slice(10_000, 10_040), slice(height - 40, height)):
            wanted = torch.nn.functional.conv2d(x[plane, rows].double()[None, None], w.double()[None, None], padding=2)
            assert_close(y[plane, rows][2:-2], wanted[0, 0, 2:-2])
    assert not y.isnan().any()


def with_a_word_behind(x: torch.Tensor) -> torch.Tensor:
    """`x` in an allocation that is 16 bytes longer; all of it is written."""
    storage = x.new_zeros(x.untyped_storage().nbytes() // x.element_size() + 16 // x.element_size())
    return storage.as_strided(x.size(), x.stride()).copy_(x)


@pytest.mark.sanitize
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_short_selection(schedule: str) -> None:
    """The cases for compute-sanitizer: every kernel, edges and odd sizes, small enough to be traced."""
    depth = FIXED_DEPTH.get(schedule, 3)
    # memcheck and initcheck take a word that is copied in part for a whole one (docs/measurements/schedules.md).
    placed = with_a_word_behind if schedule == "primitives" else torch.Tensor.contiguous
    for dtype in (torch.float32, torch.bfloat16):
        base = placed(torch.randn(30_001, device="cuda", dtype=dtype))
        wide = placed(torch.randn(5, 1501, device="cuda", dtype=dtype))
        for x in (base, base[1:], base[:30_000].view(3, 100, 100)[:, :97, 5:].transpose(1, 2), wide[:, 1:1234]):
            chain = stages.scale(1.5) | stages.add(x) | stages.clamp(x.flatten()[0], 2.0) | stages.silu()
            sluice.transform(x, chain, schedule=schedule, depth=depth)
            sluice.transform(x, stages.relu(), dtype=torch.float16, schedule=schedule)
            sluice.transform(x, [stages.relu(), stages.neg() | stages.add(x)], schedule=schedule)
        signal = torch.randn(2, 70, 301, device="cuda", dtype=dtype)
        for x in (placed(signal), placed(signal.transpose(1, 2).contiguous()).transpose(1, 2)):
            w = torch.randn(70, 1, 4, device="cuda", dtype=dtype)
            states = torch.randn(2, 70, 3, device="cuda", dtype=dtype)
            depthwise(x, w, pre=stages.relu(), post=stages.silu(), schedule=schedule, depth=depth)
            sluice.conv1d(x, w, None, 2, 3, 2, 70, post=stages.add(w[:, 0, :1]), schedule=schedule, depth=depth)
            sluice.conv_transpose1d(x, w, None, 2, 1, 1, 70, post=stages.silu(), schedule=schedule, depth=depth)
            sluice.causal_conv1d(
                x,
                w[:, 0],
                activation="silu",
                initial_states=states,
                return_final_states=True,
                schedule=schedule,
                depth=depth,
            )
            chunks(x)
        frames = placed(torch.randn(2, 3, 37, 72, device="cuda", dtype=dtype))
        for image in (frames, wide[:, :1320].view(5, 33, 40)[..., 1:38]):
            for size in ((3, 3), (5, 5), (4, 9)):
                column, row = (torch.randn(n, device="cuda", dtype=dtype) for n in size)
                for kernel in (column[:, None] * row, (column, row)):
                    sluice.filter2d(image, kernel, post=stages.add(image), schedule=schedule, depth=depth)
                    sluice.filter2d(image, kernel, padding=(9, 3), pre=stages.relu(), schedule=schedule, depth=depth)
                    sluice.filter2d(image, kernel, post=stages.silu(), schedule=schedule, depth=depth)
    torch.cuda.synchronize()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("stages_before", [0, 22])
def test_a_bias_behind_atens_convolution_is_added_in_the_chains_pass(channels_last: bool, stages_before: int) -> None:
    """cuDNN has none, so aten adds it in a separate pass; a chain of 24 stages cannot take it."""
    x, w, b = (torch.randn(*shape, device="cuda") for shape in ((4, 48, 999), (80, 12, 3), (80,)))
    if channels_last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    scale = torch.rand(80, 1, device="cuda")
    post = stages.mul(scale) | stages.gelu()
    for _ in range(stages_before):
        post = post | stages.relu()
    watched = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), watched as profile:
        result = sluice.conv1d(x, w, b, padding=1, groups=4, post=post)
    names = {event.name for event in profile.events()}
    assert "aten::convolution" in names
    assert ("aten::add_" in names) == (stages_before > 0)
    wanted = torch.nn.functional.conv1d(x.double(), w.double(), b.double(), padding=1, groups=4) * scale.double()
    wanted = torch.nn.functional.gelu(wanted)
    assert_close(result, wanted.relu() if stages_before else wanted, factor=10)
