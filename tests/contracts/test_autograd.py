"""Forward-only without wrong gradients: results and writes of ops, and the functions' refusals."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.autograd.forward_ad as forward_ad

import sluice
from ops import every
from sluice import stages

functions = functools.partial(every, "places")
out_calls = functools.partial(every, "written")
raw_calls = functools.partial(every, "raw")


@pytest.mark.parametrize("op", raw_calls("cpu"))
@pytest.mark.parametrize("rank", [2, 3])
def test_a_raw_op_gives_no_gradient_rather_than_a_wrong_one(device: str, op: str, rank: int) -> None:
    if rank == 2 and op.startswith("causal_conv") and not op.startswith("causal_conv1d_update"):
        pytest.skip("it takes batches only")
    x = torch.randn((2, 4, 10)[3 - rank :], device=device, requires_grad=True)
    result = raw_calls(device)[op](x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that the op has no autograd kernel
        if result.requires_grad:
            assert "NotImplemented" in result.grad_fn.name()
            result.sum().backward()
    assert x.grad is None
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("op", raw_calls("cpu"))
def test_a_raw_op_takes_inference_tensors_in_every_mode(device: str, op: str) -> None:
    call = raw_calls(device)[op]
    with torch.inference_mode():
        x = torch.randn(2, 4, 10, device=device)
        inside = call(x)
    torch.testing.assert_close(call(x), inside)
    with torch.no_grad():
        torch.testing.assert_close(call(x.clone()), inside)
        assert not torch.is_grad_enabled()


@pytest.mark.parametrize("name", out_calls("cpu"))
def test_an_out_shows_autograd_that_it_changed(device: str, name: str) -> None:
    out, call = out_calls(device)[name]
    before = out._version
    call(out)
    assert out._version > before
    wider = torch.empty((2, *out.shape), device=device)
    before = wider._version
    call(wider[1])  # a view raises its base's
    assert wider._version > before
    with torch.inference_mode():
        call(torch.empty_like(out))


def test_what_a_gradient_saved_may_not_be_written(device: str) -> None:
    x = torch.rand(5, device=device, requires_grad=True)
    saved = torch.exp(x)
    sluice.transform(torch.zeros(5, device=device), stages.shift(1.0), out=saved.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@pytest.mark.parametrize("name", out_calls("cpu"))
def test_an_out_that_requires_grad_is_refused_as_torch_refuses_it(device: str, name: str) -> None:
    out, call = out_calls(device)[name]
    leaf = out.clone().requires_grad_()
    wanted = r": sluice is forward-only and (out|final_states_out) requires grad; detach\(\) it"
    for refused in (leaf, leaf * 1):
        with pytest.raises(RuntimeError, match=wanted):
            call(refused)
    with torch.no_grad():
        call(leaf)
    assert leaf.is_leaf
    call(leaf.detach())
    call(out)
    assert torch.equal(leaf, out)


def test_an_inference_tensor_is_no_out_outside_of_inference_mode(device: str) -> None:
    x = torch.randn(5, device=device)
    with torch.inference_mode():
        out = torch.zeros(5, device=device)
    with pytest.raises(ValueError, match="transform: out must not be an inference tensor outside"):
        sluice.transform(x, stages.silu(), out=out)
    with pytest.raises(RuntimeError, match="transform: out must not be an inference tensor outside"):
        torch.ops.sluice.transform_out(x, "silu()", out=out)
    assert torch.equal(out, torch.zeros_like(out))
    with torch.inference_mode():
        assert torch.equal(sluice.transform(x, stages.silu(), out=out), sluice.transform(x, stages.silu()))


@pytest.mark.parametrize("name", functions("cpu"))
def test_forward_mode_is_refused(device: str, name: str) -> None:
    call, x = functions(device)[name], torch.randn(2, 4, 10, device=device)
    wanted = "sluice has no forward-mode gradients and an input is a dual tensor"
    with pytest.raises(RuntimeError, match=wanted):
        torch.func.jvp(call, (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        for context in (torch.enable_grad, torch.no_grad):
            with context(), pytest.raises(RuntimeError, match=wanted):
                call(dual)
        with torch.inference_mode():  # where torch has no tangents either
            call(dual)
        call(x)
        call(forward_ad.unpack_dual(dual).primal)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_call_is_refused_in_our_words(device: str, fullgraph: bool) -> None:
    torch._dynamo.reset()
    gain = torch.rand(4, 1, device=device)
    compiled = torch.compile(lambda x: sluice.transform(x, stages.mul(gain) | stages.silu()), fullgraph=fullgraph)
    with pytest.raises(RuntimeError, match="transform: sluice is forward-only and an input requires grad"):
        compiled(torch.randn(2, 4, 10, device=device, requires_grad=True))


def test_an_out_is_no_dual(device: str) -> None:
    x = torch.randn(5, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.empty(5, device=device), x)
        with pytest.raises(RuntimeError, match="transform: sluice has no forward-mode gradients and out is a dual"):
            sluice.transform(x, stages.silu(), out=dual)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd])
def test_the_transforms_of_torch_func_that_differentiate_are_refused(device: str, transform: Callable) -> None:
    with pytest.raises(RuntimeError, match="sluice is forward-only|no forward-mode gradients"):
        transform(lambda x: sluice.transform(x, stages.silu()).sum())(torch.randn(4, device=device))


def test_compiled_outs_stay_right(device: str) -> None:
    def step(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        sluice.transform(x, stages.scale(2.0), out=buffer)
        before = buffer + 0
        sluice.transform(buffer, stages.shift(1.0), out=buffer)
        return before

    x, buffer = torch.randn(6, device=device), torch.zeros(6, device=device)
    result = torch.compile(step, fullgraph=True)(x, buffer)
    assert torch.equal(result, 2 * x)
    assert torch.equal(buffer, 2 * x + 1)
    assert buffer._version > 0
