"""Speech features from seven convolutions, each with its GELU in the same call.

    python examples/speech_features.py [recording.wav]

The extractor is the front of a Wav2Vec2-like model, with random weights in place of trained weights.
"""

from __future__ import annotations

import pathlib
import sys
import wave

import torch
from torch import nn

import sluice
from sluice import stages

KERNELS = (10, 3, 3, 3, 3, 2, 2)
STRIDES = (5, 2, 2, 2, 2, 2, 2)


class FeatureExtractor(nn.Module):
    """Samples (B, 1, L) to features (B, 512, L / 320)."""

    def __init__(self, channels: int = 512) -> None:
        super().__init__()
        inputs = (1, *[channels] * (len(KERNELS) - 1))
        self.weights = nn.ParameterList(
            nn.init.kaiming_normal_(torch.empty(channels, c, k)) for c, k in zip(inputs, KERNELS, strict=True)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight, stride in zip(self.weights, STRIDES, strict=True):
            x = sluice.conv1d(x, weight, stride=stride, post=stages.gelu())
        return x


def read_wav(path: pathlib.Path) -> torch.Tensor:
    """The samples of a mono 16-bit file, (1, 1, L), with mean 0 and variance 1."""
    with wave.open(str(path), "rb") as file:
        if file.getsampwidth() != 2 or file.getnchannels() != 1:
            raise SystemExit(f"{path} must be mono with 16 bits a sample")
        samples = torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16).float()
    return sluice.transform(samples, stages.shift(-samples.mean()) | stages.div(samples.std()))[None, None]


def main() -> None:
    default = pathlib.Path(__file__).parent / "data" / "speech.wav"
    x = read_wav(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    torch.manual_seed(0)
    device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    x, model = x.to(device, dtype), FeatureExtractor().to(device, dtype)

    with torch.inference_mode():  # sluice computes no gradients
        features = model(x)
        compiled = torch.compile(model, fullgraph=True)(x)
    print(f"samples {tuple(x.shape)} -> features {tuple(features.shape)}, {dtype} on {device}")
    print("compiled:", "the same" if torch.allclose(compiled, features, rtol=1e-2, atol=1e-3) else "DIFFERENT")


if __name__ == "__main__":
    main()
