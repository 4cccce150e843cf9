"""The definition of every op, in plain torch; the tests compare with it.

These functions are slow and allocate, and are exact in float64: call them with float64 tensors for a reference.
"""

from __future__ import annotations

import itertools
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
    "gate": lambda x, other: x * torch.sigmoid(other),
}


def _is_value(parameter: object) -> bool:
    return not isinstance(parameter, (str, CppSource))


def transform(x: torch.Tensor, chain: Chain, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """`chain(x)`, evaluated in float32 (float64 for float64) and rounded once at its end."""
    compute = compute_dtype(x.dtype)
    value = x.to(compute)
    for name, parameters in chain.for_dim(x.dim()).stages:
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


def _runs(length: int, ids: torch.Tensor | None) -> list[tuple[int, int]]:
    """The start and end of each sequence of a row, of an empty sequence if there are none: a negative id is padding."""
    numbers = [0] * length if ids is None else ids.tolist()
    starts = [t for t in range(length) if t == 0 or numbers[t] != numbers[t - 1]]
    return [(a, b) for a, b in itertools.pairwise([*starts, length]) if numbers[a] >= 0] or [(0, 0)]


def _causal_sums(columns: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dilation: int) -> torch.Tensor:
    """The sums of (channels, history and tokens), one for each token."""
    offset = None if bias is None else bias.to(columns.dtype)
    taps = weight.to(columns.dtype)[:, None]
    return F.conv1d(columns[None], taps, offset, dilation=dilation, groups=len(taps))[0]


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | bool | None = None,
    residual: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    state_cache: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    null_slot_id: int | None = None,
    dilation: int = 1,
    pre: Chain | None = None,
    post: Chain | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the final states or the new cache, one row after the other; `state_cache` stays as it is."""
    compute, history = compute_dtype(x.dtype), (weight.shape[1] - 1) * dilation
    tokens = x if pre is None else transform(x, pre, dtype=x.dtype)
    tokens = tokens if x.dim() == 3 else tokens[None]
    y, is_computed = torch.zeros_like(tokens, dtype=compute), torch.zeros_like(tokens, dtype=torch.bool)
    if cu_seqlens is None:
        rows = [(b, _runs(x.shape[-1], None if seq_idx is None else seq_idx[b])) for b in range(len(tokens))]
    else:
        rows = [(0, [(a, b)]) for a, b in itertools.pairwise(cu_seqlens.tolist())]
    before = initial_states if state_cache is None else state_cache
    if before is None:
        before = x.new_zeros((len(rows), x.shape[-2], history))
    after = before.to(x.dtype if state_cache is None else before.dtype, copy=True)
    for n, (row, runs) in enumerate(rows):
        slot = _slot(cache_indices, n, len(before), (pad_slot_id, null_slot_id))
        if slot is None:
            continue
        is_fresh = has_initial_state is not None and not has_initial_state[n]
        kept = torch.zeros_like(before[slot]) if is_fresh else before[slot]
        for first, last in runs:
            new = tokens[row, :, first:last]
            past = kept[:, kept.shape[1] - history :]
            if new.numel() > 0:
                columns = torch.cat([past.to(compute), new.to(compute)], dim=-1)
                y[row, :, first:last] = _causal_sums(columns, weight, bias, dilation)
                is_computed[row, :, first:last] = True
            after[slot] = torch.cat([kept.to(after.dtype), new.to(after.dtype)], dim=-1)[:, last - first :]
            kept = torch.zeros_like(kept)
    y, is_computed = y.view(x.shape), is_computed.view(x.shape)
    if activation in (True, "silu", "swish"):
        y = F.silu(y)
    if residual is not None:
        y = y + residual.to(compute)
    return torch.where(is_computed, transform(y, post or Chain(), dtype=x.dtype), 0), after


def _slot(indices: torch.Tensor | None, n: int, slots: int, skipped: Sequence[int | None]) -> int | None:
    """The last valid index of sequence n, if there is one."""
    if indices is None:
        return n
    valid = [i for i in indices[n].reshape(-1).tolist() if i not in skipped and 0 <= i < slots]
    return valid[-1] if valid else None


def _advance(
    row: torch.Tensor, new: torch.Tensor, history: int, length: int | None, accepted: int | None, front: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The columns before the tokens `new`, oldest first, and the row after them; both are (channels, columns)."""
    columns, count = row.shape[-1], new.shape[-1]
    new, after = new.to(row.dtype), row.clone()
    if length is not None:
        past = row[:, [(length - history + j) % columns for j in range(history)]]
        for t in range(count if columns > 0 else 0):
            after[:, (length + t) % columns] = new[:, t]
    elif accepted is not None:
        first = min(max(accepted, 1), columns - history + 1) - 1
        past = row[:, first : first + history]
        written = torch.cat([past[:, 1:], new], dim=-1)[:, :columns]
        after[:, : written.shape[-1]] = written
    else:
        size = history if front else columns
        past = row[:, size - history : size]
        after[:, :size] = torch.cat([row[:, :size], new], dim=-1)[:, count:]
    return past, after


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    *,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    query_start_loc: torch.Tensor | None = None,
    num_accepted_tokens: torch.Tensor | None = None,
    state_at: str = "end",
    null_slot_id: int | None = None,
    dilation: int = 1,
    pre: Chain | None = None,
    residual: torch.Tensor | None = None,
    post: Chain | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the new state, one sequence after the other; `conv_state` stays as it is."""
    compute = compute_dtype(x.dtype)
    state, history = conv_state.clone(), (weight.shape[1] - 1) * dilation
    tokens = x if pre is None else transform(x, pre, dtype=x.dtype)
    y, is_computed = torch.zeros(x.shape, dtype=compute, device=x.device), torch.zeros_like(x, dtype=torch.bool)

    def of_sequence(t: torch.Tensor, n: int) -> torch.Tensor:
        """Its part of a tensor of x's shape, as (channels, tokens)."""
        if query_start_loc is not None:
            return t[int(query_start_loc[n]) : int(query_start_loc[n + 1])].mT
        return t[n] if t.dim() == 3 else t[n, :, None]

    def number(of_each: torch.Tensor | None, n: int) -> int | None:
        return None if of_each is None else int(of_each[n])

    for n in range(x.shape[0] if query_start_loc is None else len(query_start_loc) - 1):
        new = of_sequence(tokens, n)
        slot = _slot(conv_state_indices, n, len(state), (pad_slot_id, null_slot_id))
        if slot is None or new.shape[-1] == 0:
            continue
        length, accepted = number(cache_seqlens, n), number(num_accepted_tokens, n)
        past, state[slot] = _advance(state[slot].clone(), new, history, length, accepted, state_at == "front")
        columns = torch.cat([past.to(compute), new.to(compute)], dim=-1)
        sums = of_sequence(y, n)
        if bias is not None:
            sums += bias.to(compute)[:, None]
        for k in range(weight.shape[1]):
            sums += weight[:, k, None].to(compute) * columns[:, k * dilation : k * dilation + new.shape[-1]]
        of_sequence(is_computed, n).fill_(True)
    if activation in (True, "silu", "swish"):
        y = F.silu(y)
    if residual is not None:
        y = y + residual.to(compute)
    result = transform(y, post or Chain(), dtype=x.dtype)
    return torch.where(is_computed, result, 0), state


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
