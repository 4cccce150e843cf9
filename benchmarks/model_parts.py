"""Networks that transformers does not have.

BigVGAN, Whisper's stem by itself, Mimi's encoder as a stream, a temporal convolutional network, layers of a WaveNet.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, pow, sin


# --- BigVGAN ----------------------------------------------------------------------------------------------------------
class SnakeBeta(nn.Module):
    """`x + sin(e^alpha x)^2 / (e^beta + 1e-9)` with alpha and beta per channel; BigVGAN's code."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha_logscale, self.no_div_by_zero = True, 1e-9
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
        beta = self.beta.unsqueeze(0).unsqueeze(-1)
        if self.alpha_logscale:
            alpha = torch.exp(alpha)
            beta = torch.exp(beta)
        x = x + (1.0 / (beta + self.no_div_by_zero)) * pow(sin(x * alpha), 2)
        return x  # noqa: RET504


def low_pass(taps: int = 12) -> torch.Tensor:
    """BigVGAN's Kaiser-windowed sinc that halves the band, (1, 1, taps)."""
    half, width = taps // 2, 4 * 0.3
    attenuation = 2.285 * (half - 1) * math.pi * width + 7.95
    window = torch.kaiser_window(taps, periodic=False, beta=0.1102 * (attenuation - 8.7))
    sinc = window * torch.sinc(0.5 * (torch.arange(-half, half) + 0.5))
    return (sinc / sinc.sum()).view(1, 1, taps)


class Smoothed(nn.Module):
    """An activation at twice the rate: 12 taps interpolate, 12 taps low-pass on the way back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.activation = SnakeBeta(channels)
        self.register_buffer("up", low_pass())
        self.register_buffer("down", low_pass())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels = x.shape[1]
        x = F.pad(x, (5, 5), mode="replicate")
        x = 2 * F.conv_transpose1d(x, self.up.expand(channels, -1, -1), stride=2, groups=channels)
        x = self.activation(x[..., 15:-15])
        x = F.pad(x, (5, 6), mode="replicate")
        return F.conv1d(x, self.down.expand(channels, -1, -1), stride=2, groups=channels)


def _normed(layer: nn.Module) -> nn.Module:
    return nn.utils.parametrizations.weight_norm(layer)


class SnakeBlock(nn.Module):
    """Residual units, each an activation, a dilated convolution, an activation and a convolution."""

    def __init__(self, channels: int, taps: int, dilations: Sequence[int]) -> None:
        super().__init__()
        conv = functools.partial(nn.Conv1d, channels, channels, taps)
        dilated = [conv(dilation=d, padding=(taps - 1) * d // 2) for d in dilations]
        self.convs1 = nn.ModuleList(_normed(layer) for layer in dilated)
        self.convs2 = nn.ModuleList(_normed(conv(padding=taps // 2)) for _ in dilations)
        self.activations = nn.ModuleList(Smoothed(channels) for _ in range(2 * len(dilations)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        firsts, seconds = self.activations[::2], self.activations[1::2]
        for conv1, conv2, first, second in zip(self.convs1, self.convs2, firsts, seconds, strict=True):
            x = x + conv2(second(conv1(first(x))))
        return x


class BigVGAN(nn.Module):
    """Mel frames (B, bands, L) to samples (B, 1, L * prod(rates)).

    Source: Lee et al., "BigVGAN: A Universal Neural Vocoder with Large-Scale Training" (2023), version 2's numbers.
    """

    def __init__(
        self, bands: int, channels: int, rates: Sequence[int], taps: Sequence[int], dilations: Sequence[int]
    ) -> None:
        super().__init__()
        self.first = _normed(nn.Conv1d(bands, channels, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate in rates:
            up = nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, padding=rate // 2)
            channels //= 2
            self.ups.append(_normed(up))
            self.blocks.append(nn.ModuleList(SnakeBlock(channels, k, dilations) for k in taps))
        self.activation = Smoothed(channels)
        self.last = _normed(nn.Conv1d(channels, 1, 7, padding=3, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(x)
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.clamp(self.last(self.activation(x)), min=-1.0, max=1.0)


# --- Whisper and Mimi -------------------------------------------------------------------------------------------------
class WhisperStem(nn.Module):
    """The first layers of WhisperEncoder's forward; alone they take any length."""

    def __init__(self, bands: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(bands, channels, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(channels, channels, kernel_size=3, stride=2, padding=1)

    def forward(self, input_features: torch.Tensor) -> torch.Tensor:
        inputs_embeds = nn.functional.gelu(self.conv1(input_features))
        inputs_embeds = nn.functional.gelu(self.conv2(inputs_embeds))
        return inputs_embeds.permute(0, 2, 1)


class MimiStream(nn.Module):
    """Mimi's convolutional encoder over chunks of its input; a cache holds the positions before each."""

    def __init__(self, encoder: nn.Module, make_cache: Any, piece: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.make_cache, self.piece = make_cache, piece
        numbered = [module for module in encoder.modules() if getattr(module, "layer_idx", None) is not None]
        convs = sorted(numbered, key=lambda module: module.layer_idx)
        # Numbers instead of buffers: each comparison of a buffer would wait for the GPU.
        self.cached = {
            "num_layers": len(convs),
            "per_layer_padding": [int(conv.padding_total) for conv in convs],
            "per_layer_padding_mode": [conv.pad_mode for conv in convs],
            "per_layer_in_channels": [conv.in_channels for conv in convs],
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cache = self.make_cache(**self.cached)
        return torch.cat([self.encoder(piece, padding_cache=cache) for piece in x.split(self.piece, dim=-1)], dim=-1)


# --- TCN and WaveNet --------------------------------------------------------------------------------------------------
class TemporalBlock(nn.Module):
    """Two causal dilated convolutions, each with batch norm and ReLU, beside the input."""

    def __init__(self, inputs: int, channels: int, taps: int, dilation: int) -> None:
        super().__init__()
        self.trimmed = (taps - 1) * dilation
        conv = functools.partial(nn.Conv1d, kernel_size=taps, padding=self.trimmed, dilation=dilation)
        self.conv1, self.norm1 = conv(inputs, channels), nn.BatchNorm1d(channels)
        self.conv2, self.norm2 = conv(channels, channels), nn.BatchNorm1d(channels)
        self.shortcut = nn.Conv1d(inputs, channels, 1) if inputs != channels else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)[..., : -self.trimmed]))
        y = F.relu(self.norm2(self.conv2(y)[..., : -self.trimmed]))
        return F.relu(y + self.shortcut(x))


class TCN(nn.Sequential):
    """Features (B, bands, L) to (B, channels, L); the dilation doubles from block to block.

    Source: Bai et al., "An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence Modeling"
    (2018), with batch norm instead of weight_norm.
    """

    def __init__(self, bands: int, channels: int, blocks: int, taps: int) -> None:
        widths = [bands] + [channels] * blocks
        super().__init__(*(TemporalBlock(widths[i], channels, taps, 2**i) for i in range(blocks)))


class WaveNet(nn.Module):
    """(B, bands, L) to (B, bands, L): gated dilated convolutions whose one-tap results go on and to the sum.

    Source: Prenger et al., "WaveGlow: A Flow-based Generative Network for Speech Synthesis" (2019), whose layers are
    the layers of van den Oord et al., "WaveNet" (2016), without their condition.
    """

    def __init__(self, bands: int, channels: int, layers: int, taps: int) -> None:
        super().__init__()
        self.channels = channels
        self.first = nn.Conv1d(bands, channels, 1)
        same = [(taps - 1) * 2**i // 2 for i in range(layers)]
        self.dilated = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, taps, dilation=2**i, padding=same[i]) for i in range(layers)
        )
        widths = [2 * channels] * (layers - 1) + [channels]  # the last layer only adds to the sum
        self.mixed = nn.ModuleList(nn.Conv1d(channels, width, 1) for width in widths)
        self.last = nn.Conv1d(channels, bands, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        total = torch.zeros_like(x)
        for dilated, mixed in zip(self.dilated, self.mixed, strict=True):
            a, b = dilated(x).split(self.channels, dim=1)
            y = mixed(torch.tanh(a) * torch.sigmoid(b))
            if y.shape[1] == self.channels:
                return self.last(total + y)
            rest, out = y.split(self.channels, dim=1)
            x, total = x + rest, total + out
        return self.last(total)
