"""Causal convolutions chunk by chunk as users write them by hand in torch, and networks that are made of them.

`by_hand(network, rows)` walks the tree of a network's modules and puts a layer with a state in the place of each causal
convolution, each transposed convolution and each LSTM of transformers' codecs. All else stays as it is.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CAUSAL = ("MimiConv1d", "EncodecConv1d", "Qwen3OmniMoeCausalConvNet")
TRANSPOSED = ("MimiConvTranspose1d", "EncodecConvTranspose1d", "Qwen3OmniMoeCausalTransConvNet")


def convolved_chunk(
    x: torch.Tensor,
    state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The chunk behind the inputs that are kept, by `torch.cat` and `F.conv1d`; the state moves on."""
    joined = torch.cat([state, x], dim=-1)
    state.copy_(joined[..., x.shape[-1] :])
    return F.conv1d(joined, weight, bias, stride, 0, dilation, groups)


def transposed_chunk(
    x: torch.Tensor,
    state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The chunk's finished results; what later inputs add to is kept without the bias, as Moshi's code does."""
    y = F.conv_transpose1d(x, weight, bias, stride, 0, 0, groups, dilation)
    length = x.shape[-1] * stride
    y[..., : state.shape[-1]] += state
    state.copy_(y[..., length:] if bias is None else y[..., length:] - bias[:, None])
    return y[..., :length]


class _Layer(nn.Module):
    """A convolution of these numbers with a state of `rows` rows."""

    def __init__(self, conv: nn.Conv1d | nn.ConvTranspose1d, rows: int) -> None:
        super().__init__()
        self.stride, self.dilation, self.groups = conv.stride[0], conv.dilation[0], conv.groups
        self.weight = nn.Parameter(conv.weight.detach(), requires_grad=False)  # weight_norm is computed here, once
        self.bias = None if conv.bias is None else nn.Parameter(conv.bias.detach(), requires_grad=False)
        self.columns = self.dilation * (conv.kernel_size[0] - 1) + 1 - self.stride
        channels = conv.out_channels if isinstance(conv, nn.ConvTranspose1d) else conv.in_channels
        self.register_buffer("state", self.weight.new_zeros(rows, channels, max(0, self.columns)))

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.stride, self.dilation, self.groups


class Convolution(_Layer):
    """A causal convolution, whose state is its last inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.columns == 0:
            return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        return convolved_chunk(x, self.state, self.weight, self.bias, *self.numbers)


class Transposed(_Layer):
    """A transposed convolution, whose state is the sums after its results, in the network's dtype.

    It has no trim on the left. A stream of code2wav therefore begins with results that a run over the whole input does
    not have; results that do not see them are the same.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.columns == 0:
            return F.conv_transpose1d(x, self.weight, self.bias, self.stride, 0, 0, self.groups, self.dilation)
        return transposed_chunk(x, self.state, self.weight, self.bias, *self.numbers)


class Recurrent(nn.Module):
    """An LSTM of torch's default layout; it calls the function, because torch.compile does not follow the module."""

    def __init__(self, lstm: nn.LSTM, rows: int) -> None:
        super().__init__()
        if lstm.batch_first or lstm.bidirectional or lstm.proj_size > 0:
            raise ValueError(f"by_hand: an LSTM must have torch's default options, got {lstm}")
        lstm.flatten_parameters()  # cuDNN copies weights that are apart at each call
        self.layers, self.has_bias, self.weights = lstm.num_layers, lstm.bias, nn.ParameterList(lstm._flat_weights)
        for name in ("hidden", "cell"):
            self.register_buffer(name, self.weights[0].new_zeros(self.layers, rows, lstm.hidden_size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        weights, states = list(self.weights), [self.hidden, self.cell]
        y, hidden, cell = torch.lstm(x, states, weights, self.has_bias, self.layers, 0.0, False, False, False)
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return (y,)


Stateful = (Convolution, Transposed, Recurrent)


def by_hand(network: nn.Module, rows: int) -> nn.Module:
    """A copy of the network that takes chunks of `rows` streams, one row each.

    Raises:
        ValueError: a convolution outside of the wrappers in `CAUSAL` and `TRANSPOSED`.
    """
    whole = nn.Sequential(copy.deepcopy(network))
    _replace_children(whole, rows)
    left = [name for name, module in whole.named_modules() if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d))]
    if left:
        raise ValueError(f"by_hand: convolutions must be in {CAUSAL} or {TRANSPOSED}, got {', '.join(left)}")
    return whole


def _replace_children(parent: nn.Module, rows: int) -> None:
    for name, child in parent.named_children():
        kind = type(child).__name__
        if kind in CAUSAL:
            setattr(parent, name, Convolution(child.conv, rows))
        elif kind in TRANSPOSED:
            setattr(parent, name, Transposed(child.conv, rows))
        elif isinstance(child, nn.LSTM):
            setattr(parent, name, Recurrent(child, rows))
        else:
            _replace_children(child, rows)


def reset(network: nn.Module) -> None:
    """All streams of a network of `by_hand` begin as new."""
    for layer in network.modules():
        if isinstance(layer, Stateful):
            for state in layer.buffers(recurse=False):
                state.zero_()


def costs(network: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """Bytes and floating-point operations of a step of a network of `by_hand`, layer by layer.

    A layer with weights reads them, its input and its state once, and writes its result and its state once. Activations
    and sums are assumed to be in the layers. The states move on.
    """
    traffic = flops = 0

    def count(layer: Any, inputs: tuple[torch.Tensor, ...], result: Any) -> None:
        nonlocal traffic, flops
        x, y = inputs[0], result[0] if isinstance(result, tuple) else result
        states = sum(state.nbytes for state in layer.buffers(recurse=False))
        traffic += x.nbytes + y.nbytes + sum(own.nbytes for own in layer.parameters()) + 2 * states
        if isinstance(layer, Recurrent):
            matrices = sum(own.numel() for own in layer.parameters() if own.dim() == 2)
            flops += 2 * x.shape[0] * x.shape[1] * matrices
        else:
            # weight[0] has the weights of an output channel; in a transposed convolution, of an input channel.
            flops += 2 * (x if isinstance(layer, Transposed) else y).numel() * layer.weight[0].numel()

    layers = (layer for layer in network.modules() if isinstance(layer, (*Stateful, nn.Linear)))
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        network(x)
    finally:
        for handle in handles:
            handle.remove()
    return traffic, flops
