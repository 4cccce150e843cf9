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
from .._arguments import single
from .._autocast import is_autocast_on
from .._library import innermost_transform
from ..chain import Chain
from ..pack import PackedWeight, packed_for
from .chained import PLAIN, has_chains, is_plain

Operands = Mapping[str, Sequence[torch.Tensor]]  # of the chains that have some: "pre", "post"

_Chains = Mapping[str, "Chain | None"]

_SETTINGS = ("stride", "padding", "dilation", "groups", "output_padding", "padding_mode")
_NOT_THERE = object()
# Methods of torch that its forwards call: code of others in their place runs.
CONV_FORWARD = torch.nn.Conv1d._conv_forward
OUTPUT_PADDING = torch.nn.ConvTranspose1d._output_padding


class Call(NamedTuple):
    """A call that the raw op computed, and the conditions for the next one to go there too."""

    owner: object  # what made the chains of the call; None where it has none
    kind: Any
    settings: tuple[Any, ...]
    input: tuple[Any, ...]
    weight: tuple[Any, ...]
    operands: dict[str, tuple[tuple[Any, ...], ...]]
    op: str
    numbers: tuple[int, ...]
    texts: dict[str, str]  # of the chains
    given: frozenset[str]  # chains whose tensors are those that the owner was given

    def is_like(self, owner: object, module: Any, input: torch.Tensor) -> bool:
        """Whether a call with that owner of its chains is like this one, but for the tensors that it reads."""
        own = module.__dict__
        return (
            owner is self.owner
            and type(module) is self.kind
            and type(input) is torch.Tensor
            and like(input) == self.input
            and not _is_watched(module)
            and not _is_changed(input.device.type)
            and _settings(own) == self.settings
            and not (own["_sluice"].chains and has_chains(module))
        )

    def repeat(self, module: Any, input: torch.Tensor, weight: Any, bias: Any, operands: Operands) -> Any:
        """The result of a call that is like this one, or None if its tensors are not.

        The caller compares the texts of its chains.
        """
        if type(weight) not in PLAIN or like(weight) != self.weight or operands.keys() != self.operands.keys():
            return None
        if bias is not None and type(bias) not in PLAIN:
            return None
        options: dict[str, Any] = dict(self.texts)
        for name, tensors in operands.items():
            alike = self.operands[name]
            if len(tensors) != len(alike):
                return None
            for tensor, then in zip(tensors, alike, strict=True):
                if type(tensor) not in PLAIN or like(tensor) != then or tensor.is_neg():
                    return None
            options[name + "_operands"] = list(tensors)
        if self.op == "conv1d":
            handle = module._sluice.packed.of(module, weight)
            if type(handle) is PackedWeight and (packed := packed_for(handle, weight.dtype)) is not None:
                options["packed"] = packed
        return call_raw(self.op, self.op, (input, weight, bias, *self.numbers), options)


class LastCall:
    """A module's last call.

    Attributes:
        call: the call, if it can be repeated.
        weight: what is known of the call's weight; None unless sluice's op took the call's input as it was, and its
            result is the module's.
    """

    def __init__(self) -> None:
        self.call: Call | None = None
        self.weight: tuple[Any, ...] | None = None

    def keep(
        self,
        owner: object,
        module: Any,
        input: Any,
        weight: tuple[Any, ...] | None,
        chains: _Chains,
        given: Mapping[str, Sequence[Any]],
    ) -> None:
        """Keeps the call that sluice's op has computed, unless a repeated one would have more to do.

        Args:
            owner: the maker of the call's chains; None without chains.
            module: the convolution.
            input: its input.
            weight: `self.weight` after the call.
            chains: of the call, "pre" and "post".
            given: the tensors that the owner made each of.
        """
        self.call = None
        if weight is None or type(input) is not torch.Tensor or has_chains(module):
            return
        own = module.__dict__
        raw, kind = _raw_call(module, weight[0][-1]), type(module)
        if raw is None or any(name in own["_parameters"] and hasattr(kind, name) for name in ("weight", "bias")):
            return
        if any(isinstance(setting, list) for setting in _settings(own)):  # which may change in place
            return
        if _is_watched(module) or _is_changed(input.device.type):
            return
        there = {name: chain for name, chain in chains.items() if chain}
        tensors = {name: chain.operands for name, chain in there.items() if chain.operands}
        read = input, *itertools.chain(*tensors.values())
        if not all(map(is_plain, read)) or any(chain.has_cpp for chain in there.values()):
            return
        self.call = Call(
            owner,
            kind,
            _settings(own),
            like(input),
            weight,
            {name: tuple(map(like, operands)) for name, operands in tensors.items()},
            raw[0],
            raw[1],
            {name: chain.text for name, chain in there.items()},
            frozenset(name for name, operands in tensors.items() if _are_same(operands, given.get(name, ()))),
        )


def _are_same(tensors: Sequence[torch.Tensor], given: Sequence[Any]) -> bool:
    return len(tensors) == len(given) and all(a is b for a, b in zip(tensors, given, strict=True))


def tensors_of(module: Any) -> tuple[Any, Any]:
    """The weight and the bias; torch's access to parameters takes four times as long."""
    own = module.__dict__
    parameters = own["_parameters"]
    weight, bias = parameters.get("weight", _NOT_THERE), parameters.get("bias", _NOT_THERE)
    return (
        module.weight if weight is _NOT_THERE or "weight" in own else weight,
        module.bias if bias is _NOT_THERE or "bias" in own else bias,
    )


def _raw_call(module: Any, taps: int) -> tuple[str, tuple[int, ...]] | None:
    """The raw op of a call and its numbers; None if the padding is not just as many zeros on both sides."""
    stride, dilation, groups = module.stride[0], module.dilation[0], module.groups
    if module.transposed:
        return "conv_transpose1d", (stride, module.padding[0], module.output_padding[0], groups, dilation)
    if module.padding_mode != "zeros":
        return None
    padding = module.padding
    if isinstance(padding, str):
        both = dilation * (taps - 1) if padding == "same" else 0
        return None if both % 2 else ("conv1d", (stride, both // 2, dilation, groups))
    return "conv1d", (stride, single("conv1d", "padding", padding), dilation, groups)


def like(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What repeated calls compare of a tensor."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.layout


def _settings(own: dict[str, Any]) -> tuple[Any, ...]:
    return tuple([own.get(name, _NOT_THERE) for name in _SETTINGS])


def _is_watched(module: Any) -> bool:
    """Whether a call of the module runs more than torch's class has."""
    own, kind = module.__dict__, type(module)
    return bool(
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or (kind._output_padding is not OUTPUT_PADDING if module.transposed else kind._conv_forward is not CONV_FORWARD)
        or "_conv_forward" in own
        or "_output_padding" in own
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
        or is_autocast_on(device)
        or forward_ad._current_level >= 0
        or innermost_transform() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._get_tracing_state() is not None
    )
