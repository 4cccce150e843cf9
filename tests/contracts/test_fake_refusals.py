"""Fake kernels refuse what the ops refuse, in the same words: arguments that are wrong in any way, drawn at random."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sluice
from ops import OPS
from ops.row import Arguments, Draw

pytestmark = pytest.mark.no_gpu


def outcome(op: Any, arguments: list[Any], options: dict[str, Any]) -> object:
    try:
        result = op(*arguments, **options)
    except RuntimeError as error:
        return str(error).split("\nException raised from", 1)[0].strip()
    results = result if isinstance(result, list) else [result]
    return [(tuple(one.shape), one.stride(), one.dtype) for one in results]


DRAWN = [draw for row in OPS.values() for draw in row.drawn]
# Fakes compared for each message of the op: they take most of the time.
REFUSED, ACCEPTED = 12, 3


def sort_of(found: object, arguments: list[Any], options: dict[str, Any]) -> object:
    """A refusal's words without its numbers; for what is accepted, the dimensions of what is there, and emptiness."""
    if isinstance(found, str):
        return re.sub(r"-?\d+", "0", found)
    dimensions = [value.dim() if isinstance(value, torch.Tensor) else value is None for value in arguments]
    return (arguments[0].numel() == 0, *dimensions, *sorted(options))


@pytest.mark.parametrize("draw_arguments", DRAWN)
def test_a_fake_refuses_what_the_op_refuses(draw_arguments: Callable[[Draw], Arguments]) -> None:
    draw, op = Draw(5), getattr(torch.ops.sluice, draw_arguments.__name__)
    refused, seen, mode = 0, collections.Counter[object](), FakeTensorMode()

    def fake(value: Any) -> Any:
        if isinstance(value, list):
            return [fake(one) for one in value]
        return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

    for _ in range(1200):
        arguments, options = draw_arguments(draw)
        real = outcome(op, arguments, options)
        refused += isinstance(real, str)
        sort = sort_of(real, arguments, options)
        seen[sort] += 1
        if seen[sort] <= (REFUSED if isinstance(real, str) else ACCEPTED):
            with mode:
                found = outcome(op, fake(arguments), {name: fake(value) for name, value in options.items()})
            assert found == real, (arguments, options)
    assert 200 < refused < 1200


def test_sizes_of_a_compiled_graph_are_refused_in_the_words_of_the_op() -> None:
    def dense(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, w)

    def valid(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.filter2d(x, w[0], padding="valid")

    for function, words in {
        dense: "conv1d: input must have at least .* positions with padding, the kernel's reach",
        valid: "filter2d: image must be at least .* with padding, the kernel's size",
    }.items():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="eager", fullgraph=True, dynamic=True)
        assert compiled(torch.zeros(1, 2, 30), torch.zeros(3, 2, 4)).shape[-1] == 27
        with pytest.raises(Exception, match=words):
            compiled(torch.zeros(1, 2, 10), torch.zeros(3, 2, 31))


def test_a_length_of_a_compiled_graph_is_refused_in_the_words_of_the_op() -> None:
    def transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.conv_transpose1d(x, w, padding=3)

    torch._dynamo.reset()
    compiled = torch.compile(transposed, backend="eager", fullgraph=True, dynamic=True)
    w = torch.zeros(2, 3, 4)
    assert compiled(torch.zeros(1, 2, 30), w).shape == (1, 3, 27)
    rule = "conv_transpose1d: padding must leave a result of at least 0 positions, got 3, which leaves .*"
    with pytest.raises(Exception, match=rule):
        compiled(torch.zeros(1, 2, 2), w)
