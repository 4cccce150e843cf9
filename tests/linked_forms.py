"""Linked and interpreted chains side by side, for the tests that compare them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

import sluice

Result = TypeVar("Result")


def linking() -> dict[str, Any]:
    return sluice.info()["linking"]


@contextlib.contextmanager
def link_mode(mode: str) -> Iterator[None]:
    """Links "never", "auto" or "always"; afterwards as before."""
    former = torch.ops.sluice._set_link_mode(mode)
    try:
        yield
    finally:
        torch.ops.sluice._set_link_mode(former)


def interpreted(compute: Callable[[], Result]) -> Result:
    with link_mode("never"):
        return compute()
