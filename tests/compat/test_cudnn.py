"""compat.cudnn: rows, packed sequences and single tokens, beside loops over the sequences."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from common import DTYPES, Layout, assert_close, contiguous, permuted
from compat_references import convolved
from sluice.compat.cudnn import b2b_causal_conv1d, causal_conv1d, causal_conv1d_nwh, causal_conv1d_update
from update_problems import assert_same_bits, projected

WIDTHS = [2, 3, 4, 6]


def of_rows(x: torch.Tensor, states: torch.Tensor | None, weight: torch.Tensor, *others: Any) -> torch.Tensor:
    histories = torch.zeros(len(x), x.shape[1], weight.shape[1] - 1, device=x.device) if states is None else states
    return torch.stack([convolved(h, row, weight, *others) for h, row in zip(histories, x, strict=True)])


@pytest.mark.parametrize("layout", [contiguous, permuted, projected], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows(device: str, width: int, dtype: torch.dtype, layout: Layout) -> None:
    """Dense results have x's layout."""
    x = layout(torch.randn(3, 70, 33, device=device, dtype=dtype))
    weight, bias = (torch.randn(70, *shape, device=device, dtype=dtype) for shape in ((width,), ()))
    for activation in (None, "identity", "silu", "swish"):
        result = causal_conv1d(x, weight, bias, activation)
        assert_close(result, of_rows(x, None, weight, bias, activation), factor=2)
        assert result.stride() == torch.empty_like(x).stride()
    states = torch.randn(3, 70, width - 1, device=device, dtype=dtype)
    result, final = causal_conv1d(x, weight, None, "silu", initial_states=states, return_final_states=True)
    assert_close(result, of_rows(x, states, weight, None, "silu"), factor=2)
    assert_same_bits(final, x[..., 33 - (width - 1) :])


def test_float32_weights_and_states_that_are_given(device: str) -> None:
    x = permuted(torch.randn(2, 70, 2, device=device, dtype=torch.bfloat16))
    weight, states = torch.randn(70, 4, device=device), torch.randn(2, 70, 3, device=device, dtype=torch.bfloat16)
    final = torch.empty(2, 3, 70, device=device, dtype=torch.bfloat16).mT
    result, returned = causal_conv1d(
        x, weight, activation="silu", initial_states=states, return_final_states=True, final_states_out=final
    )
    assert returned is final
    assert_close(result, of_rows(x, states, weight, None, "silu"), factor=2)
    assert_same_bits(final, torch.cat([states, x], dim=-1)[..., 2:])


def test_packed_sequences(device: str) -> None:
    lengths = [5, 1, 17, 2]
    x, weight = permuted(torch.randn(1, 70, 25, device=device)), torch.randn(70, 4, device=device)
    states, starts = torch.randn(4, 70, 3, device=device), torch.tensor([0, 5, 6, 23, 25], device=device)
    pieces = x[0].split(lengths, dim=-1)
    wanted = [convolved(h, piece, weight, None, "silu") for h, piece in zip(states, pieces, strict=True)]
    kept = [torch.cat([h, piece], dim=-1)[:, -3:] for h, piece in zip(states, pieces, strict=True)]
    result, final = causal_conv1d(
        x, weight, None, "silu", cu_seqlens=starts.int(), initial_states=states, return_final_states=True
    )
    assert_close(result[0], torch.cat(wanted, dim=-1))
    assert_same_bits(final, torch.stack(kept))
    ids = torch.repeat_interleave(torch.tensor(lengths, device=device)).int()[None]
    torch.testing.assert_close(causal_conv1d(x, weight, seq_idx=ids), causal_conv1d(x, weight, cu_seqlens=starts))


def test_taps_as_rows(device: str) -> None:
    x, weight, bias = (torch.randn(shape, device=device) for shape in ((2, 33, 70), (4, 70), (70,)))
    for activation in ("identity", "silu"):
        result = causal_conv1d_nwh(x, weight, bias, activation)
        assert_close(result, of_rows(x.mT, None, weight.mT, bias, activation).mT)
        assert result.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_two_convolutions_with_gates(device: str, layout: Layout, dtype: torch.dtype) -> None:
    """Hyena's block beside its formula in float64, within the tolerances of cuDNN's own test."""
    x = layout(0.1 * torch.randn(2, 24, 128, device=device)).to(dtype)
    taps = [(torch.randn(c, k, device=device) / k**0.5).to(dtype) for c, k in ((24, 4), (8, 7))]
    skip = (0.1 * torch.randn(8, device=device)).to(dtype)
    gate, left, right = of_rows(x, None, taps[0], None, None).unflatten(1, (8, 3)).unbind(2)
    wanted = gate * (of_rows(left * right, None, taps[1].double(), None, None) + skip.double()[:, None] * left * right)
    near = {torch.float64: 5e-12, torch.float32: 5e-6, torch.float16: 5e-3, torch.bfloat16: 1e-2}[dtype]
    result = b2b_causal_conv1d(x, *taps, skip)
    torch.testing.assert_close(result, wanted.to(dtype), atol=near, rtol=near)
    if dtype == torch.bfloat16:  # each parameter may have a dtype of its own
        assert_same_bits(result, b2b_causal_conv1d(x, taps[0].float(), taps[1].float(), skip.float()))


@pytest.mark.parametrize("columns", [3, 4])
def test_update(device: str, columns: int) -> None:
    """The last columns of a row are the state; -1 is no slot, and states of others are left alone."""
    x, weight, bias = (torch.randn(s, device=device, dtype=torch.bfloat16) for s in ((4, 70), (70, 4), (70,)))
    x = projected(x)
    for slots in ([5, -1, 0, 2], None):
        states = permuted(torch.randn(6, 70, columns, device=device, dtype=torch.bfloat16))
        wanted, wanted_states = torch.zeros(4, 70, device=device, dtype=torch.float64), states.clone()
        for b, slot in enumerate(range(4) if slots is None else slots):
            if slot >= 0:
                wanted[b] = convolved(states[slot, :, -3:], x[b, :, None], weight, bias, "silu")[:, 0]
                wanted_states[slot] = torch.cat([states[slot, :, 1:], x[b, :, None]], dim=-1)
        indices = None if slots is None else torch.tensor(slots, dtype=torch.int32, device=device)
        result = causal_conv1d_update(x, states, weight, bias, "swish", conv_state_indices=indices)
        assert_close(result, wanted, factor=2)
        assert_same_bits(states, wanted_states)


def test_refusals(device: str) -> None:
    x, weight, state = (torch.randn(shape, device=device) for shape in ((2, 6, 5), (6, 4), (2, 6, 3)))
    rule = "causal_conv1d: activation must be None, identity, silu or swish, got 'gelu'"
    with pytest.raises(NotImplementedError, match=f"^{rule}$"):
        causal_conv1d(x, weight, activation="gelu")
    rule = "causal_conv1d_update: activation must be None, identity, silu or swish, got 'gelu'"
    with pytest.raises(ValueError, match=f"^{rule}$"):
        causal_conv1d_update(x[..., 0], state, weight, activation="gelu")
    with pytest.raises(ValueError, match="^causal_conv1d_nwh: activation must be identity or silu, got 'swish'$"):
        causal_conv1d_nwh(x, weight, activation="swish")
    rule = "causal_conv1d: return_final_states must be True with final_states_out, got False"
    with pytest.raises(ValueError, match=f"^{rule}$"):
        causal_conv1d(x, weight, final_states_out=state)
    rule = "causal_conv1d_nwh: x and weight must have shapes (batch, length, channels) and (K, channels), got "
    with pytest.raises(ValueError, match=f"^{re.escape(rule + '(2, 6) and (6, 4)')}$"):
        causal_conv1d_nwh(x[..., 0], weight)
    with pytest.raises(ValueError, match=re.escape("causal_conv1d_update: x must have shape (B, C), got (2, 6, 5)")):
        causal_conv1d_update(x, state, weight)
    rule = "b2b_causal_conv1d: {} must have shape {} with {}, got (6, 4)"
    for changed, words in (
        ({"x": weight}, rule.format("x", "(B, 3 C, L)", "C = 2")),
        ({"skip_bias": weight}, rule.format("skip_bias", "(C,)", "C = 2")),
        ({"weights_mixer": weight}, "b2b_causal_conv1d: x must have shape (B, 3 C, L) with C = 6, got (2, 6, 5)"),
        ({"weights_mixer": weight[0]}, "weights_mixer must have shape (C, K) with K >= 1, got (4,)"),
        ({"weights_mixer": weight[:, :0]}, "weights_mixer must have shape (C, K) with K >= 1, got (6, 0)"),
    ):
        good = {"x": x, "weights_proj": weight, "weights_mixer": weight[:2], "skip_bias": weight[0, :2]}
        with pytest.raises(ValueError, match=re.escape(words)):
            b2b_causal_conv1d(**{**good, **changed})
    both = {"seq_idx": torch.zeros(2, 5, device=device).int(), "cu_seqlens": torch.zeros(2, device=device).int()}
    with pytest.raises((ValueError, RuntimeError), match="^causal_conv1d: seq_idx "):
        causal_conv1d(x, weight, **both)
    with pytest.raises(RuntimeError, match="sluice is forward-only"):
        causal_conv1d_update(x[..., 0], state, weight.clone().requires_grad_())
