"""The thread's mode: whether its calls of ops compute, or only plan, link or explain."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch


class _Mode(threading.local):
    """A thread's mode.

    Attributes:
        action: "" where calls compute; else "prepare", "plan" or "stream": calls go to the raw op `_<action>_<op>`.
        options: its arguments after the op's.
        texts: what the raw op answered, call by call.
    """

    def __init__(self) -> None:
        self.action = ""
        self.options: dict[str, Any] = {}
        self.texts: list[str] = []


current_mode = _Mode()


@contextlib.contextmanager
def call_mode(action: str, **options: Any) -> Iterator[list[str]]:
    """Inside it the thread's calls compute nothing; each adds a text to the list."""
    current_mode.action, current_mode.options, current_mode.texts = action, options, []
    try:
        yield current_mode.texts
    finally:
        current_mode.action = ""


def ask(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> torch.Tensor:
    """Asks the mode's raw op instead of `name`, and returns the input. Checks run in every mode."""
    if name.startswith("_check_"):
        checked: torch.Tensor = getattr(torch.ops.sluice, name)(*arguments, **options)
        return checked
    raw_op = getattr(torch.ops.sluice, f"_{current_mode.action}_{name.removesuffix('_out')}", None)
    if raw_op is not None:  # the states of a causal convolution have no kernel to choose
        current_mode.texts.append(str(raw_op(*arguments, **options, **current_mode.options)))
    input: torch.Tensor = arguments[0]
    return input
