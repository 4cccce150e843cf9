"""Calls of causal_conv1d on sequences that are right, through the function and through the raw ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import sluice
from common import Given
from sluice import stages

OP = "causal_conv1d"
FORMS = ["ids", "starts", "cache"]
WRITTEN = ("out", "final_states_out", "state_cache")


def ints(values: Any, device: str, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


def good_call(form: str, device: str) -> Given:
    """Two sequences of six channels with four taps; 9 positions in all where they are packed."""
    shapes = {"x": (1 if form == "starts" else 2, 6, 9), "weight": (6, 4), "bias": (6,)}
    given: Given = {name: torch.randn(shape, device=device) for name, shape in shapes.items()}
    if form == "cache":
        given["state_cache"] = torch.randn(3, 6, 5, device=device)
        return given | {"cache_indices": ints([2, 0], device), "has_initial_state": ints([1, 0], device, torch.bool)}
    given["initial_states"] = torch.randn(2, 6, 3, device=device)
    if form == "ids":
        return given | {"seq_idx": ints([[0] * 4 + [1] * 5, [3] * 7 + [-1] * 2], device)}
    return given | {"cu_seqlens": ints([0, 2, 9], device)}


def converted(given: Given, convert: Callable[[torch.Tensor], torch.Tensor]) -> Given:
    return {name: convert(value) if isinstance(value, torch.Tensor) else value for name, value in given.items()}


def raw_call(given: Given) -> tuple[Any, tuple[()], Given]:
    """The raw op of a function's arguments, its out variant where something is written, and what it is given."""
    given = dict(given)
    if (residual := given.pop("residual", None)) is not None:
        given["post"] = stages.add(residual) | given.get("post", sluice.Chain())
    for name in {"pre", "post"} & given.keys():
        chain = given[name]
        given |= {name: chain.text, name + "_operands": list(chain.operands)}
    name = f"{OP}_paged" if "state_cache" in given else f"{OP}_sequences"
    if {"out", "final_states_out"} & given.keys():
        given.setdefault("out", torch.empty_like(given["x"]))
        name += "_out"
    return getattr(torch.ops.sluice, name).default, (), given


def call_raw(**given: Any) -> Any:
    op, _, arguments = raw_call(given)
    return op(**arguments)
