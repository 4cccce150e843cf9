"""What causal_conv1d_update refuses, in the function's words and before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import sluice
from sluice import stages
from update_calls import OP, good_call, index
from update_problems import assert_same_bits

pytestmark = pytest.mark.usefixtures("fresh_compiler")

FLOATING = "float32, float16, bfloat16 or float64"


def bad_calls(device: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Arguments in place of `good_call`'s, and the rule that they break."""

    def like(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device=device)

    def ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return index(*shape, dtype=dtype, device=device)

    shape = "x must have shape (batch, channels) or (batch, channels, tokens)"
    yield {"x": like(6)}, f"{shape}, got (6,)"
    yield {"x": like(2, 6, 3, 1)}, f"{shape}, got (2, 6, 3, 1)"
    packed = {"query_start_loc": ints(3)}
    yield packed, "x must have shape (tokens, channels) with query_start_loc, got (2, 6, 3)"
    shape = "weight must have shape (C, K) with C = 6"
    for wrong in ((5, 4), (6, 1, 4), (6, 0), (6,)):
        yield {"weight": like(*wrong)}, f"{shape}, got {wrong}"
    yield {"bias": like(4)}, "bias must have shape (C,) with C = 6, got (4,)"
    yield {"bias": like(6, 1)}, "bias must have shape (C,) with C = 6, got (6, 1)"
    yield {"dilation": 0}, "dilation must be at least 1, got 0"
    for wrong in ((2, 5, 4), (2, 6), (2, 6, 4, 1)):
        yield {"conv_state": like(*wrong)}, f"conv_state must have shape (slots, 6, state_len), got {wrong}"
    yield {"conv_state": like(2, 6, 2)}, "conv_state must have at least (K - 1) * dilation = 3 columns, got 2"
    yield {"dilation": 3}, "conv_state must have at least (K - 1) * dilation = 9 columns, got 4"
    row = "conv_state must have {} slots, one per sequence, when conv_state_indices is None, got {}"
    yield {"conv_state": like(1, 6, 4)}, row.format(2, 1)
    yield {"conv_state": like(3, 6, 4)}, row.format(2, 3)
    yield {"x": like(9, 6), "query_start_loc": ints(4)}, row.format(3, 2)
    yield {"cache_seqlens": ints(3)}, "cache_seqlens must have shape (2,), got (3,)"
    yield {"cache_seqlens": ints(2, 1)}, "cache_seqlens must have shape (2,), got (2, 1)"
    front = {"state_at": "front"}
    yield {**front, "num_accepted_tokens": ints(1)}, "num_accepted_tokens must have shape (2,), got (1,)"
    shape = "conv_state_indices must have shape (2,) or (2, blocks)"
    for wrong in ((3,), (3, 2), (2, 1, 1)):
        yield {"conv_state_indices": ints(*wrong)}, f"{shape}, got {wrong}"
    for wrong in ((0,), (3, 1)):
        bad = {"x": like(9, 6), "query_start_loc": ints(*wrong)}
        yield bad, f"query_start_loc must have shape (sequences + 1,), got {wrong}"
    for name, given in (
        ("cache_seqlens", {}),
        ("conv_state_indices", {}),
        ("num_accepted_tokens", front),
        ("query_start_loc", {"x": like(9, 6)}),
    ):
        rule = f"{name} must have dtype int32 or int64, got "
        size = 3 if name == "query_start_loc" else 2
        yield {**given, name: like(size)}, rule + "float32"
        yield {**given, name: ints(size, dtype=torch.int16)}, rule + "int16"
    yield {"state_at": "back"}, "state_at must be end or front, got 'back'"
    yield {"num_accepted_tokens": ints(2)}, "state_at must be front with num_accepted_tokens, got 'end'"
    yield {**front, "cache_seqlens": ints(2)}, "state_at must be end with cache_seqlens, got 'front'"
    accepted = {**front, "num_accepted_tokens": ints(2)}
    behind = "conv_state must have at least {} columns for {} tokens after the accepted ones, got {}"
    yield accepted, behind.format(5, 3, 4)
    short = {"weight": like(6, 1), "conv_state": like(2, 6, 2)}
    yield {**accepted, **short}, behind.format(3, 3, 2)
    yield {"activation": "gelu"}, "activation must be None, identity, silu or swish, got 'gelu'"
    for name in ("x", "conv_state", "weight", "bias"):
        wrong = good_call(device)[name].int()
        yield {name: wrong}, f"{name} must have dtype {FLOATING}, got int32"
    rule = "must broadcast to the result's shape (2, 6, 3), got (4,)"
    yield {"post": stages.mul(like(4))}, f"post operand 0 {rule}"
    yield {"pre": stages.mul(like(4))}, f"pre operand 0 {rule}"
    yield {"residual": like(4)}, f"post operand 0 {rule}"
    yield {"out": like(2, 6, 2)}, "out must have shape (2, 6, 3), got (2, 6, 2)"
    yield {"out": like(2, 6, 3).half()}, "out must have dtype float32, got float16"


def overlapping_calls(device: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Tensors of one piece of memory, and which of them may not be written."""
    memory, numbers = torch.zeros(200, device=device), torch.zeros(12, dtype=torch.int32, device=device)
    x, state, out, operand = (memory[:n].view(shape) for n, shape in (
        (36, (2, 6, 3)), (48, (2, 6, 4)), (36, (2, 6, 3)), (3, (3,))))  # fmt: skip
    weight, bias, token = memory[20:44].view(6, 4), memory[30:36], numbers.view(torch.float32).view(2, 6)
    common = "got memory in common"
    part = memory[1:37].view(2, 6, 3)
    yield {"out": part, "x": x}, f"out must not overlap x unless it is that tensor, {common}"
    yield {"out": out, "conv_state": state}, f"out must not overlap conv_state, {common}"
    yield {"out": out, "weight": weight}, f"out must not overlap weight, {common}"
    yield {"out": out, "bias": bias}, f"out must not overlap bias, {common}"
    yield {"x": x, "conv_state": state}, f"conv_state must not overlap x, {common}"
    yield {"weight": weight, "conv_state": state}, f"conv_state must not overlap weight, {common}"
    yield {"bias": bias, "conv_state": state}, f"conv_state must not overlap bias, {common}"
    for name in ("pre", "post"):
        yield {name: stages.add(operand), "out": out}, f"out must not overlap an operand, {common}"
        yield {name: stages.add(operand), "conv_state": state}, f"conv_state must not overlap an operand, {common}"
    one_token = {"x": torch.zeros(2, 6, device=device), "out": token}
    for name in ("conv_state_indices", "cache_seqlens"):
        yield {**one_token, name: numbers[:2]}, f"out must not overlap {name}, {common}"
        cache = numbers.view(torch.float32).view(2, 6, 1)
        aliased = {"conv_state": cache, "weight": torch.ones(6, 1, device=device)}
        yield {**aliased, name: numbers[:2]}, f"conv_state must not overlap {name}, {common}"
    twice = "must not have two elements at one address, got strides"
    wide = torch.zeros(1, 6, 4, device=device).expand(2, 6, 4)
    yield {"conv_state": wide}, f"conv_state {twice} (0, 4, 1) for shape (2, 6, 4)"
    yield {"out": torch.zeros(1, device=device).expand(2, 6, 3)}, f"out {twice} (0, 0, 0) for shape (2, 6, 3)"


CALLS = [*bad_calls("cpu"), *overlapping_calls("cpu")]


def spied(ran: list[str]) -> sluice.Chain:
    """A stage of one's own that says when it has run."""
    return stages.cpp("x + 1", reference=lambda x: ran.append("x + 1") or x + 1)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda n: f"{n} {CALLS[n][1][:40]}")
def test_each_is_refused(device: str, number: int) -> None:
    """By the function, with a stage of one's own too, and in the same words by the raw op; before anything is done."""
    changes, rule = [*bad_calls(device), *overlapping_calls(device)][number]
    given, text = {**good_call(device), **changes}, f"^{re.escape(f'{OP}: {rule}')}$"
    before = {name: value.clone() for name, value in given.items() if isinstance(value, torch.Tensor)}
    ran: list[str] = []
    for way in ({}, {"pre": spied(ran)}, {"post": spied(ran)}):
        if not way.keys() & changes.keys():
            with pytest.raises(TypeError if " must have dtype " in rule else ValueError, match=text):
                sluice.causal_conv1d_update(**given, **way)
    assert ran == []
    if not {"pre", "post", "residual", "out"} & changes.keys():
        with pytest.raises(RuntimeError, match=re.escape(f"{OP}: {rule}")) as raised:
            torch.ops.sluice.causal_conv1d_update(**given)
        assert type(raised.value) is RuntimeError
    for name, value in before.items():
        assert_same_bits(given[name], value)


def test_lazily_negated_memory_is_still_that_memory(device: str) -> None:
    """The op itself gets other memory for such a tensor."""
    wrong = []
    for changes, rule in overlapping_calls(device):
        for name in {"conv_state", "out"} & changes.keys():
            for way in ({}, {"post": spied([])}):
                given = {**good_call(device), **way, **changes, name: torch._neg_view(changes[name])}
                before = given["conv_state"].clone()
                try:
                    wrong.append((rule, name, sluice.causal_conv1d_update(**given)))
                except ValueError as error:
                    if str(error) != f"{OP}: {rule}" or not torch.equal(given["conv_state"], before):
                        wrong.append((rule, name, error))
    assert wrong == []


def test_what_is_no_tensor_is_refused(device: str) -> None:
    for name in ("x", "conv_state", "weight", "bias", "residual", "cache_seqlens", "conv_state_indices",
                 "query_start_loc", "num_accepted_tokens", "out"):  # fmt: skip
        for way in ({}, {"pre": spied([])}, {"post": spied([])}):
            with pytest.raises(TypeError, match=f"^{OP}: {name} must be a torch.Tensor, got list$"):
                sluice.causal_conv1d_update(**{**good_call(device), **way, name: [1.0]})
    with pytest.raises(TypeError, match=f"^{OP}: dilation must be an int, got float$"):
        sluice.causal_conv1d_update(**good_call(device), dilation=1.5)


def test_mixed_devices(cuda: str) -> None:
    given = good_call(cuda)
    others = {name: value.cpu() for name, value in given.items() if name != "x"}
    others |= {"cache_seqlens": index(2), "conv_state_indices": index(2), "num_accepted_tokens": index(2)}
    for name, value in others.items():
        options = {"state_at": "front"} if name == "num_accepted_tokens" else {}
        with pytest.raises(ValueError, match=f"^{OP}: {name} must be on the input's device cuda:0, got cpu$"):
            sluice.causal_conv1d_update(**{**given, **options, name: value})
    with pytest.raises(ValueError, match=f"^{OP}: query_start_loc must be on the input's device cuda:0, got cpu$"):
        sluice.causal_conv1d_update(**{**given, "x": given["x"][..., 0].contiguous()}, query_start_loc=index(3))
