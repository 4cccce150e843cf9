"""Repeated calls of a convolution module: results of the first call's checks are kept, and their conditions compared.

Most of the cost of a small convolution is Python that checks its arguments. The raw op checks them again, so a call
like the call before may go to it directly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as modules

from .._arguments import single
from .._autocast import is_autocast_on
from .._autograd import innermost_transform
from .._call import run
from .._precision import add_precision
from ..pack import PackedWeight, packed_for
from .chained import PLAIN, has_chains, is_plain
from .packing import packed_weight

_SETTINGS = ("stride", "padding", "dilation", "groups", "output_padding", "padding_mode")
_NOT_THERE = object()
# Methods of torch that its forwards call: code of others in their place runs.
CONV_FORWARD = torch.nn.Conv1d._conv_forward
OUTPUT_PADDING = torch.nn.ConvTranspose1d._output_padding


class Call(NamedTuple):
    """A call without chains that the raw op computed, and the conditions for the next call to go there too."""

    kind: Any
    settings: tuple[Any, ...]
    input: tuple[Any, ...]
    weight: tuple[Any, ...]
    op: str
    numbers: tuple[int, ...]

    def is_like(self, module: Any, input: torch.Tensor) -> bool:
        """Whether the module's call with this input is like the kept call, but for the tensors that it reads."""
        own = module.__dict__
        return (
            type(module) is self.kind
            and type(input) is torch.Tensor
            and like(input) == self.input
            and not _is_watched(module)
            and not _is_changed(input.device.type)
            and _settings(own) == self.settings
            and not (own["_sluice"].chains and has_chains(module))
        )

    def repeat(self, module: Any, input: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor | None:
        """The result of a call that is like the kept call, or None if its weight or bias is not."""
        if type(weight) not in PLAIN or like(weight) != self.weight:
            return None
        if bias is not None and type(bias) not in PLAIN:
            return None
        options: dict[str, Any] = {}
        if input.dtype == torch.float32:
            add_precision(options, input)
        handle = packed_weight(module._sluice.packed, module, weight)
        # A call that is repeated has the numbers of its module, and no channels-last input.
        if type(handle) is PackedWeight and (packed := packed_for(handle, weight.dtype, handle.numbers)) is not None:
            options["packed"] = packed
        result: torch.Tensor = run(self.op, (input, weight, bias, *self.numbers), options)
        return result


class LastCall:
    """A module's last call.

    Attributes:
        call: the call, if it can be repeated.
    """

    def __init__(self) -> None:
        self.call: Call | None = None

    def keep(self, module: Any, input: Any, weight: tuple[Any, ...] | None) -> None:
        """Keeps the call that sluice's op has computed, unless a repeated one would have more to do.

        Args:
            module: the convolution.
            input: its input.
            weight: what is compared of the weight; None if sluice's op did not take the input as it was.
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
        if is_plain(input) and not _is_watched(module) and not _is_changed(input.device.type):
            self.call = Call(kind, _settings(own), like(input), weight, *raw)


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
