"""The stages of a chain that is given as text: `leaky_relu(0.1)|scale(2)`.

The ops' own parser decides what is a chain; here its parts become the values of sluice.stages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ._errors import raise_as_python
from ._fake import chain_cast
from ._library import stage_signatures

_SIGNATURES = stage_signatures()

# The name of a stage, its numbers, and for a cpp stage its text, its name and its parameters' names.
Parts = tuple[str, tuple[Any, ...], "tuple[Any, ...] | None"]


def parsed(op: str, argument: str, text: str) -> tuple[Parts, ...]:
    """The parts of a chain's text without tensors; graphs take them as constants.

    Raises:
        ValueError: the text is no chain, in the words of the op's own parser.
    """
    return _parsed(op, argument, text)


# As torch.compiler.assume_constant_result does, which loads the compiler.
parsed._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=1024)
def _parsed(op: str, argument: str, text: str) -> tuple[Parts, ...]:
    try:
        chain_cast(op, argument, text, 0)
    except RuntimeError as error:
        raise_as_python(op, error, torch.device("cpu"))
    return tuple(map(_parts, _split(text, "|")))


def _split(text: str, separator: str) -> Iterator[str]:
    """The trimmed parts between separators outside "quotes", in which a backslash escapes the next character."""
    part, inside, escaped = "", False, False
    for character in text:
        if character == separator and not inside:
            yield part.strip(" ")
            part = ""
            continue
        inside ^= character == '"' and not escaped
        escaped = inside and character == "\\" and not escaped
        part += character
    if part.strip(" "):
        yield part.strip(" ")


def _parts(stage: str) -> Parts:
    name, _, rest = stage.partition("(")
    name, arguments = name.strip(" "), list(_split(rest.removesuffix(")"), ","))
    if name == "cast":
        return name, tuple(arguments), None
    if name == "cpp":
        named = [tuple(part.strip(" ") for part in argument.split("=", 1)) for argument in arguments[2:]]
        source = _unquoted(arguments[0]), arguments[1], tuple(parameter for parameter, _ in named)
        return name, tuple(_number(value) for _, value in named), source
    defaults = list(_SIGNATURES[name].values())
    if name in ("add", "sub"):
        defaults[1] = 1  # an int, as torch's alpha is
    return name, (*map(_number, arguments), *defaults[len(arguments) :]), None


def _number(text: str) -> float | int:
    return int(text) if text.removeprefix("-").isdigit() else float(text)


def _unquoted(text: str) -> str:
    """The text between the quotes; a backslash and an n are a newline, and other escaped characters themselves."""
    result, escaped = "", False
    for character in text[1:-1]:
        if escaped:
            result += "\n" if character == "n" else character
        elif character != "\\":
            result += character
        escaped = character == "\\" and not escaped
    return result
