"""Calls of chunk_calls.py that are wrong, with the rule that each breaks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from chunk_calls import good_call, result_shape
from chunk_problems import CACHES
from common import Given
from sluice import stages

FLOATS = "float32, float16, bfloat16 or float64"


def is_transposed(op: str) -> bool:
    return op == "causal_conv_transpose1d"


def wrong_shapes(op: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """An argument, the rule that it breaks, and its shape."""
    cache, channels = CACHES[op], 5 if is_transposed(op) else 6
    for shape in ((6, 8), (1, 2, 6, 8), ()):
        yield "x", "x must have shape (batch, channels, length), got {}", shape
    if is_transposed(op):
        rule = "weight must have shape (6, out_channels / groups, taps) for 6 channels, got {}"
        yield "x", "x must have at least one channel, got {}", (2, 0, 8)
        yield "weight", "weight must have at least one output channel, got {}", (6, 0, 4)
    else:
        rule = "weight must have shape (out_channels, 6, taps) for 6 channels in 1 groups, got {}"
        yield "weight", "weight must have at least one output channel, got {}", (0, 6, 4)
    yield "weight", rule, (7, 5, 4)
    yield "weight", "weight must have at least one tap, got {}", (6, 5, 0) if is_transposed(op) else (5, 6, 0)
    for shape in ((4,), (5, 1), ()):
        yield "bias", "bias must have shape (5,), got {}", shape
    for shape in ((3, channels + 1, 5), (3, channels), (3, channels, 5, 1)):
        yield cache, f"{cache} must have shape (slots, {channels}, columns), got {{}}", shape
    for shape in ((1,), (2, 1), ()):
        yield "cache_indices", "cache_indices must have shape (2 or more,), got {}", shape
    for shape in ((1,), (3,), (2, 1), ()):
        yield "has_initial_state", "has_initial_state must have shape (2,), got {}", shape
    for shape in ((2, 5, 3), (5, 4), (1, *result_shape(op, torch.empty(2, 6, 8)))):
        yield "out", f"out must have shape {result_shape(op, torch.empty(2, 6, 8))}, got {{}}", shape


def wrong_types(op: str) -> Iterator[tuple[str, str, torch.dtype]]:
    """An argument, what it must have as dtype, and the dtype that it has."""
    for dtype in (torch.int32, torch.complex64):
        yield "x", FLOATS, dtype
        yield CACHES[op], FLOATS, dtype
    for dtype in (torch.int32, torch.float16, torch.float64):
        yield "weight", "float32 like the input", dtype
        yield "bias", "float32 like the input", dtype
        yield "out", "float32", dtype
    for dtype in (torch.int16, torch.float32):
        yield "cache_indices", "int32 or int64", dtype
    yield "has_initial_state", "bool", torch.int32
    if is_transposed(op):
        for dtype in (torch.float16, torch.float64):
            yield CACHES[op], "float32, in which overlaps are summed", dtype


def wrong_numbers(op: str) -> Iterator[tuple[Given, str]]:
    """Numbers in place of a call's own, and the rule that they break."""
    for name, value in itertools.product(("stride", "dilation", "groups"), (0, -1)):
        yield {name: value}, f"{name} must be at least 1, got {value}"
    yield {"groups": 4}, "groups must divide x's 6 channels, got 4"
    far = "stride, padding, dilation and taps must be less than 2^31, got {}, {}, {}, 4"
    for dilation in (2**31, 2**62):
        yield {"dilation": dilation}, far.format(2, 0, dilation)
    if is_transposed(op):
        yield {"stride": 2**31}, far.format(2**31, 0, 1)
    else:
        yield {"groups": 3}, "groups must divide the weight's 5 output channels, got 3"
        yield {"stride": 3}, "x must have a multiple of stride = 3 positions, got 8"
        yield {"dilation": 2**30}, far.format(2, 3 * 2**30 - 1, 2**30)


def bad_calls(op: str, device: str) -> Iterator[tuple[Given, str]]:
    """Arguments in place of a good call's own, and the rule that they break."""
    good, cache = good_call(op, device), CACHES[op]
    good["out"] = good["x"].new_zeros(result_shape(op, good["x"]))
    for name, rule, shape in wrong_shapes(op):
        yield {name: good[name].new_ones(shape)}, rule.format(shape)
    for name, known, dtype in wrong_types(op):
        rule = f"{name} must have dtype {known}, got {str(dtype).removeprefix('torch.')}"
        yield {name: good[name].to(dtype)}, rule
    yield from wrong_numbers(op)
    least = f"{'dilation * (K - 1)' if is_transposed(op) else '(K - 1) * dilation'} + 1 - stride"
    for columns, dilation in ((1, 1), (4, 2)):
        rule = f"{cache} must have at least {least} = {3 * dilation - 1} columns, got {columns}"
        yield {cache: good[cache][..., :columns], "dilation": dilation}, rule
    rule = f"{cache} must have 2 slots, one per sequence, when cache_indices is None, got 3"
    yield {"cache_indices": None}, rule
    operand, shape = torch.ones(4, device=device).narrow(0, 0, 3), result_shape(op, good["x"])
    yield {"pre": stages.mul(operand)}, "pre operand 0 must broadcast to the result's shape (2, 6, 8), got (3,)"
    yield {"post": stages.mul(operand)}, f"post operand 0 must broadcast to the result's shape {shape}, got (3,)"
    if not is_transposed(op):
        rule = "operands of pre must not vary along positions with a state_cache, which keeps inputs before pre"
        for varying in ((8,), (2, 6, 8)):
            yield {"pre": stages.add(torch.ones(varying, device=device))}, f"{rule}, got {varying}"
    yield from overlapping_calls(op, device)


def overlapping_calls(op: str, device: str) -> Iterator[tuple[Given, str]]:
    """Tensors that share memory; one is written."""
    good, common = good_call(op, device), "got memory in common"
    numbers = torch.zeros(200, dtype=torch.int32, device=device)
    shapes = {"out": result_shape(op, good["x"]), CACHES[op]: tuple(good[CACHES[op]].shape)}

    def part(*shape: int, first: int = 0) -> torch.Tensor:
        return numbers.view(torch.float32)[first:].as_strided(shape, torch.empty(shape, device="meta").stride())

    def all_of(tensor: torch.Tensor) -> torch.Tensor:
        return numbers.view(tensor.dtype)[8 : 8 + tensor.numel()].view(tensor.shape)

    tensors = {name for name, value in good.items() if isinstance(value, torch.Tensor)} - {CACHES[op]}
    for written, shape in shapes.items():
        target = {written: part(*shape)}
        for name in sorted(tensors):
            yield {**target, name: all_of(good[name])}, f"{written} must not overlap {name}, {common}"
        for name in ("pre", "post"):
            rule = f"{written} must not overlap an operand of a chain, {common}"
            yield {**target, name: stages.add(part(1, first=3))}, rule
        twice = f"{written} must not have two elements at one address, got strides (0, 0, 0) for shape {shape}"
        yield {written: part(1).expand(shape)}, twice
    both = {"out": part(*shapes["out"]), CACHES[op]: all_of(good[CACHES[op]])}
    yield both, f"out must not overlap {CACHES[op]}, {common}"
