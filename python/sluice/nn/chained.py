"""The common part of modules with chains: how chains are given, moved, evaluated with gradients, and shown."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .. import reference, stages
from .._autograd import loses_gradient
from .._fake import FLOATING, is_strided
from ..chain import Chain, PerChannel, as_chain

Forward = TypeVar("Forward", bound=Callable[..., Any])
Stages = Chain | torch.nn.Module | None
PLAIN = (torch.Tensor, torch.nn.Parameter)  # tensor classes without the dispatch of a subclass or a tracer
_DEVICES = ("cpu", "cuda", "meta")


class Chained(torch.nn.Module):
    """A module with chains, each a `Chain` or a module that `stages.from_module` knows.

    The state names the attributes that hold them. A module among them is a normal submodule. The tensors of
    a chain follow `.to()` and similar calls; they are no parameters, so `state_dict` does not have them.

    The class adds no public name to torch's, because owners of swapped modules may use it. Annotations of the class
    would hide torch's from torch.jit.script.
    """

    if TYPE_CHECKING:
        _sluice: Any  # the State

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Chained:
        self._sluice.reset()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in _given(self):
            if isinstance(value, Chain) and value.operands:
                setattr(self, name, value.with_values(lambda one: _moved(one, fn)))
        return self

    def extra_repr(self) -> str:
        """The module's text as torch has it, followed by its chains."""
        return ", ".join(filter(None, [super().extra_repr(), *shown_chains(self)]))

    def __prepare_scriptable__(self) -> Chained:
        """The module for torch.jit.script, which then compiles torch's forward."""
        if has_chains(self) or not hasattr(type(self).forward, "__wrapped__"):
            rule = "a module must have a forward of torch and no chains for torch.jit.script"
            raise TypeError(f"{type(self).__name__}: {rule}; torch.jit.trace and torch.export take this one")
        return self


class _Forwards(threading.local):
    """Whose forwards run in the thread.

    Attributes:
        are_torchs: whether convolutions without chains run torch's. A graph's become sluice's afterwards, and a small
            call's cost the host less.
    """

    are_torchs = False


forwards = _Forwards()


def is_left_to_torch() -> bool:
    """Whether sluice.replace has the thread's convolutions run torch's own forward."""
    return forwards.are_torchs


is_left_to_torch._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compiler.assume_constant_result


def stands_for(torchs: Callable[..., Any]) -> Callable[[Forward], Forward]:
    """Makes tools that read a forward's source or signature read torch's: torch.jit.script and torch.fx do.

    Chains of a call are between modules of sluice. The decorated function's module must have the global names that
    torch's function uses.
    """

    def decorate(forward: Forward) -> Forward:
        forward.__wrapped__ = torchs  # type: ignore[attr-defined]
        return forward

    return decorate


def set_chain(module: Chained, name: str, value: Chain | str | torch.nn.Module | None) -> None:
    """Makes it the chain of that name; a `TypeError` if it is no chain."""
    if isinstance(value, torch.nn.Module):
        stages.from_module(value)  # refuses unknown modules
    elif value is not None:
        value = as_chain(type(module).__name__, name, value)
    setattr(module, name, value)


def has_chains(module: Chained) -> bool:
    """Whether the module has chains of its own."""
    return any(value is not None for _, value in _given(module))


def chains_of(module: Chained) -> dict[str, Chain | None] | None:
    """The current chains, each None if it is empty; None if a module has no chain, such as a Dropout in training."""
    found: dict[str, Chain | None] = {}
    for name, value in _given(module):
        if isinstance(value, torch.nn.Module):
            try:
                value = stages.from_module(value)
            except TypeError:
                return None
        found[name] = value or None
    return found


def with_gradients(module: Chained, name: str, x: torch.Tensor) -> torch.Tensor:
    """The module's chain of x, computed by torch."""
    for own, value in _given(module):
        if own == name and value is not None:
            x = value(x) if isinstance(value, torch.nn.Module) else reference.transform(x, value)
    return x


def is_torchs(module: Chained, *tensors: torch.Tensor | None) -> bool:
    """Whether torch's code runs the call.

    It does if a gradient is wanted, or if sluice's ops do not take a tensor. Graphs of torch.fx have torch's functions.
    """
    for tensor in tensors:
        if tensor is not None and not is_ours(tensor):
            return True
    read: list[Iterable[torch.Tensor | None]] = [tensors, module.parameters()]
    read.extend(value.operands for _, value in _given(module) if isinstance(value, Chain))
    return loses_gradient(itertools.chain.from_iterable(read))


def shown_chains(module: Chained) -> list[str]:
    """The chains that are no submodules; torch shows submodules."""
    return [f"{name}={value!r}" for name, value in _given(module) if isinstance(value, Chain)]


def is_patched(module: torch.nn.Module, name: str, torchs: Callable[..., Any]) -> bool:
    """Whether the method of that name is no longer torch's."""
    getattr(module, name)  # for Dynamo, which guards attributes that are read, and no keys of `__dict__`
    return name in module.__dict__ or getattr(type(module), name) is not torchs


def _given(module: Chained) -> Sequence[tuple[str, Stages]]:
    """The module's chains by name. After `undo`, when a user's wrapper may still call our forward, it has no state."""
    state = getattr(module, "_sluice", None)
    return [(name, getattr(module, name)) for name in state.chains] if state is not None and state.chains else ()


def is_traced(value: object) -> bool:
    """Whether torch.fx traces it: then its properties are unknown."""
    return isinstance(value, torch.fx.Proxy)


def is_ours(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor that sluice's ops take."""
    if is_traced(tensor):
        return False
    return tensor.dtype in FLOATING and tensor.device.type in _DEVICES and is_strided(tensor)


def is_plain(value: Any) -> bool:
    """Whether it is one of torch's own classes as well."""
    return type(value) in PLAIN and is_ours(value)


def _moved(value: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Like `nn.Module._apply`: a parameter stays the same object, because others may hold it."""
    if isinstance(value, PerChannel):
        return PerChannel(_moved(value.values, fn))
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        moved = fn(value)
        if isinstance(value, torch.nn.Parameter):
            value.data = moved
            return value
    return moved
