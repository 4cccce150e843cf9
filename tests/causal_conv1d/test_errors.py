"""Refusals of causal_conv1d with sequences: the function's in each form, the raw ops' and their fakes'."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
import torch

import sluice
from sequence_calls import FORMS, OP, WRITTEN, Given, call_raw, converted, good_call, ints
from sluice import stages

OWN = stages.cpp("x + 1", reference=lambda x: x + 1)

STATES = "(sequences, channels, (K - 1) * dilation) = (2, 6, 3)"
WRONG_SHAPES: list[tuple[list[str], str, str, list[tuple[int, ...]]]] = [
    (FORMS, "x", "(batch, channels, length)", [(6,), (2, 6, 9, 1)]),
    (FORMS, "weight", "(C, K) with C = 6", [(5, 4), (6, 1, 4, 1), (6, 0), (6,), ()]),
    (FORMS, "bias", "(C,) with C = 6", [(4,), (6, 1)]),
    (["ids"], "seq_idx", "(2, 9)", [(2, 8), (1, 9), (2, 9, 1), (9,)]),
    (["ids", "starts"], "initial_states", STATES, [(1, 6, 3), (2, 5, 3), (2, 6, 2), (2, 6), (1, 2, 6, 3)]),
    (["ids", "starts"], "final_states_out", STATES, [(1, 6, 3), (2, 5, 3), (2, 6, 2), (2, 6), (1, 2, 6, 3)]),
    (["ids", "cache"], "out", "(2, 6, 9)", [(2, 6, 8), (6, 9)]),
    (["starts"], "x", "(1, channels, tokens) with cu_seqlens", [(2, 6, 9)]),
    (["starts"], "cu_seqlens", "(sequences + 1,)", [(0,), (3, 1), ()]),
    (["cache"], "state_cache", "(slots, 6, columns)", [(3, 5, 5), (3, 6), (3, 6, 5, 1)]),
    (["cache"], "cache_indices", "(2 or more,)", [(1,), (2, 1), ()]),
    (["cache"], "has_initial_state", "(2,)", [(1,), (3,), (2, 1)]),
]
WRONG_TYPES = {
    torch.float32: ("float32, float16, bfloat16 or float64", [torch.int32, torch.complex64]),
    torch.int32: ("int32 or int64", [torch.int16, torch.float32]),
    torch.bool: ("bool", [torch.int32]),
}


def bad_calls(device: str) -> Iterator[tuple[str, Given, str]]:
    """A form of `good_call`, arguments in place of its own, and the rule that they break."""
    for forms, name, rule, wrongs in WRONG_SHAPES:
        for form, wrong in itertools.product(forms, wrongs):
            good = good_call(form, device)
            tensor = good.get(name, good["x"]).new_ones(wrong)
            yield form, {name: tensor}, f"{name} must have shape {rule}, got {wrong}"
    for form in FORMS:
        good, operand = good_call(form, device), torch.ones(4, device=device)
        for name, value in {**good, **({} if form == "cache" else {"final_states_out": operand})}.items():
            known, wrong_types = WRONG_TYPES[value.dtype]
            for dtype in wrong_types:
                found = str(dtype).removeprefix("torch.")
                yield form, {name: value.to(dtype)}, f"{name} must have dtype {known}, got {found}"
        yield form, {"out": good["x"].half()}, "out must have dtype float32, got float16"
        yield form, {"dilation": 0}, "dilation must be at least 1, got 0"
        for dilation in (2**31, 2**62):
            rule = f"dilation and taps must be less than 2^31, got {dilation} and 4"
            yield form, {"dilation": dilation}, rule
        yield form, {"activation": "gelu"}, "activation must be None, identity, silu or swish, got 'gelu'"
        rule = f"must broadcast to the result's shape {tuple(good['x'].shape)}, got (4,)"
        yield form, {"pre": stages.mul(operand)}, f"pre operand 0 {rule}"
        yield form, {"post": stages.mul(operand)}, f"post operand 0 {rule}"
        yield form, {"residual": operand}, f"post operand 0 {rule}"
    rule = "state_cache must have at least (K - 1) * dilation = {} columns, got {}"
    yield "cache", {"state_cache": torch.ones(3, 6, 2, device=device)}, rule.format(3, 2)
    yield "cache", {"dilation": 3}, rule.format(9, 5)
    rule = "state_cache must have 2 slots, one per sequence, when cache_indices is None, got 3"
    yield "cache", {"cache_indices": None}, rule


def overlapping_calls(device: str) -> Iterator[tuple[str, Given, str]]:
    """Tensors that share memory; one is written."""
    numbers, common = torch.zeros(200, dtype=torch.int32, device=device), "got memory in common"

    def part(*shape: int, first: int = 0) -> torch.Tensor:
        return numbers.view(torch.float32)[first:].as_strided(shape, torch.empty(shape, device="meta").stride())

    def all_of(tensor: torch.Tensor) -> torch.Tensor:
        return numbers.view(tensor.dtype)[8 : 8 + tensor.numel()].view(tensor.shape)

    for form, written in itertools.product(FORMS, WRITTEN):
        if written != "out" and (written == "state_cache") != (form == "cache"):
            continue
        good = good_call(form, device)
        shape = {"out": tuple(good["x"].shape), "state_cache": (3, 6, 5)}.get(written, (2, 6, 3))
        target = {written: part(*shape)}
        for name in good.keys() - {*WRITTEN, "initial_states"}:
            yield form, {**target, name: all_of(good[name])}, f"{written} must not overlap {name}, {common}"
        for name in ("pre", "post"):
            unless = " unless it is that tensor" if (written, name) == ("out", "post") else ""
            rule = f"{written} must not overlap an operand of {name}{unless}, {common}"
            yield form, {**target, name: stages.add(part(9, first=17))}, rule
        twice = f"{written} must not have two elements at one address, got strides (0, 0, 0) for shape {shape}"
        yield form, {written: part(1).expand(shape)}, twice
    for form, name in (("ids", "initial_states"), ("starts", "initial_states"), ("cache", "state_cache")):
        good = good_call(form, device)
        changes = {"out": part(*good["x"].shape), name: all_of(good[name])}
        yield form, changes, f"out must not overlap the states, {common}"
        if form != "cache":
            states = {"final_states_out": part(2, 6, 3)}
            yield form, {**states, "out": changes["out"]}, f"final_states_out must not overlap out, {common}"
            rule = f"final_states_out must not overlap {name} unless it is that tensor, {common}"
            yield form, {**states, name: all_of(good[name])}, rule


def sorted_calls(device: str) -> list[tuple[str, Given, str]]:
    """The calls, in an order that is the same in every process."""
    return sorted([*bad_calls(device), *overlapping_calls(device)], key=lambda call: (call[0], call[2], list(call[1])))


CALLS = sorted_calls("cpu")


def words_of(given: Given) -> str | None:
    """The words of the raw op's error."""
    try:
        call_raw(**given)
    except (RuntimeError, IndexError) as error:
        return str(error).split("\nException raised from", 1)[0].strip()
    return None


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda n: f"{n} {CALLS[n][0]} {CALLS[n][2][:40]}")
def test_each_is_refused(device: str, number: int) -> None:
    """By the function in all its ways and, in the same words, by the raw op; before anything is written.

    With a stage of one's own the results go through other memory first.
    """
    form, changes, rule = sorted_calls(device)[number]
    given = {**good_call(form, device), **changes}
    before, text = converted(given, torch.clone), f"^{re.escape(f'{OP}: {rule}')}$"
    ways: list[Given] = [{}]
    if "out" not in changes:
        ways.append({"out": torch.zeros(good_call(form, device)["x"].shape, device=device)})
    ways += [{**way, "return_final_states": True} for way in ways if form != "cache"]
    ways += [{**way, "pre": OWN} for way in ways if "pre" not in changes]
    ways += [{**way, "post": OWN} for way in ways if "post" not in changes]
    for way in ways:
        with pytest.raises(TypeError if " must have dtype " in rule else ValueError, match=text):
            sluice.causal_conv1d(**given, **way)
        assert not way.get("out", torch.zeros(1)).any()
    assert words_of(given) == f"{OP}: {rule}"
    for name, value in before.items():
        assert not isinstance(value, torch.Tensor) or torch.equal(given[name], value)


@pytest.mark.parametrize("form", FORMS)
def test_fakes_refuse_what_the_ops_refuse(form: str) -> None:
    """Fakes use the same words, and report the same rule where two rules are broken."""
    calls = [changes for kind, changes, _ in bad_calls("cpu") if kind == form and not {*WRITTEN[:2]} & changes.keys()]
    wrong = set()
    for one, other in itertools.combinations_with_replacement(calls, 2):
        if one is not other and one.keys() & other.keys():
            continue
        given = {**good_call(form, "cpu"), **one, **other}
        meta = converted(given, lambda t: t.to("meta"))
        for name in {"pre", "post"} & given.keys():
            meta[name] = stages.mul(torch.ones(4, device="meta"))
        found, wanted = words_of(meta), words_of(given)
        assert wanted is not None
        if found != wanted:
            wrong.add((found, wanted))
    assert wrong == set()


def test_rules_of_the_function_alone(device: str) -> None:
    cache, ids, starts = (good_call(form, device) for form in ("cache", "ids", "starts"))
    states = ids["initial_states"]
    calls: list[tuple[Given, Given, str]] = [(ids, {"final_states_out": [1]}, "final_states_out must be a .*got list")]
    for given in (ids, starts, cache):
        for name in (*given, "residual", "out"):
            calls.append((given, {name: [1.0]}, f"{name} must be a torch.Tensor, got list"))
        for options in ({"schedule": "direct"}, {"depth": 2}):
            calls.append((given, options, "schedule must be auto and depth None with sequences or a state_.*, got .*"))
    for name in ("cache_indices", "has_initial_state"):
        calls.append((ids, {name: cache[name]}, f"{name} must be given with a state_cache, got none"))
    for options in ({"initial_states": states}, {"final_states_out": states}, {"return_final_states": True}):
        calls.append((cache, options, "initial_states and final states must be omitted when state_cache is given, .*"))
    for name in ("dilation", "pad_slot_id", "null_slot_id"):
        calls.append((cache, {name: 1.5}, f"{name} must be an int, got float"))
    calls.append(
        (starts, {"seq_idx": ints([[0] * 9], device)}, "seq_idx must be None when cu_seqlens is given, got both")
    )
    rows = {name: ids[name] for name in ("x", "weight", "bias")}
    for given, slot in itertools.product((ids, starts, rows), ({"pad_slot_id": 3}, {"null_slot_id": 0})):
        calls.append((given, slot, f"{next(iter(slot))} must be given with a state_cache, got none"))
    calls.append(
        (rows, {"pad_slot_id": 3, "null_slot_id": 0}, "pad_slot_id must be given with a state_cache, got none")
    )
    wrong = []
    for given, options, rule in calls:
        try:
            wrong.append(sluice.causal_conv1d(**{**given, **options}))
        except Exception as error:  # whatever it is, it is compared
            right = TypeError if re.search("must be an? ", rule) else ValueError
            if type(error) is not right or not re.fullmatch(f"{OP}: {rule}", str(error)):
                wrong.append(error)
    assert wrong == []


def test_rules_hold_with_a_stage_of_ones_own() -> None:
    """The op then computes into other memory first, and writes nothing if one result does not fit."""
    memory = torch.zeros(200)
    out, cache = memory[:108].view(2, 6, 9), memory[100:190].view(3, 6, 5)
    calls: list[tuple[str, Given]] = [("cache", {"state_cache": cache, name: out}) for name in ("x", "out")]
    wrong_states = memory[100:136].view(2, 6, 3), torch.zeros(5, 2, 6, 3), torch.zeros(2, 6, 3).int()
    calls += [("ids", {"out": out, "final_states_out": states}) for states in wrong_states]
    for form, changes in calls:
        with pytest.raises((TypeError, ValueError), match=f"^{OP}: "):
            sluice.causal_conv1d(**{**good_call(form, "cpu"), **changes}, post=OWN)
        assert not any(value.any() for value in changes.values())


def test_lazily_negated_memory_is_still_that_memory(device: str) -> None:
    """The op itself gets other memory for such a tensor."""
    wrong = []
    for form, changes, rule in overlapping_calls(device):
        negated = {name: torch._neg_view(changes[name]) for name in {*WRITTEN} & changes.keys()}
        for name, other in itertools.product(negated, ({}, {"post": OWN})):
            given = {**good_call(form, device), **other, **changes, name: negated[name]}
            try:
                wrong.append((form, rule, sluice.causal_conv1d(**given)))
            except ValueError as error:
                if str(error) != f"{OP}: {rule}":
                    wrong.append((form, rule, error))
    assert wrong == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_states_keep_their_bits_with_a_stage_of_ones_own(dtype: torch.dtype) -> None:
    """Sums are float32, but states are not: these are float64, and their first columns stay."""
    given = good_call("ids", "cpu") | {"seq_idx": ints([[0] * 2] * 2, "cpu")}
    given["x"] = given["x"][..., :2].half()
    given["initial_states"] = torch.randn(2, 6, 3, dtype=torch.float64)
    found = []
    for options in ({}, {"post": OWN}):
        into = torch.zeros(2, 6, 3, dtype=dtype)
        assert sluice.causal_conv1d(**given, final_states_out=into, **options)[1] is into
        _, fresh = sluice.causal_conv1d(**given, return_final_states=True, **options)
        found.append((into, fresh))
    for wanted, states in zip(*found, strict=True):
        assert states.dtype == wanted.dtype
        assert torch.equal(states, wanted)
    assert torch.equal(found[1][0][..., 0], given["initial_states"][..., 2].to(dtype))


def test_raw_ops_run_no_stages_of_ones_own() -> None:
    for form, name in itertools.product(FORMS, ("pre", "post")):
        given = good_call(form, "cpu")
        before = converted(given, torch.clone)
        with pytest.raises(RuntimeError, match=f"^{OP}: {name} must have no cpp stage in the raw op"):
            call_raw(**given, **{name: OWN})
        for key, value in before.items():
            assert torch.equal(given[key], value)


ROWS_SHAPES = "final_states_out must have shape (sequences, channels, (K - 1) * dilation) = (2, 6, 3), got {}"


def test_rows_are_refused_before_anything_is_written(device: str) -> None:
    """Also with states in a separate launch, or with a stage of one's own."""
    good = {name: good_call("ids", device)[name] for name in ("x", "weight", "bias", "initial_states")}
    zeros, calls = torch.zeros(2, 6, 3, device=device), []
    for shape in ((), (6,), (6, 0), (5, 4), (6, 1, 4, 1)):
        rule = f"weight must have shape (C, K) with C = 6, got {shape}"
        calls.append(({"weight": torch.ones(shape, device=device)}, rule))
    calls.append(({"dilation": 0}, "dilation must be at least 1, got 0"))
    for dilation in (2**31, 2**62):
        calls.append(({"dilation": dilation}, f"dilation and taps must be less than 2^31, got {dilation} and 4"))
    for chain in ("pre", "post"):
        operand, rule = torch.ones(4, device=device), "must broadcast to the result's shape (2, 6, 9), got (4,)"
        calls.append(({chain: stages.mul(operand)}, f"{chain} operand 0 {rule}"))
    calls.append(({"final_states_out": zeros[..., :2]}, ROWS_SHAPES.format((2, 6, 2))))
    calls.append(({"out": zeros}, "out must have shape (2, 6, 9), got (2, 6, 3)"))
    wrong = []
    ways = itertools.product((False, True), ({}, {"pre": OWN}, {"post": OWN}), ({}, {"schedule": "direct"}))
    for (changes, rule), (has_out, chain, schedule) in itertools.product(calls, [*ways]):
        given = {"return_final_states": True, **good, **chain, **schedule, **changes}
        given |= {"out": changes.get("out", torch.zeros_like(good["x"]))} if has_out else {}
        try:
            wrong.append((given.keys(), rule, sluice.causal_conv1d(**given)))
        except ValueError as error:
            if str(error) != f"{OP}: {rule}" or given.get("out", zeros).any() or zeros.any():
                wrong.append((given.keys(), rule, error))
    assert wrong == []


def test_states_of_another_dtype_on_rows(device: str) -> None:
    """A schedule's kernels would read them as they read x; of no columns, they are not read."""
    given = {name: good_call("ids", device)[name] for name in ("x", "weight", "bias", "initial_states")}
    same, given["initial_states"] = {**given}, given["initial_states"].double()
    one_tap = {"weight": given["weight"][:, :1], "initial_states": given["initial_states"][..., :0]}
    rule = f"^{OP}: initial_states must have x's dtype with a schedule or a depth, got float64$"
    for options in ({"schedule": "direct"}, {"depth": 1}, {"schedule": "two_stage", "depth": 2}):
        for way in ({}, {"out": torch.zeros_like(given["x"])}, {"return_final_states": True}):
            with pytest.raises(ValueError, match=rule):
                sluice.causal_conv1d(**given, **options, **way)
            assert not any(value.any() for value in way.values() if isinstance(value, torch.Tensor))
        for convert in (torch.clone, lambda t: t.to("meta")):
            with pytest.raises(RuntimeError, match=rule.removesuffix("$")):
                torch.ops.sluice.causal_conv1d(**converted(given, convert), **options)
            torch.ops.sluice.causal_conv1d(**converted({**given, **one_tap}, convert), **options)
    torch.testing.assert_close(sluice.causal_conv1d(**given), sluice.causal_conv1d(**same))


def test_an_own_stage_behind_states_of_another_dtype(device: str) -> None:
    given = {name: good_call("ids", device)[name] for name in ("x", "weight", "bias", "initial_states")}
    given["x"], half = given["x"].half(), given["x"].half()
    wanted = sluice.causal_conv1d(**{**given, "x": half.float()}) + 1
    for way in ({}, {"return_final_states": True}, {"out": torch.zeros_like(half)}):
        found = sluice.causal_conv1d(**given, post=OWN, **way)
        result = found[0] if isinstance(found, tuple) else found
        torch.testing.assert_close(result, wanted.half(), rtol=1e-3, atol=1e-3)


def test_sequences_have_no_plan() -> None:
    for form, name in (("ids", "seq_idx"), ("starts", "cu_seqlens"), ("cache", "cache_indices, has_initial_state")):
        given = good_call(form, "cpu")
        rule = f"{OP} must have no seq_idx, cu_seqlens or state_cache, .* no choice of schedule .*, got {name}"
        for options in ({}, {"return_final_states": True}):
            with pytest.raises(ValueError, match=f"^plan: {rule}"):
                sluice.plan(OP, **given, **options)
            with pytest.raises(ValueError, match=f"^prepare: {rule}"):
                sluice.prepare("silu", op=OP, **given, **options)
    given = good_call("cache", "cpu")
    for name in ("cache_indices", "has_initial_state"):
        del given[name]
    with pytest.raises(ValueError, match="^plan: .*, got state_cache$"):
        sluice.plan(OP, **given)


def test_what_is_said_of_flat_tokens(device: str) -> None:
    """Errors show the shapes as given, without a batch dimension."""
    given = good_call("starts", device)
    given["x"] = given["x"][0]
    batched = torch.zeros(1, 6, 9, device=device)
    for name, argument, shapes in (
        ("out", "out must have shape", [(1, 6, 9), (6, 8), (9,), ()]),
        ("residual", "post operand 0 must broadcast to the result's shape", [(1, 6, 9), (1, 1, 1), (5, 1), (4,)]),
        ("pre", "pre operand 0 must broadcast to the result's shape", [(1, 6, 9), (5, 9)]),
    ):
        for shape in shapes:
            tensor = batched.new_zeros(shape)
            with pytest.raises(ValueError, match=re.escape(f"{OP}: {argument} (6, 9), got {shape}")):
                sluice.causal_conv1d(**given, **{name: stages.mul(tensor) if name == "pre" else tensor})
    for shape in ((6, 9), (1, 9), (6, 1), (9,), ()):
        sluice.causal_conv1d(**given, residual=batched.new_zeros(shape))
