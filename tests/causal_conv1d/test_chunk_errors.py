"""Refusals of causal_conv1d with weights of three dimensions and of causal_conv_transpose1d: the functions', the raw
ops' and their fakes', before anything is written."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

import sluice
from chunk_calls import OPS, call, call_raw, good_call, raw_call, result_shape
from chunk_errors import FLOATS, bad_calls, is_transposed, overlapping_calls
from chunk_problems import CACHES
from common import Given
from python_process import python
from sequence_calls import converted, ints
from sluice import stages

OWN = stages.cpp("x + 1", reference=lambda x: x + 1)
TYPE_RULES = "must (have dtype|be a torch.Tensor|be an int|be a chain or|be None, a bool)"
each_op = pytest.mark.parametrize("op", OPS)


def words_of(op: str, given: Given) -> str | None:
    """The words of the raw op's error."""
    try:
        call_raw(op, given)
    except (RuntimeError, IndexError) as error:
        return str(error).split("\nException raised from", 1)[0].strip()
    return None


CALLS = [(op, number, rule) for op in OPS for number, (_, rule) in enumerate(bad_calls(op, "cpu"))]


@pytest.mark.parametrize(("op", "number", "rule"), CALLS, ids=lambda value: str(value)[:60])
def test_each_is_refused(device: str, op: str, number: int, rule: str) -> None:
    """By the function in all its ways and, in the same words, by the raw op; before anything is written.

    With a stage of one's own the definition computes the result.
    """
    changes, same_rule = list(bad_calls(op, device))[number]
    assert same_rule == rule
    given = {**good_call(op, device), **changes}
    before, text = converted(given, torch.clone), f"^{re.escape(f'{op}: {rule}')}$"
    ways: list[Given] = [{}]
    if "out" not in changes:
        ways.append({"out": torch.zeros(result_shape(op, good_call(op, device)["x"]), device=device)})
    ways += [{**way, name: OWN} for way in ways for name in ("pre", "post") if name not in changes]
    for way in ways:
        with pytest.raises(TypeError if " must have dtype " in rule else ValueError, match=text):
            call(op, {**given, **way})
        assert not way.get("out", torch.zeros(1)).any()
    assert words_of(op, given) == f"{op}: {rule}"
    for name, value in before.items():
        assert not isinstance(value, torch.Tensor) or torch.equal(given[name], value)


@each_op
def test_fakes_refuse_what_the_ops_refuse(op: str) -> None:
    """Fakes use the same words, and report the same rule where two rules are broken."""
    overlaps = [rule for _, rule in overlapping_calls(op, "cpu")]
    calls = [changes for changes, rule in bad_calls(op, "cpu") if rule not in overlaps and "out" not in changes]
    wrong = set()
    for one, other in itertools.combinations_with_replacement(calls, 2):
        if one is not other and one.keys() & other.keys():
            continue
        given = {**good_call(op, "cpu"), **one, **other}
        meta = converted(given, lambda t: t.to("meta"))
        for name in {"pre", "post"} & given.keys():
            meta[name] = given[name].with_values(lambda t: t.to("meta") if isinstance(t, torch.Tensor) else t)
        found, wanted = words_of(op, meta), words_of(op, given)
        assert wanted is not None
        if found != wanted:
            wrong.add((found, wanted))
    assert wrong == set()


@each_op
def test_lazily_negated_memory_is_still_that_memory(device: str, op: str) -> None:
    """The op itself gets other memory for such a tensor."""
    wrong = []
    for changes, rule in overlapping_calls(op, device):
        for name, other in itertools.product({"out", CACHES[op]} & changes.keys(), ({}, {"post": OWN})):
            given = {**good_call(op, device), **other, **changes, name: torch._neg_view(changes[name])}
            try:
                wrong.append((rule, call(op, given)))
            except ValueError as error:
                if str(error) != f"{op}: {rule}":
                    wrong.append((rule, error))
    assert wrong == []


@each_op
def test_rules_of_the_raw_op_alone(device: str, op: str) -> None:
    """No function passes such arguments, or it has a rule of its own for them."""
    good, packed = good_call(op, device), torch.zeros(1, 1, 1, 1, device=device)
    sizes, weight = "(6, 5, 4)" if is_transposed(op) else "(5, 6, 4)", good["weight"]
    dims = "(in_channels, out_channels / groups" if is_transposed(op) else "(out_channels, in_channels / groups"
    maker = "sluice.nn.ConvTranspose1d" if is_transposed(op) else "sluice.pack"
    calls: list[tuple[Given, str]] = [
        ({"precision": "bf16"}, re.escape('precision must be "ieee" or "tf32", got bf16')),
        ({"packed": packed.half()}, "packed must have dtype .* like the input, got float16 for float32"),
        ({"packed": packed}, f"packed must have shape .* for a weight of {re.escape(sizes)}, as {maker} makes it, got"),
        ({"weight": weight[0]}, re.escape(f"weight must have shape {dims}, taps), got {tuple(weight[0].shape)}")),
        ({"weight": weight[None]}, re.escape(f"weight must have shape {dims}, taps), got {(1, *weight.shape)}")),
        ({"pre": "sulu"}, "pre must be a chain of stages: unknown stage 'sulu'"),
        ({"post": "sulu"}, "post must be a chain of stages: unknown stage 'sulu'"),
    ]
    for changes, rule in calls:
        given = {**good, "out": good["x"].new_zeros(result_shape(op, good["x"]))}
        before = [t.clone() for t in (given[CACHES[op]], given["out"])]
        for made in (given, converted(good, lambda t: t.to("meta"))):
            place = made["x"].device
            raw, arguments, options = raw_call(op, made)
            x, cache, _, bias = arguments
            own = {name: t.to(place) if isinstance(t, torch.Tensor) else t for name, t in changes.items()}
            arguments = x, cache, own.pop("weight", arguments[2]), bias
            with pytest.raises(RuntimeError, match=f"^{op}: {rule}"):
                raw(*arguments, **{**options, **own})
        assert all(map(torch.equal, before, (given[CACHES[op]], given["out"])))


UNKNOWN_MODE = """
import torch, sluice
given = torch.zeros(1, 1, 4), torch.zeros(1, 1, 8), torch.zeros(2, 1, 9), torch.zeros(2)
for _ in range(3):
    try:
        torch.ops.sluice.causal_conv1d_chunk(*given, padding_mode="circular")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


def test_the_raw_op_refuses_an_unknown_padding_mode() -> None:
    """In a process of its own: what such a call frees twice ends the process."""
    result = python(UNKNOWN_MODE)
    assert result.returncode == 0, result.stderr
    rule = "causal_conv1d: padding_mode must be zeros, replicate or reflect, got 'circular'"
    assert result.stdout.splitlines() == [rule] * 3


@each_op
def test_raw_ops_run_no_stages_of_ones_own_on_the_cpu(op: str) -> None:
    for name in ("pre", "post"):
        given = good_call(op, "cpu")
        given["out"] = torch.zeros(result_shape(op, given["x"]))
        before = converted(given, torch.clone)
        with pytest.raises(RuntimeError, match=f"^{op}: a cpp stage must run on a CUDA device, because raw ops do not"):
            call_raw(op, {**given, name: OWN})
        for key in (CACHES[op], "out"):
            assert torch.equal(given[key], before[key])


@each_op
def test_numbers_and_tensors_of_the_functions(device: str, op: str) -> None:
    good = good_call(op, device)
    rows = {name: good[name] for name in ("x", "weight", "bias", "stride")}
    cached = "a state_cache" if op == "causal_conv1d" else "an overlap_cache"
    calls: list[tuple[Given, Given, str]] = []
    for given, name in itertools.product((good, rows), ("x", "weight", "bias", "out")):
        calls.append((given, {name: [1.0]}, f"{name} must be a torch.Tensor, got list"))
    for name in (CACHES[op], "cache_indices", "has_initial_state"):
        calls.append((good, {name: [1.0]}, f"{name} must be a torch.Tensor, got list"))
    for name in ("stride", "groups", "dilation", "pad_slot_id", "null_slot_id"):
        calls.append((good, {name: 1.5}, f"{name} must be an int, got float"))
    for name, value in {**good, "pad_slot_id": 3, "null_slot_id": 0}.items():
        if name in ("cache_indices", "has_initial_state", "pad_slot_id", "null_slot_id"):
            calls.append((rows, {name: value}, f"{name} must be given with {cached}, got none"))
    states = "states" if op == "causal_conv1d" else "an overlap_cache"
    for options in ({"schedule": "direct"}, {"depth": 2}):
        found = f"{options.get('schedule', 'auto')!r} and {options.get('depth')}"
        calls.append((good, options, f"schedule must be auto and depth None with {states}, got {found}"))
    for chain in ("pre", "post"):
        calls.append((good, {chain: 3}, f"{chain} must be a chain or the text of one, got int"))
        calls.append((good, {chain: "sulu"}, f"{chain} must be a chain of stages: unknown stage 'sulu': .*"))
    check_calls(op, calls)


def check_calls(op: str, calls: list[tuple[Given, Given, str]]) -> None:
    """Calls with changes, and the rule of each as a regular expression."""
    wrong = []
    for given, changes, rule in calls:
        try:
            wrong.append((rule, call(op, {**given, **changes})))
        except Exception as error:  # whatever it is, it is compared
            right = TypeError if re.search(TYPE_RULES, str(error)) else ValueError
            if type(error) is not right or not re.fullmatch(f"{op}: {rule}", str(error)):
                wrong.append((rule, error))
    assert wrong == []


def test_rules_of_causal_conv1d_alone(device: str) -> None:
    op = "causal_conv1d"
    good = good_call(op, device)
    rows = {name: good[name] for name in ("x", "weight", "bias", "stride")}
    states, ids = torch.zeros(2, 6, 2, device=device), ints([[0] * 8] * 2, device)
    calls: list[tuple[Given, Given, str]] = []
    for given in (good, rows):
        calls.append((given, {"seq_idx": ids}, "seq_idx must be None with a weight of three dimensions, got one"))
        starts = ints([0, 4, 8], device)
        calls.append(
            (given, {"cu_seqlens": starts}, "cu_seqlens must be None with a weight of three dimensions, got one")
        )
        calls.append((given, {"padding_mode": "circular"}, "padding_mode must be zeros, .*, got 'circular'"))
        calls.append((given, {"activation": "gelu"}, "activation must be None, identity, silu or swish, got 'gelu'"))
        calls.append((given, {"activation": []}, "activation must be None, a bool or a string, got list"))
    for options in ({"initial_states": states}, {"final_states_out": states}, {"return_final_states": True}):
        calls.append((good, options, "initial_states and final states must be omitted when state_cache is given, .*"))
        calls.append(
            (rows, {**options, "depth": 1}, "schedule must be auto and depth None with states, got 'auto' and 1")
        )
    for options in ({"groups": 6}, {"padding_mode": "replicate"}, {"stride": 2}):
        flat = {"x": good["x"], "weight": good["weight"][0]}
        rule = r"weight must have three dimensions with a stride, groups or a padding_mode, got \(6, 4\)"
        calls.append((flat, options, rule))
    memory = torch.zeros(2, 6, 8, device=device)
    wanted = r"must have shape \(batch, channels, dilation \* \(K - 1\) \+ 1 - stride\) = \(2, 6, 2\), got "
    for name in ("initial_states", "final_states_out"):
        calls.append((rows, {name: [1.0]}, f"{name} must be a torch.Tensor, got list"))
        for shape in ((2, 6, 3), (1, 6, 2), (2, 6), (6, 2)):
            calls.append((rows, {name: memory.new_zeros(shape)}, f"{name} {wanted}{re.escape(str(shape))}"))
        for dtype, found in ((torch.int32, "int32"), (torch.complex64, "complex64")):
            calls.append((rows, {name: states.to(dtype)}, f"{name} must have dtype {FLOATS}, got {found}"))
        rule = f"{name} must be on the input's device {torch.empty(0, device=device).device}, got meta"
        calls.append((rows, {name: states.to("meta")}, rule))
    check_calls(op, calls)


def test_final_states_are_refused_before_anything_is_written(device: str) -> None:
    good = good_call("causal_conv1d", device)
    rows = {name: good[name] for name in ("x", "weight", "bias", "stride")}
    memory, x = torch.zeros(2, 6, 12, device=device), torch.randn(2, 6, 8, device=device)
    with torch.inference_mode():
        inference = torch.zeros(2, 6, 2, device=device)
    calls: list[tuple[Given, Given, str]] = [
        (rows, {"x": x, "final_states_out": x[..., :2]}, "final_states_out must not overlap x, got memory in common"),
        (
            rows,
            {"final_states_out": memory[:, :, :1].expand(2, 6, 2)},
            "final_states_out must not have two elements .*",
        ),
        (rows, {"final_states_out": inference}, "final_states_out must not be an inference tensor outside .*, got one"),
        (
            rows,
            {"initial_states": memory[..., :2], "final_states_out": memory[..., 1:3]},
            "final_states_out must not overlap initial_states unless it is that tensor, got memory in common",
        ),
    ]
    out = memory[:, :5, :4]
    rule = "final_states_out must not overlap out, got memory in common"
    calls.append((rows, {"out": out, "final_states_out": memory[..., 3:5]}, rule))
    calls.append((rows, {"out": out, "final_states_out": memory[..., :3]}, "final_states_out must have shape .*"))
    before = x.clone()
    check_calls("causal_conv1d", calls)
    check_calls("causal_conv1d", [(given, {**changes, "post": OWN}, rule) for given, changes, rule in calls])
    assert torch.equal(x, before)
    assert not memory.any()


@each_op
def test_rows_are_refused_in_the_op_s_own_words(device: str, op: str) -> None:
    """Another raw op computes them, which has other names for its arguments."""
    good = good_call(op, device)
    rows = {name: good[name] for name in ("x", "weight", "bias", "stride")}
    calls: list[tuple[Given, Given, str]] = []
    for changes, rule in bad_calls(op, device):
        if changes.keys() <= {*rows, "dilation", "groups", "out", "post"}:
            words = re.escape(rule.replace("x's", "the input's"))
            calls.append((rows, changes, words.replace(re.escape("an operand of a chain"), ".*")))
    check_calls(op, calls)


def test_tensors_on_another_device(cuda: str) -> None:
    for op in OPS:
        good, found = good_call(op, cuda), "must be on the input's device cuda:0, got cpu"
        calls = [
            (good, {name: good[name].cpu()}, f"{name} {found}")
            for name in ("weight", "bias", CACHES[op], "cache_indices", "has_initial_state")
        ]
        calls.append((good, {"out": torch.zeros(result_shape(op, good["x"]))}, f"out {found}"))
        check_calls(op, calls)


@each_op
def test_a_cache_has_no_plan(op: str) -> None:
    given = good_call(op, "cpu")
    rows = {name: given[name] for name in ("x", "weight", "stride")}
    ways = [given, {**rows, CACHES[op]: given[CACHES[op]][:2]}]
    if op == "causal_conv1d":
        states, depthwise = torch.zeros(2, 6, 2), {"x": given["x"], "weight": torch.zeros(6, 1, 3), "groups": 6}
        ways += [{**depthwise, "state_cache": states}, {**depthwise, "return_final_states": True}]
        ways += [{**rows, "return_final_states": True}, {**rows, "initial_states": states}]
    rule = f"{op} must have no cache, because such calls have no choice of schedule and no linked form, got one"
    for way in ways:
        with pytest.raises(ValueError, match=f"^plan: {rule}$"):
            sluice.plan(op, **way)
        with pytest.raises(ValueError, match=f"^prepare: {rule}$"):
            sluice.prepare("silu", op=op, **way)
