"""weight_norm: the saving of folding it, and a folding that `undo` can revert."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

import torch
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm

from .classes import attributes_of, is_norm


def has_weight_norm(module: torch.nn.Module) -> bool:
    """Whether the weight is that of one weight_norm, old or parametrised, and nothing else."""
    if any(isinstance(hook, WeightNorm) and hook.name == "weight" for hook in module._forward_pre_hooks.values()):
        return sum(map(is_norm, module._forward_pre_hooks.values())) == 1
    if not parametrize.is_parametrized(module, "weight"):
        return False
    parts = list(module.parametrizations["weight"])  # type: ignore[index,operator]
    return len(parts) == 1 and type(parts[0]) is parametrizations._WeightNorm


def note(module: torch.nn.Module) -> str:
    """The saving of folding the norm, as text; empty without one."""
    if not has_weight_norm(module):
        return ""
    size = sum(p.numel() * p.element_size() for n, p in module.named_parameters() if n != "bias")
    return f"weight_norm reads and writes {_bytes(size)} at each call; fold_weight_norm=True computes the weight once"


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 1024:.1f} KiB"


class FoldedNorm:
    """The norm of a module, folded into its weight.

    Args:
        name: the module's in the model.
        module: one that `has_weight_norm`.
    """

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self._module, self._kind = module, type(module)
        self._order = list(module.__dict__)
        self._hooks = dict(module._forward_pre_hooks)
        self._weight = module.__dict__.get("weight")  # of old weight_norm: a tensor of the last call
        self._parameters = {n: p for n, p in module._parameters.items() if n in ("weight_g", "weight_v")}
        self._parts = module._modules.get("parametrizations")
        self._left: type | None = None  # the class that folding leaves
        if self._parts is None:
            remove_weight_norm(module)
            return
        self._lists = dict(self._parts._modules)
        # Copies of the module have the same class, whose property the removal would take away.
        module.__class__ = type(self._kind.__name__, self._kind.__bases__, attributes_of(self._kind))
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
        self._left = type(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> FoldedNorm:
        made = memo[id(self)] = object.__new__(FoldedNorm)
        # torch copies no tensor that has a gradient function.
        weight = None if self._weight is None else self._weight.detach()
        made.__dict__.update(copy.deepcopy({**self.__dict__, "_weight": weight}, memo))
        return made

    def __reduce__(self) -> NoReturn:
        raise TypeError("replace: a Replacement with a folded weight_norm cannot be pickled; pickle its model")

    def undo(self) -> None:
        """Restores the norm with its old values, on the weight's current device and in its dtype.

        Raises:
            TypeError: others made its weight or its class into something else. Then nothing is restored.
        """
        module = self._module
        is_other = self._left not in (None, type(module))
        if is_other or parametrize.is_parametrized(module, "weight") or "weight_g" in module._parameters:
            raise TypeError("its weight_norm stays folded, because it is parametrised again or has another class")
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        del module.weight
        if self._parts is not None:
            self._parts._modules.update(self._lists)
            module._modules["parametrizations"] = self._parts.to(weight.device, weight.dtype)
            module.__class__ = self._kind
            return
        for name, parameter in self._parameters.items():
            assert parameter is not None
            parameter.data = parameter.data.to(weight)
            module._parameters[name] = parameter
        hooks, now = module._forward_pre_hooks, dict(module._forward_pre_hooks)
        hooks.clear()
        hooks.update({key: hook for key, hook in self._hooks.items() if key in now or is_norm(hook)})
        hooks.update({key: hook for key, hook in now.items() if key not in hooks})
        attributes = module.__dict__
        attributes["weight"] = self._weight if self._weight is None else self._weight.to(weight)
        for name in [*self._order, *(name for name in attributes if name not in self._order)]:
            if name in attributes:
                attributes[name] = attributes.pop(name)
