"""The feature extractor of the demo's second job, with sluice's convolution and with torch's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

KERNELS = (10, 3, 3, 3, 3, 2, 2)
STRIDES = (5, 2, 2, 2, 2, 2, 2)
RECEPTIVE_FIELD = 400  # samples that one feature sees: at 16 kHz, 25 ms

# GELU of a normal variable has 0.425 times its mean square. Weights scaled by the inverse keep a signal's level
# through all seven layers.
_GAIN = 0.425**-0.5


class TorchExtractor(nn.Module):
    """Seven convolutions with GELU after each, as in Wav2Vec2: samples (B, 1, L) to features (B, channels, L / 320).

    Wav2Vec2 also normalises after its first convolution; this model does not.

    Args:
        channels: of every layer's result.
        seed: of the random weights.

    Source: Baevski et al., "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations" (2020).
    """

    def __init__(self, channels: int = 512, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weights, inputs = [], 1
        for kernel in KERNELS:
            weight = torch.randn(channels, inputs, kernel, generator=generator)
            weights.append(nn.Parameter(weight * (_GAIN / (inputs * kernel) ** 0.5), requires_grad=False))
            inputs = channels
        self.weights = nn.ParameterList(weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features by torch's convolution, then its GELU."""
        for weight, stride in zip(self.weights, STRIDES, strict=True):
            x = F.gelu(F.conv1d(x, weight, stride=stride))
        return x


class SluiceExtractor(TorchExtractor):
    """The same model, each layer one call: `torch.ops.sluice.conv1d` with GELU as its chain."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features by sluice."""
        for weight, stride in zip(self.weights, STRIDES, strict=True):
            x = torch.ops.sluice.conv1d(x, weight, stride=stride, post="gelu")
        return x
