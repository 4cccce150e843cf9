"""Networks with real configurations and random weights, by name: vocoders, codecs, speech encoders.

    module, inputs = ZOO["speecht5_hifigan"].build("cuda", torch.float16, "real")

Each has a `small` size, for tests on the CPU, a `real` one, and the `user` size: the real network with an input of one
request, a few seconds of sound. Weights are seeded, and scaled so that signals keep their level (sluice.demo.weights).
transformers 5.17 and later has the classes; `Entry.missing()` names an absent class.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from model_parts import TCN, BigVGAN, MimiStream, WaveNet, WhisperStem
from sluice.demo.weights import keep_levels

SIZES = ("small", "real", "user")


class Size(NamedTuple):
    """A network's options and inputs: `batch` of two `lengths`; weights are scaled at `probe`."""

    options: Mapping[str, Any]
    batch: int
    lengths: tuple[int, int]
    probe: int


class Built(NamedTuple):
    """A network in eval mode, whose parameters require no gradients, and an input of each length."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    Attributes:
        name: its key in `ZOO`.
        note: a description.
        make: makes the network from the options of a size.
        draw: draws an input from the options, a batch, a length and a generator.
        small, real: the sizes.
        user: the length of one request; the `user` size has the options of `real`.
        classes: transformers' classes, as `<folder>.<class>`; none for a network of `model_parts`.
        capturable: whether a CUDA graph can capture eager torch's calls; networks that pad by tensors' values wait for
            the GPU.
    """

    name: str
    note: str
    make: Callable[..., nn.Module]
    draw: Callable[[Mapping[str, Any], int, int, torch.Generator], torch.Tensor]
    small: Size
    real: Size
    classes: tuple[str, ...] = ()
    capturable: bool = True
    user: int = dataclasses.field(kw_only=True)

    def size(self, name: str | Size) -> Size:
        """The size of that name, or the given size."""
        if isinstance(name, Size):
            return name
        if name not in SIZES:
            raise ValueError(f"{self.name}: size must be one of {SIZES}, got {name!r}")
        if name == "user":
            return self.real._replace(batch=1, lengths=(self.user, self.user * 3 // 4))
        return self.small if name == "small" else self.real

    def missing(self) -> str | None:
        """Why it cannot be built here; None if it can. Reads transformers' source without importing models."""
        for folder, _, name in (path.partition(".") for path in self.classes):
            source = _source(folder)
            if source is None:
                return f"transformers is not installed, or has no {folder}"
            if not re.search(rf"^class {name}\b", source, re.MULTILINE):
                return f"transformers {importlib.import_module('transformers').__version__} has no {folder}.{name}"
        return None

    def network(self, size: str | Size = "small", seed: int = 0) -> nn.Module:
        """The network on the CPU in float32, in eval mode; the same seed gives the same weights everywhere.

        Raises:
            LookupError: a class of transformers is missing.
            ValueError: there is no such size.
        """
        given = self.size(size)
        if (reason := self.missing()) is not None:
            raise LookupError(f"{self.name}: {reason}")
        with torch.random.fork_rng(devices=[]):  # initial values are drawn from torch's own generator
            torch.manual_seed(seed)
            module = self.make(**given.options).eval().requires_grad_(False)
        keep_levels(module, self._drawn(given, seed)[0], seed=seed)
        return module

    def inputs(
        self, device: torch.device | str, dtype: torch.dtype, size: str | Size = "small", seed: int = 0
    ) -> tuple[torch.Tensor, ...]:
        """An input of each length; whole numbers keep their dtype."""
        drawn = self._drawn(self.size(size), seed)[1:]
        return tuple(x.to(device, dtype) if x.is_floating_point() else x.to(device) for x in drawn)

    def build(self, device: torch.device | str, dtype: torch.dtype, size: str | Size = "small", seed: int = 0) -> Built:
        """The network on the device in the dtype, and its inputs. Raises as `network`."""
        return Built(self.network(size, seed).to(device, dtype), self.inputs(device, dtype, size, seed))

    def _drawn(self, given: Size, seed: int) -> tuple[torch.Tensor, ...]:
        """The input at which weights are scaled, then the inputs of the size."""
        generator = torch.Generator().manual_seed(seed)
        shapes = (1, given.probe), *((given.batch, length) for length in given.lengths)
        return tuple(self.draw(given.options, batch, length, generator) for batch, length in shapes)


@functools.cache
def _source(folder: str) -> str | None:
    """The text of a folder's modeling file below transformers.models."""
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return None
    path = pathlib.Path(package.origin).parent / "models" / folder / f"modeling_{folder}.py"
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _model(folder: str, *names: str) -> list[Any]:
    """Attributes of a modeling module of transformers."""
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    return [getattr(module, name) for name in names]


# --- how each is made -------------------------------------------------------------------------------------------------
def configured(folder: str, name: str, config: str, **options: Any) -> nn.Module:
    cls, make_config = _model(folder, name, config)
    return cls(make_config(**options))


def mimi_decoder(**options: Any) -> nn.Module:
    upsample, decoder, make_config = _model("mimi", "MimiConvTranspose1d", "MimiDecoder", "MimiConfig")
    config = make_config(**options)
    # MimiModel's upsampling: from 12.5 frames per second to 25.
    up = upsample(config, config.hidden_size, config.hidden_size, 4, 2, groups=config.upsample_groups, bias=False)
    return nn.Sequential(up, decoder(config))


def _mimi_stream(piece: int, **options: Any) -> nn.Module:
    encoder, cache, make_config = _model("mimi", "MimiEncoder", "MimiConv1dPaddingCache", "MimiConfig")
    return MimiStream(encoder(make_config(**options)), cache, piece)


def _code2wav(**options: Any) -> nn.Module:
    return configured("qwen3_omni_moe", "Qwen3OmniMoeCode2Wav", "Qwen3OmniMoeCode2WavConfig", **options)


# --- inputs -----------------------------------------------------------------------------------------------------------
def draw_channels(option: str) -> Callable[..., torch.Tensor]:
    """Inputs (B, C, L); the option gives C."""
    return lambda options, batch, length, generator: torch.randn(batch, options[option], length, generator=generator)


def _features(option: str) -> Callable[..., torch.Tensor]:
    """Inputs (B, L, C); the option gives C."""
    return lambda options, batch, length, generator: torch.randn(batch, length, options[option], generator=generator)


def _dac_codes(options: Mapping[str, Any], batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    channels = options["encoder_hidden_size"] * 2 ** len(options["downsampling_ratios"])
    return torch.randn(batch, channels, length, generator=generator)


def _samples(options: Mapping[str, Any], batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(batch, length, generator=generator)


def draw_sound(options: Mapping[str, Any], batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(batch, 1, length, generator=generator)


def _codes(options: Mapping[str, Any], batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    shape = batch, options["num_quantizers"], length
    return torch.randint(0, options["codebook_size"], shape, generator=generator)


# --- the zoo ----------------------------------------------------------------------------------------------------------
_ENTRIES = [
    Entry(
        "speecht5_hifigan", "SpeechT5's HiFi-GAN: mel frames to samples, LeakyReLU around every convolution",
        functools.partial(configured, "speecht5", "SpeechT5HifiGan", "SpeechT5HifiGanConfig"),
        _features("model_in_dim"),
        Size({"model_in_dim": 8, "upsample_initial_channel": 32, "upsample_rates": [4, 2],
              "upsample_kernel_sizes": [8, 4], "resblock_kernel_sizes": [3, 7],
              "resblock_dilation_sizes": [[1, 3], [1, 5]]}, 2, (24, 17), 16),
        Size({"model_in_dim": 80}, 8, (860, 613), 16),
        ("speecht5.SpeechT5HifiGan",),
        user=200,
    ),
    Entry(
        "vits_hifigan", "VITS' HiFi-GAN: latent frames to samples, transposed convolutions of stride 8",
        functools.partial(configured, "vits", "VitsHifiGan", "VitsConfig"),
        draw_channels("flow_size"),
        Size({"flow_size": 12, "upsample_initial_channel": 32, "upsample_rates": [8, 2],
              "upsample_kernel_sizes": [16, 4], "resblock_kernel_sizes": [3, 5],
              "resblock_dilation_sizes": [[1, 3], [1, 3]]}, 2, (16, 11), 12),
        Size({"flow_size": 192}, 8, (600, 437), 12),
        ("vits.VitsHifiGan",),
        user=200,
    ),
    Entry(
        "dac_decoder", "the decoder of DAC 16 kHz: Snake around every convolution, residual units of dilation 1, 3, 9",
        functools.partial(configured, "dac", "DacDecoder", "DacConfig"),
        _dac_codes,
        Size({"encoder_hidden_size": 4, "downsampling_ratios": [2, 4], "decoder_hidden_size": 32}, 2, (40, 23), 24),
        Size({"encoder_hidden_size": 64, "downsampling_ratios": [2, 4, 8, 8]}, 4, (430, 311), 12),
        ("dac.DacDecoder",),
        user=172,
    ),
    Entry(
        "encodec_decoder", "the decoder of EnCodec 24 kHz: causal with reflected edges, ELU, an LSTM, weight_norm",
        functools.partial(configured, "encodec", "EncodecDecoder", "EncodecConfig"),
        draw_channels("hidden_size"),
        Size({"hidden_size": 16, "num_filters": 8, "upsampling_ratios": [4, 2]}, 2, (40, 23), 24),
        Size({"hidden_size": 128}, 8, (750, 541), 24),
        ("encodec.EncodecDecoder",),
        capturable=False,
        user=150,
    ),
    Entry(
        "mimi_decoder", "Mimi's decoder: a depthwise transposed convolution, causal ones, ELU, trimmed transposed ones",
        mimi_decoder,
        draw_channels("hidden_size"),
        Size({"hidden_size": 16, "num_filters": 8, "upsampling_ratios": [4, 2], "upsample_groups": 16},
             2, (20, 13), 12),
        Size({"hidden_size": 512}, 8, (125, 91), 12),
        ("mimi.MimiDecoder", "mimi.MimiConvTranspose1d"),
        capturable=False,
        user=25,
    ),
    Entry(
        "mimi_stream", "Mimi's convolutional encoder, piece by piece with its padding cache",
        _mimi_stream,
        draw_sound,
        Size({"piece": 32, "num_filters": 8, "hidden_size": 16, "upsampling_ratios": [4, 2]}, 2, (112, 72), 64),
        Size({"piece": 1920}, 8, (48000, 20160), 3840),
        ("mimi.MimiEncoder", "mimi.MimiConv1dPaddingCache"),
        capturable=False,
        user=23040,
    ),
    Entry(
        "qwen3_code2wav", "Qwen3-Omni's code2wav: codes to samples, a transformer, ConvNeXt blocks, SnakeBeta, trimmed "
        "transposed convolutions; a chunk of 300 frames with 25 of context",
        _code2wav,
        _codes,
        Size({"codebook_size": 32, "num_quantizers": 4, "hidden_size": 32, "num_attention_heads": 4,
              "num_key_value_heads": 4, "intermediate_size": 48, "num_hidden_layers": 1, "sliding_window": 8,
              "upsample_rates": [4, 3], "upsampling_ratios": [2], "decoder_dim": 32}, 2, (15, 11), 12),
        Size({"codebook_size": 2048, "num_quantizers": 16}, 2, (325, 221), 8),
        ("qwen3_omni_moe.Qwen3OmniMoeCode2Wav",),
        user=75,
    ),
    Entry(
        "bigvgan", "BigVGAN v2's network: SnakeBeta between 12-tap filters in front of every convolution, weight_norm",
        BigVGAN,
        draw_channels("bands"),
        Size({"bands": 10, "channels": 32, "rates": [4, 2], "taps": [3, 7], "dilations": [1, 3]}, 2, (20, 13), 12),
        Size({"bands": 100, "channels": 1536, "rates": [4, 4, 2, 2, 2, 2], "taps": [3, 7, 11],
              "dilations": [1, 3, 5]}, 4, (256, 187), 8),
        user=100,
    ),
    Entry(
        "wav2vec2_features", "Wav2Vec2's feature extractor: seven strided convolutions with GELU, a norm in the first",
        functools.partial(configured, "wav2vec2", "Wav2Vec2FeatureEncoder", "Wav2Vec2Config"),
        _samples,
        Size({"conv_dim": [16] * 7}, 2, (4000, 3001), 2000),
        Size({}, 8, (160000, 112345), 4000),
        ("wav2vec2.Wav2Vec2FeatureEncoder",),
        user=32000,
    ),
    Entry(
        "wav2vec2_position", "Wav2Vec2's positional convolution: 128 taps in 16 groups, weight_norm by tap, GELU",
        functools.partial(configured, "wav2vec2", "Wav2Vec2PositionalConvEmbedding", "Wav2Vec2Config"),
        _features("hidden_size"),
        Size({"hidden_size": 32, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}, 2, (60, 37), 40),
        Size({"hidden_size": 768}, 8, (499, 351), 200),
        ("wav2vec2.Wav2Vec2PositionalConvEmbedding",),
        user=99,
    ),
    Entry(
        "whisper_stem", "the stem of Whisper large: two convolutions with GELU, the second of stride 2",
        WhisperStem,
        draw_channels("bands"),
        Size({"bands": 10, "channels": 24}, 2, (60, 37), 40),
        Size({"bands": 128, "channels": 1280}, 8, (3000, 1999), 64),
        user=3000,
    ),
    Entry(
        "conformer_convolution", "a Conformer's convolution module: pointwise, GLU, depthwise of 31 taps, batch norm",
        functools.partial(
            configured, "wav2vec2_conformer", "Wav2Vec2ConformerConvolutionModule", "Wav2Vec2ConformerConfig"
        ),
        _features("hidden_size"),
        Size({"hidden_size": 32, "conv_depthwise_kernel_size": 7}, 2, (60, 37), 40),
        Size({"hidden_size": 1024}, 8, (1500, 1011), 100),
        ("wav2vec2_conformer.Wav2Vec2ConformerConvolutionModule",),
        user=100,
    ),
    Entry(
        "tcn", "a temporal convolutional network: causal dilated convolutions, batch norm and ReLU in residual blocks",
        TCN,
        draw_channels("bands"),
        Size({"bands": 6, "channels": 16, "blocks": 3, "taps": 3}, 2, (60, 37), 40),
        Size({"bands": 80, "channels": 256, "blocks": 8, "taps": 3}, 8, (2000, 1401), 300),
        user=2000,
    ),
    Entry(
        "wavenet", "WaveGlow's stack of WaveNet layers: dilated convolutions, gates, one-tap ones to the rest and out",
        WaveNet,
        draw_channels("bands"),
        Size({"bands": 4, "channels": 12, "layers": 3, "taps": 3}, 2, (60, 37), 40),
        Size({"bands": 4, "channels": 128, "layers": 8, "taps": 3}, 8, (8000, 5601), 600),
        user=8000,
    ),
]  # fmt: skip

ZOO = {entry.name: entry for entry in _ENTRIES}
