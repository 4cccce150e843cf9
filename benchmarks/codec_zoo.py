"""The convolutional parts of codecs that run as streams, with transformers' configurations and random weights.

    module, inputs = CODECS["mimi_encoder"].build("cuda", torch.float32, size_of("mimi_encoder", streams=8))

The first input has `CHUNKS` steps, the second has a step. A step is 80 ms of sound, which is 1,920 samples; code2wav's
has four frames, 320 ms. Weights are seeded as in model_zoo.py. EnCodec pads by "constant" here: with its own "reflect"
the first chunk of a stream would have to be longer.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from model_zoo import Entry, Size, configured, draw_channels, draw_sound, mimi_decoder

CHUNKS = 6  # steps that are compared with the whole run: over twice what a result of code2wav's sees


def _waves(**options: Any) -> nn.Module:
    """Behind code2wav's transformer, which is small here, because it is not used."""
    unused = {"num_hidden_layers": 1, "codebook_size": 8, "num_quantizers": 1, "intermediate_size": 8}
    whole: Any = configured("qwen3_omni_moe", "Qwen3OmniMoeCode2Wav", "Qwen3OmniMoeCode2WavConfig", **unused, **options)
    return Waves(whole.upsample, whole.decoder)


class Waves(nn.Module):
    """The convolutions of code2wav's forward, (B, hidden_size, frames) to (B, 1, samples)."""

    def __init__(self, upsample: nn.ModuleList, decoder: nn.ModuleList) -> None:
        super().__init__()
        self.upsample, self.decoder = upsample, decoder

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for blocks in self.upsample:
            for block in blocks:
                hidden = block(hidden)
        for block in self.decoder:
            hidden = block(hidden)
        return hidden.clamp(min=-1, max=1)


def _mimi_encoder(**options: Any) -> nn.Module:
    return configured("mimi", "MimiEncoder", "MimiConfig", **options)


def _encodec(name: str, **options: Any) -> nn.Module:
    return configured("encodec", name, "EncodecConfig", pad_mode="constant", **options)


def _size(options: dict[str, Any], step: int, probe: int) -> Size:
    """A size of two streams."""
    return Size(options, 2, (CHUNKS * step, step), probe)


_SMALL = {"num_filters": 8, "hidden_size": 16, "upsampling_ratios": [4, 2]}
_ENTRIES = [
    Entry(
        "mimi_encoder", "Mimi's encoder: strided causal convolutions, ELU, residual units",
        _mimi_encoder, draw_sound, _size(_SMALL, 16, 64), _size({}, 1920, 3840), ("mimi.MimiEncoder",), user=1920,
    ),
    Entry(
        "mimi_decoder", "Mimi's decoder behind its upsampling: trimmed transposed convolutions, ELU, residual units",
        mimi_decoder, draw_channels("hidden_size"), _size({**_SMALL, "upsample_groups": 16}, 2, 12),
        _size({"hidden_size": 512}, 1, 12), ("mimi.MimiDecoder", "mimi.MimiConvTranspose1d"), user=1,
    ),
    Entry(
        "encodec_encoder", "the encoder of EnCodec 24 kHz: as Mimi's, with an LSTM and weight_norm",
        functools.partial(_encodec, "EncodecEncoder"), draw_sound, _size(_SMALL, 16, 64), _size({}, 1920, 3840),
        ("encodec.EncodecEncoder",), user=1920,
    ),
    Entry(
        "encodec_decoder", "the decoder of EnCodec 24 kHz: as Mimi's, with an LSTM and weight_norm",
        functools.partial(_encodec, "EncodecDecoder"), draw_channels("hidden_size"), _size(_SMALL, 3, 24),
        _size({"hidden_size": 128}, 6, 24), ("encodec.EncodecDecoder",), user=6,
    ),
    Entry(
        "code2wav", "the convolutions of Qwen3-Omni's code2wav: ConvNeXt blocks, SnakeBeta, transposed convolutions",
        _waves, draw_channels("hidden_size"),
        _size({"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "decoder_dim": 32,
               "upsample_rates": [4, 3], "upsampling_ratios": [2]}, 5, 12),
        _size({"hidden_size": 1024}, 4, 8), ("qwen3_omni_moe.Qwen3OmniMoeCode2Wav",), user=4,
    ),
]  # fmt: skip

CODECS = {entry.name: entry for entry in _ENTRIES}


def size_of(name: str, streams: int, size: str = "real") -> Size:
    """A codec's size, "small" or "real", with so many streams."""
    return CODECS[name].size(size)._replace(batch=streams)
