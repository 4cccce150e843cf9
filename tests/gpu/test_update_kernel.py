"""causal_conv1d_update on a GPU: what runs under the sanitizers, the kernel of words, a state over 2^31 elements."""

from __future__ import annotations

import pytest
import torch

import sluice
from update_problems import Draw, check

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.mark.sanitize
@pytest.mark.parametrize("number", range(4))
def test_a_few_random_calls(number: int) -> None:
    draw = Draw(torch.initial_seed() + number)
    for _ in range(8):
        arguments, options = draw.problem("cuda")
        check(*arguments, **options)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rows_one_behind_another(dtype: torch.dtype) -> None:
    """The kernel of words gives the bits of the kernel of single channels, which takes rows that are apart."""
    for channels, width, more in ((256, 4, 0), (520, 4, 1), (264, 3, 0), (1032, 3, 1)):
        x, w = torch.randn(5, channels, device="cuda", dtype=dtype), torch.randn(channels, width, device="cuda")
        state = torch.randn(7, channels, width - 1 + more, device="cuda", dtype=dtype)
        slots = torch.tensor([4, -1, 0, 6, 2], device="cuda")
        for weight, bias in ((w, None), (w.to(dtype), w[:, 0].to(dtype)), (w.to(dtype), w[:, 0].contiguous())):
            words = check(x, state, weight, bias, "silu", conv_state_indices=slots)
            apart = state.new_empty(7, channels + 1, state.shape[2] + 1)[:, 1:, 1:].copy_(state)
            assert torch.equal(check(x, apart, weight, bias, "silu", conv_state_indices=slots), words)


@pytest.mark.large
def test_a_state_over_2_31_elements() -> None:
    slots, channels = 70_001, 8_192
    state = torch.zeros(slots, channels, 4, device="cuda", dtype=torch.float16)
    assert state.numel() > 2**31
    x, w = torch.randn(3, channels, device="cuda", dtype=torch.float16), torch.randn(channels, 4, device="cuda").half()
    indices = torch.tensor([slots - 1, 0, slots - 2], device="cuda", dtype=torch.int32)
    result = sluice.causal_conv1d_update(x, state, w, conv_state_indices=indices)
    torch.testing.assert_close(result, x * w[:, 3], rtol=1e-3, atol=1e-3)
    assert torch.equal(state[indices.long(), :, 3], x)
    assert int(state.count_nonzero()) == int(x.count_nonzero())
