"""Linked and interpreted chains side by side, for the tests that compare them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
import torch

import sluice

Result = TypeVar("Result")


def linking() -> dict[str, Any]:
    return sluice.info()["linking"]


def interpreted(compute: Callable[[], Result]) -> Result:
    former = torch.ops.sluice._set_link_mode("never")
    try:
        return compute()
    finally:
        torch.ops.sluice._set_link_mode(former)


@pytest.fixture
def linked_always(cuda: str) -> Iterator[None]:
    """Every chain is linked at its first call, and a fallback that nobody asked for is an error."""
    if linking()["unavailable"]:
        pytest.fail(f"nothing can be linked here: {linking()['unavailable']}")
    former, failed = torch.ops.sluice._set_link_mode("always"), linking()["failed"]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be linked.*")
        yield
    torch.ops.sluice._set_link_mode(former)
    assert linking()["failed"] == failed, linking()["last_error"]
