"""Tensors that are more than their bytes: lazily negated and conjugated views, subclasses, torch.vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F

import sluice
from ops import every
from sluice import stages


def negated(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, negated in memory."""
    return torch._neg_view(tensor.neg())


def imaginary(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as the imaginary part of a conjugate: every other number in memory, negated."""
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


VIEWS = [negated, imaginary]
calls = functools.partial(every, "viewed")
out_calls = functools.partial(every, "viewed_outs")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", calls("cpu"))
def test_every_argument_keeps_its_sign(device: str, name: str, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    call = calls(device)[name]
    lazy: list[torch.Tensor] = []

    def viewed(tensor: torch.Tensor) -> torch.Tensor:
        lazy.append(view(tensor))
        assert lazy[-1].is_neg()
        return lazy[-1]

    torch.testing.assert_close(call(viewed), call(torch.clone), rtol=0, atol=0)
    assert lazy or device != "cpu"


def test_a_chains_operand_stays_the_callers_tensor() -> None:
    y = negated(torch.randn(4))
    chain = stages.add(y)
    chain(torch.zeros(4))
    assert chain.operands[0] is y
    assert chain == stages.add(y)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", out_calls("cpu"))
def test_an_out_is_written_with_its_sign(device: str, name: str, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    call = out_calls(device)[name]
    out = view(torch.full((2, 4, 9), float("nan"), device=device))
    version = out._version
    result = call(out)
    assert result is out
    assert out.is_neg()
    assert out._version > version
    torch.testing.assert_close(out, call(None), rtol=0, atol=0)


def test_a_lazy_out_may_be_the_input(device: str) -> None:
    x = negated(torch.randn(5, device=device))
    expected = F.silu(x)
    assert sluice.transform(x, stages.silu(), out=x) is x
    torch.testing.assert_close(x, expected)


def test_a_lazy_out_must_still_fit(device: str) -> None:
    out = negated(torch.zeros(4, device=device))
    with pytest.raises(ValueError, match=r"transform: out must have shape \(5,\), got \(4,\)"):
        sluice.transform(torch.randn(5, device=device), stages.silu(), out=out)
    assert torch.equal(out, torch.zeros_like(out))


def test_preparing_writes_nothing(device: str) -> None:
    x, out = torch.randn(4, device=device), negated(torch.ones(4, device=device))
    sluice.prepare(stages.add(negated(x)), x, out=out)
    assert torch.equal(out, torch.ones_like(out))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_operands_keep_their_sign(device: str, backend: str) -> None:
    torch._dynamo.reset()

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return sluice.transform(x, stages.add(torch._neg_view(y)))

    x, y = torch.randn(6, device=device), torch.randn(6, device=device)
    assert torch.equal(torch.compile(call, backend=backend, fullgraph=True)(x, y), x - y)


# --- subclasses -----------------------------------------------------------------------------------------------------
class Logged(torch.Tensor):
    """With memory, and an own say in what functions do with it."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Logged.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})


class Dispatched(torch.Tensor):
    """With memory, and an own say in what ops do with it."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def plain(value: Any) -> Any:
            return value.as_subclass(torch.Tensor) if isinstance(value, Dispatched) else value

        with torch._C._DisableTorchDispatch():
            args, kwargs = torch.utils._pytree.tree_map(plain, (args, kwargs or {}))
            return 100 + func(*args, **kwargs)


class Wrapper(torch.Tensor):
    """Without memory."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device, storage_offset=3
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrapped(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapper) else value

        args, kwargs = torch.utils._pytree.tree_map(unwrapped, (args, kwargs or {}))
        return func(*args, **kwargs)


def test_a_subclass_hears_of_the_call(device: str) -> None:
    x, y = torch.randn(4, device=device), torch.randn(4, device=device)
    for call in (
        lambda: sluice.transform(x.as_subclass(Logged), stages.add(y)),
        lambda: sluice.transform(x, stages.add(y.as_subclass(Logged))),
    ):
        Logged.seen.clear()
        result = call()
        assert any("sluice.transform" in name for name in Logged.seen)
        assert type(result) is Logged
        assert torch.equal(result.as_subclass(torch.Tensor), x + y)


def test_a_subclass_with_its_own_dispatch(device: str) -> None:
    x, y = torch.randn(4, device=device), torch.randn(4, device=device)
    for kind in (Wrapper, lambda t: t.as_subclass(Dispatched)):
        extra = 0 if kind is Wrapper else 100
        assert torch.equal(sluice.transform(kind(x), stages.add(y)), x + y + extra)
        assert torch.equal(sluice.transform(kind(x), stages.add(kind(y))), x + y + extra)
        name = type(kind(y)).__name__
        rule = f"transform: an operand of a chain must be a plain tensor when the input is one, got {name}"
        with pytest.raises(TypeError, match=rule):
            sluice.transform(x, stages.add(kind(y)))
        with pytest.raises(TypeError, match="conv1d: an operand of a chain must be a plain tensor"):
            sluice.conv1d(x[None], torch.ones(1, 1, 1, device=device), post=stages.add(kind(y)))
    parameter = torch.nn.Parameter(y, requires_grad=False)
    assert torch.equal(sluice.transform(x, stages.add(parameter)), x + y)


def test_a_tensor_without_memory_never_reaches_a_kernel(device: str) -> None:
    x = torch.randn(1, 4, 9, device=device)
    for raw in every("operands", device).values():
        for empty in (Wrapper(x), torch._efficientzerotensor((4, 9), device=device)):
            with pytest.raises(RuntimeError, match="operand 0 must have memory of its own, got a tensor without"):
                raw(empty)
    with pytest.raises(ValueError, match="transform: chain operand 0 must have memory of its own"):
        sluice.transform(x, stages.add(torch._efficientzerotensor((4, 9), device=device)))


# --- torch.vmap -----------------------------------------------------------------------------------------------------
def test_vmap_is_right_or_refused(device: str) -> None:
    x, y, w = torch.randn(3, 4, device=device), torch.randn(4, device=device), torch.randn(1, 1, 2, device=device)
    chain = stages.add(y) | stages.relu()
    assert torch.equal(torch.vmap(lambda row: sluice.transform(row, chain))(x), (x + y).relu())
    convolved = torch.vmap(lambda row: sluice.conv1d(row[None], w))(x)
    torch.testing.assert_close(convolved, F.conv1d(x[:, None], w))
    for call in (
        lambda row: sluice.transform(y, stages.add(row)),
        lambda row: sluice.transform(y, [stages.add(row), stages.silu()]),
    ):
        with pytest.raises(ValueError, match="transform: an operand of a chain must not be batched by torch.vmap"):
            torch.vmap(call)(x)
    with pytest.raises(ValueError, match="conv1d: an operand of a chain must not be batched by torch.vmap"):
        torch.vmap(lambda row: sluice.conv1d(x[None, :1], w[..., :1], post=stages.add(row)))(x)
