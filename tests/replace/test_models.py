"""sluice.replace on models of transformers with random weights: no further from float64 than the models as they are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sluice

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]


def vocoder(name: str) -> nn.Module:
    # Two stages, each a sum of two residual blocks of one dilation: what surrounds a convolution differs in no other.
    rates: dict[str, Any] = {
        "upsample_initial_channel": 16, "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4],
        "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1], [3]],
    }  # fmt: skip
    if name == "speecht5":
        config = transformers.SpeechT5HifiGanConfig(model_in_dim=8, **rates)
        return transformers.SpeechT5HifiGan(config)
    from transformers.models.vits.modeling_vits import VitsHifiGan

    return VitsHifiGan(transformers.VitsConfig(flow_size=8, speaker_embedding_size=5, **rates))


def normed(model: Any) -> Any:
    model.apply_weight_norm()
    return model


def dac() -> nn.Module:
    from transformers.models.dac.modeling_dac import DacDecoder

    model = DacDecoder(transformers.DacConfig(hidden_size=8, decoder_hidden_size=16, upsampling_ratios=[2]))
    for name, parameter in model.named_parameters():
        if name.endswith("alpha"):
            parameter.data.uniform_(0.2, 1.5)
    return model


def encodec(**options: Any) -> nn.Module:
    from transformers.models.encodec.modeling_encodec import EncodecDecoder

    return EncodecDecoder(
        transformers.EncodecConfig(hidden_size=8, codebook_dim=8, num_filters=4, upsampling_ratios=[2], **options)
    )


def mimi() -> Any:
    return transformers.MimiConfig(
        hidden_size=16, num_filters=4, upsampling_ratios=[2], num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, intermediate_size=16, codebook_dim=16, vector_quantization_hidden_dimension=16,
        upsample_groups=16,
    )  # fmt: skip


def seanet() -> nn.Module:
    from transformers.models.mimi import modeling_mimi

    config = mimi()
    for name in ("MimiSeanetDecoder", "MimiSEANetDecoder", "MimiDecoder"):
        kind = getattr(modeling_mimi, name, None)
        if kind is not None:
            try:
                model = kind(config)
            except (TypeError, AttributeError):
                continue
            return getattr(model, "decoder_seanet", model)
    pytest.skip("this version of transformers has no Mimi decoder of that name")


def mimi_upsample() -> nn.Module:
    from transformers.models.mimi.modeling_mimi import MimiConvTranspose1d

    return MimiConvTranspose1d(mimi(), 16, 16, kernel_size=4, stride=2, groups=16, bias=False)


def wav2vec2(part: str, norm: str = "group") -> nn.Module:
    from transformers.models.wav2vec2 import modeling_wav2vec2

    config = transformers.Wav2Vec2Config(
        hidden_size=32, conv_dim=[16, 16, 16], conv_kernel=[10, 3, 3], conv_stride=[5, 2, 2],
        num_feat_extract_layers=3, feat_extract_norm=norm, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    return getattr(modeling_wav2vec2, part)(config)  # type: ignore[no-any-return]


def whisper() -> nn.Module:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, num_mel_bins=8,
        max_source_positions=24,
    )  # fmt: skip
    return WhisperEncoder(config)


def code2wav() -> nn.Module:
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen

    config = qwen.Qwen3OmniMoeCode2WavConfig(decoder_dim=32, upsample_rates=(4, 2), hidden_size=32)
    model = qwen.Qwen3OmniMoeCode2WavDecoderBlock(config, 0)
    for name, parameter in model.named_parameters():
        if name.endswith(("alpha", "beta")):
            parameter.data.uniform_(-0.5, 0.5)
    return model


def conformer() -> nn.Module:
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformers

    config = transformers.Wav2Vec2ConformerConfig(hidden_size=16, conv_depthwise_kernel_size=7)
    return conformers.Wav2Vec2ConformerConvolutionModule(config)


def of_channels(channels: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda length: (torch.randn(2, channels, length),)


def of_features(features: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda length: (torch.randn(2, length, features),)


Inputs = Callable[[int], tuple[torch.Tensor, ...]]
# How to make it, its input of a length, and two lengths.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs, tuple[int, int]]] = {
    "SpeechT5HifiGan": (lambda: vocoder("speecht5"), of_features(8), (20, 33)),
    "VitsHifiGan, weight_norm": (lambda: normed(vocoder("vits")), of_channels(8), (20, 33)),
    "EncodecDecoder, time_group_norm": (
        lambda: encodec(norm_type="time_group_norm", use_causal_conv=False), of_channels(8), (20, 33)
    ),
    "Mimi's decoder": (seanet, of_channels(16), (20, 33)),
    "Mimi's upsampling": (mimi_upsample, of_channels(16), (20, 33)),
    "Wav2Vec2's features, layer norm": (
        lambda: wav2vec2("Wav2Vec2FeatureEncoder", "layer"), lambda n: (torch.randn(2, n),), (400, 555)
    ),
    "WhisperEncoder": (whisper, of_channels(8), (48, 48)),
    "code2wav": (code2wav, of_channels(32), (20, 33)),
}  # fmt: skip
# Inputs that take another way through the model's forward.
OTHER_INPUTS: dict[str, Inputs] = {
    "SpeechT5HifiGan": lambda n: (torch.randn(n, 8),),
    "VitsHifiGan, weight_norm": lambda n: (torch.randn(2, 8, n), torch.randn(2, 5, 1)),  # with speakers
}


def results(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with torch.no_grad():
        found = model(*inputs)
    return found if isinstance(found, torch.Tensor) else found[0]


def assert_no_worse(model: nn.Module, twin: nn.Module, wide: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    result, eager = results(model, inputs), results(twin, inputs)
    expected = results(wide, tuple(x.double() for x in inputs))
    assert (result.dtype, result.shape) == (eager.dtype, eager.shape)
    limit = 3 * (eager.double() - expected).norm() + 1e-7 * expected.norm()
    assert (result.double() - expected).norm() <= limit


@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers(device: str, name: str) -> None:
    make, inputs_of, lengths = MODELS[name]
    torch.manual_seed(11)
    model = make().eval().to(device)
    kinds, keys = [type(module) for module in model.modules()], list(model.state_dict())
    twin, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    replacement = sluice.replace(model)
    assert list(model.state_dict()) == keys
    for of in (inputs_of, *filter(None, [OTHER_INPUTS.get(name)])):
        for length in lengths:
            inputs = tuple(x.to(device) for x in of(length))
            assert_no_worse(model, twin, wide, inputs)
            assert results(model, inputs).stride() == results(twin, inputs).stride()
    assert torch.equal(results(copy.deepcopy(model), inputs), results(model, inputs))
    for value in twin.state_dict().values():
        if value.is_floating_point():
            value.mul_(1.25)
    wide.load_state_dict(twin.state_dict())
    model.load_state_dict(twin.state_dict())
    assert_no_worse(model, twin, wide, inputs)
    replacement.undo()
    assert [type(module) for module in model.modules()] == kinds
    assert torch.equal(results(model, inputs), results(twin, inputs))


@pytest.mark.parametrize("kind", ["mimi", "encodec"])
def test_padding_is_computed_from_shapes(kind: str) -> None:
    """One graph for all lengths; torch's Dynamo breaks at each padding that is computed from tensors."""
    from torch._dynamo.utils import counters

    if kind == "mimi":
        from transformers.models.mimi.modeling_mimi import MimiEncoder

        model, lengths = MimiEncoder(mimi()).eval(), (64, 65, 77, 130)
    else:
        from transformers.models.encodec.modeling_encodec import EncodecEncoder

        config = transformers.EncodecConfig(hidden_size=8, codebook_dim=8, num_filters=4, upsampling_ratios=[3, 2])
        model, lengths = EncodecEncoder(config).eval(), (64, 65, 77, 130)
    twin = copy.deepcopy(model)
    replacement = sluice.replace(model)
    counters.clear()
    graphs = []
    for length in lengths:
        x = torch.randn(2, 1, length)
        torch.testing.assert_close(results(model, (x,)), results(twin, (x,)))
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [graphs[0]] * len(lengths)
    assert kind == "encodec" or graphs[0] == 1  # EnCodec has an LSTM, which Dynamo leaves to Python
    replacement.undo()
    assert [type(module) for module in model.modules()] == [type(module) for module in twin.modules()]


def test_gradient_checkpointing_still_checkpoints() -> None:
    model = wav2vec2("Wav2Vec2FeatureEncoder").train()
    sluice.replace(model)
    layer = model.conv_layers[1]
    calls = []
    layer.gradient_checkpointing = True
    layer._gradient_checkpointing_func = lambda function, *args: calls.append(function) or function(*args)
    x = torch.randn(2, 16, 40)
    layer(x)
    assert len(calls) == 1
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), nn.functional.gelu(layer.conv(x)))


def test_a_bfloat16_vocoder(device: str) -> None:
    model = vocoder("vits").eval().to(device, torch.bfloat16)
    twin, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    sluice.replace(model)
    assert_no_worse(model, twin, wide, (torch.randn(2, 8, 20, device=device, dtype=torch.bfloat16),))


def test_weight_norm_may_go_afterwards() -> None:
    model = normed(vocoder("vits")).eval()
    sluice.replace(model)
    x = torch.randn(2, 8, 20)
    expected = results(model, (x,))
    for module in model.modules():
        if torch.nn.utils.parametrize.is_parametrized(module):
            torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    torch.testing.assert_close(results(model, (x,)), expected)


def test_causal_convolutions_with_their_own_padding(device: str) -> None:
    modeling = pytest.importorskip("transformers.models.voxtral_realtime.modeling_voxtral_realtime")
    torch.manual_seed(4)
    dtype = torch.float16 if device == "cuda" else torch.float32
    layer = modeling.VoxtralRealtimeCausalConv1d(4, 6, 3, cache_key="stem", stride=2).eval().to(device, dtype)
    model = nn.Sequential(layer, nn.GELU())
    twin = copy.deepcopy(model)
    replacement = sluice.replace(model)
    if device == "cuda":
        assert replacement.rows[0].now == "VoxtralRealtimeCausalConv1d on sluice.nn.Conv1d"
        assert isinstance(layer, sluice.nn.Conv1d)
    assert isinstance(layer, modeling.VoxtralRealtimeCausalConv1d)
    kind = type(layer)
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for length in (9, 16):
            x = torch.randn(2, 4, length, device=device, dtype=dtype)
            torch.testing.assert_close(results(one, (x,)), results(twin, (x,)), rtol=2e-2, atol=2e-3)
    sluice.replace(model)
    assert type(layer) is kind
    replacement.undo()
    assert type(layer) is modeling.VoxtralRealtimeCausalConv1d
    assert list(vars(layer)) == list(vars(twin[0]))
