"""Calls with a cache of causal convolutions whose weights have three dimensions, through the functions and raw ops."""

from __future__ import annotations

from typing import Any

import torch

import sluice
from chunk_problems import CACHES
from common import Given
from sequence_calls import ints
from sluice import stages

OPS = tuple(CACHES)


def good_call(op: str, device: str) -> Given:
    """Two rows of six channels and eight positions, with five outputs, four taps and stride 2."""
    is_transposed = op == "causal_conv_transpose1d"
    shapes = {
        "x": (2, 6, 8),
        "weight": (6, 5, 4) if is_transposed else (5, 6, 4),
        "bias": (5,),
        CACHES[op]: (3, 5 if is_transposed else 6, 5),
    }
    given: Given = {name: torch.randn(shape, device=device) for name, shape in shapes.items()}
    given |= {"cache_indices": ints([2, 0], device), "has_initial_state": ints([1, 0], device, torch.bool)}
    return given | {"stride": 2}


def result_shape(op: str, x: torch.Tensor) -> tuple[int, ...]:
    """The shape of the result of a good call with that x."""
    return (*x.shape[:1], 5, x.shape[2] * 2 if op == "causal_conv_transpose1d" else x.shape[2] // 2)


def call(op: str, given: Given) -> Any:
    return getattr(sluice, op)(**given)


def raw_call(op: str, given: Given) -> tuple[Any, tuple[Any, ...], Given]:
    """The raw op of a function's arguments, its out variant where something is written, and what it is given."""
    given = dict(given)
    if given.pop("activation", None) is not None:
        given["post"] = stages.silu() | given.get("post", sluice.Chain())
    for name in {"pre", "post"} & given.keys():
        chain = given[name]
        given |= {name: chain.text, name + "_operands": list(chain.operands)}
    arguments = tuple(given.pop(name) for name in ("x", CACHES[op], "weight"))
    name = f"{op}_chunk_out" if "out" in given else f"{op}_chunk"
    return getattr(torch.ops.sluice, name).default, (*arguments, given.pop("bias", None)), given


def call_raw(op: str, given: Given) -> Any:
    raw, arguments, options = raw_call(op, given)
    return raw(*arguments, **options)
