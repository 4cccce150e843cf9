"""Rules for modules: how each treats time, and the layers that convolutions and recurrent modules become."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils.weak import WeakIdKeyDictionary

from .. import nn as ours
from .. import stages
from ..chain import Chain
from ..nn.chained import Chained, chains_of
from ..pack import PackedWeight, pack, pack_transposed
from .calls import Call
from .layers import Convolution, Layer, Recurrent, Weights
from .trace import is_elementwise
from .values import NoStreamError, Numbers, Parts, Time, Value
from .wrappers import convolution_of, is_wrapper

_REFUSED = {
    torch.nn.GroupNorm: "normalises over time",
    torch.nn.modules.instancenorm._InstanceNorm: "normalises over time",
    torch.nn.MultiheadAttention: "attends over time",
    torch.nn.Upsample: "interpolates over time",
    torch.nn.modules.pooling._MaxPoolNd: "pools over time",
    torch.nn.modules.pooling._AvgPoolNd: "pools over time",
    torch.nn.modules.pooling._AdaptiveAvgPoolNd: "pools over time",
    torch.nn.modules.pooling._AdaptiveMaxPoolNd: "pools over time",
    torch.nn.modules.batchnorm._BatchNorm: "is in training mode, in which it normalises over time",
}
_PADDING = {
    torch.nn.modules.padding._ConstantPadNd: "constant",
    torch.nn.modules.padding._ReplicationPadNd: "replicate",
    torch.nn.modules.padding._ReflectionPadNd: "reflect",
    torch.nn.modules.padding._CircularPadNd: "circular",
}
_weights = WeakIdKeyDictionary()  # by a module, or by a call's weight: what they were, and the Weights


def weights_of(module: Any) -> Weights:
    """A convolution's tensors as they are now; streams of a model share them, and its packed values."""
    key = [(p.data_ptr(), None if p.is_inference() else p._version, p.dtype, p.device) for p in module.parameters()]
    owner = module.weight if isinstance(module, Call) else module
    known, weights = _weights.get(owner, (None, None))
    if weights is not None and known == key:
        return weights  # type: ignore[no-any-return]
    with torch.no_grad():
        hooks = [] if isinstance(module, Call) else module._forward_pre_hooks.values()
        norm = next((hook for hook in hooks if isinstance(hook, WeightNorm)), None)
        weight = (module.weight if norm is None else norm.compute_weight(module)).detach()
        bias = None if module.bias is None else module.bias.detach()
        weights = Weights(weight, bias, _packed(module, weight))
    _weights[owner] = key, weights
    return weights


def _packed(module: Any, weight: torch.Tensor) -> PackedWeight | None:
    if not weight.is_cuda or weight.dtype == torch.float64:
        return None
    if not module.transposed:
        return pack(weight)
    if module.groups != 1:
        return None
    return pack_transposed(weight, None, module.stride[0], module.dilation[0], channels_last=False)


def check_hooks(module: torch.nn.Module) -> None:
    """Raises if others' code runs around the module."""
    before = [hook for hook in module._forward_pre_hooks.values() if not isinstance(hook, WeightNorm)]
    if before or module._forward_hooks:
        raise NoStreamError("has hooks, which a stream would not call")


def padding_of(module: Any) -> tuple[Any, str, float] | None:
    """The numbers, the mode and the value of a module that pads and does nothing else."""
    mode = next((mode for kind, mode in _PADDING.items() if isinstance(module, kind)), None)
    if mode is None:
        return None
    check_hooks(module)
    return module.padding, mode, getattr(module, "value", 0.0)


def treated(name: str, module: torch.nn.Module, x: Time) -> tuple[Value, Layer | None]:
    """The value of a module's result, and the layer that takes its place, if it has a state.

    Args:
        name: the module's.
        module: a leaf of the graph.
        x: its input.

    Raises:
        NoStreamError: it mixes time in a way that no layer has.
    """
    check_hooks(module)
    if is_wrapper(module):
        conv, pad, kind = convolution_of(module)
        check_hooks(conv)
        return convolution(name, conv, x.padded(pad, 0, kind) if pad > 0 else x)
    if isinstance(module, ours.CausalConv1d | ours.CausalConvTranspose1d):
        return _causal(name, module, x)
    if isinstance(module, torch.nn.Conv1d | torch.nn.ConvTranspose1d):
        return convolution(name, module, x)
    if isinstance(module, torch.nn.RNNBase):
        return _recurrent(module, x)
    return _without_state(module, x), None


def convolution(name: str, module: Any, x: Time) -> tuple[Value, Layer]:
    """A convolution as torch computes it, beside the padding that it gets."""
    before, after = sides(module)
    if module.padding_mode != "zeros" and (before or after):
        raise NoStreamError(f"pads by {module.padding_mode!r} on both sides")
    return _layer(name, module, x, before, after, x.is_padded and before == 0)


def sides(module: Any) -> tuple[int, int]:
    """What a convolution of torch pads, or a transposed convolution cuts off."""
    padding = module.padding
    if padding == "valid":
        return 0, 0
    if padding == "same":
        total = module.dilation[0] * (module.kernel_size[0] - 1)
        return total // 2, total - total // 2
    return padding[0], padding[0]


def _layer(
    name: str, module: Any, x: Time, before: int, after: int, is_behind_padding: bool = False
) -> tuple[Value, Convolution]:
    """The layer; `is_behind_padding`: whether a chain of the module's own acts on the values that x is padded with."""
    if x.rank != 3 or x.dim != 2:
        raise NoStreamError(f"takes time in dimension {x.dim} of {x.rank}, where a stream has it in dimension 2 of 3")
    if x.batch != 0:
        raise NoStreamError(f"takes the batch in dimension {x.batch}, where a stream has it in dimension 0")
    more = module.output_padding[0] if module.transposed else 0
    numbers = Numbers(module.kernel_size[0], module.stride[0], module.dilation[0], before, after, more)
    result = numbers.spread(name, x) if module.transposed else numbers.convolved(name, x)
    channels = module.out_channels if module.transposed else module.in_channels
    layer = Convolution(weights_of(module), numbers, module.groups, module.transposed, channels)
    # A result that sees one input, and is before the first value, is one that no run has.
    sees_one = numbers.columns == 0 and (module.transposed or numbers.taps == 1)
    layer.lead, layer.rate = 0 if sees_one and not x.is_padded else x.lead, x.rate.as_integer_ratio()
    if x.is_padded:
        layer.padding_mode = x.padding
    if isinstance(module, Chained):
        chain, layer.behind = _own_chains(module)
        if chain is None or is_behind_padding or layer.may_act_before(chain):
            layer.before = chain
        elif x.is_padded and before > 0:
            raise NoStreamError("pads on both sides of a `pre` that makes something of zeros")
        else:
            layer.ahead = chain
    return result, layer


def _own_chains(module: Chained) -> tuple[Chain | None, Chain | None]:
    chains = chains_of(module)
    if chains is None:
        raise NoStreamError("has a module in pre or post without a stage, such as a Dropout in training")
    for chain in chains.values():
        widths = [tensor.shape[-1] for tensor in chain.operands if tensor.dim() > 0] if chain else []
        if any(width != 1 for width in widths):
            raise NoStreamError(f"has a chain with a tensor of {max(widths)} positions")
    return chains.get("pre"), chains.get("post")


def _causal(name: str, module: Any, x: Time) -> tuple[Value, Layer]:
    """A module of ours, which pads or trims itself."""
    own = Numbers(module.kernel_size[0], module.stride[0], module.dilation[0])
    if module.transposed:
        result, layer = _layer(name, module, x, 0, 0)
        assert isinstance(result, Time)
        return result.trimmed(0, own.reach - own.stride), layer
    if x.is_padded and own.columns and _own_chains(module)[0] is not None:
        raise NoStreamError("has a `pre` in front of its padding, and is padded")
    padded = x.padded(own.columns, 0, module.padding_mode) if own.columns else x
    result, layer = _layer(name, module, padded, 0, 0)
    if module.activation is not None:
        from ..stages import silu

        layer.behind = silu() if layer.behind is None else silu() | layer.behind
    return result, layer


def _recurrent(module: torch.nn.RNNBase, x: Time) -> tuple[Value, Layer]:
    if module.bidirectional:
        raise NoStreamError("runs in both directions of time")
    if module.training and module.dropout > 0:
        raise NoStreamError("has a dropout in training mode; call eval()")
    if x.rank != 3 or x.dim != (1 if module.batch_first else 0):
        raise NoStreamError("takes time in another dimension than the stream's")
    if x.batch != 1 - x.dim:
        raise NoStreamError("takes the batch in another dimension than the stream's")
    if x.start or x.lead or x.tail:
        raise NoStreamError("follows a layer that pads, or whose first or last results are dropped")
    y = Time(3, x.dim, x.rate, batch=x.batch)
    return Parts(y, only=0), Recurrent(module)


def _without_state(module: Any, x: Time) -> Value:
    is_kept = isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and not module.training
    if is_kept and module.running_mean is None:
        raise NoStreamError("has no running statistics, so it normalises over time")
    for kind, reason in _REFUSED.items():
        if isinstance(module, kind) and not is_kept:
            raise NoStreamError(reason)
    if x.is_padded:
        raise NoStreamError("has padded values, which only a convolution may take")
    if isinstance(module, torch.nn.Linear):
        _check_apart(x, x.rank - 1)
    elif isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm):
        for back in range(len(module.normalized_shape)):
            _check_apart(x, x.rank - 1 - back)
    elif isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        _check_apart(x, 1)
    elif isinstance(module, torch.nn.GLU | torch.nn.Softmax | torch.nn.LogSoftmax | torch.nn.Softmin):
        if module.dim is None:
            raise NoStreamError("works along a dimension that is not given")
        _check_apart(x, module.dim % x.rank)
    elif isinstance(module, torch.nn.modules.dropout._DropoutNd | torch.nn.RReLU):
        if module.training and getattr(module, "p", 1) > 0:
            raise NoStreamError("is in training mode; call eval()")
    elif isinstance(module, ours.Transform):
        _own_chains(module)
    elif is_elementwise(module):
        if stages.from_module(module).has_channels:
            _check_apart(x, 1)
    elif not _is_activation(module):
        raise NoStreamError("is not known to leave time as it is")
    return x


def _is_activation(module: torch.nn.Module) -> bool:
    kind = type(module)
    others = torch.nn.MultiheadAttention, torch.nn.Softmax2d
    return kind.__module__ == "torch.nn.modules.activation" and kind not in others


def _check_apart(x: Time, dim: int) -> None:
    x.check_apart([dim], "works along time", "works along the batch")
