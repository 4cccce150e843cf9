"""Chains of the methods of conv1d: their operands, and the chains that a method's kernels are tried with."""

from __future__ import annotations

from typing import NamedTuple

import torch

from common import Given
from sluice import stages


class Operands(NamedTuple):
    """Operands of chains: the input, a tensor like the result, and (C, 1) for the input and for the result."""

    x: torch.Tensor
    residual: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor


def usual_chains(o: Operands) -> list[Given]:
    return [
        {},
        {"post": stages.gelu()},
        {"pre": stages.shift(0.25), "post": stages.add(o.residual), "dtype": torch.float32},
        {"pre": stages.snake(o.before), "post": stages.leaky_relu(0.1) | stages.add(o.residual) | stages.mul(o.after)},
    ]


def chains_of_last_layers(o: Operands) -> list[Given]:
    return [
        {"post": stages.tanh()},
        {"pre": stages.leaky_relu(0.1), "post": stages.tanh()},
        {"pre": stages.mul(o.x) | stages.shift(0.5)},
        *usual_chains(o),
    ]


def chains_of_depthwise(o: Operands) -> list[Given]:
    return [
        {"post": stages.silu(), "dtype": torch.float16},
        {"post": stages.leaky_relu(0.1) | stages.add(o.residual) | stages.mul(o.after)},
        {"pre": stages.snake(o.before), "post": stages.silu()},
        *usual_chains(o),
    ]


def chains_without_tensors_behind(o: Operands) -> list[Given]:
    """With words of channels the long filters' kernel has no tensors in `post`, and no other dtype of results."""
    return [
        {},
        {"post": stages.silu()},
        {"post": stages.silu() | stages.scale(0.5)},
        {"pre": stages.snake(o.before), "post": stages.leaky_relu(0.1)},
    ]


def chains_of_any_position(o: Operands) -> list[Given]:
    """Operands that differ from position to position keep a convolution from going by rows."""
    post = stages.mul(o.after) | stages.gelu()
    other = torch.float32 if o.x.dtype != torch.float32 else torch.bfloat16
    return [{}, {"pre": stages.silu(), "post": post, "dtype": other}, {"pre": stages.silu(), "post": post}]


def chains_of_float32(o: Operands) -> list[Given]:
    """Results of another dtype too."""
    post = stages.leaky_relu(0.1) | stages.add(o.residual)
    return [{"pre": stages.snake(o.before), "post": post, "dtype": torch.bfloat16}, *usual_chains(o)]
