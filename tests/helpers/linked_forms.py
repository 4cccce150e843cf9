"""Linked and interpreted chains, for the tests that compare them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

import sluice
from sluice import stages

Result = TypeVar("Result")


def linking() -> dict[str, Any]:
    return sluice.info()["linking"]


@contextlib.contextmanager
def link_mode(mode: str) -> Iterator[None]:
    """Sets the link mode, "never", "auto" or "always", and restores it afterwards."""
    former = torch.ops.sluice._set_link_mode(mode)
    try:
        yield
    finally:
        torch.ops.sluice._set_link_mode(former)


def interpreted(compute: Callable[[], Result]) -> Result:
    with link_mode("never"):
        return compute()


def assert_forms_agree(compute: Callable[..., torch.Tensor], residual: torch.Tensor, gain: torch.Tensor) -> None:
    """A convolution's `compute(**chains)`, linked and interpreted and run after run.

    Args:
        compute: of `pre`, `post` and `dtype`.
        residual: of the result's shape.
        gain: (C, 1).
    """
    for options in (
        {},
        {"post": stages.gelu()},
        {"pre": stages.snake(gain), "post": stages.leaky_relu(0.1) | stages.add(residual) | stages.mul(gain)},
        {"pre": stages.shift(0.25), "post": stages.add(residual), "dtype": torch.float32},
    ):
        again = functools.partial(compute, **options)
        wanted = again()
        for _ in range(3):
            assert torch.equal(again(), wanted)
        assert torch.equal(interpreted(again), wanted)
