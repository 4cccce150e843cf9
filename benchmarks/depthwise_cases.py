"""Rows of suite `conv1d_depthwise` from elsewhere: two pytorch issues, and short convolutions of models."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from sluice.bench import Case, Workload, compiled, fresh


def activations(shape: tuple[int, int, int], dtype: str, layout: str, device: torch.device) -> torch.Tensor:
    """A fresh (B, C, L)."""
    batch, channels, length = shape
    if layout == "cf":
        return fresh(batch, channels, length, dtype=dtype, device=device)
    return fresh(batch, length, channels, dtype=dtype, device=device).mT


def package_call(x: torch.Tensor, weight: torch.Tensor, *args: Any, **options: Any) -> Callable[[], object] | None:
    """`causal_conv1d_fn` of Dao-AILab's package, if it is installed and takes this width."""
    if not 2 <= weight.shape[-1] <= 4:
        return None
    try:
        package = importlib.import_module("causal_conv1d")
    except ImportError:
        return None
    return lambda: package.causal_conv1d_fn(x, weight, *args, **options)


# --- issues of pytorch's ------------------------------------------------------------------------------------------
def _make_issue(
    shape: tuple[int, int, int], taps: int, padding: int, dtype: str, layout: str, device: torch.device
) -> Workload:
    channels = shape[1]
    x = activations(shape, dtype, layout, device)
    weight = fresh(channels, 1, taps, dtype=dtype, device=device) * taps**-0.5
    options = {"padding": padding, "groups": channels}

    def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, weight, padding=padding, groups=channels)

    def ours(out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.conv1d(x, weight, out=out, **options)

    results = shape[0] * channels * (shape[2] + 2 * padding - taps + 1)
    return Workload(
        ours=ours,
        write=ours,
        reference=lambda: sluice.reference.conv1d(x.double(), weight.double(), **options),
        plan=sluice.plan("conv1d", x, weight, **options),
        traffic=x.nbytes + weight.nbytes + results * x.itemsize,
        flops=2 * results * taps,
        peers={"torch": lambda: convolve(x, weight), "torch_compile": compiled(convolve, x, weight)},
    )


def issue_case(
    issue: int, shape: tuple[int, int, int], taps: int, dtype: str, layout: str, *, padding: int = 0
) -> Case:
    """The `F.conv1d` call of pytorch/pytorch#`issue`; `shape` is (B, C, L)."""
    batch, channels, length = shape
    return Case(
        name=f"{batch}x{channels}x{length} K={taps} p={padding} {dtype} {layout} pytorch#{issue}",
        params={
            "B": batch,
            "C": channels,
            "L": length,
            "K": taps,
            "padding": padding,
            "groups": channels,
            "dtype": dtype,
            "layout": layout,
            "op": "conv1d",
            "fn": "identity",
        },
        make=functools.partial(_make_issue, shape, taps, padding, dtype, layout),
    )


# --- the short convolutions of models -----------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Model:
    """A model's short convolution of bfloat16 activations, channels-last.

    x is the channels from `first` on of a projection whose tokens are `token_stride` elements apart; with 0, x is a
    separate tensor. `form` is "gates" before and after the convolution, x again as a "residual" after it, or empty.
    """

    name: str
    channels: int
    taps: int = 4
    activation: str | None = "silu"
    has_bias: bool = False
    dilation: int = 1
    token_stride: int = 0
    first: int = 0
    form: str = ""

    @property
    def fn(self) -> str:
        words = [self.activation or "identity"] + ["bias"] * self.has_bias + [self.form] * bool(self.form)
        return ", ".join(words + [f"token stride {self.token_stride}"] * bool(self.token_stride))


MODELS = (
    Model("Qwen3-Next", 8192),
    Model("Nemotron-H", 10240, has_bias=True, token_stride=18560, first=8192),
    Model("Kimi-Linear", 12288),
    Model("LFM2", 2048, taps=3, activation=None, token_stride=6144, first=4096, form="gates"),
    Model("LFM3", 2048, taps=7, activation=None),
    Model("Qwen4-Exp", 8192, dilation=3),
    Model("Inkling", 6144, activation=None, form="residual"),  # the weight is float32
    Model("Mamba2", 5376, has_bias=True, token_stride=10576, first=5120),
)


def _sums(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dilation: int) -> torch.Tensor:
    """`weight` is (C, 1, K)."""
    channels, _, taps = weight.shape
    reach = (taps - 1) * dilation
    return F.conv1d(x, weight, bias, padding=reach, dilation=dilation, groups=channels)[..., : x.shape[-1]]


def _torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None, dilation: int
) -> torch.Tensor:
    y = _sums(x, weight, bias, dilation)
    return y if activation is None else F.silu(y)


def _torch_gated(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """LFM2's slow path in transformers."""
    before, behind, x = rows.mT.chunk(3, dim=1)
    return behind * _sums(before * x, weight, None, 1)


def _torch_residual(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _sums(x.to(weight.dtype), weight, None, 1).to(x.dtype) + x


@dataclasses.dataclass(frozen=True)
class Layer:
    """The tensors of a call. `eager(*operands)` is its model's code without a kernel."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    options: dict[str, Any]
    eager: Callable[..., torch.Tensor]
    operands: tuple[Any, ...]
    reads: int  # activations read once


def layer(model: Model, batch: int, length: int, device: torch.device) -> Layer:
    """Fresh tensors for `model`."""
    channels = model.channels
    whole = fresh(batch, length, model.token_stride or channels, dtype="bf16", device=device)
    x = whole[..., model.first : model.first + channels].mT
    weight_dtype = "fp32" if model.form == "residual" else "bf16"
    # Scaled so that results have variance 1: SiLU is nonlinear there, and its error shows.
    weight = fresh(channels, model.taps, dtype=weight_dtype, device=device) * model.taps**-0.5
    bias = fresh(channels, dtype="bf16", device=device) if model.has_bias else None
    taps, options = weight[:, None], {"activation": model.activation, "dilation": model.dilation}
    if model.form == "gates":
        before, behind = whole[..., :channels].mT, whole[..., channels : 2 * channels].mT
        options |= {"pre": stages.mul(before), "post": stages.mul(behind)}
        return Layer(x, weight, bias, options, _torch_gated, (whole, taps), 3)
    if model.form == "residual":
        return Layer(x, weight, bias, options | {"residual": x}, _torch_residual, (x, taps), 1)
    operands = (x, taps, bias, model.activation, model.dilation)
    return Layer(x, weight, bias, options, _torch, operands, 1)


def _make_model(model: Model, batch: int, length: int, device: torch.device) -> Workload:
    given = layer(model, batch, length, device)
    x, weight, bias, options = given.x, given.weight, given.bias, given.options

    def ours(out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.causal_conv1d(x, weight, bias, out=out, **options)

    def reference() -> torch.Tensor:
        wide = None if bias is None else bias.double()
        return sluice.reference.causal_conv1d(x.double(), weight.double(), wide, **options)[0]

    knows_it = model.dilation == 1 and not model.form
    return Workload(
        ours=ours,
        write=ours,
        reference=reference,
        plan=sluice.plan("causal_conv1d", x, weight, bias, **options),
        traffic=(given.reads + 1) * x.nbytes + weight.nbytes + (0 if bias is None else bias.nbytes),
        flops=2 * x.numel() * model.taps,
        peers={
            "torch": lambda: given.eager(*given.operands),
            # torch would compile the code of one sequence again for four, which takes seconds.
            "torch_compile": compiled(given.eager, *given.operands) if batch == 1 else None,
            "causal_conv1d": package_call(x, weight, bias, activation=model.activation) if knows_it else None,
        },
    )


def model_case(model: Model, batch: int, length: int) -> Case:
    spread = f" d={model.dilation}" if model.dilation > 1 else ""
    return Case(
        name=f"{batch}x{model.channels}x{length} K={model.taps}{spread} bf16 cl {model.name}",
        params={
            "B": batch,
            "C": model.channels,
            "L": length,
            "K": model.taps,
            "dilation": model.dilation,
            "dtype": "bf16",
            "layout": "cl",
            "op": "causal_conv1d",
            "fn": model.fn,
        },
        make=functools.partial(_make_model, model, batch, length),
    )


ISSUES = [
    *(
        issue_case(192902, (1, 12288, 16384), 4, dtype, layout)
        for dtype in ("bf16", "fp16", "fp32")
        for layout in ("cf", "cl")
    ),
    # Under autocast, which casts the weight to float16.
    *(
        issue_case(170138, shape, 31, "fp16", layout, padding=15)
        for shape in ((8, 768, 2048), (16, 768, 1000))
        for layout in ("cf", "cl")
    ),
]
LAYERS = [model_case(model, batch, 4096) for model in MODELS for batch in (1, 4)]
