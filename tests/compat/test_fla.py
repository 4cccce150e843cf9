"""compat.fla: (B, T, C) with states of K columns, beside loops over the sequences."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from common import NARROW_TYPES, Layout, assert_close, contiguous, permuted
from sluice.compat.fla import (
    ShortConvolution,
    causal_conv1d,
    causal_conv1d_update,
    causal_conv1d_update_states,
    fast_causal_conv1d_fn,
)
from update_problems import assert_same_bits

WIDTHS = [1, 2, 3, 4, 6]


def projected(x: torch.Tensor) -> torch.Tensor:
    """The middle third of a projection's channels."""
    wide = x.new_full((*x.shape[:-1], 3 * x.shape[-1]), float("nan"))
    part = wide[..., x.shape[-1] : 2 * x.shape[-1]]
    part.copy_(x)
    return part


def convolved(state: torch.Tensor, tokens: torch.Tensor, weight: torch.Tensor, bias: Any, activation: Any) -> Any:
    """(C, K) and (S, C) of one sequence: its result (S, C) in float64."""
    if tokens.numel() == 0:
        return tokens.double()
    columns, offset = torch.cat([state[:, 1:], tokens.T], dim=-1).double(), None if bias is None else bias.double()
    sums = F.conv1d(columns[None], weight.double()[:, None], offset, groups=len(weight))[0].T
    return F.silu(sums) if activation in ("silu", "swish") else sums


def of_pieces(
    pieces: list[torch.Tensor], states: torch.Tensor, *arguments: Any
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The results of each sequence's tokens (S, C), and the final states."""
    results = [convolved(state, piece, *arguments) for state, piece in zip(states, pieces, strict=True)]
    final = [torch.cat([state, p.T.to(state)], dim=-1)[:, len(p) :] for state, p in zip(states, pieces, strict=True)]
    return results, torch.stack(final)


def taps(device: str, dtype: torch.dtype, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(70, width, device=device, dtype=dtype), torch.randn(70, device=device, dtype=dtype)


@pytest.mark.parametrize("layout", [contiguous, permuted, projected], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tokens", [1, 2, 5, 64])
def test_rows(device: str, tokens: int, width: int, dtype: torch.dtype, layout: Layout) -> None:
    x, residual = (torch.randn(3, tokens, 70, device=device, dtype=dtype) for _ in range(2))
    x = layout(x)
    weight, bias = taps(device, dtype, width)
    given = torch.randn(3, 70, width, device=device, dtype=dtype)
    for state in (None, given, permuted(given)):
        first = torch.zeros_like(given) if state is None else state
        wanted, final = of_pieces(list(x), first, weight, bias, "swish")
        before = first.clone()
        y, kept = causal_conv1d(x, weight, bias, residual, state, True, "swish")
        assert kept is not None
        assert_close(y, torch.stack(wanted) + residual.double(), factor=2)
        assert_same_bits(kept, final)
        assert_same_bits(first, before)
        assert (y.is_contiguous(), kept.is_contiguous(), y.dtype, kept.dtype) == (True, True, dtype, dtype)
        again, none = causal_conv1d(x, weight, bias, residual, state, activation="silu")
        assert none is None
        torch.testing.assert_close(again, y)


LENGTHS = [5, 1, 17, 2, 0, 9]
STARTS = list(itertools.accumulate(LENGTHS, initial=0))


@pytest.mark.parametrize("layout", [contiguous, projected], ids=lambda f: f.__name__)
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_packed_sequences(device: str, width: int, index_type: torch.dtype, layout: Layout) -> None:
    weight, bias = taps(device, torch.float32, width)
    x, residual = (torch.randn(1, STARTS[-1], 70, device=device) for _ in range(2))
    x = layout(x)
    options = {"cu_seqlens": torch.tensor(STARTS, dtype=index_type, device=device), "chunk_indices": object()}
    given = torch.randn(len(LENGTHS), 70, width, device=device)
    for state in (None, given, permuted(given)):
        first = torch.zeros_like(given) if state is None else state
        wanted, final = of_pieces(list(x[0].split(LENGTHS)), first, weight, bias, None)
        y, kept = causal_conv1d(x, weight, bias, residual, state, True, cu_seqlens_cpu=torch.tensor(STARTS), **options)
        assert kept is not None
        assert_close(y[0], torch.cat(wanted) + residual[0].double())
        assert_same_bits(kept, final)
        again, none = causal_conv1d(x, weight, bias, residual, state, **options)
        assert none is None
        torch.testing.assert_close(again, y)


def test_states_of_another_dtype(device: str) -> None:
    """The result sees the state as it is; the final one has x's dtype."""
    weight, _ = taps(device, torch.float32, 4)
    x, state = torch.randn(2, 2, 70, device=device, dtype=torch.bfloat16), torch.randn(2, 70, 4, device=device)
    y, kept = causal_conv1d(x, weight, initial_state=state, output_final_state=True)
    assert kept is not None
    wanted, final = of_pieces(list(x.float()), state, weight, None, None)
    assert_close(y, torch.stack(wanted), factor=2)
    assert_same_bits(kept, final.bfloat16())


def test_heads(device: str) -> None:
    weight, bias = taps(device, torch.float32, 4)
    x = torch.randn(2, 9, 7, 10, device=device)
    flat, _ = causal_conv1d(x.flatten(2), weight, bias, x.flatten(2))
    y, _ = causal_conv1d(x, weight, bias, x)
    assert_same_bits(y, flat.view(x.shape))
    caches = [torch.zeros(2, 70, 4, device=device) for _ in range(2)]
    wanted, _ = causal_conv1d_update(x[:, :1].flatten(2), caches[0], None, weight)
    y, _ = causal_conv1d_update(x[:, :1], caches[1], None, weight)
    assert_same_bits(y, wanted.view(2, 1, 7, 10))


def test_ids_of_sequences(device: str) -> None:
    """Only some backends read ids; the final state belongs to the row, whatever its ids."""
    weight, _ = taps(device, torch.float32, 4)
    x, starts = torch.randn(1, STARTS[-1], 70, device=device), torch.tensor(STARTS, device=device)
    ids = torch.repeat_interleave(torch.tensor(LENGTHS, device=device)).int()[None]
    wanted, _ = causal_conv1d(x, weight, cu_seqlens=starts)
    runs = [functools.partial(causal_conv1d, backend=backend) for backend in ("mix", "cuda")]
    for run in (*runs, fast_causal_conv1d_fn):
        y, kept = run(x, weight, output_final_state=True, seq_idx=ids)
        assert kept is not None
        torch.testing.assert_close(y, wanted)
        assert_same_bits(kept, x[:, -4:].mT)
    torch.testing.assert_close(causal_conv1d(x, weight, seq_idx=ids)[0], causal_conv1d(x, weight)[0])


def test_the_function_of_the_backend_mix(device: str) -> None:
    """It has the arguments of `causal_conv1d` in the same places, less `backend`."""
    weight, bias = taps(device, torch.float32, 4)
    x, residual = (torch.randn(1, STARTS[-1], 70, device=device) for _ in range(2))
    states, starts = torch.randn(len(LENGTHS), 70, 4, device=device), torch.tensor(STARTS, device=device)
    given: tuple[Any, ...] = (x, weight, bias, residual, states, True, "silu")
    wanted = causal_conv1d(*given, "mix", starts)
    for result, same in zip(fast_causal_conv1d_fn(*given, starts, starts.cpu(), None, None), wanted, strict=True):
        assert result is not None
        assert_same_bits(result, same)
    assert fast_causal_conv1d_fn(x, weight)[1] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
@pytest.mark.parametrize("width", [0, 1, 3, 4, 9, 40])
def test_update_states(device: str, width: int, dtype: torch.dtype) -> None:
    def draw(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, device=device) * 100).to(dtype)

    starts = torch.tensor(STARTS, device=device)
    for given in (None, draw(len(LENGTHS), 70, width)):
        first = torch.zeros(len(LENGTHS), 70, width, device=device, dtype=dtype) if given is None else given
        x = projected(draw(1, STARTS[-1], 70).float()).to(dtype)
        final = [torch.cat([s, p.T], dim=-1)[:, len(p) :] for s, p in zip(first, x[0].split(LENGTHS), strict=True)]
        for packed in (x, x[0]):
            assert torch.equal(causal_conv1d_update_states(packed, width, given, starts), torch.stack(final))
        for tokens in (0, 1, 4, 30):
            x = draw(len(LENGTHS), tokens, 70)
            wanted = torch.cat([first, x.mT], dim=-1)[..., tokens:]
            result = causal_conv1d_update_states(x, width, initial_state=given)
            assert torch.equal(result, wanted)
            assert result.is_contiguous()
    nothing = causal_conv1d_update_states(draw(0, 70), width, cu_seqlens=torch.zeros(3, device=device).long())
    assert torch.equal(nothing, torch.zeros(2, 70, width, device=device, dtype=dtype))


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_update(device: str, width: int, dtype: torch.dtype) -> None:
    """Single tokens in each of their shapes; the cache is changed in place and returned."""
    weight, bias = taps(device, dtype, width)
    for count, shape in ((5, (5, 70)), (5, (5, 1, 70)), (5, (1, 5, 70)), (1, (1, 1, 70)), (1, (1, 70))):
        for layout in (contiguous, projected):
            x, residual = layout(torch.randn(shape, device=device, dtype=dtype)), torch.randn(shape, device=device)
            cache = permuted(torch.randn(count, 70, width, device=device, dtype=dtype))
            wanted, final = of_pieces(list(x.reshape(count, 1, 70)), cache, weight, bias, "silu")
            y, returned = causal_conv1d_update(x, cache, residual.to(dtype), weight, bias, "silu")
            assert returned is cache
            assert_close(y, torch.stack(wanted).view(shape) + residual.to(dtype).double(), factor=2)
            assert_same_bits(cache, final)
            assert y.is_contiguous()


def layer(device: str, bias: bool = True, activation: str | None = "silu") -> ShortConvolution:
    return ShortConvolution(70, 4, bias, activation, device=device)


def test_the_module_is_a_convolution(device: str) -> None:
    module, x = layer(device), torch.randn(2, 9, 70, device=device)
    module.load_state_dict(torch.nn.Conv1d(70, 70, 4, groups=70, padding=3, device=device).state_dict())
    mask = (torch.arange(9, device=device) > 2).expand(2, 9)
    with torch.no_grad():
        for given in (None, mask):
            masked = x if given is None else x * given[..., None]
            y, cache = module(x, residual=x, mask=given)
            wanted = F.silu(torch.nn.Conv1d.forward(module.double(), masked.double().mT)[..., :9]).mT + x
            module.float()
            assert_close(y, wanted, factor=3)
            assert cache is None
    assert module.state_size == 280
    assert layer(device, bias=False, activation=None).bias is None


def test_a_variable_names_the_backend_of_modules(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layer(device).backend == "triton"
    monkeypatch.setenv("FLA_CONV_BACKEND", "cuda")
    assert layer(device).backend == "cuda"
    monkeypatch.setenv("FLA_CONV_BACKEND", "mix")
    with pytest.raises(ValueError, match="^ShortConvolution: backend must be triton or cuda, got 'mix'$"):
        layer(device)


@torch.no_grad()
def test_the_module_decodes_in_place(device: str) -> None:
    module, x = layer(device), torch.randn(2, 12, 70, device=device)
    whole, last = module(x, output_final_state=True)
    first, cache = module(x[:, :2], output_final_state=True)
    results = [first]
    for token in x[:, 2:].split(1, dim=1):
        y, returned = module(token, cache=cache, output_final_state=True)
        assert returned is cache
        results.append(y)
    assert_close(torch.cat(results, dim=1), whole.double())
    assert_same_bits(cache, last)
    y, none = module(x[:, :1])
    assert none is None
    assert_close(y, whole[:, :1].double())
    before = cache.clone()
    _, final = module(x[:, :3], cache=cache, output_final_state=True)
    assert_same_bits(cache, before)
    assert_same_bits(final[..., 1:], x[:, :3].mT)


@torch.no_grad()
def test_the_module_decodes_packed_tokens(device: str) -> None:
    """The cache is changed where each of the sequences has one token, and not otherwise."""
    module, x = layer(device), torch.randn(1, 3, 70, device=device)
    for lengths, in_place in (([1, 1, 1], True), ([2, 0, 1], False)):
        starts = torch.tensor(list(itertools.accumulate(lengths, initial=0)), device=device)
        cache = torch.randn(3, 70, 4, device=device)
        before = cache.clone()
        arguments = module.weight[:, 0], module.bias, "silu"
        wanted, final = of_pieces(list(x[0].split(lengths)), before, *arguments)
        y, returned = module(x, cache=cache, output_final_state=True, cu_seqlens=starts)
        assert_close(y[0], torch.cat(wanted))
        assert_same_bits(returned, final)
        assert_same_bits(cache, final if in_place else before)
    y, returned = module.step(x, None, before, True, cu_seqlens=torch.arange(4, device=device))
    assert returned is before


def test_nothing_is_read_on_the_host(device: str) -> None:
    module, starts = layer(device), torch.tensor(STARTS, device=device)
    x, states = torch.randn(1, STARTS[-1], 70, device=device), torch.randn(len(LENGTHS), 70, 4, device=device)

    def call_all(x: torch.Tensor, starts: torch.Tensor, states: torch.Tensor, *numbers: torch.Tensor) -> list[Any]:
        weight, bias = numbers
        tokens = x[:, : len(LENGTHS)]
        return [
            *causal_conv1d(x, weight, bias, x, states, True, cu_seqlens=starts),
            *causal_conv1d_update(tokens, states, None, weight),
            causal_conv1d_update_states(x, 4, states, starts),
            *ShortConvolution.forward(module, tokens, cache=states, cu_seqlens=starts, output_final_state=True),
        ]

    given = x, starts, states, module.weight[:, 0].detach(), module.bias.detach()
    with torch.no_grad():
        results = call_all(*given)
        if device != "cpu":
            torch.cuda.set_sync_debug_mode("error")
            try:
                call_all(*given)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = call_all(*(mode.from_tensor(value) for value in given))
    for fake, result in zip(fakes, results, strict=True):
        assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)


def test_refusals(device: str) -> None:
    x, weight, state = (torch.randn(shape, device=device) for shape in ((2, 5, 6), (6, 4), (2, 6, 4)))

    def refused(error: type[Exception], rule: str, call: Callable[..., Any], *given: Any, **options: Any) -> None:
        with pytest.raises(error, match=re.escape(rule)):
            call(*given, **options)

    words = "activation must be None, identity, silu or swish, got 'gelu'"
    refused(NotImplementedError, f"causal_conv1d: {words}", causal_conv1d, x, weight, activation="gelu")
    update = causal_conv1d_update
    refused(NotImplementedError, f"causal_conv1d_update: {words}", update, x, state, None, weight, activation="gelu")
    refused(NotImplementedError, f"ShortConvolution: {words}", ShortConvolution, 6, 4, activation="gelu")
    rule = "causal_conv1d: cp_context must be None, use sluice.distributed.causal_conv1d"
    refused(NotImplementedError, rule, causal_conv1d, x, weight, cp_context=object())
    rule = "causal_conv1d: backend must be triton, mix or cuda, got 'gluon'"
    refused(ValueError, rule, causal_conv1d, x, weight, backend="gluon")
    refused(ValueError, "ShortConvolution: backend must be triton or cuda", ShortConvolution, 6, 4, backend="mix")
    rule = "causal_conv1d: weight must be a torch.Tensor, got NoneType"
    refused(TypeError, rule, causal_conv1d, x)
    shape = "initial_state must have shape (sequences, channels, K) = (2, 6, 4), got (2, 6, 3)"
    refused(ValueError, f"causal_conv1d: {shape}", causal_conv1d, x, weight, initial_state=state[..., 1:])
    refused(ValueError, f"causal_conv1d_update_states: {shape}", causal_conv1d_update_states, x, 4, state[..., 1:])
    refused(ValueError, "x must have shape", causal_conv1d_update, x, state, None, weight)
    refused(ValueError, "x and weight must have shapes", causal_conv1d, x[0], weight)
    starts = torch.tensor([0, 5], device=device)
    refused(ValueError, "x must have shape", causal_conv1d_update_states, x, 4, cu_seqlens=starts)
    module = ShortConvolution(6, 4, device=device)
    refused(ValueError, "mask must be None with cu_seqlens", module, x[:1], mask=x[:1, :, 0], cu_seqlens=starts)
    refused(RuntimeError, "sluice is forward-only", module, x)
    leaf = state.clone().requires_grad_()
    for wanted in (False, True):
        given = {"initial_state": leaf, "output_final_state": wanted}
        refused(RuntimeError, "sluice is forward-only", causal_conv1d, x, weight, **given)
