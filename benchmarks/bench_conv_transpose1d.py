"""Suite `conv_transpose1d`: upsampling layers of vocoders and codecs, and depthwise layers, plain and with chains.

Float32 of dense layers is measured with torch's TF32 setting on ("tf32") and off ("fp32").
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

import sluice
from bench_conv1d_dense import BEHIND
from image_peer import as_image
from sluice.bench import ALLOWS_TF32, DTYPES, Case, Suite, Workload, compiled, fresh


class Layer(NamedTuple):
    """Sizes of a transposed convolution."""

    B: int
    Cin: int
    Cout: int
    L: int
    K: int
    stride: int
    padding: int
    output_padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """The arguments after the bias, in torch's order."""
        return self.stride, self.padding, self.output_padding, self.groups, self.dilation

    @property
    def output_length(self) -> int:
        reach = self.dilation * (self.K - 1) + 1
        return (self.L - 1) * self.stride - 2 * self.padding + reach + self.output_padding


def _make(layer: Layer, dtype: str, layout: str, fn: str, device: torch.device) -> Workload:
    if layout == "cf":
        x = fresh(layer.B, layer.Cin, layer.L, dtype=dtype, device=device)
    else:
        x = fresh(layer.B, layer.L, layer.Cin, dtype=dtype, device=device).transpose(1, 2)
    # Scaled so that results have a variance of about 1: activations are nonlinear there, and their error shows.
    sums = layer.Cin // layer.groups * layer.K / layer.stride
    weight = fresh(layer.Cin, layer.Cout // layer.groups, layer.K, dtype=dtype, device=device) * sums**-0.5
    bias = fresh(layer.Cout, dtype=dtype, device=device)
    alpha = torch.rand(layer.Cout, 1, device=device).add(0.5).to(DTYPES[dtype])
    activation, make_chain = BEHIND[fn]
    chain = make_chain(alpha)

    def ours(out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.conv_transpose1d(x, weight, bias, *layer.numbers, post=chain, out=out)

    def theirs(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        return activation(F.conv_transpose1d(x, weight, bias, *layer.numbers), alpha)

    def conv2d_channels_last() -> Callable[[], object]:
        image, convolve = as_image("conv_transpose1d", x, weight, bias, layer.numbers)
        return lambda: activation(convolve(image), alpha[:, None])

    inputs, outputs = layer.B * layer.Cin * layer.L, layer.B * layer.Cout * layer.output_length
    operations = 2 * inputs * layer.K * (layer.Cout // layer.groups)
    on_tensor_cores = layer.groups == 1
    return Workload(
        ours=ours,
        write=ours,
        reference=lambda: theirs(x.double(), weight.double(), bias.double(), alpha.double()),
        plan=sluice.plan("conv_transpose1d", x, weight, bias, *layer.numbers, post=chain),
        traffic=(inputs + outputs + weight.numel()) * DTYPES[dtype].itemsize,
        flops=0 if on_tensor_cores else operations,
        matmul_flops=operations if on_tensor_cores else 0,
        peers={
            "torch": lambda: theirs(x, weight, bias, alpha),
            "torch_compile": compiled(theirs, x, weight, bias, alpha),
            "conv2d_channels_last": conv2d_channels_last() if on_tensor_cores and layout == "cl" else None,
        },
        linked=False if fn == "identity" else None,
    )


def case_of(layer: Layer, dtype: str, layout: str, fn: str) -> Case:
    """The case of one row."""
    given = {"output_padding": (layer.output_padding, 0), "dilation": (layer.dilation, 1)}
    named = "".join(f" {key}={value}" for key, (value, default) in given.items() if value != default)
    groups = " depthwise" if layer.groups == layer.Cin else ""
    return Case(
        name=f"{layer.B}x{layer.Cin}x{layer.L} to {layer.Cout}{groups} K={layer.K} s={layer.stride}{named} "
        f"{dtype} {layout} {fn}",
        params={
            **{key: value for key, value in layer._asdict().items() if key != "output_padding"},
            "dtype": dtype,
            "layout": layout,
            "op": "conv_transpose1d",
            "fn": fn,
        },
        make=functools.partial(_make, layer, dtype, layout, fn),
        allows_tf32=ALLOWS_TF32.get(dtype) if layer.groups == 1 else None,
    )


HIFI_GAN = [
    Layer(4, 512, 256, 430, 16, 8, 4),
    Layer(4, 256, 128, 3440, 16, 8, 4),
    Layer(4, 128, 64, 27520, 4, 2, 1),
    Layer(4, 64, 32, 55040, 4, 2, 1),
]
DAC = Layer(4, 1536, 768, 512, 16, 8, 4)
REPORTED = Layer(8, 512, 256, 200, 16, 8, 4)  # with the shapes of this name in bench_conv1d_dense.py
ODD = Layer(3, 200, 72, 1501, 9, 3, 2, output_padding=2, dilation=2)
BIGVGAN = Layer(4, 256, 256, 6880, 12, 2, 5, groups=256)  # the anti-aliased upsampling around its activations
FLAT = Layer(4, 128, 128, 13760, 7, 1, 3)  # of stride 1
# Taps that are not a multiple of the stride, a dilation, few channels.
CLIFFS = [
    Layer(19, 5, 1, 199368, 65, 3, 0),
    Layer(1, 1728, 2029, 2811, 3, 2, 0, dilation=5),
    Layer(4, 26, 137, 64822, 5, 1, 0),
    Layer(2, 96, 48, 9001, 7, 3, 0),
    Layer(4, 512, 256, 430, 10, 4, 1),
    Layer(4, 128, 128, 13000, 4, 2, 0, dilation=3),
]

ROWS = [
    *((layer, "fp16", fn) for layer in (*HIFI_GAN, DAC, ODD, FLAT) for fn in ("identity", "leaky_relu", "snake")),
    *((layer, "bf16", "leaky_relu") for layer in (HIFI_GAN[1], DAC)),
    *((layer, "fp16", "gelu") for layer in CLIFFS),
    *((BIGVGAN, dtype, fn) for dtype in ("fp16", "fp32") for fn in ("identity", "snake")),
    *((REPORTED, dtype, "identity") for dtype in ("fp16", *ALLOWS_TF32)),
    *((layer, dtype, fn) for layer in (*HIFI_GAN, DAC) for dtype in ALLOWS_TF32 for fn in ("identity", "leaky_relu")),
]

SUITE = Suite(
    "conv_transpose1d", [case_of(layer, dtype, layout, fn) for layer, dtype, fn in ROWS for layout in ("cf", "cl")]
)
