"""Empty extents: torch's results, and errors of sluice if torch refuses them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

import sluice
from common import assert_close, poisoned_like
from rows import naming
from sluice import stages

Result = torch.Tensor | None


def outcome(function: Callable[[], torch.Tensor]) -> Result:
    """torch's result; None if torch refuses."""
    try:
        return function()
    except (RuntimeError, IndexError):
        return None


def check(ours: Callable[..., torch.Tensor], wanted: Result, op: str, *tensors: torch.Tensor | None) -> None:
    """`ours(*tensors, **options)` gives `wanted`, also into `out` and as a fake; or it is refused."""
    if wanted is None:
        with pytest.raises(ValueError, match=rf"{op}: .* must .*, got "):
            ours(*tensors)
        return
    result = ours(*tensors)
    assert_close(result, wanted)
    out = poisoned_like(result)
    assert ours(*tensors, out=out) is out
    assert torch.equal(out, result)
    with FakeTensorMode() as mode:
        fake = ours(*(None if t is None else mode.from_tensor(t) for t in tensors))
    assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)


CONV1D = {
    "nothing": (),
    "batch": (0,),
    "channels": (1,),
    "length": (2,),
    "outputs": (3,),
    "taps": (4,),
    "batch and channels": (0, 1),
    "batch and length": (0, 2),
    "channels and length": (1, 2),
    "channels and outputs": (1, 3),
    "channels and taps": (1, 4),
}


# Padding, stride and dilation.
CONV1D_CASES = [*itertools.product((0, 1, 3), (1, 2), (1, 2)), *itertools.product(("same", "valid"), (1,), (1, 2))]


def calls_of(
    cases: list[tuple[Any, ...]], x: torch.Tensor, b: torch.Tensor
) -> Iterator[tuple[tuple[Any, ...], torch.Tensor, torch.Tensor | None]]:
    """Each case batched and unbatched; one of the two has a bias, in turn."""
    for place, case in enumerate(cases):
        biases = (b, None) if place.bit_count() % 2 == 0 else (None, b)
        yield case, x, biases[0]
        yield case, x[0] if len(x) > 0 else x, biases[1]


@pytest.mark.parametrize("empty", CONV1D)
@pytest.mark.parametrize("kind", ["dense", "grouped", "depthwise", "multiplied"])
def test_conv1d(device: str, kind: str, empty: str) -> None:
    batch, channels, length, outputs, taps = (0 if i in CONV1D[empty] else n for i, n in enumerate((2, 4, 9, 8, 3)))
    groups = {"dense": 1, "grouped": 2, "depthwise": 4, "multiplied": 4}[kind]
    outputs = outputs // 2 if kind == "depthwise" else outputs
    x = torch.randn(batch, channels, length, device=device)
    w = torch.randn(outputs, channels // groups, taps, device=device)
    b = torch.randn(outputs, device=device)
    for (padding, stride, dilation), given, offset in calls_of(CONV1D_CASES, x, b):
        numbers = (stride, padding, dilation, groups)

        def ours(x, w, b, out=None, numbers=numbers) -> torch.Tensor:
            return sluice.conv1d(x, w, b, *numbers, out=out)

        # Without taps torch fails in the middle of one convolution or another, or counts positions that are none.
        wanted = None if taps == 0 else outcome(lambda x=given, b=offset, n=numbers: F.conv1d(x, w, b, *n))
        with naming(numbers):
            check(ours, wanted, "conv1d", given, w, offset)


def test_conv1d_without_channels_has_no_outputs_whatever_the_weight(device: str) -> None:
    x, w, b = (torch.randn(shape, device=device) for shape in ((2, 0, 9), (6, 0, 3), (6,)))
    result = sluice.conv1d(x, w, b, post=stages.silu(), dtype=torch.float16)
    assert result.shape == F.conv1d(x, w, b).shape == (2, 0, 7)
    assert result.dtype == torch.float16


TRANSPOSED_CASES = [(0, 1, 0, 1), (1, 1, 0, 1), (0, 2, 1, 1), (1, 2, 1, 2), (2, 3, 2, 1), (3, 1, 1, 2)]


@pytest.mark.parametrize("empty", [name for name in CONV1D if name != "channels and outputs"])
@pytest.mark.parametrize("kind", ["dense", "grouped", "depthwise", "multiplied"])
def test_conv_transpose1d(device: str, kind: str, empty: str) -> None:
    batch, channels, length, outputs, taps = (0 if i in CONV1D[empty] else n for i, n in enumerate((2, 4, 9, 8, 3)))
    groups = {"dense": 1, "grouped": 2, "depthwise": 4, "multiplied": 4}[kind]
    outputs = outputs // 2 if kind == "depthwise" else outputs
    x = torch.randn(batch, channels, length, device=device)
    w = torch.randn(channels, outputs // groups, taps, device=device)
    b = torch.randn(outputs, device=device)
    # A weight without output channels is refused, as torch does from 2.13 on; 2.11 takes it.
    is_refused = 3 in CONV1D[empty]
    for (padding, stride, output_padding, dilation), given, offset in calls_of(TRANSPOSED_CASES, x, b):
        numbers = (stride, padding, output_padding, groups, dilation)

        def ours(x, w, b, out=None, numbers=numbers) -> torch.Tensor:
            return sluice.conv_transpose1d(x, w, b, *numbers, out=out)

        wanted = None if is_refused else outcome(lambda x=given, b=offset, n=numbers: F.conv_transpose1d(x, w, b, *n))
        with naming(numbers):
            check(ours, wanted, "conv_transpose1d", given, w, offset)


def test_a_transposed_result_may_have_no_positions(device: str) -> None:
    for groups in (1, 4):
        x, w = torch.randn(2, 4, 8, device=device), torch.randn(4, 4 // groups, 3, device=device)
        assert sluice.conv_transpose1d(x, w, padding=5, groups=groups).shape == (2, 4, 0)
        with pytest.raises(ValueError, match="padding must leave a result of at least 0 positions, got 6, which"):
            sluice.conv_transpose1d(x, w, padding=6, groups=groups)


CAUSAL = {"nothing": (), "batch": (0,), "channels": (1,), "length": (2,), "taps": (3,), "channels and length": (1, 2)}


@pytest.mark.parametrize("states", [False, True], ids=["no states", "states"])
@pytest.mark.parametrize("taps", [1, 4])
@pytest.mark.parametrize("empty", CAUSAL)
def test_causal_conv1d(device: str, empty: str, taps: int, states: bool) -> None:
    sizes = (0 if i in CAUSAL[empty] else n for i, n in enumerate((2, 3, 9, taps)))
    batch, channels, length, taps = sizes
    x, w = torch.randn(batch, channels, length, device=device), torch.randn(channels, taps, device=device)
    b = torch.randn(channels, device=device)
    if taps == 0:
        with pytest.raises(
            ValueError, match=r"causal_conv1d: weight must have shape \(C, K\) with C = 3, got \(3, 0\)"
        ):
            sluice.causal_conv1d(x, w, b)
        return
    initial = torch.randn(batch, channels, taps - 1, device=device) if states else None

    def ours(x, w, b, initial, out=None) -> torch.Tensor:
        return sluice.causal_conv1d(x, w, b, activation="silu", initial_states=initial, out=out)

    wanted, final = sluice.reference.causal_conv1d(x, w, b, activation="silu", initial_states=initial)
    check(ours, wanted, "causal_conv1d", x, w, b, initial)
    both = sluice.causal_conv1d(x, w, b, initial_states=initial, return_final_states=True)
    assert torch.equal(both[1], final)
    out = poisoned_like(final)
    sluice.causal_conv1d(x, w, b, initial_states=initial, final_states_out=out)
    assert torch.equal(out, final)


DENSE = {name: places for name, places in CONV1D.items() if name != "channels and outputs"}
# Stride, dilation and groups, and the padding of a causal row.
CAUSAL_CASES = [(1, 1, 1, "zeros"), (3, 1, 2, "replicate"), (3, 2, 4, "zeros"), (1, 2, 1, "reflect")]


def check_chunks(op: str, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, cache: torch.Tensor, **numbers) -> None:
    """Calls with and without a cache, which changes as its definition does; or both are refused."""
    function, changed = getattr(sluice, op), []
    name = "state_cache" if op == "causal_conv1d" else "overlap_cache"
    is_transposed = op == "causal_conv_transpose1d"
    has_result = w.shape[2] > 0 and w.shape[1 if is_transposed else 0] > 0 and (x.shape[1] > 0 or not is_transposed)
    has_result &= x.shape[2] > 0 or (len(x) == 0 and is_transposed)

    def ours(x, w, b, cache=None, out=None) -> torch.Tensor:
        changed.append(None if cache is None else cache.clone())
        return function(x, w, b, post="silu", out=out, **({} if cache is None else {name: changed[-1]}), **numbers)

    def wanted(cache: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return getattr(sluice.reference, op)(x, w, b, post=stages.silu(), **{name: cache}, **numbers)

    if has_result and x.shape[1] > 0:
        result, after = wanted(cache)
        check(ours, result, op, x, w, b, cache)
        assert all(torch.equal(one, after) for one in changed[:2])
        check(ours, wanted(None)[0], op, x, w, b)
    elif has_result:  # torch's rule: without input channels there are no output channels
        assert ours(x, w, b, cache).shape == ours(x, w, b).shape == (len(x), 0, x.shape[2] // numbers["stride"])
    else:
        check(ours, None, op, x, w, b, cache)
        assert torch.equal(changed[0], cache)
        check(ours, None, op, x, w, b)


@pytest.mark.parametrize("empty", DENSE)
def test_dense_causal_conv1d(device: str, empty: str) -> None:
    batch, channels, length, outputs, taps = (0 if i in DENSE[empty] else n for i, n in enumerate((2, 4, 9, 8, 3)))
    for stride, dilation, groups, mode in CAUSAL_CASES:
        x = torch.randn(batch, channels, length, device=device)
        w, b = torch.randn(outputs, channels // groups, taps, device=device), torch.randn(outputs, device=device)
        cache = torch.randn(batch, channels, 5, device=device)
        with naming((stride, dilation, groups, mode)):
            check_chunks(
                "causal_conv1d", x, w, b, cache, stride=stride, dilation=dilation, groups=groups, padding_mode=mode
            )


@pytest.mark.parametrize("empty", DENSE)
def test_causal_conv_transpose1d(device: str, empty: str) -> None:
    batch, channels, length, outputs, taps = (0 if i in DENSE[empty] else n for i, n in enumerate((2, 4, 9, 8, 3)))
    for stride, dilation, groups, _ in CAUSAL_CASES:
        x = torch.randn(batch, channels, length, device=device)
        w = torch.randn(channels, outputs // groups, taps, device=device)
        b, cache = torch.randn(outputs, device=device), torch.randn(batch, outputs, 5, device=device)
        with naming((stride, dilation, groups)):
            check_chunks("causal_conv_transpose1d", x, w, b, cache, stride=stride, dilation=dilation, groups=groups)


UPDATE = {
    "nothing": (),
    "sequences": (0,),
    "channels": (1,),
    "tokens": (2,),
    "taps": (3,),
    "sequences and channels": (0, 1),
    "channels and tokens": (1, 2),
}


@pytest.mark.parametrize("more", [0, 3], ids=["history", "longer rows"])
@pytest.mark.parametrize("taps", [1, 4])
@pytest.mark.parametrize("kind", ["tokens", "one token", "packed"])
@pytest.mark.parametrize("empty", UPDATE)
def test_causal_conv1d_update(device: str, empty: str, kind: str, taps: int, more: int) -> None:
    sequences, channels, tokens, taps = (0 if i in UPDATE[empty] else n for i, n in enumerate((2, 3, 5, taps)))
    shape = {"tokens": (sequences, channels, tokens), "one token": (sequences, channels), "packed": (tokens, channels)}
    x, w = torch.randn(shape[kind], device=device), torch.randn(channels, taps, device=device)
    state = torch.randn(sequences, channels, max(taps - 1, 0) + more, device=device)
    b, changed = torch.randn(channels, device=device), []
    starts = torch.linspace(0, tokens, sequences + 1, device=device).long() if kind == "packed" else None
    if taps == 0:
        words = rf"causal_conv1d_update: weight must have shape \(C, K\) with C = {channels}, got \({channels}, 0\)"
        with pytest.raises(ValueError, match=words):
            sluice.causal_conv1d_update(x, state, w, b, query_start_loc=starts)
        return

    def ours(x, state, w, b, starts, out=None) -> torch.Tensor:
        changed.append(state.clone())
        return sluice.causal_conv1d_update(x, changed[-1], w, b, "silu", query_start_loc=starts, out=out)

    wanted, after = sluice.reference.causal_conv1d_update(x, state, w, b, "silu", query_start_loc=starts)
    check(ours, wanted, "causal_conv1d_update", x, state, w, b, starts)
    assert all(torch.equal(state, after) for state in changed[:2])


FILTER2D = {
    "nothing": (),
    "batch": (0,),
    "channels": (1,),
    "height": (2,),
    "width": (3,),
    "both sides": (2, 3),
    "kernel's height": (4,),
    "kernel's width": (5,),
    "batch and height": (0, 2),
    "channels and width": (1, 3),
}


@pytest.mark.parametrize("empty", FILTER2D)
@pytest.mark.parametrize("kind", ["shared", "dense", "separable", "shared separable"])
def test_filter2d(device: str, kind: str, empty: str) -> None:
    sizes = (0 if i in FILTER2D[empty] else n for i, n in enumerate((2, 4, 7, 8, 3, 3)))
    batch, channels, height, width, kernel_height, kernel_width = sizes
    image = torch.randn(batch, channels, height, width, device=device)
    column, row = (torch.randn(channels, n, device=device) for n in (kernel_height, kernel_width))
    shared = kind.startswith("shared")
    if shared:
        column, row = (torch.randn(n, device=device) for n in (kernel_height, kernel_width))
    kernel = column[..., :, None] * row[..., None, :]
    b = torch.randn(1 if shared else channels, device=device)
    given = (column, row) if "separable" in kind else (kernel,)
    for padding, biased in itertools.product(("same", "valid", (0, 1), (2, 2)), (False, True)):
        offset = b if biased else None

        def ours(image, b, *kernel, out=None, padding=padding) -> torch.Tensor:
            return sluice.filter2d(image, kernel if len(kernel) == 2 else kernel[0], b, padding, out=out)

        def theirs(padding=padding, offset=offset) -> torch.Tensor:
            return sluice.reference.filter2d(image, kernel, offset, padding)

        wanted = None if kernel_height * kernel_width == 0 else outcome(theirs)
        check(ours, wanted, "filter2d", image, offset, *given)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 5), (4, 0, 5), (0, 0), (2, 3)], ids=str)
def test_transform(device: str, shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape, device=device), torch.randn(shape, device=device)

    def ours(x, y, out=None) -> torch.Tensor:
        return sluice.transform(x, stages.add(y) | stages.silu(), out=out)

    check(ours, sluice.reference.transform(x, stages.add(y) | stages.silu()), "transform", x, y)
    for base in (x.mT if x.dim() > 1 else x, x[..., ::2]):
        assert sluice.transform(base, stages.relu()).shape == base.shape
    several = [stages.add(y), stages.relu() | stages.cast(torch.float16)]
    outs = [poisoned_like(x), poisoned_like(x, torch.float16)]
    sluice.transform(x, several, out=outs)
    for one, chain, out in zip(sluice.transform(x, several), several, outs, strict=True):
        assert_close(one, sluice.reference.transform(x, chain))
        assert torch.equal(one, out)


def test_nothing_is_prepared_for_an_empty_result(device: str) -> None:
    x, w, silu = torch.randn(2, 0, 9, device=device), torch.randn(6, 0, 3, device=device), stages.silu()
    assert sluice.prepare(silu, x, w, op="conv1d") == "the result is empty"
    none = x.new_ones(0, 2, 9)
    assert sluice.prepare(silu, none, w.new_ones(2, 3, 3), op="conv_transpose1d") == "the result is empty"
    assert sluice.prepare(silu, x, w.new_ones(0, 3), op="causal_conv1d") == "the result is empty"
    op = "causal_conv_transpose1d"
    assert sluice.prepare(silu, none, w.new_ones(2, 3, 3), op=op, stride=2) == "the result is empty"
    assert sluice.prepare(silu, x.new_ones(0, 5, 9), w.new_ones(3, 3), op="filter2d") == "the result is empty"
    assert sluice.prepare(silu, x) == "the result is empty"
