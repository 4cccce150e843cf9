"""Whole networks of transformers in small sizes with random weights, and how they are called."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

Call = Callable[[Any, int], Any]  # a call of the network for a length


def part_of(name: str, kind: str) -> Any:
    """A class of transformers, or of the network's own module."""
    found = getattr(importlib.import_module("transformers"), kind, None)
    return found or getattr(importlib.import_module(f"transformers.models.{name}.modeling_{name}"), kind)


def made(name: str, kind: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """How to make a network of a class from its configuration."""
    return lambda: part_of(name, kind)(part_of(name, config)(**options))


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(*shape: int, most: int = 20) -> torch.Tensor:
    return torch.randint(3, most, shape, generator=torch.Generator().manual_seed(sum(shape)))


def wave(model: Any, length: int) -> Any:
    return model(numbers(2, length))


def wave_of_one_channel(model: Any, length: int) -> Any:
    return model(numbers(2, 1, length))


def masked_wave(model: Any, length: int) -> Any:
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    return model(numbers(2, length), attention_mask=mask, output_hidden_states=True)


def text(model: Any, length: int) -> Any:
    return model(tokens(2, length))


def generated(model: Any, length: int) -> Any:
    return model.generate(tokens(2, length), max_new_tokens=5, do_sample=False)


def features(count: int, **options: Any) -> Call:
    return lambda model, length: model(numbers(2, length, count), **options)


def mels(count: int, **options: Any) -> Call:
    return lambda model, length: model(numbers(2, count, length), **options)


def encoded(model: Any, length: int) -> Any:
    """Codes of a wave, and the wave of codes."""
    found = model.encode(numbers(1, 1, length))
    codes = found.audio_codes if hasattr(found, "audio_codes") else found[0]
    return codes, model.decode(codes)


_LAYERS: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip
_WAVES: dict[str, Any] = {
    **_LAYERS, "conv_dim": [16, 16, 16], "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2],
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "vocab_size": 20,
}  # fmt: skip
_RATES: dict[str, Any] = {
    "upsample_initial_channel": 16, "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4],
    "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3], [1, 3]],
}  # fmt: skip
_TEXT: dict[str, Any] = {"vocab_size": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_HEADS: dict[str, Any] = {**_LAYERS, **_TEXT, "num_key_value_heads": 1}
_MELS: dict[str, Any] = {**_LAYERS, "num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 5}


def fastspeech(kind: str) -> Callable[[], nn.Module]:
    options: dict[str, Any] = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in {"layers": 1, "linear_units": 16, "num_attention_heads": 2, "kernel_size": 3}.items()
    }
    options.update({"duration_predictor_channels": 8, "energy_predictor_channels": 8, "pitch_predictor_channels": 8})
    own = "fastspeech2_conformer"

    def make() -> nn.Module:
        config = part_of(own, "FastSpeech2ConformerConfig")(
            hidden_size=16, vocab_size=20, num_mel_bins=8, speech_decoder_postnet_units=8, **options
        )
        if kind == "FastSpeech2ConformerModel":
            return part_of(own, kind)(config)  # type: ignore[no-any-return]
        vocoder = part_of(own, "FastSpeech2ConformerHifiGanConfig")(model_in_dim=8, **_RATES)
        both = part_of(own, "FastSpeech2ConformerWithHifiGanConfig")(
            model_config=config.to_dict(), vocoder_config=vocoder.to_dict()
        )
        return part_of(own, kind)(both)  # type: ignore[no-any-return]

    return make


def xcodec() -> nn.Module:
    """A codec with a DAC and a HuBERT inside."""
    acoustic = {
        "model_type": "dac", "encoder_hidden_size": 4, "downsampling_ratios": [2, 4], "decoder_hidden_size": 16,
        "upsampling_ratios": [4, 2], "hidden_size": 16,
    }  # fmt: skip
    semantic = {
        "model_type": "hubert", **_WAVES, "conv_kernel": [4, 2], "conv_stride": [4, 2], "conv_dim": [16, 16],
        "num_feat_extract_layers": 2, "hidden_size": 16,
    }  # fmt: skip
    return made(
        "xcodec", "XcodecModel", "XcodecConfig", acoustic_model_config=acoustic, semantic_model_config=semantic,
        codebook_size=16, target_bandwidths=[8, 16],
    )()  # fmt: skip


# How to make it, how to call it, and lengths of calls.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Call, tuple[int, ...]]] = {
    "HuBERT": (made("hubert", "HubertForCTC", "HubertConfig", **_WAVES), masked_wave, (400, 555)),
    "WavLM": (made("wavlm", "WavLMModel", "WavLMConfig", **_WAVES), wave, (400, 555)),
    "UniSpeech": (made("unispeech", "UniSpeechModel", "UniSpeechConfig", **_WAVES), wave, (400, 555)),
    "UniSpeechSat": (
        made("unispeech_sat", "UniSpeechSatModel", "UniSpeechSatConfig", feat_extract_norm="layer",
             do_stable_layer_norm=True, **_WAVES), masked_wave, (400, 555),
    ),
    "Data2VecAudio": (
        made("data2vec", "Data2VecAudioModel", "Data2VecAudioConfig", conv_pos_kernel_size=5,
             num_conv_pos_embedding_groups=4, **{k: v for k, v in _WAVES.items() if "pos_emb" not in k}),
        wave, (400, 555),
    ),
    "SEW": (made("sew", "SEWModel", "SEWConfig", squeeze_factor=2, **_WAVES), masked_wave, (400, 555)),
    "SEW-D": (
        made("sew_d", "SEWDModel", "SEWDConfig", squeeze_factor=2, max_position_embeddings=64, position_buckets=16,
             **_WAVES), wave, (400, 555),
    ),
    "Wav2Vec2 with an adapter": (
        made("wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", add_adapter=True, **_WAVES), wave, (900, 1111),
    ),
    "Wav2Vec2Conformer": (
        made("wav2vec2_conformer", "Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", conv_depthwise_kernel_size=5,
             position_embeddings_type="rotary", **_WAVES), masked_wave, (400, 555),
    ),
    "Wav2Vec2Bert": (
        made("wav2vec2_bert", "Wav2Vec2BertModel", "Wav2Vec2BertConfig", feature_projection_input_dim=12,
             conv_depthwise_kernel_size=5, add_adapter=True, **_LAYERS), features(12), (40, 55),
    ),
    "FastSpeech2Conformer": (fastspeech("FastSpeech2ConformerModel"), text, (7, 9)),
    "FastSpeech2Conformer with HiFi-GAN": (fastspeech("FastSpeech2ConformerWithHifiGan"), text, (7, 9)),
    "UnivNet": (
        made("univnet", "UnivNetModel", "UnivNetConfig", model_in_channels=8, model_hidden_channels=8,
             num_mel_bins=10, resblock_kernel_sizes=[3, 3], resblock_stride_sizes=[4, 2],
             resblock_dilation_sizes=[[1, 3], [1, 3]], kernel_predictor_hidden_channels=8),
        lambda m, n: m(numbers(2, n, 10), numbers(2, n, 8)), (20, 33),
    ),
    "Speech2Text": (
        made("speech_to_text", "Speech2TextForConditionalGeneration", "Speech2TextConfig", d_model=16,
             encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
             encoder_ffn_dim=16, decoder_ffn_dim=16, conv_channels=16, input_feat_per_channel=8, **_TEXT),
        lambda m, n: m.generate(numbers(2, n, 8), max_new_tokens=4, do_sample=False), (40, 55),
    ),
    "XCodec": (xcodec, encoded, (640, 960)),
    "VibeVoice's acoustic tokenizer": (
        made("vibevoice_acoustic_tokenizer", "VibeVoiceAcousticTokenizerModel", "VibeVoiceAcousticTokenizerConfig",
             hidden_size=8, num_filters=4, downsampling_ratios=[2, 4], depths=[1, 1, 2]),
        wave_of_one_channel, (64, 96),
    ),
    "Pocket TTS's tokenizer": (
        made("pocket_tts_audio_tokenizer", "PocketTTSAudioTokenizerModel", "PocketTTSAudioTokenizerConfig",
             num_filters=4, upsampling_ratios=[4, 2], upsample_groups=32, latent_stride=2, latent_dim=8,
             num_key_value_heads=2, **_LAYERS),
        wave_of_one_channel, (64, 100),
    ),
    "Parakeet": (
        made("parakeet", "ParakeetForCTC", "ParakeetCTCConfig", vocab_size=20, pad_token_id=0,
             encoder_config={**_MELS, "subsampling_factor": 4}), features(16), (40, 57),
    ),
    "LASR": (made("lasr", "LasrEncoder", "LasrEncoderConfig", **_MELS), features(16), (40, 57)),
    "Moonshine": (
        made("moonshine", "MoonshineForConditionalGeneration", "MoonshineConfig", hidden_size=32, vocab_size=20,
             intermediate_size=32, encoder_num_hidden_layers=1, decoder_num_hidden_layers=1,
             encoder_num_attention_heads=2, decoder_num_attention_heads=2),
        lambda m, n: m.generate(numbers(1, n), max_new_tokens=4, do_sample=False), (1200, 1601),
    ),
    "Granite Speech's encoder": (
        made("granite_speech", "GraniteSpeechCTCEncoder", "GraniteSpeechEncoderConfig", input_dim=12, hidden_dim=16,
             num_layers=2, num_heads=2, dim_head=8, output_dim=6, context_size=10, conv_kernel_size=5),
        features(12), (40, 57),
    ),
    "SeamlessM4T's encoder": (
        made("seamless_m4t", "SeamlessM4TSpeechEncoder", "SeamlessM4TConfig", hidden_size=16,
             feature_projection_input_dim=12, speech_encoder_layers=1, speech_encoder_attention_heads=2,
             speech_encoder_intermediate_size=16, conv_depthwise_kernel_size=5), features(12), (40, 57),
    ),
    "SeamlessM4Tv2's encoder": (
        made("seamless_m4t_v2", "SeamlessM4Tv2SpeechEncoder", "SeamlessM4Tv2Config", hidden_size=16,
             feature_projection_input_dim=12, speech_encoder_layers=2, speech_encoder_attention_heads=2,
             speech_encoder_intermediate_size=16, conv_depthwise_kernel_size=5), features(12), (40, 57),
    ),
    "SeamlessM4T's vocoder": (
        made("seamless_m4t", "SeamlessM4TCodeHifiGan", "SeamlessM4TConfig", unit_hifi_gan_vocab_size=20,
             unit_embed_dim=8, lang_embed_dim=4, spkr_embed_dim=4, vocoder_num_langs=3, vocoder_num_spkrs=3,
             variance_predictor_kernel_size=3, **_RATES),
        lambda m, n: m(tokens(2, n), torch.ones(2, 1, dtype=torch.long), torch.ones(2, 1, dtype=torch.long)), (9, 12),
    ),
    "Mamba": (
        made("mamba", "MambaForCausalLM", "MambaConfig", vocab_size=20, hidden_size=16, num_hidden_layers=2,
             state_size=4), generated, (5, 7),
    ),
    "Mamba 2": (
        made("mamba2", "Mamba2ForCausalLM", "Mamba2Config", vocab_size=20, hidden_size=16, num_hidden_layers=2,
             state_size=4, num_heads=4, head_dim=8, n_groups=1, chunk_size=4), generated, (5, 7),
    ),
    "RecurrentGemma": (
        made("recurrent_gemma", "RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", lru_width=32, head_dim=16,
             attention_window_size=8, **{**_HEADS, "num_hidden_layers": 3}), generated, (5, 7),
    ),
    "LFM2": (
        made("lfm2", "Lfm2ForCausalLM", "Lfm2Config", layer_types=["conv", "full_attention", "conv"],
             **{**_HEADS, "num_hidden_layers": 3}), generated, (5, 7),
    ),
    "ConvBERT": (
        made("convbert", "ConvBertModel", "ConvBertConfig", embedding_size=16, conv_kernel_size=3, head_ratio=1,
             **_LAYERS, **_TEXT), text, (9, 12),
    ),
    "SqueezeBERT": (
        made("squeezebert", "SqueezeBertModel", "SqueezeBertConfig", embedding_size=32, **_LAYERS, vocab_size=20),
        text, (9, 12),
    ),
    "DeBERTa with a convolution": (
        made("deberta_v2", "DebertaV2Model", "DebertaV2Config", conv_kernel_size=3, conv_act="gelu", vocab_size=20,
             relative_attention=True, pos_att_type=["p2c", "c2p"], **_LAYERS), text, (9, 12),
    ),
    "Qwen2 Audio's encoder": (
        made("qwen2_audio", "Qwen2AudioEncoder", "Qwen2AudioEncoderConfig", d_model=16, encoder_layers=1,
             encoder_attention_heads=2, encoder_ffn_dim=16, num_mel_bins=8, max_source_positions=24),
        mels(8), (48,),
    ),
    "Voxtral's realtime encoder": (
        made("voxtral_realtime", "VoxtralRealtimeEncoder", "VoxtralRealtimeEncoderConfig", num_mel_bins=8, head_dim=16,
             max_position_embeddings=64, sliding_window=16, **_LAYERS), mels(8), (24, 36),
    ),
    "Nemotron's streaming encoder": (
        made("nemotron_asr_streaming", "NemotronAsrStreamingEncoder", "NemotronAsrStreamingEncoderConfig",
             sliding_window=8, default_num_lookahead_tokens=1, subsampling_factor=4, **_MELS), features(16), (40, 57),
    ),
    "Autoformer": (
        made("autoformer", "AutoformerModel", "AutoformerConfig", prediction_length=4, context_length=8,
             lags_sequence=[1, 2], num_time_features=1, d_model=16, encoder_layers=1, decoder_layers=1,
             encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
             moving_average=3, label_length=4, scaling=False),
        lambda m, n: m(numbers(n, 10), numbers(n, 10, 1), torch.ones(n, 10), future_values=numbers(n, 4),
                       future_time_features=numbers(n, 4, 1)), (2, 3),
    ),
}  # fmt: skip


def leaves_of(found: Any) -> Iterable[torch.Tensor]:
    """The tensors of a result, in its order."""
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, dict):
        for one in found.values():
            yield from leaves_of(one)
    elif isinstance(found, (list, tuple)):
        for one in found:
            yield from leaves_of(one)
