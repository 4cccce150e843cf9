"""Random weights that keep a network's signals alive, so that a model without a checkpoint can be measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_LAYERS = (nn.Conv1d, nn.ConvTranspose1d, nn.Conv2d, nn.Linear)
_SPREAD = 0.2  # standard deviation of parameters around their first values; embeddings and other tables get 1
_BIAS = 0.1


def keep_levels(network: nn.Module, x: torch.Tensor, *, seed: int = 0) -> None:
    """Gives every parameter a random value, so that each convolution and linear layer returns a mean square of 1.

    Weights are normal variables, scaled by each layer's output for `x`, in the order in which the layers run. Signals
    then neither overflow nor vanish in float16, as they do in deep vocoders with torch's initial values. Parameters of
    norms and activations, and the statistics of batch norms, are spread around their current values. Layers with
    torch's weight_norm keep it.

    Args:
        network: on the device of `x` and in its dtype, in eval mode. Parameters change in place.
        x: an input of the network; a short input is enough.
        seed: the same seed gives the same weights.

    Raises:
        ValueError: the network is in training mode.

    Example:
        >>> import torch
        >>> from sluice.demo.weights import keep_levels
        >>> network = torch.nn.Sequential(*(torch.nn.Conv1d(8, 8, 3) for _ in range(20))).eval()
        >>> x = torch.randn(1, 8, 99)
        >>> keep_levels(network, x)
        >>> with torch.no_grad():
        ...     bool(0.5 < network(x).square().mean() < 2)
        True

    Source: Mishkin and Matas, "All you need is a good init" (2016).
    """
    if network.training:
        raise ValueError("keep_levels: network must be in eval mode, got one in training mode")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        biases = _draw(network, generator)
        layers = [layer for layer in network.modules() if isinstance(layer, _LAYERS)]
        handles = [layer.register_forward_hook(_scaler()) for layer in layers]
        try:
            network(x)
        finally:
            for handle in handles:
                handle.remove()
        for bias in biases:
            bias.copy_(_normal(bias, generator) * _BIAS)


def _draw(network: nn.Module, generator: torch.Generator) -> list[torch.Tensor]:
    """Draws all parameters but the layers' gains and biases; the biases become zero and are returned."""
    biases: list[torch.Tensor] = []
    drawn: set[int] = set()
    for layer in network.modules():
        if isinstance(layer, _LAYERS):
            weight = _direction(layer)
            weight.copy_(_normal(weight, generator) * weight[0].numel() ** -0.5)
            drawn |= {id(weight), id(_gain(layer))}
            if layer.bias is not None:
                biases.append(layer.bias.zero_())
                drawn.add(id(layer.bias))
        elif isinstance(layer, nn.RNNBase):  # its own initial values keep it from saturating
            drawn |= {id(parameter) for parameter in layer.parameters()}
        elif isinstance(layer, nn.BatchNorm1d):
            for seen in (layer.running_mean, layer.running_var):
                if seen is not None:
                    seen.add_(_normal(seen, generator).clamp(-3, 3) * _SPREAD)
    for parameter in network.parameters():
        if id(parameter) not in drawn:
            parameter.add_(_normal(parameter, generator) * (1.0 if parameter.dim() == 2 else _SPREAD))
    return biases


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator).to(like)


def _direction(layer: Any) -> torch.Tensor:
    """The parameter that is the layer's weight up to a factor: weight_norm's direction, or the weight."""
    if hasattr(layer, "weight_v"):
        return layer.weight_v  # type: ignore[no-any-return]
    return layer.parametrizations.weight.original1 if _is_parametrised(layer) else layer.weight  # type: ignore[no-any-return]


def _gain(layer: Any) -> torch.Tensor:
    """The parameter that scales the weight."""
    if hasattr(layer, "weight_g"):
        return layer.weight_g  # type: ignore[no-any-return]
    return layer.parametrizations.weight.original0 if _is_parametrised(layer) else layer.weight  # type: ignore[no-any-return]


def _is_parametrised(layer: nn.Module) -> bool:
    return nn.utils.parametrize.is_parametrized(layer, "weight")


def _scaler() -> Callable[[nn.Module, Any, torch.Tensor], torch.Tensor | None]:
    """A hook that scales the layer's weight, and the result, at its first call."""
    scaled = False

    def hook(layer: nn.Module, inputs: Any, result: torch.Tensor) -> torch.Tensor | None:
        nonlocal scaled
        if scaled:
            return None
        scaled = True
        factor = result.float().square().mean().clamp_min(1e-12).rsqrt().to(result.dtype)
        _gain(layer).mul_(factor)
        return result * factor

    return hook
