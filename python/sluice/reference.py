"""What every op means, in plain torch: the definitions that the tests compare with.

Slow, allocating, and exact where float64 is: hand these functions float64 tensors for a reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from ._apply import compute_dtype
from .chain import Chain, CppSource


def _snake(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    return x + torch.sin(alpha * x).square() / (beta + eps)


def _softplus(x: torch.Tensor, beta: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


STAGES: dict[str, Callable[..., torch.Tensor]] = {
    "scale": lambda x, a: x * a,
    "shift": lambda x, b: x + b,
    "add": lambda x, other, alpha: x + alpha * other,
    "sub": lambda x, other, alpha: x - alpha * other,
    "mul": lambda x, other: x * other,
    "div": lambda x, other: x / other,
    "square": torch.square,
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "clamp": lambda x, low, high: torch.clamp(x, low, high),
    "relu": F.relu,
    "leaky_relu": lambda x, slope: torch.where(x > 0, x, x * slope),
    "elu": lambda x, alpha: torch.where(x > 0, x, alpha * torch.expm1(x)),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": _softplus,
    "snake": _snake,
}


def _is_value(parameter: object) -> bool:
    return not isinstance(parameter, (str, CppSource))


def transform(x: torch.Tensor, chain: Chain, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """`chain(x)`, evaluated in float32 (float64 for float64) and rounded once at its end."""
    compute = compute_dtype(x.dtype)
    value = x.to(compute)
    for name, parameters in chain._parts:
        if name == "cast":
            value = value.to(getattr(torch, str(parameters[0]))).to(compute)
            continue
        values = [torch.as_tensor(p, dtype=compute, device=x.device) for p in parameters if _is_value(p)]
        source = parameters[0] if parameters else None
        if isinstance(source, CppSource):
            if source.reference is None:
                raise ValueError(f"reference: {source.name!r} must have a reference=, got none")
            value = source.reference(value, **dict(zip(source.parameters, values, strict=True)))
        else:
            value = STAGES[name](value, *values)
    return value.to(dtype or chain.result_dtype(x.dtype))


def conv1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
    *,
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`post(F.conv1d(pre(input), ...))`: `pre` rounds to the input's dtype, sums and `post` do not round."""
    compute = compute_dtype(input.dtype)
    x = input if pre is None else transform(input, pre, dtype=input.dtype)
    y = F.conv1d(
        x.to(compute),
        weight.to(compute),
        None if bias is None else bias.to(compute),
        stride,
        padding,
        dilation,
        groups,
    )
    chain = post or Chain()
    return transform(y, chain, dtype=dtype or chain.result_dtype(input.dtype))


def conv_transpose1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
    *,
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`post(F.conv_transpose1d(pre(input), ...))`: `pre` rounds to the input's dtype, sums and `post` do not round."""
    compute = compute_dtype(input.dtype)
    x = input if pre is None else transform(input, pre, dtype=input.dtype)
    offset = None if bias is None else bias.to(compute)
    numbers = stride, padding, output_padding, groups, dilation
    y = F.conv_transpose1d(x.to(compute), weight.to(compute), offset, *numbers)
    chain = post or Chain()
    return transform(y, chain, dtype=dtype or chain.result_dtype(input.dtype))


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    post: Chain | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the final states: the last K-1 columns of (initial_states, x)."""
    compute = compute_dtype(x.dtype)
    channels, width = weight.shape
    history = x.new_zeros((x.shape[0], channels, width - 1)) if initial_states is None else initial_states.to(x.dtype)
    whole = torch.cat([history, x], dim=-1)
    if x.numel() == 0:  # which F.conv1d refuses without channels or positions
        y = x.to(compute)
    else:
        offset = None if bias is None else bias.to(compute)
        y = F.conv1d(whole.to(compute), weight.to(compute)[:, None], offset, groups=channels)
    if activation in ("silu", "swish"):
        y = F.silu(y)
    if residual is not None:
        y = y + residual.to(compute)
    return transform(y, post or Chain(), dtype=x.dtype), whole[..., whole.shape[-1] - (width - 1) :]


def _sides(padding: str | tuple[int, int], taps: Sequence[int], dilation: int | tuple[int, int]) -> list[int]:
    """`F.pad`'s pixels: on the left, on the right, above and below."""
    spread = dilation if isinstance(dilation, tuple) else (dilation, dilation)
    sides: list[int] = []
    for d in (1, 0):
        total = spread[d] * (taps[d] - 1) if padding == "same" else 0
        sides += [total // 2, total - total // 2] if isinstance(padding, str) else [padding[d]] * 2
    return sides


def filter2d(
    image: torch.Tensor,
    kernel: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
    bias: torch.Tensor | None = None,
    padding: str | tuple[int, int] = "same",
    *,
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    padding_mode: str = "zeros",
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`post(F.conv2d(pre(image), ...))` over the last two dimensions; a separable kernel is its outer product.

    Padding is `F.pad`'s.
    """
    x = image.float() if image.dtype == torch.uint8 else image
    compute = compute_dtype(x.dtype)
    floating = x.dtype
    if pre is not None:
        x = transform(x, pre, dtype=floating)
    if isinstance(kernel, tuple):
        taps = kernel[0].to(compute)[..., :, None] * kernel[1].to(compute)[..., None, :]
    else:
        taps = kernel.to(compute)
    groups = 1 if taps.dim() == 2 else taps.shape[0]
    count = math.prod(x.shape[:-2])
    if count == 0:  # no planes, of as many channels as F.conv2d takes
        taps, bias, groups = taps.new_ones(taps.shape[-2:]), None, 1
    planes = x.to(compute).reshape(count // groups, groups, *x.shape[-2:])
    offset = None if bias is None else bias.to(compute)
    if padding_mode != "zeros":
        planes, padding = F.pad(planes, _sides(padding, taps.shape[-2:], dilation), mode=padding_mode), "valid"
    y = F.conv2d(planes, taps.reshape(groups, 1, *taps.shape[-2:]), offset, stride, padding, dilation, groups)
    y = y.reshape(*x.shape[:-2], *y.shape[-2:])
    chain = post or Chain()
    return transform(y, chain, dtype=dtype or chain.result_dtype(floating))
