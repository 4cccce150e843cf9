"""causal_conv1d of sequences as a call: autograd, layouts, autocast, compilers. Its errors have a file of their own."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.library import opcheck
from torch.utils._pytree import tree_leaves

import sluice
from common import HALF_TYPES, Layout, contiguous, permuted, poisoned_like, sliced
from sequence_calls import FORMS, OP, WRITTEN, Given, call_raw, converted, good_call, ints, raw_call
from sequence_problems import expanded, projected, strides_of_result
from sluice import stages
from update_problems import assert_same_bits

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize("form", FORMS)
def test_inputs_that_require_grad(device: str, form: str) -> None:
    good = good_call(form, device)
    written = ["out"] if form == "cache" else ["out", "final_states_out"]
    for name in (*good, "residual", *written):
        value = good.get(name, good["initial_states"] if name == "final_states_out" else good["x"])
        if not value.is_floating_point():
            continue
        given = {**converted(good, torch.clone), name: value.clone().requires_grad_()}
        which = rf"{name} requires grad; detach\(\) it" if name in written else r".* torch.inference_mode\(\)"
        with pytest.raises(RuntimeError, match=f"^{OP}: sluice is forward-only .*{which}"):
            sluice.causal_conv1d(**given)
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match=f"^{OP}: sluice has no forward-mode gradients"):
            sluice.causal_conv1d(**{**given, name: forward_ad.make_dual(value, value)})
        assert torch.equal(given.get("state_cache", value), good.get("state_cache", value))
        with torch.no_grad():
            sluice.causal_conv1d(**given)
    parameter = torch.nn.Parameter(torch.randn(6, 1, device=device))
    for chain in ("pre", "post"):
        with pytest.raises(RuntimeError, match="forward-only"):
            sluice.causal_conv1d(**good, **{chain: stages.mul(parameter)})
    with torch.inference_mode():
        sluice.causal_conv1d(**good_call(form, device))


@pytest.mark.parametrize("written", WRITTEN)
def test_what_is_saved_may_not_be_written(device: str, written: str) -> None:
    given = good_call("cache" if written == "state_cache" else "ids", device)
    example = given.get(written, given["initial_states"] if written == "final_states_out" else given["x"])
    saved = torch.exp(example.clone().requires_grad_())
    version = saved._version
    sluice.causal_conv1d(**{**given, written: saved.detach()})
    assert saved._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@pytest.mark.parametrize("layout", [contiguous, permuted, projected, sliced, expanded], ids=lambda f: f.__name__)
@pytest.mark.parametrize("form", [*FORMS, "flat"])
def test_layout_of_the_results(device: str, form: str, layout: Layout) -> None:
    """Results have fresh memory, with the same layout as a fake's and a meta tensor's."""
    given = good_call("starts" if form == "flat" else form, device)
    given["x"] = layout(given["x"][0] if form == "flat" else given["x"])
    if form != "cache":
        given |= {"return_final_states": True, "initial_states": permuted(given["initial_states"]).double()}
    real = sluice.causal_conv1d(**given)
    meta = converted(given, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta"))
    fakes = [sluice.causal_conv1d(**meta)]
    with FakeTensorMode() as mode:
        fakes.append(sluice.causal_conv1d(**converted(given, mode.from_tensor)))
    results, *others = [found if isinstance(found, tuple) else (found,) for found in (real, *fakes)]
    assert results[0].stride() == strides_of_result(given["x"])
    assert (results[-1].shape == (2, 6, 3) and results[-1].is_contiguous()) == (form != "cache")
    for found in others:
        for one, wanted in zip(found, results, strict=True):
            assert (one.shape, one.stride(), one.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
    tensors = [*results, *(value for value in given.values() if isinstance(value, torch.Tensor))]
    assert len({t.untyped_storage().data_ptr() for t in tensors}) == len(tensors)


@pytest.mark.parametrize("form", FORMS)
def test_lazily_negated_tensors(device: str, form: str) -> None:
    """Tensors that are written are negated too, and a chain's operands."""
    good = good_call(form, device) | {"residual": torch.randn(6, 1, device=device)}
    if form != "cache":
        good["final_states_out"] = torch.zeros(2, 6, 3, device=device)
    good["out"] = torch.zeros_like(good["x"])
    given = {name: torch._neg_view(-v) if v.is_floating_point() else v.clone() for name, v in good.items()}
    gate = torch.randn(6, 1, device=device)
    for arguments, operand in ((good, gate), (given, torch._neg_view(-gate))):
        sluice.causal_conv1d(**arguments, pre=stages.mul(operand), post=stages.add(operand))
    for name, value in good.items():
        assert given[name].is_neg() == value.is_floating_point()
        assert_same_bits(given[name].resolve_neg(), value)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_autocast_casts_all_but_the_states(device: str, form: str, dtype: torch.dtype) -> None:
    good = good_call(form, device)
    half = {name: value.to(dtype) if name in ("x", "weight", "bias") else value for name, value in good.items()}
    written = {"out": poisoned_like(half["x"])}
    if form != "cache":
        written["final_states_out"] = poisoned_like(good["initial_states"])
    for op, way in itertools.product((sluice.causal_conv1d, call_raw), ({"activation": "silu"}, written)):
        found: list[list[torch.Tensor]] = []
        for given, enabled in ((half, False), (good, True)):
            given = converted({**given, **way}, torch.clone)
            with torch.autocast(device, dtype=dtype, enabled=enabled):
                result = op(**given)
            leaves = tree_leaves((result, [given[name] for name in WRITTEN if name in given]))
            found.append([leaf for leaf in leaves if leaf is not None])
        assert found[1][0].dtype == dtype
        for one, wanted in zip(*found, strict=True):
            assert_same_bits(one, wanted)


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("form", FORMS)
def test_opcheck(device: str, form: str, layout: Layout) -> None:
    given, operand = good_call(form, device), torch.randn(6, 1, device=device)
    given["x"], states = layout(given["x"]), layout(torch.empty(2, 6, 3, device=device))
    chains = {"pre": stages.mul(operand), "residual": operand, "post": stages.tanh(), "activation": "silu"}
    out: Given = {"out": torch.empty_like(given["x"])}
    ways = [{}, chains, out, {"return_final_states": True}, {**chains, **out, "final_states_out": states}]
    if form == "cache":
        ways = [{"null_slot_id": 1}, chains, {**chains, **out, "pad_slot_id": 2}]
    for way in ways:
        # Tracing takes a hundred times as long as the others: a call with chains, and one that writes its results.
        tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
        tests += ["test_aot_dispatch_dynamic"] if layout is contiguous and chains.keys() <= way.keys() else []
        opcheck(*raw_call({**given, **way}), test_utils=tests)


class Prefill(torch.nn.Module):
    """Three calls: one changes a cache, another changes states that it has read."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.register_buffer("cache", torch.randn(5, 6, 11, device=device))
        self.register_buffer("states", torch.randn(1, 6, 3, device=device))
        self.register_buffer("weight", torch.randn(6, 4, device=device))

    def forward(self, x: torch.Tensor, starts: torch.Tensor, slots: torch.Tensor, ids: torch.Tensor) -> Any:
        conv, given = sluice.causal_conv1d, {"state_cache": self.cache, "cache_indices": slots}
        y = conv(x, self.weight, activation="silu", pre=stages.mul(x), cu_seqlens=starts, **given)
        y = conv(y[0], self.weight, residual=x[0], cu_seqlens=starts, dilation=2)[None]
        kept, out = {"initial_states": self.states, "final_states_out": self.states}, torch.empty_like(y)
        z, last = conv(y, self.weight, seq_idx=ids, **kept, out=out)
        return z + out, last * 2, self.cache.sum()


def prefill(device: str, lengths: list[int]) -> list[torch.Tensor]:
    tokens, starts = sum(lengths), list(itertools.accumulate(lengths, initial=0))
    indices = (starts, [4, -1, 2, 0][: len(lengths)], [[0] * 3 + [1] * (tokens - 3)])
    return [torch.randn(1, 6, tokens, device=device), *(ints(values, device) for values in indices)]


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", True), ("inductor", None)])
def test_compiled_calls_change_the_cache_in_place(device: str, backend: str, dynamic: bool | None) -> None:
    model, alone = Prefill(device), Prefill(device)
    alone.load_state_dict(model.state_dict())
    counter = CompileCounterWithBackend(backend)
    compiled, place = torch.compile(model, backend=counter, fullgraph=True, dynamic=dynamic), model.cache.data_ptr()
    for lengths in ([4, 3], [1, 0, 7], [9, 2, 5, 1], [2, 2, 2]):
        arguments, version = prefill(device, lengths), model.cache._version
        torch.testing.assert_close(compiled(*arguments), alone(*arguments))
        assert model.cache.data_ptr() == place
        assert model.cache._version > version
        torch.testing.assert_close(model.cache, alone.cache)
        torch.testing.assert_close(model.states, alone.states)
    assert counter.frame_count <= (2 if dynamic is None else 1)


def test_inductor_copies_no_cache(device: str) -> None:
    def program(cache: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, keeps: bool) -> torch.Tensor:
        states = cache.clone() if keeps else cache
        return sluice.causal_conv1d(x, weight, state_cache=states) + (states - cache).sum()

    x, weight, cache = (torch.randn(shape, device=device) for shape in ((5, 6, 9), (6, 4), (5, 6, 11)))
    for keeps in (False, True):
        torch._dynamo.reset()
        _, codes = run_and_get_code(torch.compile(program, fullgraph=True), cache.clone(), x, weight, keeps)
        assert "causal_conv1d_paged" in "".join(codes)
        assert bool(re.search(r"empty_strided\w*\(\((5, 6, 11|330, )\)", "".join(codes))) == keeps
