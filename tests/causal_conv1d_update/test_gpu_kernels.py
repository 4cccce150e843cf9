"""causal_conv1d_update on a GPU: the kernels of words and of registers, sanitizers, a state over 2^31 elements."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sluice
from common import DTYPES, NARROW_TYPES, permuted
from gpu_tensors import DEVICE, index, randn
from marks import ON_GPU
from update_problems import X_LAYOUTS, Draw, check

pytestmark = ON_GPU

# Taps, dilation and columns of the rows that the kernel of words is compiled for, and of their neighbours.
WORDS = [(4, 1, 3), (4, 1, 4), (3, 1, 2), (3, 1, 3), (4, 3, 9), (4, 3, 10)]
OTHERS = [(4, 1, 5), (3, 1, 4), (4, 1, 16), (4, 1, 17), (4, 3, 11), (4, 2, 6), (5, 1, 4), (2, 1, 1)]


def some_slots(sequences: int, slots: int, pad_every: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """A slot for each sequence except every `pad_every`th."""
    names = torch.randperm(slots)[:sequences].tolist()
    return index([-1 if n % pad_every == pad_every - 1 else name for n, name in enumerate(names)], dtype)


@pytest.mark.sanitize
@pytest.mark.parametrize("number", range(4))
def test_a_few_random_calls(number: int) -> None:
    draw = Draw(torch.initial_seed() + number)
    for _ in range(8):
        arguments, options = draw.problem(DEVICE)
        check(*arguments, **options)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_rows_one_behind_another(dtype: torch.dtype) -> None:
    """The kernel of words gives the bits of the kernel of single channels, which takes rows that are apart."""
    for channels, width, more in ((256, 4, 0), (520, 4, 1), (264, 3, 0), (1032, 3, 1)):
        x, w = randn(5, channels, dtype=dtype), randn(channels, width)
        state, slots = randn(7, channels, width - 1 + more, dtype=dtype), index([4, -1, 0, 6, 2], torch.int64)
        for weight, bias in ((w, None), (w.to(dtype), w[:, 0].to(dtype)), (w.to(dtype), w[:, 0].contiguous())):
            words = check(x, state, weight, bias, "silu", conv_state_indices=slots)
            apart = state.new_empty(7, channels + 1, state.shape[2] + 1)[:, 1:, 1:].copy_(state)
            assert torch.equal(check(x, apart, weight, bias, "silu", conv_state_indices=slots), words)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_under_sanitizers(dtype: torch.dtype) -> None:
    """Nine columns through shared memory, rows and columns of the state in it, a history in registers."""
    for channels, columns, dilation, tokens in ((136, 9, 3, None), (136, 5, 1, 3), (33, 9, 3, 5)):
        x = randn(2, channels, dtype=dtype) if tokens is None else randn(2, tokens, channels, dtype=dtype).mT
        state, w = randn(3, channels, columns, dtype=dtype), randn(channels, 4, dtype=dtype)
        for layout in (torch.Tensor.contiguous, permuted):
            slots = index([2, 0])
            check(x, layout(state), w, w[:, 0].contiguous(), "silu", dilation=dilation, conv_state_indices=slots)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("sequences", [1, 3, 5])
def test_one_token(sequences: int, dtype: torch.dtype) -> None:
    """Channel counts that fill warps and blocks, and counts that leave partial lanes or words."""
    every = itertools.product(WORDS + OTHERS, (8, 64, 128, 136, 256, 264, 520, 130, 33))
    for number, ((width, dilation, columns), channels) in enumerate(every):
        slots = sequences + 2 * ((number + number // 9) % 3)
        x, w = randn(sequences, channels, dtype=dtype), randn(channels, width, dtype=dtype)
        options: dict[str, Any] = {"dilation": dilation}
        if slots > sequences:
            index_type = (torch.int32, torch.int64)[number % 2]
            options["conv_state_indices"] = some_slots(sequences, slots, 3, index_type)
        if columns == (width - 1) * dilation and number % 4 == 1:
            options["state_at"] = "front"
        bias, activation = (None, randn(channels, dtype=dtype))[number % 2], (None, "silu")[number // 2 % 2]
        check(x, randn(slots, channels, columns, dtype=dtype), w, bias, activation, **options)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize(("sequences", "channels"), [(64, 5120), (65, 5120), (66, 8192), (67, 8192)])
def test_four_sequences_a_thread(sequences: int, channels: int, dtype: torch.dtype) -> None:
    """The last thread has one to four of them, and any of them may have no slot."""
    for number, (width, dilation, columns) in enumerate(WORDS):
        x, w = randn(sequences, channels, dtype=dtype), randn(channels, width, dtype=dtype)
        bias, activation = (randn(channels, dtype=dtype), None)[number % 2], ("silu", None)[number // 2 % 2]
        state = randn(sequences + 3, channels, columns, dtype=dtype)
        check(x, state[:sequences], w, bias, activation, dilation=dilation)
        slots = some_slots(sequences, sequences + 3, 5)
        slots[4:8] = -1  # a whole thread's
        check(x, state, w, bias, activation, dilation=dilation, conv_state_indices=slots)


# Taps and dilation: the most that each of its forms takes, one more, and other dilations.
REGISTERS = [(1, 1), (1, 7), (2, 1), (4, 1), (5, 1), (9, 1), (10, 1), (11, 1)]
DILATED = [(2, 2), (5, 2), (6, 2), (2, 3), (4, 3), (5, 3), (4, 4)]
Types = tuple[torch.dtype, torch.dtype, torch.dtype, torch.dtype]
MIXED: list[Types] = [
    (torch.bfloat16, torch.float32, torch.bfloat16, torch.float32),
    (torch.float16, torch.float16, torch.float32, torch.float64),
    (torch.float32, torch.float64, torch.bfloat16, torch.float16),
    (torch.float64, torch.float32, torch.float16, torch.bfloat16),
]


@pytest.mark.parametrize("types", [*((t,) * 4 for t in DTYPES), *MIXED], ids=lambda types: "-".join(map(str, types)))
def test_a_history_in_registers(types: Types) -> None:
    """x, state, weight and bias of these dtypes, alternating over every state layout and layout of x."""
    own, state_type, weight_type, bias_type = types
    every = itertools.product(REGISTERS + DILATED, (None, 1, 4, 5, 11))
    for number, ((width, dilation), tokens) in enumerate(every):
        history, form = (width - 1) * dilation, number % 4
        x = randn(*((3, 33) if tokens is None else (3, 33, tokens)), dtype=own)
        columns = history + number % 3
        options: dict[str, Any] = {"dilation": dilation, "conv_state_indices": index([4, 0, 2] if form else [3, -1, 1])}
        if form > 0:
            options |= {"cache_seqlens": index([2, 0, 19])} if form == 1 else {"state_at": "front"}
        if form == 3:
            options["num_accepted_tokens"] = index([1, 2, 5])
            columns = max(columns, max(history - 1, 0) + (tokens or 1))
        state, w = randn(5, 33, columns, dtype=state_type), randn(33, width, dtype=weight_type)
        bias = randn(33, dtype=bias_type) if number % 7 else None
        check(X_LAYOUTS[number // 4 % len(X_LAYOUTS)](x), state, w, bias, (None, "silu")[number // 8 % 2], **options)


@pytest.mark.large
def test_a_state_over_2_31_elements() -> None:
    slots, channels = 70_001, 8_192
    state = torch.zeros(slots, channels, 4, device=DEVICE, dtype=torch.float16)
    assert state.numel() > 2**31
    x, w = randn(3, channels, dtype=torch.float16), randn(channels, 4).half()
    indices = index([slots - 1, 0, slots - 2])
    result = sluice.causal_conv1d_update(x, state, w, conv_state_indices=indices)
    torch.testing.assert_close(result, x * w[:, 3], rtol=1e-3, atol=1e-3)
    assert torch.equal(state[indices.long(), :, 3], x)
    assert int(state.count_nonzero()) == int(x.count_nonzero())
