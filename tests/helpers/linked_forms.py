"""Linked and interpreted chains, for the tests that compare them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

import sluice
from common import Given

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


def assert_same(result: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(result, wanted, rtol=0, atol=0, equal_nan=True)


def assert_forms_agree(compute: Callable[..., torch.Tensor], chains: list[Given]) -> None:
    """A convolution's `compute(**chains)`, linked and interpreted and run after run."""
    for options in chains:
        again = functools.partial(compute, **options)
        wanted = again()
        for _ in range(3):
            assert_same(again(), wanted)
        assert_same(interpreted(again), wanted)
