"""Einsum and matmul: products of tensors of the same times, and of constants, that do not sum over time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from .trace import function_name
from .values import Constant, NoStreamError, Time, Value

PRODUCTS = frozenset(["einsum", "matmul", "bmm"])
Labels = list[str]


def product(node: torch.fx.Node, value_of: Callable[[Any], Value]) -> Time:
    """The result of a product that keeps time."""
    if function_name(node) == "einsum":
        equation, *operands = node.args
        if not isinstance(equation, str):
            raise NoStreamError("has no equation that is known")
        return _summed(equation, [value_of(operand) for operand in operands])
    values = [value_of(operand) for operand in [*node.args, *node.kwargs.values()]]
    left, right = (_rank_of(value) for value in values)
    result = ("i" if left > 1 else "") + ("j" if right > 1 else "")
    return _summed(f"{'...ik' if left > 1 else 'k'},{'...kj' if right > 1 else 'k'}->...{result}", values)


def _rank_of(value: Value) -> int:
    if isinstance(value, Time):
        return value.rank
    if isinstance(value, Constant) and isinstance(value.value, torch.Tensor):
        return value.value.dim()
    raise NoStreamError("multiplies by what is not known")


def _summed(equation: str, values: list[Value]) -> Time:
    """An einsum over other dimensions than time and the batch, which all operands with time have in common."""
    terms, result = _terms(equation, [_rank_of(value) for value in values])
    times = [(labels, value) for labels, value in zip(terms, values, strict=True) if isinstance(value, Time)]
    first = times[0][1]
    time, batch = times[0][0][first.dim], times[0][0][first.batch]
    for labels, value in times:
        if labels[value.dim] != time or labels.count(time) != 1:
            raise NoStreamError("multiplies different times")
        if labels[value.batch] != batch or labels.count(batch) != 1:
            raise NoStreamError("multiplies different rows of the batch")
        if value.is_padded:
            raise NoStreamError("has padded values, which only a convolution may take")
        if not value.is_beside(first):
            raise NoStreamError("takes tensors of other times, of another rate or padding")
    for labels, operand in zip(terms, values, strict=True):
        if isinstance(operand, Constant):
            for label, size in zip(labels, operand.value.shape, strict=True):
                if label in (time, batch) and size != 1:
                    what = "positions" if label == time else "rows of a batch"
                    raise NoStreamError(f"takes a constant of {size} {what}")
    for label, what in ((time, "time"), (batch, "the batch")):
        if label not in result:
            raise NoStreamError(f"sums over {what}")
    origins = tuple(dict.fromkeys(origin for _, value in times for origin in value.origins))
    return dataclasses.replace(
        first, rank=len(result), dim=result.index(time), batch=result.index(batch), origins=origins
    )


def _terms(equation: str, ranks: list[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; dimensions of an ellipsis are numbered from the last."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    given = left.split(",")
    if len(given) != len(ranks):
        raise NoStreamError("has an equation of other operands")
    terms, most = [], 0
    for term, rank in zip(given, ranks, strict=True):
        count = rank - len(term.replace("...", ""))
        if count < 0 or (count > 0 and "..." not in term):
            raise NoStreamError("has an equation of other dimensions")
        most = max(most, count)
        terms.append(_labels(term, count))
    if not arrow:
        every = "".join(given).replace(".", "")
        right = "..." + "".join(sorted(label for label in set(every) if every.count(label) == 1))
    return terms, _labels(right, most)


def _labels(term: str, count: int) -> Labels:
    before, _, behind = term.partition("...")
    numbers = [str(number) for number in reversed(range(count))] if "..." in term else []
    return [*before, *numbers, *behind]
