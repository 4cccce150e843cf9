"""causal_conv1d: any width, activations, residual, states; bf16 activations with fp32 weights."""

from __future__ import annotations

import pytest
import torch
from torch.library import opcheck

import sluice
from common import DTYPES, LAYOUTS, assert_close, contiguous, double_chain, permuted, poisoned_like
from sluice import stages


def expected(x, w, b=None, *, residual=None, initial_states=None, post=None, **options):
    def double(t):
        return None if t is None else t.double()

    return sluice.reference.causal_conv1d(
        x.double(),
        w.double(),
        double(b),
        residual=double(residual),
        initial_states=double(initial_states),
        post=None if post is None else double_chain(post),
        **options,
    )


@pytest.mark.parametrize("schedule", ["direct", "sync", "multi_stage", "bulk"])  # conv1d/test_results.py has all
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 40])
@pytest.mark.parametrize("length", [1, 2, 63, 260])
def test_result_and_states(device: str, length: int, width: int, dtype: torch.dtype, layout, schedule: str) -> None:
    x = layout(torch.randn(2, 70, length, device=device, dtype=dtype))
    w = torch.randn(70, width, device=device, dtype=dtype)
    b = torch.randn(70, device=device, dtype=dtype)
    states = layout(torch.randn(2, 70, width - 1, device=device, dtype=dtype)) if width > 1 else None
    wanted, wanted_states = expected(x, w, b, activation="silu", initial_states=states)
    out, final = poisoned_like(x), torch.full((2, 70, width - 1), float("nan"), device=device, dtype=dtype)
    result, returned = sluice.causal_conv1d(
        x, w, b, activation="silu", initial_states=states, final_states_out=final, out=out, schedule=schedule
    )
    assert result is out
    assert returned is final
    assert_close(out, wanted, factor=2)
    assert torch.equal(final.double(), wanted_states)  # states are copied, never rounded


def test_states_carry_a_sequence_across_calls(device: str) -> None:
    x, w = torch.randn(2, 9, 50, device=device), torch.randn(9, 4, device=device)
    whole = sluice.causal_conv1d(x, w)
    states, pieces = None, []
    for piece in x.split([1, 2, 30, 17], dim=-1):
        result, states = sluice.causal_conv1d(piece, w, initial_states=states, return_final_states=True)
        pieces.append(result)
    assert_close(torch.cat(pieces, dim=-1), whole.double())
    assert torch.equal(states, x[..., -3:])


@pytest.mark.parametrize("activation", [None, "identity", False, True, "silu", "swish"])
def test_activations_residual_and_post(device: str, activation) -> None:
    x, w = permuted(torch.randn(2, 16, 33, device=device)), torch.randn(16, 4, device=device)
    residual = torch.randn(2, 16, 33, device=device)
    post = stages.scale(0.5) | stages.tanh()
    name = "silu" if activation in (True, "silu", "swish") else None
    wanted, _ = expected(x, w, activation=name, residual=residual, post=post)
    assert_close(sluice.causal_conv1d(x, w, activation=activation, residual=residual, post=post), wanted)


@pytest.mark.parametrize("weight_dtype", DTYPES, ids=str)
def test_weights_of_another_dtype(device: str, weight_dtype: torch.dtype) -> None:
    x = torch.randn(2, 24, 65, device=device, dtype=torch.bfloat16)
    w, b = torch.randn(24, 4, device=device, dtype=weight_dtype), torch.randn(24, device=device, dtype=torch.float32)
    result = sluice.causal_conv1d(x, w, b)
    assert result.dtype == torch.bfloat16
    assert_close(result, expected(x, w, b)[0])


def test_float32_is_full_precision(device: str) -> None:
    x, w = torch.randn(2, 64, 1000, device=device), torch.randn(64, 4, device=device)
    torch.backends.cudnn.allow_tf32 = True
    try:
        assert_close(sluice.causal_conv1d(x, w), expected(x, w)[0])
    finally:
        torch.backends.cudnn.allow_tf32 = False


def test_layout_of_the_result(device: str) -> None:
    x, w = torch.randn(2, 16, 33, device=device), torch.randn(16, 4, device=device)
    assert sluice.causal_conv1d(x, w).stride() == x.stride()
    last = permuted(x)
    assert sluice.causal_conv1d(last, w).stride() == last.stride()
    rows = torch.randn(2, 33, 48, device=device)[..., :16].transpose(1, 2)  # channels-last, not dense
    assert sluice.causal_conv1d(rows, w).stride() == (33 * 16, 1, 16)
    assert sluice.causal_conv1d(x[..., ::2], w).is_contiguous()


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
def test_opcheck(device: str, layout) -> None:
    x, w = layout(torch.randn(2, 6, 20, device=device)), torch.randn(6, 4, device=device)
    states, y = torch.randn(2, 6, 3, device=device), torch.randn(6, 1, device=device)
    opcheck(torch.ops.sluice.causal_conv1d.default, (x, w))
    opcheck(
        torch.ops.sluice.causal_conv1d.default,
        (x, w.double(), torch.randn(6, device=device), "silu", states),
        {"post": "add($0)", "post_operands": [y]},
    )
    opcheck(torch.ops.sluice.causal_conv1d_out.default, (x, w), {"out": torch.empty_like(x)})
    opcheck(torch.ops.sluice.causal_conv1d_final_states.default, (x, 3, states))
    opcheck(
        torch.ops.sluice.causal_conv1d_final_states_out.default, (x, 3), {"out": torch.empty(2, 6, 3, device=device)}
    )
