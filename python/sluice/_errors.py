"""Errors of the compiled libraries, under the types that a Python caller expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch

from . import _library

Result = TypeVar("Result")

# The message of torch's dispatcher for a tensor that no kernel of ours takes.
_BACKEND = re.compile(r"^Could not run 'sluice::\w+' with arguments from the '(\w+)' backend")

# The message of torch for an argument that does not match a raw op's schema.
_WRONG_TYPE = re.compile(
    r"sluice::\w+\(\) Expected a value of type '(?P<wanted>.+)' for argument '(?P<argument>\w+)' .*\n"
    r"Position: .*\nValue: (?P<value>.*)"
)


def raise_as_python(op: str, error: RuntimeError, device: torch.device) -> NoReturn:
    """Raises what the C++ checks reported under the type that a Python caller expects.

    Rules about dtypes are `TypeError`, other rules `ValueError`; errors of other code are raised unchanged.
    """
    text = str(error).split("\nException raised from", 1)[0].strip()
    if given := _WRONG_TYPE.match(text):
        raise TypeError(f"{op}: {given['argument']} must be of type {given['wanted']}, got {given['value']}") from None
    if text.startswith("a torch op that it calls failed"):  # which does not know the op that it runs for
        raise RuntimeError(f"{op}: {text}") from None
    if not text.startswith(f"{op}: "):
        raise error
    if device.type == "cuda" and _library.cuda_unavailable_reason is not None:
        raise RuntimeError(f"{op}: no CUDA kernels, because {_library.cuda_unavailable_reason}") from None
    if ": out of memory: " in text:
        kind: type[Exception] = torch.OutOfMemoryError if device.type == "cuda" else MemoryError
        raise kind(text) from None
    if " must have dtype " in text:
        raise TypeError(text) from None
    if " must " in text:
        raise ValueError(text) from None
    raise error


def raise_no_kernel(op: str, error: NotImplementedError, device: torch.device) -> None:
    """Raises what it means that torch's dispatcher found no kernel; returns if it is an error of other code."""
    if device.type == "cuda" and _library.cuda_unavailable_reason is not None:
        raise RuntimeError(f"{op}: no CUDA kernels, because {_library.cuda_unavailable_reason}") from None
    if backend := _BACKEND.search(str(error)):
        rule = "tensors must be strided, on the CPU or a CUDA device"
        raise TypeError(f"{op}: {rule}, got one of torch's backend {backend[1]}") from None


def checked(op: str, input: torch.Tensor, check: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """`check(*args, **kwargs)`, a function of this package that words its errors as the libraries do."""
    if torch.compiler.is_compiling():
        return check(*args, **kwargs)
    try:
        return check(*args, **kwargs)
    except NotImplementedError as error:
        raise_no_kernel(op, error, input.device)
        raise
    except RuntimeError as error:
        raise_as_python(op, error, input.device)
