"""weight_norm and spectral_norm in inference: the weight is computed when its factors change, not at each call."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ..nn.chained import PLAIN
from ..nn.kept import Kept

_kept: weakref.WeakKeyDictionary[Any, Kept] = weakref.WeakKeyDictionary()


def _may_keep(owner: torch.nn.Module, factors: Iterable[torch.Tensor]) -> bool:
    """Whether the factors' weight is the same at the next call, and has no gradient."""
    if owner.training or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    return all(type(one) in PLAIN and not (torch.is_grad_enabled() and one.requires_grad) for one in factors)


def _of_hook(hook: Any, module: Any, names: tuple[str, ...]) -> bool:
    """Sets the module's weight to the kept one; False if the hook itself has to run."""
    factors = tuple(getattr(module, hook.name + name) for name in names)
    if not _may_keep(module, factors):
        return False

    def compute() -> torch.Tensor:
        if isinstance(hook, SpectralNorm):
            return hook.compute_weight(module, do_power_iteration=False)
        weight: torch.Tensor = hook.compute_weight(module)
        return weight

    setattr(module, hook.name, _kept.setdefault(hook, Kept()).of(factors, compute))
    return True


class KeptWeightNorm(WeightNorm):
    """torch's hook of old-style weight_norm."""

    def __call__(self, module: Any, inputs: Any) -> None:
        """Computes the weight, unless its factors are the last call's."""
        if not _of_hook(self, module, ("_g", "_v")):
            super().__call__(module, inputs)


class KeptSpectralNorm(SpectralNorm):
    """torch's hook of old-style spectral_norm."""

    def __call__(self, module: Any, inputs: Any) -> None:
        """Computes the weight, unless its factors are the last call's."""
        if not _of_hook(self, module, ("_orig", "_u", "_v")):
            super().__call__(module, inputs)


class KeptParametrizations(ParametrizationList):
    """torch's list of parametrizations of a weight, which are weight_norm and spectral_norm."""

    def forward(self) -> torch.Tensor:
        """The weight, computed unless its factors are the last call's."""
        if torch.compiler.is_compiling():
            return super().forward()
        factors = (*self.parameters(), *self.buffers())
        if not _may_keep(self, factors):
            return super().forward()
        weight: torch.Tensor = _kept.setdefault(self, Kept()).of(factors, super().forward)
        return weight


_KINDS: dict[type, type] = {
    WeightNorm: KeptWeightNorm,
    SpectralNorm: KeptSpectralNorm,
    ParametrizationList: KeptParametrizations,
}
_PARTS = (parametrizations._WeightNorm, parametrizations._SpectralNorm)


@dataclasses.dataclass
class KeptNorm:
    """The hook or the list of a norm whose class was changed.

    Attributes:
        name: the module's in the model.
        norm: the hook or the list.
    """

    name: str
    norm: Any

    def undo(self) -> None:
        """Restores its class."""
        for kind, ours in _KINDS.items():
            if type(self.norm) is ours:
                self.norm.__class__ = kind


def keep_norms(modules: Iterable[tuple[str, torch.nn.Module]]) -> Iterator[KeptNorm]:
    """Changes the norms of convolutions."""
    for name, module in modules:
        found: list[Any] = [hook for hook in module._forward_pre_hooks.values() if type(hook) in _KINDS]
        lists = getattr(module, "parametrizations", None)
        for part in () if lists is None else lists.values():
            if type(part) is ParametrizationList and all(type(one) in _PARTS for one in part):
                found.append(part)
        for norm in found:
            norm.__class__ = _KINDS[type(norm)]
            yield KeptNorm(name, norm)
