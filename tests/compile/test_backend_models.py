"""Small networks of transformers with random weights, through `backend="sluice"` and through the pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._functorch import config as functorch_config
from torch._inductor import config

import sluice
from common import assert_close
from compiled_graphs import Seen

pytestmark = pytest.mark.no_gpu
transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False), torch.no_grad():
        yield


def hifigan() -> tuple[torch.nn.Module, Callable[[int], torch.Tensor]]:
    numbers = transformers.SpeechT5HifiGanConfig(
        model_in_dim=8, upsample_initial_channel=16, upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4],
        resblock_kernel_sizes=[3, 5], resblock_dilation_sizes=[[1], [3]], normalize_before=False,
    )  # fmt: skip
    return transformers.SpeechT5HifiGan(numbers), lambda length: torch.randn(1, length, 8)


def dac_decoder() -> tuple[torch.nn.Module, Callable[[int], torch.Tensor]]:
    numbers = transformers.DacConfig(
        encoder_hidden_size=4, downsampling_ratios=[2], decoder_hidden_size=16, upsampling_ratios=[2],
        n_codebooks=2, codebook_size=16, codebook_dim=4, hidden_size=16,
    )  # fmt: skip
    return transformers.DacModel(numbers).decoder, lambda length: torch.randn(1, 16, length)


def wav2vec2_features() -> tuple[torch.nn.Module, Callable[[int], torch.Tensor]]:
    numbers = transformers.Wav2Vec2Config(
        hidden_size=16, conv_dim=(8, 8, 8), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_feat_extract_layers=3,
        num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    return transformers.Wav2Vec2Model(numbers).feature_extractor, lambda length: torch.randn(1, 400 + length)


# The number of sluice ops in a network, and whether no other computation is left.
NETWORKS = {
    hifigan: ({"sluice.conv1d.default": 10, "sluice.conv_transpose1d.default": 2}, True),
    dac_decoder: ({"sluice.conv1d.default": 8, "sluice.conv_transpose1d.default": 1}, True),
    wav2vec2_features: ({"sluice.conv1d.default": 3}, False),
}
SHAPES = ("permute", "squeeze", "unsqueeze", "reshape", "sym_", "built-in function")


@pytest.mark.parametrize("way", ["backend", "passes"])
@pytest.mark.parametrize("build", NETWORKS, ids=lambda build: build.__name__)
def test_a_network(build: Any, way: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    seen, (network, make) = Seen(monkeypatch), build()
    network = network.eval().to(device)
    wide = build()[0].eval().to(device)
    wide.load_state_dict(network.state_dict())
    wide = wide.double()
    passes = None if way == "backend" else sluice.compile.passes
    with config.patch(post_grad_custom_post_pass=passes):
        run = torch.compile(network, backend="sluice" if way == "backend" else "inductor", fullgraph=True)
        for length in (20, 33, 50):
            x = make(length).to(device)
            assert_close(run(x), wide(x.double()), factor=30)
    assert len(seen.graphs) == 2  # graphs of the first length, and of any length
    wanted, alone = NETWORKS[build]
    for graph in seen.graphs:
        count = Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        assert {name: number for name, number in count.items() if name.startswith("sluice.")} == wanted
        assert "aten.convolution.default" not in count
        left = [name for name in count if not name.startswith("sluice.") and not any(part in name for part in SHAPES)]
        assert left == [] or not alone
