"""Suite `conv1d_dense`: dense and grouped convolutions, plain and with models' stages after them.

Float32 is measured with torch's TF32 setting on ("tf32") and off ("fp32").
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

import sluice
from image_peer import as_image, is_slow
from sluice import Chain, stages
from sluice.bench import ALLOWS_TF32, DTYPES, Case, Suite, Workload, compiled, fresh


class Shape(NamedTuple):
    """A convolution's numbers."""

    batch: int
    inputs: int
    outputs: int
    length: int
    taps: int
    padding: int
    dilation: int
    stride: int = 1
    groups: int = 1

    @property
    def output_length(self) -> int:
        return (self.length + 2 * self.padding - (self.taps - 1) * self.dilation - 1) // self.stride + 1


SLOPE = 0.1  # HiFi-GAN's LeakyReLU


def _snake(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """`x + sin(alpha x)^2 / alpha`; `alpha` is per channel."""
    return x + torch.sin(alpha * x).square() / (alpha + 1e-9)


# The activation after the convolution: as torch code, given the parameters by channel, and as a chain.
BEHIND: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], Callable[[torch.Tensor], Chain]]] = {
    "identity": (lambda y, alpha: y, lambda alpha: Chain()),
    "leaky_relu": (lambda y, alpha: F.leaky_relu(y, SLOPE), lambda alpha: stages.leaky_relu(SLOPE)),
    "gelu": (lambda y, alpha: F.gelu(y), lambda alpha: stages.gelu()),
    "snake": (_snake, stages.snake),
}
# A residual unit: an activation, the convolution, and the sum with the unit's input.
RESIDUAL = {"leaky_relu, residual": "leaky_relu", "snake, residual": "snake"}


class _Inputs:
    """The tensors of a case, and torch's computations of them."""

    def __init__(self, shape: Shape, dtype: str, layout: str, fn: str, device: torch.device) -> None:
        self.shape = shape
        batch, inputs, outputs, length, taps = shape[:5]
        if layout == "cf":
            self.x = fresh(batch, inputs, length, dtype=dtype, device=device)
        else:
            self.x = fresh(batch, length, inputs, dtype=dtype, device=device).transpose(1, 2)
        # Scaled so that results have variance 1: activations are nonlinear there, and their error shows.
        inputs_of_group = inputs // shape.groups
        weight = fresh(outputs, inputs_of_group, taps, dtype=dtype, device=device)
        self.weight = weight * (inputs_of_group * taps) ** -0.5
        self.bias = fresh(outputs, dtype=dtype, device=device)
        self.is_residual = fn in RESIDUAL
        self.alpha = torch.rand(inputs if self.is_residual else outputs, 1, device=device).add(0.5).to(DTYPES[dtype])
        self.activation, make_chain = BEHIND[RESIDUAL.get(fn, fn)]
        self.chain = make_chain(self.alpha)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """Stride, padding, dilation and groups."""
        return self.shape.stride, self.shape.padding, self.shape.dilation, self.shape.groups

    def chains(self) -> dict[str, Chain]:
        return {"pre": self.chain, "post": stages.add(self.x)} if self.is_residual else {"post": self.chain}

    def torch(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        """The code that users write today."""
        before = self.activation(x, alpha) if self.is_residual else x
        y = F.conv1d(before, weight, bias, *self.numbers)
        return y + x if self.is_residual else self.activation(y, alpha)

    def conv2d_channels_last(self) -> Callable[[], object]:
        """The same as a two-dimensional convolution of channels-last tensors."""
        x, convolve = as_image("conv1d", self.x, self.weight, self.bias, self.numbers)
        alpha = self.alpha[:, None]

        def call() -> torch.Tensor:
            y = convolve(self.activation(x, alpha) if self.is_residual else x)
            return y + x if self.is_residual else self.activation(y, alpha)

        return call

    def reference(self) -> torch.Tensor:
        """The float64 result; values that every method rounds before the convolution are rounded here too."""
        before = self.activation(self.x.float(), self.alpha.float()).to(self.x.dtype) if self.is_residual else self.x
        y = F.conv1d(before.double(), self.weight.double(), self.bias.double(), *self.numbers)
        return y + self.x if self.is_residual else self.activation(y, self.alpha.double())


def _make(shape: Shape, dtype: str, layout: str, fn: str, packed: bool, device: torch.device) -> Workload:
    own = _Inputs(shape, dtype, layout, fn, device)
    weight = sluice.pack(own.weight) if packed else own.weight
    arguments = (own.x, weight, own.bias, *own.numbers)

    def ours(out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.conv1d(*arguments, **own.chains(), out=out)

    peers = {
        "torch": lambda: own.torch(own.x, own.weight, own.bias, own.alpha),
        "conv2d_channels_last": None if is_slow(shape.inputs, shape.taps) else own.conv2d_channels_last(),
    }
    if fn == "gelu" and layout == "cf" and shape in SEARCHED and dtype != "fp32" and not packed:
        mode = "max-autotune-no-cudagraphs"
        peers["torch_compile"] = compiled(own.torch, own.x, own.weight, own.bias, own.alpha, mode=mode)
    results = shape.batch * shape.outputs * shape.output_length
    sum_length = own.weight.numel() // shape.outputs
    elements = own.x.numel() + results + own.weight.numel()
    return Workload(
        ours=ours,
        write=ours,
        reference=own.reference,
        plan=sluice.plan("conv1d", *arguments, **own.chains()),
        traffic=elements * DTYPES[dtype].itemsize,
        matmul_flops=2 * results * sum_length,
        peers=peers,
        linked=False if fn == "identity" else None,
    )


def dense_case(numbers: tuple[int, ...], dtype: str, layout: str, fn: str, packed: bool = False) -> Case:
    """`numbers` are a Shape's fields; `packed`: the weight is packed before the calls."""
    shape = Shape(*numbers)
    batch, inputs, outputs, length, taps, padding, dilation, stride, groups = shape
    return Case(
        name=f"{batch}x{inputs}x{length} to {outputs} K={taps} d={dilation} "
        + (f"s={stride} " if stride > 1 else "")
        + (f"g={groups} " if groups > 1 else "")
        + f"{dtype} {layout} {fn}"
        + (", packed" if packed else ""),
        params={
            "B": batch,
            "Cin": inputs,
            "Cout": outputs,
            "L": length,
            "K": taps,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "dtype": dtype,
            "layout": layout,
            "op": "conv1d",
            "fn": fn,
        },
        make=functools.partial(_make, shape, dtype, layout, fn, packed),
        allows_tf32=ALLOWS_TF32.get(dtype),
    )


WHISPER = Shape(8, 128, 1280, 3000, 3, 1, 1)  # the first layer of its stem
HIFI_GAN = [
    Shape(4, 256, 256, 6896, 3, 1, 1),
    Shape(4, 128, 128, 55168, 11, 25, 5),
    Shape(4, 64, 64, 110336, 7, 9, 3),
    Shape(4, 32, 32, 220672, 3, 1, 1),
    Shape(4, 32, 32, 220672, 11, 25, 5),
]
HIFI_GAN_V1 = [Shape(8, 256, 256, 6888, 11, 25, 5), Shape(8, 32, 32, 220416, 11, 25, 5)]  # ten seconds
CODEC_OUTPUT = Shape(4, 32, 1, 220672, 7, 3, 1)
# Last layers with more inputs per result, and with two output channels.
OUTPUT_LAYERS = [CODEC_OUTPUT, Shape(4, 96, 1, 441344, 7, 3, 1), Shape(8, 64, 2, 110250, 5, 2, 1)]
DAC = Shape(4, 1536, 1536, 512, 7, 3, 1)
DAC_LAST = Shape(1, 96, 96, 441344, 7, 27, 9)
SHORT_ROWS = Shape(3072, 128, 384, 202, 3, 0, 1)
# Strided: the second layer of Whisper's stem, two of Wav2Vec2's, a codec's encoder. Grouped: Wav2Vec2's positional
# convolution, and one with ResNeXt's groups.
STRIDED = [
    Shape(8, 1280, 1280, 3000, 3, 1, 1, stride=2),
    Shape(8, 512, 512, 31999, 3, 0, 1, stride=2),
    Shape(8, 512, 512, 1999, 2, 0, 1, stride=2),
    Shape(4, 64, 128, 110250, 4, 1, 1, stride=2),
    Shape(4, 128, 256, 55125, 8, 2, 1, stride=4),
    Shape(4, 256, 512, 13776, 16, 4, 1, stride=8),
]
GROUPED = [Shape(8, 768, 768, 1499, 128, 64, 1, groups=16), Shape(8, 512, 512, 4096, 3, 1, 1, groups=8)]

# Shapes beside the tuned shapes. Kernels were far from their floors on them: long sums with few outputs, channel
# counts that are not whole words, unaligned rows.
CLIFFS = [
    Shape(1, 1064, 24, 1720, 9, 4, 1),
    Shape(1, 823, 90, 1264, 9, 4, 1, stride=5),
    Shape(3, 748, 517, 3216, 65, 96, 3, stride=5),
    Shape(8, 1056, 64, 232, 48, 0, 1),
    Shape(8, 1071, 160, 638, 65, 32, 1),
    Shape(9, 315, 21, 33552, 7, 3, 1),
    Shape(1, 24, 24, 900001, 9, 12, 3),
    Shape(32, 768, 768, 249, 3, 1, 1),
    Shape(1, 360, 1544, 11467, 5, 6, 3),
    Shape(8, 1600, 1728, 224, 3, 3, 3),
    Shape(6, 96, 192, 20011, 5, 4, 2),
]
WAV2VEC2 = [Shape(8, 512, 512, length, 3, 0, 1, stride=2) for length in (15999, 7999, 3999)]
WAV2VEC2 += [Shape(8, 512, 512, 999, 2, 0, 1, stride=2)]  # with its shapes in STRIDED: layers 2 to 7

# Layers of vocoders for short inputs, and a strided one of Wav2Vec2's size. Users report torch's share of a matmul's
# rate at these shapes, at WHISPER and at the first of STRIDED.
REPORTED = [
    Shape(8, 256, 256, 1600, 3, 1, 1),
    Shape(8, 256, 256, 1600, 11, 25, 5),
    Shape(8, 128, 128, 12800, 7, 9, 3),
    Shape(8, 64, 64, 25600, 3, 1, 1),
    Shape(8, 64, 64, 25600, 11, 25, 5),
    Shape(8, 32, 32, 51200, 11, 25, 5),
    Shape(1, 128, 128, 12800, 11, 25, 5),
    Shape(8, 512, 512, 16000, 3, 1, 1, stride=2),
]
FLOAT32 = [WHISPER, *HIFI_GAN, CODEC_OUTPUT, DAC, *STRIDED[:2], GROUPED[1]]

# Cases with torch.compile's kernel search, which takes many seconds each. Not "fp32": Inductor's caches do not know
# cuDNN's TF32 setting, so they would answer with the kernels of "tf32".
SEARCHED = (WHISPER, HIFI_GAN[1], HIFI_GAN[4], DAC)

ROWS: list[tuple[Shape, str]] = [
    *((shape, "fp16") for shape in (WHISPER, *HIFI_GAN, *OUTPUT_LAYERS, DAC, *STRIDED, *GROUPED)),
    *((shape, dtype) for shape in HIFI_GAN_V1 for dtype in ("fp16", "bf16")),
    (DAC_LAST, "bf16"),
    (SHORT_ROWS, "bf16"),
]
RESIDUAL_ROWS = [(HIFI_GAN_V1[0], "fp16", 0), (HIFI_GAN_V1[0], "tf32", 0)]
RESIDUAL_ROWS += [(HIFI_GAN_V1[1], "fp16", 0), (DAC_LAST, "bf16", 1)]
FLOAT32_ROWS = [(shape, dtype, fn) for shape in FLOAT32 for dtype in ALLOWS_TF32 for fn in ("identity", "gelu")]
FLOAT32_ROWS += [(shape, dtype, "identity") for shape in REPORTED for dtype in ALLOWS_TF32]

SUITE = Suite(
    "conv1d_dense",
    [dense_case(shape, dtype, layout, fn) for shape, dtype in ROWS for layout in ("cf", "cl") for fn in BEHIND]
    + [
        dense_case(shape, dtype, layout, list(RESIDUAL)[which])
        for shape, dtype, which in RESIDUAL_ROWS
        for layout in ("cf", "cl")
    ]
    + [dense_case(shape, "fp16", layout, "gelu") for shape in (*CLIFFS, *WAV2VEC2) for layout in ("cf", "cl")]
    + [dense_case(shape, "fp16", layout, "identity") for shape in REPORTED for layout in ("cf", "cl")]
    + [dense_case(shape, dtype, layout, fn) for shape, dtype, fn in FLOAT32_ROWS for layout in ("cf", "cl")]
    # The peer's weight is channels-last before its calls too.
    + [dense_case(DAC, "fp16", layout, fn, packed=True) for layout in ("cf", "cl") for fn in ("identity", "gelu")],
)
