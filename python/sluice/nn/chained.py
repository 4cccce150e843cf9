"""The common part of modules with chains: how chains are given, moved, evaluated with gradients, and shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import reference, stages
from .._fake import FLOATING, is_strided
from .._library import loses_gradient
from ..chain import Chain, given_chain

Stages = Chain | torch.nn.Module | None
PLAIN = (torch.Tensor, torch.nn.Parameter)  # tensor classes without the dispatch of a subclass or a tracer
_DEVICES = ("cpu", "cuda", "meta")


class Chained(torch.nn.Module):
    """A module with chains, each a `Chain` or a module that `stages.from_module` knows.

    `chain_names` are the attributes that hold them. A module among them is a normal submodule. The tensors of
    a chain follow `.to()` and similar calls; they are no parameters, so `state_dict` does not have them.
    """

    chain_names: tuple[str, ...] = ("pre", "post")

    def set_chain(self, name: str, value: Chain | str | torch.nn.Module | None) -> None:
        """Makes it the chain of that name; a `TypeError` if it is no chain."""
        if isinstance(value, torch.nn.Module):
            stages.from_module(value)  # refuses unknown modules
        elif value is not None:
            value = given_chain(type(self).__name__, name, value)
        setattr(self, name, value)

    def chain(self, name: str) -> Chain | None:
        """The current chain, None if it is empty."""
        value: Stages = getattr(self, name)
        if isinstance(value, torch.nn.Module):
            value = stages.from_module(value)
        return value or None

    def with_gradients(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """The chain of x, computed by torch."""
        value: Stages = getattr(self, name)
        if value is None:
            return x
        result: torch.Tensor = value(x) if isinstance(value, torch.nn.Module) else reference.transform(x, value)
        return result

    def is_torchs(self, *tensors: torch.Tensor | None) -> bool:
        """Whether torch's code runs the call.

        It does if a gradient is wanted, or if sluice's ops do not take a tensor. Graphs of torch.fx have torch's
        functions.
        """
        for tensor in tensors:
            if tensor is not None and not is_ours(tensor):
                return True
        return loses_gradient(itertools.chain(tensors, self.parameters(), self._operands()))

    def _operands(self) -> Iterator[torch.Tensor]:
        for name in self.chain_names:
            value = getattr(self, name)
            if isinstance(value, Chain):
                yield from value.operands

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Chained:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self.chain_names:
            value = getattr(self, name)
            if isinstance(value, Chain) and value.operands:
                stages = [(stage, tuple(_moved(one, fn) for one in values)) for stage, values in value.stages]
                setattr(self, name, Chain(tuple(stages)))
        return self

    def shown_chains(self) -> list[str]:
        """The chains that are no submodules; torch shows submodules."""
        given = ((name, getattr(self, name)) for name in self.chain_names)
        return [f"{name}={value!r}" for name, value in given if isinstance(value, Chain)]

    def extra_repr(self) -> str:
        """The module's text as torch has it, followed by its chains."""
        return ", ".join(filter(None, [super().extra_repr(), *self.shown_chains()]))


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
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        moved = fn(value)
        if isinstance(value, torch.nn.Parameter):
            value.data = moved
            return value
    return moved
