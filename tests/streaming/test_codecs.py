"""Codecs of transformers in small sizes: chunks in slots against a run over the whole input, also when replaced."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sluice
from stream_models import check_stream

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def mimi(part: str) -> nn.Module:
    """The part of this name or class; transformers' versions have them in other modules."""
    config = transformers.MimiConfig(
        num_filters=4, hidden_size=16, codebook_dim=8, vector_quantization_hidden_dimension=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=16, upsample_groups=16,
        codebook_size=8, num_quantizers=2, num_semantic_quantizers=1,
    )  # fmt: skip
    named: Any = transformers.MimiModel(config).named_modules()
    return next(own for name, own in named if part in (name.split(".")[-1], type(own).__name__))  # type: ignore[no-any-return]


def encodec(part: str, **options: Any) -> nn.Module:
    from transformers.models.encodec import modeling_encodec

    config = transformers.EncodecConfig(
        num_filters=4, hidden_size=16, codebook_dim=16, upsampling_ratios=[4, 2], **options
    )
    return getattr(modeling_encodec, f"Encodec{part}")(config)  # type: ignore[no-any-return]


class Waves(nn.Module):
    """The convolutions behind code2wav's transformer; results are scaled, so that the clamp does not hide them."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen

        config = qwen.Qwen3OmniMoeCode2WavConfig(
            hidden_size=8, decoder_dim=32, upsample_rates=(4, 3, 2), upsampling_ratios=(2, 2), num_attention_heads=2,
            num_key_value_heads=2, num_hidden_layers=1, intermediate_size=16,
        )  # fmt: skip
        model = qwen.Qwen3OmniMoeCode2Wav(config)
        self.upsample, self.decoder = model.upsample, model.decoder
        for name, parameter in self.named_parameters():
            if name.endswith((".alpha", ".beta")):
                nn.init.uniform_(parameter, -0.5, 0.5)
            elif name.endswith(".gamma"):  # 1e-6 as it is, so that its block would be the identity
                nn.init.uniform_(parameter, 0.5, 1.0)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for blocks in self.upsample:
            for block in blocks:
                hidden = block(hidden)
        for block in self.decoder:
            hidden = block(hidden)
        return (hidden * 1e-2).clamp(min=-1, max=1)


# How a part is made, channels of its input, what a chunk's length is a multiple of, and the results that it drops.
CODECS: dict[str, tuple[Callable[[], nn.Module], int, int, int]] = {
    "Mimi's encoder": (lambda: mimi("MimiEncoder"), 1, 960, 0),
    "Mimi's downsampling": (lambda: mimi("downsample"), 16, 2, 0),
    "Mimi's upsampling": (lambda: mimi("upsample"), 16, 1, 0),
    "Mimi's decoder": (lambda: mimi("MimiDecoder"), 16, 1, 0),
    "EnCodec's encoder": (lambda: encodec("Encoder", pad_mode="constant"), 1, 8, 0),
    "EnCodec's decoder": (lambda: encodec("Decoder", pad_mode="constant"), 16, 1, 0),
    "EnCodec's encoder, replicate": (lambda: encodec("Encoder", pad_mode="replicate"), 1, 8, 0),
    "EnCodec's encoder, reflect": (lambda: encodec("Encoder"), 1, 8, 0),
    "EnCodec's decoder, reflect": (lambda: encodec("Decoder"), 16, 1, 0),
    "code2wav": (Waves, 8, 1, 32),
}  # fmt: skip
LEAST_FIRST = {"EnCodec's encoder, reflect": 56, "EnCodec's decoder, reflect": 7}


def made(name: str, device: str) -> nn.Module:
    with torch.no_grad():
        return CODECS[name][0]().eval().to(device)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["torch", "replaced"])
@pytest.mark.parametrize("name", CODECS)
def test_any_cut_gives_the_whole_run(device: str, name: str, is_replaced: bool) -> None:
    """In float32 no further from float64 than three times what the model itself is."""
    _, channels, multiple, lead = CODECS[name]
    like, draw = made(name, device), random.Random(int(torch.randint(2**62, ())))
    model = copy.deepcopy(like)
    if is_replaced:
        sluice.replace(model)
    count = 5 if multiple > 100 else 16
    x = torch.randn(2, channels, multiple * count, device=device)
    stream = check_stream(model, x, draw, like=like)
    assert (stream.multiple, stream.lead) == (multiple, lead)
    assert stream.least_first == LEAST_FIRST.get(name, multiple)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["Mimi's decoder", "EnCodec's encoder", "code2wav"])
def test_half_types(device: str, name: str, dtype: torch.dtype) -> None:
    model, draw = made(name, device).to(dtype), random.Random(int(torch.randint(2**62, ())))
    x = torch.randn(2, CODECS[name][1], CODECS[name][2] * 8, device=device).to(dtype)
    stream = check_stream(model, x, draw)
    assert set(stream.state) <= {dtype, torch.float32}


@pytest.mark.parametrize("name", CODECS)
def test_activations_and_sums_are_in_the_convolutions(name: str) -> None:
    """No module of an activation is left in the stream's graph; what is left beside layers is little."""
    stream = sluice.streaming(made(name, "cpu"))
    left = [
        module
        for module in stream.modules()
        if type(module).__name__ in ("ELU", "GELU") or "Snake" in str(type(module))
    ]
    is_open = name == "code2wav"  # a GELU between linear layers
    assert len(left) <= 2 * is_open
    sums = [node for node in stream._graph.graph.nodes if node.op == "call_function" and node.target.__name__ == "add"]
    assert len(sums) <= (2 if is_open else "EnCodec" in name)


def test_a_whole_codec_is_refused_with_its_attention() -> None:
    """Attention is between Mimi's convolutions: the table names it, and the parts around it are streams."""
    whole = mimi("encoder")
    if type(whole).__name__ == "MimiEncoder":
        pytest.skip("this transformers has no module of all of the encoder")
    with pytest.raises(ValueError, match="attends over time: give the parts around it, one by one") as refusal:
        sluice.streaming(whole)
    assert "encoder_transformer.layers.0.self_attn  MimiAttention" in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_causal_conv": False}, "is not causal: it pads on both sides"),
        ({"norm_type": "time_group_norm"}, "normalises over time"),
        ({"pad_mode": "circular"}, "pads by 'circular', which takes the last inputs"),
    ],
    ids=str,
)
def test_variants_that_are_no_streams(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        sluice.streaming(encodec("Encoder", **options).eval())
