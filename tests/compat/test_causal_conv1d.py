"""compat.causal_conv1d: its functions beside sluice.reference, in prefill, in decoding and for packed sequences."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from common import DTYPES, assert_close, contiguous, permuted
from compat_references import functions
from sluice import reference
from sluice.compat.causal_conv1d import (
    causal_conv1d_fn,
    causal_conv1d_interface,
    causal_conv1d_update,
    causal_conv1d_varlen,
    causal_conv1d_varlen_states,
    cpp_functions,
)
from update_problems import X_LAYOUTS, assert_same_bits, sliced

SIGNATURES = {
    "causal_conv1d_fn": "x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, "
    "final_states_out=None, activation=None",
    "causal_conv1d_update": "x, conv_state, weight, bias=None, activation=None, cache_seqlens=None, "
    "conv_state_indices=None",
    "causal_conv1d_varlen_states": "x, cu_seqlens, state_len",
    "causal_conv1d_varlen_states_ref": "x, cu_seqlens, state_len",
    "causal_conv1d_ref": "x, weight, bias=None, initial_states=None, return_final_states=False, "
    "final_states_out=None, activation=None, seq_idx=None",
    "causal_conv1d_update_ref": "x, conv_state, weight, bias=None, activation=None, cache_seqlens=None",
    "causal_conv1d_fwd_function": "x, weight, bias, seq_idx, initial_states, final_states_out, silu_activation",
    "causal_conv1d_bwd_function": "x, weight, bias, dout, seq_idx, initial_states, dfinal_states, dx, "
    "return_dinitial_states, silu_activation",
    "causal_conv1d_update_function": "x, conv_state, weight, bias, silu_activation, cache_seqlens, conv_state_indices",
}


def test_every_function_has_the_packages_signature() -> None:
    found = functions()
    assert found.keys() == SIGNATURES.keys()
    for name, function in found.items():
        parameters = inspect.signature(function).parameters.values()
        plain = [p.replace(annotation=p.empty, kind=p.POSITIONAL_OR_KEYWORD) for p in parameters]
        assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"
        assert all(p.kind == p.POSITIONAL_OR_KEYWORD for p in parameters)


def double(t: torch.Tensor | None) -> torch.Tensor | None:
    return None if t is None else t.double()


def problem(device: str, dtype: torch.dtype, width: int, length: int, layout: Callable[..., Any] = permuted) -> Any:
    """x, weight and bias, in float32 as models have them, and states."""
    weight_type = torch.float64 if dtype == torch.float64 else torch.float32
    x = layout(torch.randn(3, 40, length, device=device).to(dtype))
    weight, bias = (torch.randn(*shape, device=device, dtype=weight_type) for shape in ((40, width), (40,)))
    return x, weight, bias, permuted(torch.randn(3, 40, width - 1, device=device).to(dtype))


def packed_ids(length: int, device: str) -> torch.Tensor:
    """Three rows of sequences: a short sequence first, padding at the end, and padding in the middle."""
    t = torch.arange(length, device=device)
    rows = [3 + 2 * (t > 0).int() + 4 * (t > length // 2), 7 - 8 * (t >= length - 2).int(), (t // 5) % 3 - 1]
    return torch.stack(rows).int()


@pytest.mark.parametrize("layout", X_LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [2, 3, 4, 7])
def test_prefill(device: str, width: int, dtype: torch.dtype, layout: Callable[..., Any]) -> None:
    for length, activation in ((1, None), (2, "silu"), (33, "swish")):
        x, weight, bias, states = problem(device, dtype, width, length, layout)
        for offset, before in ((bias, None), (None, states)):
            wanted, after = reference.causal_conv1d(
                x.double(), weight.double(), double(offset), activation=activation, initial_states=double(before)
            )
            result = causal_conv1d_fn(x, weight, offset, initial_states=before, activation=activation)
            assert_close(result, wanted, factor=2)
            both = causal_conv1d_fn(x, weight, offset, None, before, True, None, activation)
            assert isinstance(both, tuple)
            assert_close(both[0], wanted, factor=2)
            assert_same_bits(both[1], after.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [2, 4])
def test_packed_rows_with_initial_states(device: str, width: int, dtype: torch.dtype) -> None:
    for length, layout in itertools.product((4, 21), X_LAYOUTS):
        x, weight, bias, states = problem(device, dtype, width, length, layout)
        ids = packed_ids(length, device)
        for before in (None, states):
            wanted, _ = reference.causal_conv1d(
                x.double(), weight.double(), bias.double(), activation="silu", initial_states=double(before),
                seq_idx=ids,
            )  # fmt: skip
            result = causal_conv1d_fn(x, weight, bias, ids, before, activation="silu")
            assert_close(result, wanted, factor=2)
            assert not result[(ids < 0)[:, None].expand_as(result)].any()


def test_memory_for_final_states(device: str) -> None:
    x, weight, bias, states = problem(device, torch.bfloat16, 4, 9)
    for given in (torch.full_like(states, float("nan")), contiguous(torch.full_like(states, float("nan")))):
        y, after = causal_conv1d_fn(x, weight, bias, None, states, True, given)
        assert after is given
        assert_same_bits(given, x[..., -3:])
        untouched = torch.full_like(states, float("nan"))
        alone = causal_conv1d_fn(x, weight, bias, None, states, False, untouched)
        assert_same_bits(alone, y)
        assert untouched.isnan().all()


@pytest.mark.parametrize("activation", [None, False, "identity", True, "silu", "swish"])
def test_activations(device: str, activation: Any) -> None:
    x, weight, bias, states = problem(device, torch.float64, 4, 6)
    for given, name in ((causal_conv1d_fn, "causal_conv1d_ref"), (causal_conv1d_update, "causal_conv1d_update_ref")):
        arguments = (x, weight, bias) if given is causal_conv1d_fn else (x, states.clone(), weight, bias)
        again = tuple(t.clone() for t in arguments)
        wanted = functions()[name](*again, activation=activation)
        assert_close(given(*arguments, activation=activation), wanted)
        assert all(map(torch.equal, arguments, again))


@pytest.mark.parametrize("name", [name for name in SIGNATURES if "activation=" in SIGNATURES[name]])
@pytest.mark.parametrize("activation", ["gelu", "relu", "SiLU", 3])
def test_another_activation_is_not_implemented(name: str, activation: Any) -> None:
    x, weight, bias, states = problem("cpu", torch.float32, 4, 6)
    arguments = (x, states, weight, bias) if "update" in name else (x, weight, bias)
    rule = f"^{name}: activation must be None, identity, silu or swish, got {activation!r}$"
    with pytest.raises(NotImplementedError, match=rule):
        functions()[name](*arguments, activation=activation)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [2, 3, 4, 7])
@pytest.mark.parametrize("tokens", [0, 1, 4, 9])  # 0: x has two dimensions
def test_decoding(device: str, tokens: int, width: int, dtype: torch.dtype) -> None:
    x, weight, bias, _ = problem(device, dtype, width, max(tokens, 1))
    x = x if tokens else x[..., 0]
    slots = torch.tensor([6, -1, 2], dtype=torch.int32, device=device)
    lengths = torch.tensor([0, 5, 1023], dtype=torch.int32, device=device)
    for columns, ring, picked in itertools.product((width - 1, width, width + 6), (None, lengths), (None, slots)):
        state = permuted(torch.randn(3 if picked is None else 8, 40, columns, device=device).to(dtype))
        options = {"cache_seqlens": ring, "conv_state_indices": picked}
        wanted, _ = reference.causal_conv1d_update(
            x.double(), state.double(), weight.double(), bias.double(), "silu", **options
        )
        _, after = reference.causal_conv1d_update(x, state, weight, bias, **options)
        result = causal_conv1d_update(x, state, weight, bias, "silu", ring, picked)
        assert_close(result, wanted, factor=2)
        assert_same_bits(state, after)
        assert picked is None or not result[1].any()


def test_a_prompt_then_tokens_are_one_sequence(device: str) -> None:
    """transformers' calls: the state has K columns, one more than the kernel reads."""
    x, weight, bias, _ = problem(device, torch.float32, 4, 30)
    whole, _ = reference.causal_conv1d(x.double(), weight.double(), bias.double(), activation="silu")
    pieces, state = [causal_conv1d_fn(x[..., :17], weight, bias, activation="silu")], x[..., 13:17].contiguous()
    for t in range(17, 30):
        pieces.append(causal_conv1d_update(x[..., t : t + 1], state, weight, bias, "silu"))
    assert_close(torch.cat(pieces, dim=-1), whole, factor=2)
    assert_same_bits(state, x[..., 26:].contiguous())


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.int16], ids=str)
def test_states_of_packed_sequences(device: str, dtype: torch.dtype, index: torch.dtype) -> None:
    lengths = [3, 0, 1, 12, 5, 0, 4]
    starts = torch.tensor(list(itertools.accumulate(lengths, initial=0)), dtype=index, device=device)
    x = (torch.randn(starts[-1], 33, device=device) * 9).to(dtype)
    for given, state_len in itertools.product((x, permuted(x), sliced(x)), (0, 1, 4, 5, 20)):
        wanted = torch.zeros(len(lengths), 33, state_len, dtype=dtype, device=device)
        for n, length in enumerate(lengths):
            for t in range(min(length, state_len)):
                wanted[n, :, state_len - 1 - t] = x[int(starts[n + 1]) - 1 - t]
        for function in (causal_conv1d_varlen_states, causal_conv1d_varlen.causal_conv1d_varlen_states_ref):
            assert torch.equal(function(given, starts, state_len), wanted)


def test_states_of_no_tokens_and_of_no_sequences(device: str) -> None:
    for function in (causal_conv1d_varlen_states, causal_conv1d_varlen.causal_conv1d_varlen_states_ref):
        none = function(torch.randn(0, 5, device=device), torch.zeros(3, dtype=torch.int32, device=device), 4)
        assert torch.equal(none, torch.zeros(2, 5, 4, device=device))
        assert function(torch.randn(6, 5, device=device), torch.tensor([0], device=device), 4).shape == (0, 5, 4)
        beyond = torch.full((6, 5), float("nan"), device=device)
        beyond[2:4] = 1
        inner = function(beyond, torch.tensor([2, 2, 4], device=device), 3)  # NaN is next to both sequences
        assert torch.equal(inner[:, 0], torch.tensor([[0.0, 0, 0], [0, 1, 1]], device=device))


def test_refusals_of_states(device: str) -> None:
    x, starts = torch.randn(6, 5, device=device), torch.tensor([0, 6], device=device)
    for given, error, rule in (
        ((x[None], starts, 3), ValueError, r"x must have shape \(tokens, channels\), got \(1, 6, 5\)"),
        ((x, starts[None], 3), ValueError, r"cu_seqlens must have shape \(sequences \+ 1,\), got \(1, 2\)"),
        ((x, starts[:0], 3), ValueError, r"cu_seqlens must have shape \(sequences \+ 1,\), got \(0,\)"),
        ((x, starts, -1), ValueError, "state_len must not be negative, got -1"),
        ((x, [0, 6], 3), TypeError, "cu_seqlens must be a torch.Tensor, got list"),
        ((x.requires_grad_(), starts, 3), RuntimeError, "sluice is forward-only"),
    ):
        with pytest.raises(error, match=rule):
            causal_conv1d_varlen_states(*given)  # type: ignore[arg-type]
    with torch.no_grad():
        assert causal_conv1d_varlen_states(x, starts, 3).shape == (1, 5, 3)


def test_functions_below_the_interface(device: str) -> None:
    x, weight, bias, states = problem(device, torch.bfloat16, 4, 11)
    ids, after = packed_ids(11, device), torch.full_like(states, float("nan"))
    for silu, activation in ((True, "silu"), (False, None)):
        result = cpp_functions.causal_conv1d_fwd_function(x, weight, bias, None, states, after, silu)
        both = causal_conv1d_fn(x, weight, bias, None, states, True, activation=activation)
        assert_same_bits(result, both[0])
        assert_same_bits(after, both[1])
        result = cpp_functions.causal_conv1d_fwd_function(x, weight, None, ids, None, None, silu)
        assert_same_bits(result, causal_conv1d_fn(x, weight, None, ids, activation=activation))  # type: ignore[arg-type]
        slots = torch.tensor([2, 0, -1], dtype=torch.int32, device=device)
        ours, theirs = states.clone(), states.clone()
        result = cpp_functions.causal_conv1d_update_function(x, ours, weight, bias, silu, slots.abs(), slots)
        wanted = causal_conv1d_update(x, theirs, weight, bias, activation, slots.abs(), slots)
        assert_same_bits(result, wanted)
        assert_same_bits(ours, theirs)
    with pytest.raises(NotImplementedError, match="^causal_conv1d_bwd_function: sluice is forward-only"):
        cpp_functions.causal_conv1d_bwd_function(x, weight, bias, x, None, None, None, None, False, True)


def test_gradients_are_refused_in_grad_mode_alone(device: str) -> None:
    x, weight, bias, states = problem(device, torch.float32, 4, 11)
    weight.requires_grad_()
    calls: list[Callable[[], Any]] = [
        lambda: causal_conv1d_fn(x, weight, bias),
        lambda: causal_conv1d_update(x, states.clone(), weight, bias),
        lambda: cpp_functions.causal_conv1d_fwd_function(x, weight, bias, None, None, None, True),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="sluice is forward-only"):
            call()
        with torch.no_grad():
            assert not call().requires_grad


def test_definitions_are_the_references(device: str) -> None:
    """They are compared with torch by hand here, for other tests compare with them."""
    x, weight, bias, states = problem(device, torch.float64, 3, 5)
    columns = torch.cat([states, x], dim=-1)
    sums = torch.nn.functional.conv1d(columns, weight[:, None], bias, groups=40)
    given = torch.empty_like(states)
    result = causal_conv1d_interface.causal_conv1d_ref(x, weight, bias, states, True, given)
    assert result[1] is given
    torch.testing.assert_close(result, (sums, x[..., -2:].contiguous()))
    moving = states.clone()
    torch.testing.assert_close(causal_conv1d_interface.causal_conv1d_update_ref(x, moving, weight, bias), sums)
    assert torch.equal(moving, x[..., -2:])
    ids = torch.tensor([[0, 0, 4, 4, 4]], device=device).expand(3, 5)
    apart = causal_conv1d_interface.causal_conv1d_ref(x, weight, bias, seq_idx=ids)
    alone = causal_conv1d_interface.causal_conv1d_ref(x[..., 2:], weight, bias)
    torch.testing.assert_close(apart[..., 2:], alone)  # type: ignore[call-overload]


def test_nothing_is_read_on_the_host(device: str) -> None:
    x, weight, bias, states = problem(device, torch.float32, 4, 11)
    calls: dict[Callable[..., Any], tuple[torch.Tensor, ...]] = {
        lambda x, w, b, s, ids: causal_conv1d_fn(x, w, b, ids, s, activation="silu"): (
            x, weight, bias, states, packed_ids(11, device)
        ),
        lambda x, s, w, n: causal_conv1d_update(x, s, w, None, "silu", n, n): (
            x, states, weight, torch.tensor([2, 0, 1], device=device)
        ),
        lambda x, starts: causal_conv1d_varlen_states(x, starts, 4): (
            x[0].mT, torch.tensor([0, 3, 3, 11], device=device)
        ),
    }  # fmt: skip
    for function, given in calls.items():
        result = function(*given)
        with FakeTensorMode() as mode:
            fake = function(*map(mode.from_tensor, given))
        assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)
        if device != "cpu":
            torch.cuda.set_sync_debug_mode("error")
            try:
                function(*given)
            finally:
                torch.cuda.set_sync_debug_mode("default")
