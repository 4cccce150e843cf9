"""Models that try to make `sluice.replace` wrong: a replaced one and its twin run the same steps, with equal results.

A run takes every eighth case of each table, the same cases each time; `SLUICE_ALL_CASES=1` takes all.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import math
import os
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import sluice

_EVERY = 1 if os.environ.get("SLUICE_ALL_CASES") == "1" else 8


def some(cases: Iterable[Any]) -> list[Any]:
    """The cases that a run takes."""
    return list(cases)[::_EVERY]


Forward = Callable[..., Any]
Step = int | Callable[[Any], Any]  # a length to call the model with, or a function of the model
STEPS: tuple[Step, ...] = (12, 9, 9)  # a trace, another length, and a call that takes what is there
logging.getLogger("torch.__trace").disabled = True  # whose records pytest keeps
LOG: list[Any] = []  # what forwards note
_OURS = ("_sluice", "_compiled_call_impl", "__jit_ignored_attributes__")
_replacements: dict[int, sluice.Replacement] = {}


class Base(nn.Module):
    """A module of depthwise convolutions, which are folded on the CPU; its forward is given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv, self.other = depthwise(), depthwise()
        self.act, self.slope = nn.LeakyReLU(0.2), 0.1
        self.gain = nn.Parameter(torch.rand(4, 1) + 0.5)
        self.register_buffer("shift", torch.rand(4, 1))
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.tanh(self.conv(self.act(x)))


def depthwise() -> nn.Conv1d:
    return nn.Conv1d(4, 4, 3, padding=1, groups=4)


def x_of(length: int = 12, *, batch: int = 2) -> torch.Tensor:
    """The same numbers for the same length."""
    return torch.randn(batch, 4, length, generator=torch.Generator().manual_seed(length))


def of_forward(forward: Forward, base: type[nn.Module] = Base, **attributes: Any) -> nn.Module:
    return type("Made", (base,), {"forward": forward})(**attributes).eval()


def undo(model: nn.Module) -> None:
    """A step: the replaced model's undo."""
    if id(model) in _replacements:
        _replacements[id(model)].undo()


def again(model: nn.Module) -> None:
    """A step: replaces what is replaced."""
    if id(model) in _replacements:
        _replacements[id(model)] = sluice.replace(model)


def is_replaced(model: nn.Module) -> bool:
    return id(model) in _replacements


def assert_same_steps(model: nn.Module, steps: Sequence[Step] = STEPS, ours: nn.Module | None = None) -> None:
    """The steps have equal outcomes for the model and for a replaced copy, which may be given."""
    ours = copy.deepcopy(model) if ours is None else ours
    expected = _Run(model, steps)
    _replacements[id(ours)] = sluice.replace(ours)
    try:
        actual = _Run(ours, steps)
    finally:
        del _replacements[id(ours)]
    for place, (one, other) in enumerate(zip(actual.outcomes, expected.outcomes, strict=True)):
        assert_same(one, other, f"step {place}")
    assert_same(actual.log, expected.log, "the log")
    _assert_same_modules(ours, model)


class _Run:
    """The outcomes of steps: results or errors, what was printed and warned, aliases, and random states."""

    def __init__(self, model: nn.Module, steps: Sequence[Step]) -> None:
        LOG.clear()
        torch.manual_seed(3)
        random.seed(3)
        self.seen: list[torch.Tensor] = [*model.parameters(), *model.buffers()]
        self.outcomes = [self._outcome(model, step) for step in steps]
        self.log = list(LOG)

    def _outcome(self, model: nn.Module, step: Step) -> dict[str, Any]:
        text = io.StringIO()
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(text), torch.no_grad():
            warnings.simplefilter("always")
            found = self._result(model, step)
        states = torch.get_rng_state(), random.getstate()
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype()
        said = [(one.category, str(one.message)) for one in warned if not _is_of_tracers(str(one.message))]
        return {**found, "printed": text.getvalue(), "warned": said, "random": states, "modes": modes}

    def _result(self, model: nn.Module, step: Step) -> dict[str, Any]:
        x = x_of(step) if isinstance(step, int) else None
        self.seen += [] if x is None else [x]
        try:
            result = model(x) if x is not None else step(model)  # type: ignore[operator]
        except Exception as error:
            return {"error": (type(error), str(error)), "cause": type(error.__cause__), "input": x}
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        aliases = [self._alias(leaf) for leaf in leaves]
        return {"result": copy.deepcopy(_without_graphs(result)), "aliases": aliases, "input": copy.deepcopy(x)}

    def _alias(self, leaf: torch.Tensor) -> tuple[int | None, int | None]:
        """Which tensor of before it is, and which one's memory it has."""
        same = next((i for i, one in enumerate(self.seen) if one is leaf), None)
        shared = None
        if leaf.layout == torch.strided and leaf.numel():
            address = leaf.untyped_storage().data_ptr()
            shared = next((i for i, one in enumerate(self.seen) if _address(one) == address), None)
        self.seen.append(leaf)
        return same, shared


def _is_of_tracers(text: str) -> bool:
    """Whether a warning is Dynamo's, which one test looks for, or of torch's imports, which come once."""
    return text.startswith(("Dynamo ", "`torch.jit.script` is deprecated"))


def _address(tensor: torch.Tensor) -> int | None:
    is_plain = tensor.layout == torch.strided and tensor.numel() > 0
    return tensor.untyped_storage().data_ptr() if is_plain else None


def _without_graphs(result: Any) -> Any:
    """Tensors with a grad_fn and some of other classes cannot be copied."""
    if isinstance(result, torch.Tensor) and type(result) not in (torch.Tensor, nn.Parameter):
        return _without_graphs(result.as_subclass(torch.Tensor)), type(result).__name__
    if isinstance(result, torch.Tensor) and result.grad_fn is not None:
        return result.detach(), "has a graph"
    if type(result) in (list, tuple):
        return type(result)(_without_graphs(one) for one in result)
    return result


def assert_same(one: Any, other: Any, place: str) -> None:
    """Equal values of equal types; tensors also of equal strides and flags."""
    if isinstance(one, nn.Module) and isinstance(other, nn.Module):
        return
    assert type(one) is type(other), f"{place}: {one!r} of {type(one)}, expected {other!r} of {type(other)}"
    if isinstance(one, torch.Tensor):
        _assert_same_tensors(one, other, place)
    elif isinstance(one, Mapping):
        errors = one.get("error"), other.get("error")
        assert list(one) == list(other), f"{place}: keys {list(one)}, expected {list(other)}; errors {errors}"
        for key in one:
            assert_same(one[key], other[key], f"{place}[{key!r}]")
    elif isinstance(one, (list, tuple)) and len(one) < 99:
        assert len(one) == len(other), f"{place}: {len(one)} elements, expected {len(other)}"
        for i, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_same(first, second, f"{place}[{i}]")
    elif isinstance(one, np.ndarray):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=place)
    elif isinstance(one, float):
        assert one == other or math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (one != one and other != other)
    elif hasattr(one, "__dict__") and not callable(one):
        assert_same(dict(vars(one)), dict(vars(other)), place)
    elif hasattr(one, "__next__"):
        assert repr(one).partition(" at 0x")[0] == repr(other).partition(" at 0x")[0], place
    elif not callable(one) or isinstance(one, type):
        assert one == other, f"{place}: {one!r}, expected {other!r}"


def _assert_same_tensors(one: torch.Tensor, other: torch.Tensor, place: str) -> None:
    for name in ("dtype", "shape", "layout", "requires_grad", "is_leaf"):
        assert getattr(one, name) == getattr(other, name), f"{place}: {name} {getattr(one, name)}"
    flags = [(t.is_inference(), t.is_neg(), t.is_conj(), t.grad is None, t.grad_fn is None) for t in (one, other)]
    assert flags[0] == flags[1], f"{place}: {flags}"
    if one.layout == torch.strided:
        assert one.stride() == other.stride(), f"{place}: strides {one.stride()}, expected {other.stride()}"
    rounding = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(one.dtype, 1e-5)  # chains round once, torch's ops each
    is_exact = not (one.is_floating_point() or one.is_complex())
    options = {} if is_exact else {"rtol": rounding, "atol": rounding}
    torch.testing.assert_close(one, other, equal_nan=True, **options, msg=lambda text: f"{place}: {text}")
    if one.grad is not None:
        torch.testing.assert_close(one.grad, other.grad, msg=lambda text: f"{place}.grad: {text}")


def _assert_same_modules(ours: nn.Module, theirs: nn.Module) -> None:
    """Equal attributes of all modules."""
    assert [name for name, _ in ours.named_modules()] == [name for name, _ in theirs.named_modules()]
    for (name, one), other in zip(ours.named_modules(), theirs.modules(), strict=True):
        own = {key: value for key, value in one.__dict__.items() if key not in _OURS and not _is_hooks(key)}
        wanted = {key: value for key, value in other.__dict__.items() if key not in _OURS and not _is_hooks(key)}
        assert own.keys() == wanted.keys(), f"{name or 'the model'}: {own.keys() ^ wanted.keys()}"
        for key, value in own.items():
            if not isinstance(value, nn.Module) and key != "_modules":
                assert_same(value, wanted[key], f"{name}.{key}")


def _is_hooks(name: str) -> bool:
    return name.startswith("_") and "hooks" in name
