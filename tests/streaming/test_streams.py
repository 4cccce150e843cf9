"""A stream's states in slots, its numbers, its weights, and its steps when compiled or captured in a CUDA graph."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sluice
from common import NAN
from stream_models import Calls, Cut, Padded


class Codec(nn.Module):
    """An encoder and a decoder with a recurrent layer between them: every kind of state."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.down = nn.Sequential(Padded(nn.Conv1d(2, 6, 5, 2), 3, **options), nn.ELU())
        self.rnn = nn.GRU(6, 6, batch_first=True)
        self.up = Cut(nn.ConvTranspose1d(6, 4, 6, 2), 0, 4, "slice")
        self.last = Padded(nn.Conv1d(4, 4, 3), 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(x)
        y = self.up(self.rnn(y.mT)[0].mT + y)
        return torch.tanh(self.last(y) + y)


def codec(device: str, dtype: torch.dtype = torch.float32, **options: Any) -> nn.Module:
    return Codec(**options).eval().to(device, dtype)


def saved(stream: Any) -> dict[torch.dtype, torch.Tensor]:
    return {dtype: state.clone() for dtype, state in stream.state.items()}


# --- states -----------------------------------------------------------------------------------------------------------
def test_states_are_saved_and_restored(device: str) -> None:
    """A stream goes on from a saved state as it did before, with the same bits."""
    stream = sluice.streaming(codec(device, mode="replicate"), slots=3)
    first, second = torch.randn(2, 2, 2, 10, device=device)
    stream(first)
    before = saved(stream)
    wanted = stream(second)
    assert not torch.equal(stream(second), wanted)
    for dtype, state in stream.state.items():
        state.copy_(before[dtype])
    assert torch.equal(stream(second), wanted)


def test_states_move_to_another_slot_and_another_stream(device: str) -> None:
    model = codec(device, mode="replicate")
    stream, other = sluice.streaming(model, slots=4), sluice.streaming(model, slots=2)
    first, second = torch.randn(2, 1, 2, 10, device=device)
    stream(first, torch.tensor([1], device=device))
    for dtype, state in stream.state.items():
        state.index_copy_(0, torch.tensor([3], device=device), state[1:2].clone())
        other.state[dtype].index_copy_(0, torch.tensor([0], device=device), state[1:2])
    wanted = stream(second, torch.tensor([1], device=device))
    torch.testing.assert_close(stream(second, torch.tensor([3], device=device)), wanted)
    torch.testing.assert_close(other(second), wanted)


def test_slots_do_not_see_each_other(device: str) -> None:
    """Whatever is in the other slots and in rows without a slot; they do not change, and a reset makes a slot new."""
    model = codec(device, mode="replicate")
    stream, alone = sluice.streaming(model, slots=5), sluice.streaming(model)
    for state in stream.state.values():
        state.fill_(NAN)
    slots = torch.tensor([-1, 4, -1, 2], device=device, dtype=torch.int32)
    stream.reset(slots)
    x = torch.randn(2, 2, 12, device=device)
    for chunk in x.split([2, 6, 4], -1):
        rows = torch.full((4, 2, chunk.shape[2]), NAN, device=device)
        rows[[1, 3]] = chunk
        y = stream(rows, slots)
        assert not y[[0, 2]].any()
        torch.testing.assert_close(y[1:2], alone(chunk[:1]))
    for state in stream.state.values():
        assert state[[0, 1, 3]].isnan().all()
        assert state[[2, 4]].isfinite().all()
    stream.reset(torch.tensor([2], device=device))
    alone.reset()
    torch.testing.assert_close(stream(x[:1], torch.tensor([2], device=device)), alone(x[:1]))
    stream.reset()
    assert not any(state.any() for state in stream.state.values())


def test_slots_of_both_index_types_and_none(device: str) -> None:
    model, x = codec(device), torch.randn(3, 2, 8, device=device)
    wanted = sluice.streaming(model, slots=3)(x)
    for dtype in (torch.int32, torch.int64):
        stream = sluice.streaming(model, slots=7)
        torch.testing.assert_close(stream(x, torch.tensor([6, 0, 3], device=device, dtype=dtype)), wanted)
        assert not any(state[[1, 2, 4, 5]].any() for state in stream.state.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dtypes_of_states(device: str, dtype: torch.dtype) -> None:
    """One tensor a dtype, (slots, columns): sums of transposed convolutions are float32 in half-precision models."""
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    stream = sluice.streaming(codec(device, dtype), slots=3)
    assert set(stream.state) == {dtype, sums}
    for own, state in stream.state.items():
        assert (state.shape[0], state.dtype, state.device.type) == (3, own, torch.device(device).type)
    x = torch.randn(2, 2, 8, device=device).to(dtype)
    assert stream(x).dtype == dtype
    down = Padded(nn.Conv1d(2, 6, 5), 4).to(device, dtype)
    assert set(sluice.streaming(down).state) == {dtype}
    up = Cut(nn.ConvTranspose1d(6, 4, 6, 2), 0, 4, "slice").to(device, dtype)
    assert set(sluice.streaming(up).state) == {sums}
    assert sluice.streaming(nn.Sequential(nn.Conv1d(2, 2, 1)).to(device, dtype)).state == {}


def test_columns_of_a_layer(device: str) -> None:
    """The history times the channels, rounded up to 16 bytes of half types; `rows` has the numbers."""
    stream = sluice.streaming(codec(device), slots=2)
    columns = {row.module: row.columns for row in stream.rows}
    assert columns == {"down.0.conv": 3 * 2, "rnn": 6, "up.conv": 4 * 4, "last.conv": 2 * 4}
    assert stream.state[torch.float32].shape == (2, 8 + 8 + 16 + 8)


def test_streams_share_weights_and_not_states(device: str) -> None:
    model = nn.Sequential(
        codec(device), Padded(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3)), 2).to(device)
    )
    one, two = sluice.streaming(model, slots=2), sluice.streaming(model)
    layers = [[m for m in s.modules() if type(m).__name__ == "Convolution"] for s in (one, two)]
    assert len(layers[0]) == 4
    for first, second in zip(*layers, strict=True):
        assert first.weights.weight.data_ptr() == second.weights.weight.data_ptr()
        assert first.weights.packed is second.weights.packed
        assert (first.weights.bias.data_ptr()) == second.weights.bias.data_ptr()
    assert layers[0][0].weights.weight.data_ptr() == model[0].down[0].conv.weight.data_ptr()
    before = saved(two)
    one(torch.randn(1, 2, 4, device=device))
    for dtype, state in two.state.items():
        assert torch.equal(state, before[dtype])
        assert state.data_ptr() != one.state[dtype].data_ptr()


def test_a_new_stream_has_changed_weights(device: str) -> None:
    """Also of weight_norm, whose weight is computed."""
    conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3)).to(device)
    model, x = Padded(conv, 2), torch.randn(1, 4, 6, device=device)
    sluice.streaming(model)
    with torch.no_grad():
        conv.parametrizations.weight.original0.mul_(2.0)
        torch.testing.assert_close(sluice.streaming(model)(x), model(x))
        model.double()
        torch.testing.assert_close(sluice.streaming(model)(x.double()), model(x.double()))


def test_a_copy_has_states_of_its_own(device: str) -> None:
    stream = sluice.streaming(codec(device, mode="replicate"), slots=2)
    first, second = torch.randn(2, 2, 2, 8, device=device)
    stream(first)
    other = copy.deepcopy(stream)
    wanted = stream(second)
    torch.testing.assert_close(other(second), wanted)
    other.reset()
    assert all(state.any() for state in stream.state.values())


def test_inference_mode(device: str) -> None:
    """A model or a stream that is made in inference mode works outside of it, and the other way round."""
    x = torch.randn(1, 2, 8, device=device)
    with torch.inference_mode():
        model = codec(device)
        inside = sluice.streaming(model)
        wanted = inside(x)
    outside = sluice.streaming(model)
    torch.testing.assert_close(outside(x), wanted)
    later = inside(x)
    with torch.inference_mode():
        torch.testing.assert_close(outside(x.clone()), later)


def test_empty_batches(device: str) -> None:
    stream = sluice.streaming(codec(device), slots=2)
    before = saved(stream)
    assert stream(torch.empty(0, 2, 4, device=device)).shape == (0, 4, 4)
    none = torch.empty(0, device=device, dtype=torch.int32)
    assert stream(torch.empty(0, 2, 4, device=device), none).shape == (0, 4, 4)
    stream.reset(none)
    assert all(torch.equal(state, before[dtype]) for dtype, state in stream.state.items())


def test_layouts(device: str) -> None:
    model, x = codec(device), torch.randn(2, 2, 8, device=device)
    wanted = sluice.streaming(model, slots=2)(x)
    for other in (x.mT.contiguous().mT, x.repeat(1, 1, 2)[..., 8:], x[..., None].expand(-1, -1, -1, 2)[..., 0]):
        torch.testing.assert_close(sluice.streaming(model, slots=2)(other), wanted)


# --- numbers ----------------------------------------------------------------------------------------------------------
def conv(taps: int, stride: int = 1, dilation: int = 1) -> nn.Module:
    history = dilation * (taps - 1) + 1 - stride
    return Padded(nn.Conv1d(2, 2, taps, stride, dilation=dilation), history)


def transposed(taps: int, stride: int, first: int = 0) -> nn.Module:
    return Cut(nn.ConvTranspose1d(2, 2, taps, stride), first, taps - stride, "slice")


# What the stream says: multiple, lead, latency, receptive_field, least_first.
NUMBERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int, float, int]]] = {
    "pointwise": (lambda: nn.Sequential(nn.Conv1d(2, 2, 1), nn.ELU()), (1, 0, 0, 1, 1)),
    "a convolution": (lambda: conv(5), (1, 0, 0, 5, 1)),
    "dilation": (lambda: conv(3, dilation=4), (1, 0, 0, 9, 1)),
    "two": (lambda: nn.Sequential(conv(3), conv(4)), (1, 0, 0, 6, 1)),
    "a residual sum": (lambda: Calls(lambda self, x: x + self.conv(x), conv=conv(7)), (1, 0, 0, 7, 1)),
    "strides": (lambda: nn.Sequential(conv(4, 2), conv(6, 3)), (6, 0, 0, 14, 6)),
    "a transposed convolution": (lambda: transposed(4, 2), (1, 0, 0, 2, 1)),
    "up and a convolution": (lambda: nn.Sequential(transposed(4, 2), conv(3)), (1, 0, 0, 3, 1)),
    "up and down": (lambda: nn.Sequential(transposed(3, 3), conv(2, 2)), (2, 0, 0, 2, 2)),
    "down and up": (lambda: nn.Sequential(conv(4, 2), transposed(4, 2)), (2, 0, 0, 6, 2)),
    "trimmed on both sides": (lambda: transposed(8, 4, 3), (1, 3, 1, 2, 1)),
    "trimmed by a stride": (lambda: nn.Sequential(transposed(8, 4, 4), conv(3)), (1, 4, 1, 3, 1)),
    "no padding": (lambda: nn.Conv1d(2, 2, 4), (1, 3, 3, 4, 1)),
    "no padding, strides": (lambda: nn.Sequential(nn.Conv1d(2, 2, 4, 2), nn.Conv1d(2, 2, 3)), (2, 3, 6, 8, 2)),
    "reflect": (lambda: Padded(nn.Conv1d(2, 2, 6, 2), 4, "reflect"), (2, 0, 0, 6, 6)),
    "reflect behind a stride": (
        lambda: nn.Sequential(conv(4, 2), Padded(nn.Conv1d(2, 2, 4), 3, "reflect")), (2, 0, 0, 10, 8)
    ),
    "reflect behind up": (
        lambda: nn.Sequential(transposed(2, 2), Padded(nn.Conv1d(2, 2, 4), 3, "reflect")), (1, 0, 0, 3, 2)
    ),
    "recurrent": (
        lambda: Calls(lambda self, x: self.rnn(x.mT)[0].mT, rnn=nn.GRU(2, 2, batch_first=True)), (1, 0, 0, math.inf, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(device: str, name: str) -> None:
    """The receptive field by experiment: which results change with an input."""
    make, wanted = NUMBERS[name]
    model = make().eval().to(device, torch.float64)
    stream = sluice.streaming(model)
    found = stream.multiple, stream.lead, stream.latency, stream.receptive_field, stream.least_first
    assert found == wanted
    length = 36
    x = torch.randn(length, 2, length, device=device, dtype=torch.float64)
    with torch.no_grad():
        base = model(x[:1])
        changed = x[:1].repeat(length, 1, 1)
        changed[range(length), :, range(length)] += 1.0
        differs = (model(changed) - base).abs().amax(1) > 1e-12  # [input, result]
    unit = stream.multiple
    results = (base.shape[2] + stream.lead) * unit // length  # a shortest chunk has as many
    widest = 0
    for result in range(base.shape[2]):
        seen = differs[:, result].nonzero().flatten().tolist()
        own = (result // results + 1) * unit  # inputs of the chunks until its own
        if "reflect" not in name or result >= 8:  # else it sees inputs in the place of earlier inputs
            assert (
                max(seen) < (result + stream.lead) // results * unit + unit <= own + -(-stream.latency // unit) * unit
            )
            widest = max(widest, max(seen) - min(seen) + 1)
    assert widest == stream.receptive_field or (stream.receptive_field == math.inf and widest > 12)


def test_rates_that_are_no_binary_fractions(device: str) -> None:
    """Results are dropped after a stride of 41, whose reciprocal is rounded: zeros end where they have to."""
    layers = nn.Conv1d(1, 2, 41, 41), nn.Conv1d(2, 2, 30), nn.Conv1d(2, 2, 2)
    model = nn.Sequential(*layers).to(device, torch.float64)
    stream, x = sluice.streaming(model, slots=2), torch.randn(2, 1, 41 * 40, device=device, dtype=torch.float64)
    with torch.no_grad():
        y = torch.cat([stream(chunk) for chunk in x.split(41, -1)], -1)
        assert stream.lead == 30
        assert not y[..., :30].any()
        torch.testing.assert_close(y[..., 30:], model(x))


def test_a_long_stream_counts_no_further_than_it_needs(device: str) -> None:
    """What has begun is counted in float32, up to the last dropped result."""
    stream = sluice.streaming(nn.Conv1d(1, 1, 4, 2, device=device))
    for _ in range(3):
        stream(torch.randn(1, 1, 1 << 16, device=device))
    assert stream.state[torch.float32][:, 0].item() == 2
    x = torch.randn(1, 1, 8, device=device)
    assert stream(x)[..., 0].any()


# --- compiled and captured --------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("with_slots", [False, True])
def test_compiled(device: str, with_slots: bool) -> None:
    """Without graph breaks, with a graph for all sizes of a batch, and with the states of eager steps."""
    from torch._dynamo.utils import counters

    model = nn.Sequential(codec(device, mode="replicate"), transposed_of(4)).to(device)
    eager, stream = sluice.streaming(model, slots=6), sluice.streaming(model, slots=6)
    counters.clear()
    compiled = torch.compile(stream, fullgraph=True)
    for rows, length in itertools.product((2, 3, 5), (4, 4)):
        x = torch.randn(rows, 2, length, device=device)
        slots = torch.randperm(6, device=device)[:rows] if with_slots else None
        if slots is not None:
            slots[0] = -1
        given = (x,) if slots is None else (x, slots)
        for tensor in given:
            torch._dynamo.mark_dynamic(tensor, 0)
        torch.testing.assert_close(compiled(*given), eager(*given))
    assert counters["stats"]["unique_graphs"] == 1
    for dtype, state in eager.state.items():
        torch.testing.assert_close(stream.state[dtype], state)


def transposed_of(channels: int) -> nn.Module:
    return Cut(nn.ConvTranspose1d(channels, 2, 5, 2, groups=2), 1, 3, "shape")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_captured_step(cuda: str, dtype: torch.dtype) -> None:
    """A CUDA graph of a step, whose memory are the chunk, the slots and the states, for several chunks."""
    model = nn.Sequential(codec(cuda, dtype, mode="replicate"), transposed_of(4)).to(cuda, dtype)
    eager, stream = sluice.streaming(model, slots=5), sluice.streaming(model, slots=5)
    x, slots = torch.zeros(3, 2, 4, device=cuda, dtype=dtype), torch.zeros(3, device=cuda, dtype=torch.int32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        slots.copy_(torch.tensor([0, 1, 2]))
        for _ in range(2):
            stream(x, slots)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = stream(x, slots)
    stream.reset()
    for places in ([4, 0, -1], [4, -1, 2], [0, 2, 4], [1, 3, 0]):
        chunk = torch.randn(3, 2, 4, device=cuda, dtype=dtype)
        x.copy_(chunk)
        slots.copy_(torch.tensor(places))
        graph.replay()
        torch.testing.assert_close(y, eager(chunk, slots))
    for own, state in eager.state.items():
        torch.testing.assert_close(stream.state[own], state)


@pytest.mark.gpu
def test_a_step_does_not_synchronise(cuda: str) -> None:
    stream = sluice.streaming(nn.Sequential(codec(cuda, mode="replicate"), transposed_of(4)).to(cuda), slots=5)
    x, slots = torch.randn(3, 2, 4, device=cuda), torch.tensor([4, -1, 0], device=cuda, dtype=torch.int32)
    for given in ((x,), (x, slots)):
        stream(*given)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for given in ((x,), (x, slots)):
            stream(*given)
        stream.reset(slots)
    finally:
        torch.cuda.set_sync_debug_mode("default")
