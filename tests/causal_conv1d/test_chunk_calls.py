"""Chunks of causal_conv1d and causal_conv_transpose1d as calls: autograd, layouts, autocast, compilers, own stages.

Their errors have a file of their own, and what a mapped cache does is in tests/contracts/test_vmap.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.library import opcheck

import sluice
from chunk_calls import OPS, call, call_raw, good_call, raw_call, result_shape
from chunk_problems import CACHES, TOLERANCE, error_of
from common import HALF_TYPES, Given, Layout, contiguous, permuted, poisoned_like, sliced
from sequence_calls import converted, ints
from sequence_problems import expanded, projected, strides_of_result
from sluice import stages
from update_problems import assert_same_bits

pytestmark = pytest.mark.usefixtures("fresh_compiler")
each_op = pytest.mark.parametrize("op", OPS)


def float_tensors(given: Given) -> dict[str, torch.Tensor]:
    return {name: t for name, t in given.items() if isinstance(t, torch.Tensor) and t.is_floating_point()}


def with_out(op: str, given: Given) -> Given:
    return {**given, "out": given["x"].new_full(result_shape(op, given["x"]), float("nan"))}


@each_op
def test_inputs_that_require_grad(device: str, op: str) -> None:
    good = with_out(op, good_call(op, device))
    for name, value in float_tensors(good).items():
        given = {**converted(good, torch.clone), name: value.clone().requires_grad_()}
        which = r"out requires grad; detach\(\) it" if name == "out" else r".* torch.inference_mode\(\)"
        with pytest.raises(RuntimeError, match=f"^{op}: sluice is forward-only .*{which}"):
            call(op, given)
        dual = pytest.raises(RuntimeError, match=f"^{op}: sluice has no forward-mode gradients")
        with forward_ad.dual_level(), dual:
            call(op, {**given, name: forward_ad.make_dual(value, value)})
        assert torch.equal(given[CACHES[op]], good[CACHES[op]])
        with torch.no_grad():
            call(op, given)
    gate = torch.nn.Parameter(torch.randn(1, device=device))
    for chain in ("pre", "post"):
        with pytest.raises(RuntimeError, match="forward-only"):
            call(op, {**good, chain: stages.mul(gate)})
    with torch.inference_mode():
        call(op, good_call(op, device))


@pytest.mark.parametrize("written", ["out", "cache", "final_states_out"])
@each_op
def test_what_is_saved_may_not_be_written(device: str, op: str, written: str) -> None:
    given = with_out(op, good_call(op, device))
    name = CACHES[op] if written == "cache" else written
    if written == "final_states_out":
        if op != "causal_conv1d":
            pytest.skip("it has no final states")
        given = {key: given[key] for key in ("x", "weight", "stride")} | {name: torch.zeros(2, 6, 2, device=device)}
    saved = torch.exp(torch.zeros_like(given[name]).requires_grad_())
    version = saved._version
    call(op, {**given, name: saved.detach()})
    assert saved._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@each_op
def test_versions_of_what_is_written(device: str, op: str) -> None:
    """The raw op raises the cache's and the result's version; a refused call raises none."""
    given = with_out(op, good_call(op, device))
    cache, out = given[CACHES[op]], given["out"]
    for function in (call, call_raw):
        versions = cache._version, out._version
        function(op, given)
        assert cache._version > versions[0]
        assert out._version > versions[1]
        versions = cache._version, out._version
        with pytest.raises((RuntimeError, ValueError), match="dilation must be at least 1"):
            function(op, {**given, "dilation": 0})
        assert versions == (cache._version, out._version)


@each_op
def test_inference_tensors(device: str, op: str) -> None:
    good = with_out(op, good_call(op, device))
    with torch.inference_mode():
        inside = converted(good, torch.clone)
        call(op, inside)
    for name in (CACHES[op], "out"):
        given = {**converted(good, torch.clone), name: inside[name]}
        rule = rf"{op}: {name} must not be an inference tensor outside torch.inference_mode\(\), got one"
        with pytest.raises(ValueError, match=rule):
            call(op, given)
        with pytest.raises(RuntimeError, match=rule):
            call_raw(op, given)
        assert_same_bits(given[CACHES[op]], (inside if name == CACHES[op] else good)[CACHES[op]])
        assert_same_bits(given["out"], (inside if name == "out" else good)["out"])
    call(op, {**inside, **{name: good[name] for name in (CACHES[op], "out")}})
    assert_same_bits(good["out"], inside["out"])


@pytest.mark.parametrize("layout", [contiguous, permuted, projected, sliced, expanded], ids=lambda f: f.__name__)
@each_op
def test_layout_of_the_results(device: str, op: str, layout: Layout) -> None:
    """Results have fresh memory, with the same layout as a fake's and a meta tensor's; caches keep theirs."""
    given = good_call(op, device)
    given["x"], given[CACHES[op]] = layout(given["x"]), permuted(given[CACHES[op]])
    strides = given[CACHES[op]].stride()
    rows = {name: given[name] for name in ("x", "weight", "bias", "stride")}
    ways: list[Given] = [given, rows]
    if op == "causal_conv1d":
        ways += [{**rows, "return_final_states": True}, {**given, "padding_mode": "replicate", "pre": stages.elu()}]
    for way in ways:
        results = call(op, way)
        meta = converted(way, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta"))
        fakes = [call(op, meta)]
        with FakeTensorMode() as mode:
            fakes.append(call(op, converted(way, mode.from_tensor)))
        real, *others = [found if isinstance(found, tuple) else (found,) for found in (results, *fakes)]
        assert real[0].shape == result_shape(op, given["x"])
        assert (real[0] if strides_of_result(given["x"])[2] == 1 else real[0].mT).is_contiguous()
        for found in others:
            for one, wanted in zip(found, real, strict=True):
                assert (one.shape, one.stride(), one.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
        tensors = [*real, *(value for value in way.values() if isinstance(value, torch.Tensor))]
        assert len({t.untyped_storage().data_ptr() for t in tensors}) == len(tensors)
    assert given[CACHES[op]].stride() == strides


@each_op
def test_lazily_negated_tensors(device: str, op: str) -> None:
    """Tensors that are written are negated too, and a chain's operands."""
    good = with_out(op, good_call(op, device))
    given = {name: torch._neg_view(-value) if name in float_tensors(good) else value for name, value in good.items()}
    gain, gate = torch.randn(6, 1, device=device), torch.randn(5, 1, device=device)
    for arguments, sign in ((good, 1), (given, -1)):
        operands = (gain, gate) if sign > 0 else (torch._neg_view(-gain), torch._neg_view(-gate))
        call(op, {**arguments, "pre": stages.mul(operands[0]), "post": stages.add(operands[1])})
    for name, value in float_tensors(good).items():
        assert given[name].is_neg()
        assert_same_bits(given[name].resolve_neg(), value)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@each_op
def test_autocast_casts_all_but_the_cache(device: str, op: str, dtype: torch.dtype) -> None:
    good = good_call(op, device)
    half = {name: value.to(dtype) if name in ("x", "weight", "bias") else value for name, value in good.items()}
    out = poisoned_like(half["x"].new_empty(result_shape(op, half["x"])))
    own = stages.cpp("x * a", a=1.5, reference=lambda x, a: x * a)
    ways: list[tuple[Callable[..., Any], Given]] = [
        *itertools.product((call, call_raw), ({"post": stages.silu(), "pre": stages.elu()}, {"out": out})),
        (call, {"pre": own, "post": own}),
        (call, {CACHES[op]: None, "cache_indices": None, "has_initial_state": None}),
    ]
    for function, way in ways:
        found = []
        for given, enabled in ((half, False), (good, True)):
            given = converted({**given, **way}, torch.clone)
            with torch.autocast(device, dtype=dtype, enabled=enabled):
                result = function(op, given)
            result = given["out"] if result is None else result
            found.append([t for t in (result, given[CACHES[op]], given.get("out")) if t is not None])
        assert found[1][0].dtype == dtype
        for one, wanted in zip(*found, strict=True):
            assert_same_bits(one, wanted)


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@each_op
def test_opcheck(device: str, op: str, layout: Layout) -> None:
    """Also that the cache is all that changes, with `out`."""
    given = good_call(op, device)
    given["x"], given[CACHES[op]] = layout(given["x"]), layout(given[CACHES[op]])
    gain, gate = torch.randn(6, 1, device=device), torch.randn(5, 1, device=device)
    chains: Given = {"pre": stages.mul(gain), "post": stages.silu() | stages.add(gate)}
    out = with_out(op, {"x": given["x"]})["out"].zero_()
    ways: list[Given] = [{"null_slot_id": 1}, chains, {**chains, "out": out, "pad_slot_id": 2}]
    if op == "causal_conv1d":
        ways.append({**chains, "padding_mode": "replicate"})
    for way in ways:
        # Tracing takes a hundred times as long as the others: a call with chains, and a call that writes its result.
        tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
        tests += ["test_aot_dispatch_dynamic"] if layout is contiguous and chains.keys() <= way.keys() else []
        opcheck(*raw_call(op, {**given, **way}), test_utils=tests)


class Stream(torch.nn.Module):
    """Calls with caches in buffers: down, up, and one that changes states that it has read."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.register_buffer("cache", torch.randn(5, 6, 7, device=device))
        self.register_buffer("sums", torch.randn(5, 6, 4, device=device))
        self.register_buffer("states", torch.randn(2, 6, 2, device=device))
        self.register_buffer("weight", torch.randn(6, 6, 4, device=device))

    def forward(self, x: torch.Tensor, slots: torch.Tensor, flags: torch.Tensor) -> Any:
        given = {"cache_indices": slots, "has_initial_state": flags, "stride": 2}
        y = sluice.causal_conv1d(
            x, self.weight, state_cache=self.cache, pre="elu", activation="silu", residual=x[..., ::2], **given
        )
        z = sluice.causal_conv_transpose1d(y, self.weight, overlap_cache=self.sums, post=stages.add(x), **given)
        out = torch.empty_like(y)
        w, last = sluice.causal_conv1d(
            z, self.weight, stride=2, initial_states=self.states, return_final_states=True, padding_mode="replicate"
        )
        sluice.causal_conv1d(z, self.weight, state_cache=self.cache, out=out, **given)
        self.states.copy_(last)
        return w + out, last * 2, self.cache.sum(), self.sums.sum()


def chunk(device: str, length: int) -> tuple[torch.Tensor, ...]:
    slots = ints([4, 0] if length > 4 else [2, -1], device)
    return torch.randn(2, 6, length, device=device), slots, ints([1, length > 4], device, torch.bool)


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", True), ("inductor", None)])
def test_compiled_calls_change_the_caches_in_place(device: str, backend: str, dynamic: bool | None) -> None:
    model, alone = Stream(device), Stream(device)
    alone.load_state_dict(model.state_dict())
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=dynamic)
    places = [one.data_ptr() for one in model.buffers()]
    for length in (4, 8, 14, 4):
        arguments, versions = chunk(device, length), [model.cache._version, model.sums._version]
        torch.testing.assert_close(compiled(*arguments), alone(*arguments))
        assert [one.data_ptr() for one in model.buffers()] == places
        assert model.cache._version > versions[0]
        assert model.sums._version > versions[1]
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(buffer, getattr(alone, name))
    assert counter.frame_count <= (2 if dynamic is None else 1)


def test_an_exported_stream(device: str) -> None:
    model, alone = Stream(device), Stream(device)
    alone.load_state_dict(model.state_dict())
    with torch.no_grad():
        loaded = torch.export.export(model, chunk(device, 8)).module()
        for length in (8, 8):
            arguments = chunk(device, length)
            torch.testing.assert_close(loaded(*arguments), alone(*arguments))
    for name, buffer in loaded.named_buffers():
        torch.testing.assert_close(buffer, getattr(alone, name))


@each_op
def test_inductor_copies_no_cache(device: str, op: str) -> None:
    given = good_call(op, device)
    x, weight, cache = given["x"], given["weight"], torch.randn(2, *given[CACHES[op]].shape[1:], device=device)

    def program(cache: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, keeps: bool) -> torch.Tensor:
        states = cache.clone() if keeps else cache
        return call(op, {"x": x, "weight": weight, "stride": 2, CACHES[op]: states}) + (states - cache).sum()

    shape = ", ".join(map(str, cache.shape))
    for keeps in (False, True):
        torch._dynamo.reset()
        _, codes = run_and_get_code(torch.compile(program, fullgraph=True), cache.clone(), x, weight, keeps)
        assert f"{op}_chunk" in "".join(codes)
        assert bool(re.search(rf"empty_strided\w*\(\(({shape}|{cache.numel()}, )\)", "".join(codes))) == keeps


# --- stages of one's own on the CPU -----------------------------------------------------------------------------------
TWICE = stages.cpp("x * a", a=2.0, reference=lambda x, a: x * a)


def failing(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("the reference fails")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@each_op
def test_own_stages_are_computed_by_their_references(op: str, dtype: torch.dtype) -> None:
    """The definition computes such a call: its cache has the op's bits, or for sums of rounded factors its values."""
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    good = converted(good_call(op, "cpu"), lambda t: t.to(dtype) if t.is_floating_point() else t)
    if op == "causal_conv_transpose1d" and dtype == torch.bfloat16:
        good[CACHES[op]] = good[CACHES[op]].float()
    rows = {name: good[name] for name in ("x", "weight", "bias", "stride")}
    for given in (good, rows, with_out(op, good), with_out(op, rows)):
        found = []
        for stage in (TWICE, stages.scale(2.0)):
            way = converted(given, torch.clone)
            result = call(op, {**way, "pre": stages.elu() | stage, "post": stage | stages.shift(1.0)})
            assert result.dtype == dtype
            assert result is way.get("out", result)
            found.append([result, *([way[CACHES[op]]] if CACHES[op] in way else [])])
        for one, wanted in zip(*found, strict=True):
            torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)
        if op == "causal_conv1d" and given is good:
            assert_same_bits(found[0][1], found[1][1])


@each_op
def test_an_own_stage_with_final_states_and_lazy_memory(op: str) -> None:
    given = with_out(op, good_call(op, "cpu"))
    plain = converted(given, torch.clone)
    for name in (CACHES[op], "out"):
        given[name] = torch._neg_view(-given[name])
    for way, stage in ((given, TWICE), (plain, stages.scale(2.0))):
        call(op, {**way, "post": stage})
    for name in (CACHES[op], "out"):
        torch.testing.assert_close(given[name], plain[name], rtol=1e-5, atol=1e-5)
    if op == "causal_conv1d":
        rows = {name: plain[name] for name in ("x", "weight", "stride")}
        mine, theirs = (call(op, {**rows, "pre": s, "return_final_states": True}) for s in (TWICE, stages.scale(2.0)))
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@each_op
def test_nothing_is_written_where_a_reference_fails(op: str) -> None:
    for stage, words in (
        (stages.cpp("x"), f"^{op}: a cpp stage must be given a reference= to run on the CPU, got 'cpp' without one$"),
        (stages.cpp("x", reference=failing), "the reference fails"),
    ):
        for name in ("pre", "post"):
            given = with_out(op, good_call(op, "cpu"))
            before = converted(given, torch.clone)
            with pytest.raises((ValueError, RuntimeError), match=words):
                call(op, {**given, name: stages.elu() | stage})
            for key, value in float_tensors(before).items():
                assert_same_bits(given[key], value)


def test_a_packed_weight_is_taken(device: str) -> None:
    given = good_call("causal_conv1d", device)
    cache = given["state_cache"].clone()
    result = sluice.causal_conv1d(**{**given, "weight": sluice.pack(given["weight"])})
    wanted = sluice.causal_conv1d(**{**given, "state_cache": cache})
    assert error_of(result, wanted) <= TOLERANCE[result.dtype]
    assert_same_bits(given["state_cache"], cache)
