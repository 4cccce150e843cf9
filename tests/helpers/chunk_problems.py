"""Causal convolutions of weights with three dimensions beside their definition: one call, and random calls."""

from __future__ import annotations

import random
from typing import Any

import torch

import sluice
from common import (
    DTYPES,
    contiguous,
    double_chain,
    offset_by_one,
    permuted,
    poisoned_like,
    sliced,
)
from sluice import stages
from update_problems import STATE_LAYOUTS, assert_same_bits, twin

# Relative L2 errors: rounding, and sums in another order.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2, torch.float64: 1e-12}
X_LAYOUTS = [contiguous, permuted, sliced, offset_by_one]
# By the op's name: its cache, and which argument that is.
CACHES = {"causal_conv1d": "state_cache", "causal_conv_transpose1d": "overlap_cache"}


def error_of(result: torch.Tensor, wanted: torch.Tensor) -> float:
    """The L2 error relative to the wanted values', or to 1 for each value, which sums of these problems usually have.

    Few values may all be near zero, where terms cancel. NaN and infinity must be at the same positions.
    """
    result, wanted = result.double(), wanted.double()
    finite = torch.isfinite(wanted)
    torch.testing.assert_close(torch.where(finite, 0.0, result), torch.where(finite, 0.0, wanted), equal_nan=True)
    wanted = torch.where(finite, wanted, 0.0)
    usual = max(float(wanted.norm()), wanted.numel() ** 0.5, 1e-30)
    return float(torch.where(finite, result - wanted, 0.0).norm()) / usual


def history_of(op: str, taps: int, stride: int, dilation: int) -> int:
    """Columns of a state, or of an overlap."""
    return max(0, dilation * (taps - 1) + 1 - stride)


def in_double(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with tensors of values in float64, and `pre` for values that are rounded before."""
    wide: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, sluice.Chain):
            wide[name] = double_chain(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            wide[name] = value.double()
        else:
            wide[name] = value
    return wide


def check_chunk(op: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, **given: Any) -> Any:
    """The result of a call, which is compared with the definition in float64, as is its cache; also into `out`."""
    function, define = getattr(sluice, op), getattr(sluice.reference, op)
    name = CACHES[op]
    cache = given.get(name)
    tokens, wide = x, in_double(given)
    if cache is None or op != "causal_conv1d":  # `pre` rounds; a state is the inputs before it
        tokens = x if wide.pop("pre", None) is None else sluice.reference.transform(x, given["pre"])
    wanted, states = define(*(None if t is None else t.double() for t in (tokens, weight, bias)), **wide)
    mine = {**given, name: None if cache is None else twin(cache)}
    result = function(x, weight, bias, **mine)
    assert result.dtype == x.dtype
    assert error_of(result, wanted) <= TOLERANCE[x.dtype]
    again = {**given, name: None if cache is None else twin(cache)}
    out = poisoned_like(result.mT).mT
    assert function(x, weight, bias, out=out, **again) is out
    # torch's transposed convolution of float64, which runs on a GPU, does not repeat its bits.
    if x.is_cuda and x.dtype == torch.float64 and op == "causal_conv_transpose1d":
        assert error_of(out, wanted) <= TOLERANCE[x.dtype]
        if cache is not None:
            assert error_of(again[name], states) <= 4 * TOLERANCE[x.dtype]
    else:
        assert_same_bits(out, result)
        if cache is not None:
            assert_same_bits(again[name], mine[name])
    if cache is not None:
        if op == "causal_conv1d":
            assert_same_bits(mine[name], states.to(cache.dtype))
        else:
            is_rounded = "pre" in given  # perhaps to a neighbour
            own = TOLERANCE[x.dtype if is_rounded or x.dtype.itemsize > 2 else torch.float32]
            assert error_of(mine[name], states) <= 4 * own
    return result


class Draw(random.Random):
    """Random calls. `stream` gives one convolution and a row's chunks."""

    def chain(self, channels: int, device: str, keeps_zeros: bool) -> sluice.Chain | None:
        """A chain, perhaps with a tensor of a number for each channel."""
        alpha = torch.rand(channels, 1, device=device) + 0.5
        chains = [None, stages.leaky_relu(0.1), stages.elu(), stages.snake(alpha), stages.silu() | stages.mul(alpha)]
        return self.choice(chains if keeps_zeros else [*chains, stages.shift(0.5), stages.add(alpha)])

    def convolution(self, op: str, device: str, keeps_zeros: bool) -> dict[str, Any]:
        """A weight, a bias and the numbers of a call, with its chains."""
        taps, stride, dilation = self.choice([1, 2, 3, 4, 7]), self.choice([1, 1, 2, 3, 5]), self.choice([1, 1, 2, 3])
        groups = self.choice([1, 1, 1, 2, 3])
        inputs, outputs = groups * self.choice([1, 2, 5, 16]), groups * self.choice([1, 2, 5, 16])
        if self.random() < 0.15:
            groups = outputs = inputs
        dtype = self.choice(DTYPES)
        sizes = (outputs, inputs // groups) if op == "causal_conv1d" else (inputs, outputs // groups)
        scale = (inputs // groups * taps) ** -0.5
        weight = (torch.randn(*sizes, taps, device=device) * scale).to(dtype)
        bias = torch.randn(outputs, device=device).to(dtype) if self.random() < 0.7 else None
        given = {"stride": stride, "dilation": dilation, "groups": groups}
        if op == "causal_conv1d" and self.random() < 0.3:
            given["padding_mode"] = self.choice(["replicate", "reflect"])
        if (before := self.chain(inputs, device, keeps_zeros)) is not None:
            given["pre"] = before
        if (behind := self.chain(outputs, device, False)) is not None:
            given["post"] = behind
        return {"weight": weight, "bias": bias, "inputs": inputs, "outputs": outputs, "given": given}

    def cache(self, op: str, slots: int, problem: dict[str, Any], device: str) -> torch.Tensor:
        """Slots full of numbers, in some layout, perhaps with more columns than are needed."""
        given, dtype = problem["given"], problem["weight"].dtype
        columns = history_of(op, problem["weight"].shape[2], given["stride"], given["dilation"]) + self.choice(
            [0, 0, 3]
        )
        channels = problem["inputs" if op == "causal_conv1d" else "outputs"]
        if op != "causal_conv1d":
            dtype = torch.float64 if dtype == torch.float64 else torch.float32
        layout = self.choice(STATE_LAYOUTS)
        return layout(torch.randn(slots, channels, columns, device=device).to(dtype))

    def cut(self, length: int, step: int, least_first: int = 1) -> list[int]:
        """Lengths of chunks, multiples of a step; the first has so many positions at least."""
        left, chunks, least = length // step, [], -(-least_first // step)
        while left > 0:
            chunks.append(min(left, max(least, self.choice([1, 1, 2, 3, 8, 40]))))
            left, least = left - chunks[-1], 1
        return [step * n for n in chunks]
