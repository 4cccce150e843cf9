"""compat.vllm: states in slots, prefill and decoding, beside loops over the sequences."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from common import Layout, assert_close, contiguous, permuted, poisoned_like
from compat_references import convolved
from sluice.compat.vllm import NULL_BLOCK_ID, PAD_SLOT_ID, causal_conv1d_fn, causal_conv1d_update
from update_problems import assert_same_bits, projected

DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = [2, 3, 4, 5, 6]
SD, DS = permuted, contiguous


def moved(history: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The last columns of both, as many as there are of the history."""
    return torch.cat([history, tokens.to(history.dtype)], dim=-1)[:, tokens.shape[1] :]


def prefilled(
    x: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, bias: Any, activation: Any,
    *, starts: list[int], slots: list[int], continues: list[bool],
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The result in float64, and the states; a slot of -1 is none."""
    y, after, columns = torch.zeros_like(x, dtype=torch.float64), states.clone(), weight.shape[1] - 1
    for slot, goes_on, (first, last) in zip(slots, continues, itertools.pairwise(starts), strict=True):
        if slot >= 0:
            old = states[slot, :, :columns]
            history = old if goes_on else torch.zeros_like(old)
            y[:, first:last] = convolved(history, x[:, first:last], weight, bias, activation)
            after[slot, :, :columns] = moved(history, x[:, first:last])
    return y, after


def decoded(
    pieces: list[torch.Tensor], states: torch.Tensor, weight: torch.Tensor, bias: Any, activation: Any,
    *, slots: list[int], accepted: list[int] | None = None,
) -> tuple[list[torch.Tensor], torch.Tensor]:  # fmt: skip
    """The results of new tokens (C, S) of each sequence, and the states."""
    results, after, columns = [], states.clone(), weight.shape[1] - 1
    for n, (slot, tokens) in enumerate(zip(slots, pieces, strict=True)):
        if slot < 0 or tokens.numel() == 0:
            results.append(torch.zeros_like(tokens, dtype=torch.float64))
            continue
        first = 0 if accepted is None else accepted[n] - 1
        history = states[slot, :, first : first + columns]
        results.append(convolved(history, tokens, weight, bias, activation))
        if accepted is None:
            after[slot, :, :columns] = moved(history, tokens)
        else:
            row = torch.cat([history[:, 1:], tokens.to(states.dtype)], dim=-1)
            after[slot, :, : row.shape[1]] = row
    return results, after


def poisoned(slots: int, channels: int, columns: int, used: list[int], **options: Any) -> torch.Tensor:
    """States that are NaN except in used slots."""
    states = torch.full((slots, channels, columns), float("nan"), **options)
    states[used] = torch.randn(len(used), channels, columns, **options)
    return states


LENGTHS = (5, 1, 17, 2, 9, 0, 3)
INDICES = [7, 2, PAD_SLOT_ID, 3, 9, 5, NULL_BLOCK_ID]
USED = [7, 2, -1, 3, 9, 5, -1]
CONTINUES = [True, False, True, False, True, True, False]
STARTS = list(itertools.accumulate(LENGTHS, initial=0))


def prefill_problem(device: str, dtype: torch.dtype, width: int, layout: Layout, more: int = 0) -> dict[str, Any]:
    used = [slot for slot in USED if slot >= 0]
    states = poisoned(11, 70, width - 1 + more, used, device=device, dtype=dtype)
    states[..., width - 1 :] = float("nan")
    return {
        "x": projected(torch.randn(STARTS[-1], 70, device=device, dtype=dtype)).mT,
        "weight": torch.randn(70, width, device=device, dtype=dtype),
        "bias": torch.randn(70, device=device, dtype=dtype),
        "conv_states": layout(states),
        "query_start_loc": torch.tensor(STARTS, dtype=torch.int32, device=device),
        "cache_indices": torch.tensor(INDICES, dtype=torch.int32, device=device),
        "has_initial_state": torch.tensor(CONTINUES, device=device),
    }


def check_prefill(problem: dict[str, Any], activation: Any = "silu", slots: list[int] = USED, **options: Any) -> Any:
    x, states = problem["x"], problem["conv_states"]
    given = problem["has_initial_state"]
    continues = [False] * len(LENGTHS) if given is None else CONTINUES
    wanted, wanted_states = prefilled(
        x, states, problem["weight"], problem["bias"], activation, starts=STARTS, slots=slots, continues=continues
    )
    before = x.clone()
    result = causal_conv1d_fn(**problem, activation=activation, **options)
    assert_close(result, wanted, factor=2)
    assert not result[wanted == 0].any()
    assert_same_bits(states, wanted_states)
    assert_same_bits(x, before)
    return result


@pytest.mark.parametrize("layout", [SD, DS], ids=["SD", "DS"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_prefill(device: str, width: int, dtype: torch.dtype, layout: Layout) -> None:
    """Slots may be longer than a state; unused slots are NaN."""
    for more in (0, 3):
        result = check_prefill(prefill_problem(device, dtype, width, layout, more))
        assert result.stride() == (1, 70)  # channels-last, as x is


@pytest.mark.parametrize("activation", [None, "identity", False, True, "silu", "swish"])
def test_activations_and_no_bias(device: str, activation: Any) -> None:
    problem = prefill_problem(device, torch.float32, 4, SD) | {"bias": None}
    check_prefill(problem, activation)
    x = torch.randn(2, 70, device=device)
    given = problem["conv_states"], problem["weight"], None, activation
    wanted, _ = decoded(list(x[..., None]), *given, slots=[7, 2])
    result = causal_conv1d_update(x, *given, conv_state_indices=torch.tensor([7, 2], device=device))
    assert_close(result, torch.stack(wanted)[..., 0])


def test_forms_of_the_arguments_of_a_prefill(device: str) -> None:
    problem = prefill_problem(device, torch.float32, 4, SD)
    check_prefill(problem | {"x": problem["x"].contiguous()}, metadata=object(), validate_data=True)
    check_prefill(problem | {name: problem[name].long() for name in ("query_start_loc", "cache_indices")})
    blocks = torch.stack([problem["cache_indices"], torch.full((7,), 4, device=device)], dim=1)
    check_prefill(problem | {"cache_indices": blocks})
    longer = {name: problem[name].repeat(2) for name in ("cache_indices", "has_initial_state")}
    check_prefill(problem | longer)
    check_prefill(problem | {"has_initial_state": None})
    every = problem | {"conv_states": torch.randn(11, 70, 3, device=device)}
    check_prefill(every | {"cache_indices": None}, slots=list(range(7)))
    check_prefill(every, slots=[7, 2, -1, -1, 9, 5, 0], pad_slot_id=3, null_block_id=None)
    check_prefill(every, slots=[7, 2, -1, -1, 9, 5, 0], null_block_id=3)


@pytest.mark.parametrize("of_states", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_states_of_another_dtype(device: str, of_states: torch.dtype) -> None:
    for dtype in DTYPES:
        problem = prefill_problem(device, dtype, 4, SD)
        states = problem["conv_states"].to(of_states)
        result = check_prefill(problem | {"conv_states": states, "weight": problem["weight"].float()})
        assert result.dtype == dtype


def decode_problem(device: str, dtype: torch.dtype, width: int, tokens: int, layout: Layout) -> dict[str, Any]:
    used = [slot for slot in USED if slot >= 0]
    return {
        "x": permuted(torch.randn(7, 70, tokens, device=device, dtype=dtype)),
        "conv_state": layout(poisoned(11, 70, width + tokens + 1, used, device=device, dtype=dtype)),
        "weight": torch.randn(70, width, device=device, dtype=dtype),
        "bias": torch.randn(70, device=device, dtype=dtype),
        "conv_state_indices": torch.tensor(INDICES, dtype=torch.int32, device=device),
    }


def expected_decode(problem: dict[str, Any], slots: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the states."""
    x, accepted, starts = problem["x"], problem.get("num_accepted_tokens"), problem.get("query_start_loc")
    numbers = None if accepted is None else accepted.tolist()[: len(slots)]
    taps = problem["weight"], problem["bias"], "silu"
    if starts is None:
        pieces = list(x if x.dim() == 3 else x[..., None])
        results, states = decoded(pieces, problem["conv_state"], *taps, slots=slots, accepted=numbers)
        return torch.stack(results).view(x.shape), states
    ends = starts.tolist()[: len(slots) + 1]
    pieces = [x[a:b].mT for a, b in itertools.pairwise(ends)]
    results, states = decoded(pieces, problem["conv_state"], *taps, slots=slots, accepted=numbers)
    outside = torch.zeros(len(x) - ends[-1], x.shape[1], device=x.device)
    return torch.cat([torch.cat(results, dim=-1).mT, outside]), states


def check_decode(problem: dict[str, Any], slots: list[int] = USED, **options: Any) -> None:
    """Checks results in `out`, then in x."""
    x, states = problem["x"], problem["conv_state"]
    wanted, wanted_states = expected_decode(problem, slots)
    in_place, out, again = x.clone(), poisoned_like(x), states.clone()
    assert causal_conv1d_update(**problem | {"conv_state": again}, activation="silu", out=out, **options) is out
    assert_same_bits(x, in_place)
    assert causal_conv1d_update(**problem | {"x": in_place}, activation="silu", **options) is in_place
    assert_close(out, wanted, factor=2)
    assert not out[wanted == 0].any()
    torch.testing.assert_close(in_place, out, rtol=0, atol=0)
    for found in (states, again):
        assert_same_bits(found, wanted_states)


@pytest.mark.parametrize("layout", [SD, DS], ids=["SD", "DS"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_decoding(device: str, tokens: int, width: int, dtype: torch.dtype, layout: Layout) -> None:
    problem = decode_problem(device, dtype, width, tokens, layout)
    check_decode(problem)
    check_decode(problem | {"x": torch.randn(7, 70, device=device, dtype=dtype)})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_packed_and_speculative_decoding(device: str, width: int, dtype: torch.dtype) -> None:
    problem = decode_problem(device, dtype, width, 4, SD)
    accepted = {"num_accepted_tokens": torch.tensor([1, 2, 1, 4, 3, 1, 2], dtype=torch.int32, device=device)}
    check_decode(problem | accepted)
    ends = torch.tensor([0, 4, 5, 5, 7, 11, 12, 14], dtype=torch.int32, device=device)
    packed = problem | {"x": torch.randn(16, 70, device=device, dtype=dtype), "query_start_loc": ends}
    check_decode(packed, max_query_len=4)
    check_decode(packed | accepted, max_query_len=4)


def test_forms_of_the_arguments_of_decoding(device: str) -> None:
    problem = decode_problem(device, torch.float32, 4, 2, SD)
    check_decode(problem, validate_data=True)
    check_decode(problem | {"conv_state_indices": problem["conv_state_indices"].long()})
    check_decode(problem | {"conv_state_indices": problem["conv_state_indices"].repeat(2)})
    blocks = torch.stack([problem["conv_state_indices"], torch.full((7,), 4, device=device)], dim=1)
    check_decode(problem | {"conv_state_indices": blocks}, validate_data=True)
    every = problem | {"conv_state": torch.randn(11, 70, 7, device=device)}
    check_decode(every, slots=[7, 2, -1, 3, 9, 5, 0], null_block_id=None)
    check_decode(every, slots=[7, 2, -1, -1, 9, 5, 0], null_block_id=3)
    check_decode(every | {"conv_state_indices": None}, slots=list(range(7)))
    ends = torch.arange(10, device=device) * 2  # nine sequences, the last two are padding
    packed = every | {"x": torch.randn(18, 70, device=device), "query_start_loc": ends}
    check_decode(packed | {"num_accepted_tokens": torch.ones(9, dtype=torch.int64, device=device)})
    check_decode(packed | {"conv_state_indices": None}, slots=list(range(9)))
    wide = problem | {"x": projected(torch.randn(7, 70, device=device))}
    assert_same_bits(causal_conv1d_update(**wide), wide["x"])


def test_prefill_in_chunks_then_decoding(device: str) -> None:
    """A cache takes a sequence from call to call, as if all its tokens came at once."""
    tokens, weight = torch.randn(70, 40, device=device), torch.randn(70, 4, device=device)
    whole = convolved(tokens.new_zeros(70, 3), tokens, weight, None, "silu")
    cache, slot = torch.full((3, 70, 5), float("nan"), device=device), torch.tensor([2], device=device)
    pieces, done = [], 0
    for count in (1, 17, 2, 12):
        starts, old = torch.tensor([0, count], device=device), torch.tensor([done > 0], device=device)
        piece = tokens[:, done : done + count]
        pieces.append(causal_conv1d_fn(piece, weight, None, cache, starts, slot, old))
        done += count
    for count in (1, 4, 1, 2):
        piece = tokens[None, :, done : done + count].clone()
        pieces.append(causal_conv1d_update(piece, cache, weight, None, "silu", slot)[0])
        done += count
    assert_close(torch.cat(pieces, dim=-1), whole)


def calls(device: str) -> dict[str, tuple[Callable[..., torch.Tensor], dict[str, Any]]]:
    """A call of each function."""
    packed = {"query_start_loc": torch.arange(8, device=device), "x": torch.randn(7, 70, device=device)}
    accepted = {"num_accepted_tokens": torch.ones(7, dtype=torch.int32, device=device)}
    decode = decode_problem(device, torch.float32, 4, 2, SD)
    return {
        "prefill": (causal_conv1d_fn, prefill_problem(device, torch.float32, 4, SD)),
        "decode": (causal_conv1d_update, decode),
        "packed": (causal_conv1d_update, decode | packed | accepted),
    }


@pytest.mark.parametrize("name", ["prefill", "decode", "packed"])
def test_nothing_is_read_on_the_host(device: str, name: str) -> None:
    function, given = calls(device)[name]
    result = function(**given)
    with FakeTensorMode() as mode:
        fake = function(**{key: mode.from_tensor(value) for key, value in given.items()})
    assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)
    if device != "cpu":
        torch.cuda.set_sync_debug_mode("error")
        try:
            function(**given)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def refused(device: str, name: str, error: type[Exception], rule: str, **changes: Any) -> None:
    function, given = calls(device)[name]
    with pytest.raises(error, match=re.escape(rule)):
        function(**given | changes)


def test_refusals(device: str) -> None:
    words = "activation must be None, identity, silu or swish, got 'gelu'"
    refused(device, "prefill", NotImplementedError, f"causal_conv1d_fn: {words}", activation="gelu")
    refused(device, "decode", NotImplementedError, f"causal_conv1d_update: {words}", activation="gelu")
    few = torch.zeros(5, device=device).bool()
    for name, each in (("cache_indices", few.int()), ("has_initial_state", few)):
        rule = f"causal_conv1d_fn: {name} must have shape (7,), got (5,)"
        refused(device, "prefill", AssertionError, rule, validate_data=True, **{name: each})
        refused(device, "prefill", ValueError, f"causal_conv1d: {name} must have shape", **{name: each})
    rule = "causal_conv1d_fn: conv_states must be a torch.Tensor, got NoneType"
    refused(device, "prefill", TypeError, rule, conv_states=None)
    refused(device, "prefill", ValueError, "state_cache must have", conv_states=torch.zeros(11, 70, 2, device=device))
    rule = "conv_state_indices must have 7 rows, got shape (5,)"
    refused(device, "decode", AssertionError, rule, validate_data=True, conv_state_indices=few.int())
    refused(device, "decode", AssertionError, "null_block_id must be an int", validate_data=True, null_block_id=None)
    refused(device, "decode", ValueError, "out must have shape (7, 70, 2), got", out=torch.zeros(7, 70, device=device))
    rule = "out must have x's dtype torch.float32, got torch.float16"
    refused(device, "decode", ValueError, rule, out=torch.zeros(7, 70, 2, device=device).half())
    for name in ("prefill", "decode"):
        leaf = torch.randn(70, 4, device=device, requires_grad=True)
        refused(device, name, RuntimeError, "sluice is forward-only", weight=leaf)
        function, given = calls(device)[name]
        with torch.no_grad():
            function(**given | {"weight": leaf})
