"""Repeated calls of a convolution module: results of the first call's checks are kept, and their conditions compared.

Most of the cost of a small convolution is Python that checks its arguments. The raw op checks them again, so a call
like the one before may go to it directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as modules

from .._apply import call_raw
from .._library import innermost_transform
from ..chain import Chain
from ..pack import PackedWeight, packed_for
from .chained import PLAIN, is_plain

Operands = Mapping[str, Sequence[torch.Tensor]]  # of the chains that have some: "pre", "post"

_Chains = Mapping[str, "Chain | None"]

_SETTINGS = ("stride", "padding", "dilation", "groups", "output_padding", "padding_mode", "pre", "post")
_NOT_THERE = object()  # of `pre` and `post` where they are submodules


class Call(NamedTuple):
    """A call that the raw op computed, and the conditions for the next one to go there too."""

    owner: object  # what made the chains of the call; None where it has none
    kind: Any
    settings: tuple[Any, ...]
    input: tuple[Any, ...]
    weight: tuple[Any, ...] | None  # None where a parametrisation computes it
    operands: dict[str, tuple[tuple[Any, ...], ...]]
    op: str
    numbers: tuple[int, ...]
    texts: dict[str, str]  # of the chains
    given: frozenset[str]  # chains whose tensors are those that the owner was given

    def repeat(self, module: Any, input: torch.Tensor, operands: Operands) -> torch.Tensor | None:
        """The result, or None for a different call. The caller compares the texts of its chains."""
        own = module.__dict__
        if (
            type(module) is not self.kind
            or type(input) is not torch.Tensor
            or _like(input) != self.input
            or _is_watched(own)
            or _is_changed(input.device.type)
            or _settings(own) != self.settings
            or operands.keys() != self.operands.keys()
        ):
            return None
        weight, bias = own["_parameters"].get("weight"), own["_parameters"].get("bias")
        if (None if weight is None else _like(weight)) != self.weight:
            return None
        options: dict[str, Any] = dict(self.texts)
        for name, tensors in operands.items():
            alike = self.operands[name]
            if len(tensors) != len(alike):
                return None
            for tensor, like in zip(tensors, alike, strict=True):
                if type(tensor) not in PLAIN or _like(tensor) != like or tensor.is_neg():
                    return None
            options[name + "_operands"] = list(tensors)
        if weight is None:
            weight = module.weight
        if type(weight) not in PLAIN or type(bias) not in (*PLAIN, type(None)):
            return None
        if (kept := own.get("_packed")) is not None:
            handle = kept.of(module, weight)
            if type(handle) is PackedWeight and (packed := packed_for(handle, weight.dtype)) is not None:
                options["packed"] = packed
        result: torch.Tensor = call_raw(self.op, self.op, (input, weight, bias, *self.numbers), options)
        return result


class LastCall:
    """A module's last call. Copies and pickles of it are empty."""

    def __init__(self) -> None:
        self.call: Call | None = None

    def __reduce__(self) -> tuple[type[LastCall], tuple[()]]:
        return LastCall, ()

    def __deepcopy__(self, memo: object) -> LastCall:
        return LastCall()

    def repeat(self, module: Any, input: torch.Tensor) -> torch.Tensor | None:
        """The result of a call without chains, if it is like the last one."""
        call = self.call
        return call.repeat(module, input, {}) if call is not None and call.owner is None else None

    def keep(self, owner: object, module: Any, input: Any, chains: _Chains, given: Mapping[str, Sequence[Any]]) -> None:
        """Keeps the call that sluice's op has computed, unless a repeated one would have more to do.

        Args:
            owner: the maker of the call's chains; None without chains.
            module: the convolution.
            input: its input.
            chains: of the call, "pre" and "post".
            given: the tensors that the owner made each of.
        """
        self.call = None
        own = module.__dict__
        weight, bias = own["_parameters"].get("weight"), own["_parameters"].get("bias")
        raw = module.raw_call(weight)
        own_chains = own.get("pre", _NOT_THERE), own.get("post", _NOT_THERE)
        if raw is None or own_chains != (None, None) or type(input) is not torch.Tensor:
            return
        if any(isinstance(setting, list) for setting in _settings(own)):  # which may change in place
            return
        if _is_watched(own) or _is_changed(input.device.type):
            return
        there = {name: chain for name, chain in chains.items() if chain}
        tensors = {name: chain.operands for name, chain in there.items() if chain.operands}
        read = (one for one in (input, weight, bias, *itertools.chain(*tensors.values())) if one is not None)
        if not all(map(is_plain, read)) or any(chain.has_cpp for chain in there.values()):
            return
        self.call = Call(
            owner,
            type(module),
            _settings(own),
            _like(input),
            None if weight is None else _like(weight),
            {name: tuple(map(_like, operands)) for name, operands in tensors.items()},
            raw[0],
            raw[1],
            {name: chain.text for name, chain in there.items()},
            frozenset(name for name, operands in tensors.items() if _are_same(operands, given.get(name, ()))),
        )


def _are_same(tensors: Sequence[torch.Tensor], given: Sequence[Any]) -> bool:
    return len(tensors) == len(given) and all(a is b for a, b in zip(tensors, given, strict=True))


def _like(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout


def _settings(own: dict[str, Any]) -> tuple[Any, ...]:
    return tuple([own.get(name, _NOT_THERE) for name in _SETTINGS])


def _is_watched(own: dict[str, Any]) -> bool:
    """Whether a call of the module runs more than its class's forward."""
    return bool(
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or own.get("_compiled_call_impl") is not None
        or modules._global_forward_hooks
        or modules._global_forward_pre_hooks
        or modules._global_backward_hooks
        or modules._global_backward_pre_hooks
    )


def _is_changed(device: str) -> bool:
    """Whether gradients, autocast, modes, transforms or a tracer may change the call."""
    return (
        torch.is_grad_enabled()
        or torch.is_autocast_enabled(device)
        or forward_ad._current_level >= 0
        or innermost_transform() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._get_tracing_state() is not None
    )
