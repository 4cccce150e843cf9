"""causal_conv1d_update as a call: layouts of results, autograd, autocast, compilers, CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import sluice
from common import HALF_TYPES, contiguous, permuted, poisoned_like, sliced
from sluice import stages
from update_calls import OP, good_call, index
from update_problems import assert_same_bits, projected

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def test_inputs_that_require_grad(device: str) -> None:
    given = good_call(device)
    for name in given:
        leaf = {**given, name: given[name].clone().requires_grad_()}
        with pytest.raises(RuntimeError, match=rf"^{OP}: sluice is forward-only .* torch.inference_mode\(\)"):
            sluice.causal_conv1d_update(**leaf)
        assert_same_bits(leaf["conv_state"], given["conv_state"])
        with torch.no_grad():
            sluice.causal_conv1d_update(**leaf)
    parameter = torch.nn.Parameter(torch.randn(6, 1, device=device))
    for chains in ({"pre": stages.mul(parameter)}, {"post": stages.mul(parameter)}, {"residual": parameter}):
        with pytest.raises(RuntimeError, match="forward-only"):
            sluice.causal_conv1d_update(**given, **chains)
    with torch.inference_mode():
        sluice.causal_conv1d_update(**good_call(device))


def test_a_saved_state_may_not_be_written(device: str) -> None:
    given = good_call(device)
    leaf = given["conv_state"].clone().requires_grad_()
    saved = torch.exp(leaf)
    sluice.causal_conv1d_update(**{**given, "conv_state": saved.detach()})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_the_result_is_a_tensor_of_its_own(device: str) -> None:
    given = good_call(device)
    results = [sluice.causal_conv1d_update(**given) for _ in range(2)]
    memories = {t.untyped_storage().data_ptr() for t in (*results, *given.values())}
    assert len(memories) == 6
    assert results[0]._base is None


@pytest.mark.parametrize("layout", [contiguous, permuted, projected, sliced], ids=lambda f: f.__name__)
def test_layout_of_the_result(device: str, layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    given = {name: value for name, value in good_call(device).items() if name != "x"}
    for shape in ((2, 6, 3), (2, 6)):
        x = layout(torch.randn(shape, device=device))
        real = sluice.causal_conv1d_update(x, **given)
        is_last = layout in (permuted, projected) and len(shape) == 3
        assert real.stride() == ((18, 1, 6) if is_last else torch.empty(shape).stride())
        meta = {name: value.to("meta") for name, value in given.items()}
        found = [sluice.causal_conv1d_update(torch.empty_strided(shape, x.stride(), device="meta"), **meta)]
        with FakeTensorMode() as mode:
            fakes = {name: mode.from_tensor(value) for name, value in given.items()}
            found.append(sluice.causal_conv1d_update(mode.from_tensor(x), **fakes))
        for fake in found:
            assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_autocast_casts_all_but_the_state(device: str, dtype: torch.dtype) -> None:
    given = good_call(device)
    state = given.pop("conv_state")
    half = {name: value.to(dtype) for name, value in given.items()}
    for op in (sluice.causal_conv1d_update, torch.ops.sluice.causal_conv1d_update):
        wanted_state, found_state = state.clone(), state.clone()
        wanted = op(**half, conv_state=wanted_state, activation="silu")
        with torch.autocast(device, dtype=dtype):
            found = op(**given, conv_state=found_state, activation="silu")
        assert_same_bits(found, wanted)
        assert_same_bits(found_state, wanted_state)
        out, found_state = poisoned_like(half["x"]), state.clone()
        with torch.autocast(device, dtype=dtype):
            sluice.causal_conv1d_update(**given, conv_state=found_state, activation="silu", out=out)
        assert_same_bits(out, wanted)
        assert_same_bits(found_state, wanted_state)


OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "plain": lambda device: {},
    "circular": lambda device: {"cache_seqlens": index(2, device=device) + 5, "activation": "silu"},
    "slots": lambda device: {"conv_state_indices": torch.tensor([1, -1], device=device), "null_slot_id": 0},
    "packed": lambda device: {"query_start_loc": torch.tensor([0, 3, 4], device=device)},
    "accepted": lambda device: {"state_at": "front", "num_accepted_tokens": index(2, device=device) + 2},
    "chains": lambda device: {
        "pre": "mul($0)",
        "pre_operands": [torch.randn(6, 1, device=device)],
        "post": "add($0)",
        "post_operands": [torch.randn(2, 6, 3, device=device)],
    },
}


@pytest.mark.parametrize("layout", [contiguous, permuted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", OPTIONS)
def test_opcheck(device: str, name: str, layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    given = good_call(device)
    x = torch.randn(5, 6, device=device) if name == "packed" else layout(given["x"])
    state = layout(torch.randn(2, 6, 7, device=device))
    arguments = (x, state, given["weight"], given["bias"])
    # Tracing takes a hundred times as long as the others: the result is written with other options than it is fresh.
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    traced = ["test_aot_dispatch_dynamic"] if layout is contiguous else []
    is_written = name in ("plain", "packed", "chains")
    op, op_out = torch.ops.sluice.causal_conv1d_update, torch.ops.sluice.causal_conv1d_update_out
    opcheck(op.default, arguments, OPTIONS[name](device), test_utils=tests + traced * (not is_written))
    into = {**OPTIONS[name](device), "out": torch.empty_like(x)}
    opcheck(op_out.default, arguments, into, test_utils=tests + traced * is_written)


class Steps(torch.nn.Module):
    """A cache that is updated twice, after one gate and before the other."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.register_buffer("cache", torch.randn(5, 6, 4, device=device))
        self.register_buffer("weight", torch.randn(6, 4, device=device))

    def forward(self, x: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        update, options = sluice.causal_conv1d_update, {"conv_state_indices": slots}
        y = update(x, self.cache, self.weight, None, "silu", pre=stages.mul(x), **options)
        return update(y, self.cache, self.weight, residual=x, **options) + self.cache.sum()


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", True), ("inductor", None)])
def test_compiled_steps_change_the_cache_in_place(device: str, backend: str, dynamic: bool | None) -> None:
    model, alone = Steps(device), Steps(device)
    alone.load_state_dict(model.state_dict())
    counter = CompileCounterWithBackend(backend)
    compiled, place = torch.compile(model, backend=counter, fullgraph=True, dynamic=dynamic), model.cache.data_ptr()
    slots = torch.tensor([4, -1, 2], device=device)
    for tokens in (2, 5, 3, 8):
        x, version = torch.randn(3, 6, tokens, device=device), model.cache._version
        torch.testing.assert_close(compiled(x, slots), alone(x, slots))
        assert model.cache.data_ptr() == place
        assert model.cache._version > version
        torch.testing.assert_close(model.cache, alone.cache)
    assert counter.frame_count <= (2 if dynamic is None else 1)


def test_a_compiled_result_in_the_inputs_place(device: str) -> None:
    def step(x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return sluice.causal_conv1d_update(y, state, weight, out=y) * 2

    given = good_call(device)
    state = given["conv_state"].clone()
    wanted = step(given["x"], state, given["weight"])
    found = torch.compile(step, fullgraph=True)(given["x"], given["conv_state"], given["weight"])
    torch.testing.assert_close(found, wanted)
    assert_same_bits(given["conv_state"], state)


@pytest.mark.parametrize("packed", [False, True])
def test_replays_of_a_cuda_graph(cuda: str, packed: bool) -> None:
    """Tokens, slots and lengths are read, and the cache is written, at each replay."""
    x = torch.randn((12, 70) if packed else (4, 70, 3), device=cuda)
    cache, w = torch.randn(9, 70, 5, device=cuda), torch.randn(70, 4, device=cuda)
    slots, lengths = torch.arange(4, device=cuda), torch.arange(4, device=cuda)
    options = {"conv_state_indices": slots, "cache_seqlens": lengths}
    if packed:
        options["query_start_loc"] = torch.tensor([0, 1, 1, 8, 11], device=cuda)

    def step(state: torch.Tensor) -> torch.Tensor:
        return sluice.causal_conv1d_update(x, state, w, None, "silu", **options)

    step(cache.clone())
    before, graph = cache.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(cache)
    assert_same_bits(cache, before)
    for replay in range(4):
        x.normal_()
        slots.copy_(torch.randperm(9, device=cuda)[:4] - (replay % 2))  # -1 is none
        lengths += 3
        wanted_cache = cache.clone()
        wanted = step(wanted_cache)
        result.fill_(float("nan"))
        graph.replay()
        assert_same_bits(result, wanted)
        assert_same_bits(cache, wanted_cache)


def test_no_form_synchronises(cuda: str) -> None:
    calls = []
    for name, options in OPTIONS.items():
        x = torch.randn((5, 6) if name == "packed" else (2, 6, 3), device=cuda)
        arguments = x, torch.randn(2, 6, 7, device=cuda), torch.randn(6, 4, device=cuda)
        calls.append((arguments, options(cuda)))

    def call_all() -> None:
        for arguments, options in calls:
            torch.ops.sluice.causal_conv1d_update(*arguments, **options)

    call_all()  # the first launch of a kernel loads it
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call_all()
    finally:
        torch.cuda.set_sync_debug_mode("default")
