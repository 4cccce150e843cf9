"""Writes a forward's source, trace by trace: the conditions on shapes, and the computation under each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .conditions import expression
from .observe import Observed, Refused
from .source import Source
from .trace import MOST_TRACES, Trace


class Writer:
    """The lines of every path through a forward's conditions on shapes.

    Attributes:
        source: the lines.
        observed, called: the attributes that the traces read, and the submodules that they call.
        reasons: why paths have no result.
    """

    def __init__(self, root: torch.nn.Module, forward: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.source = Source()
        self.modules = dict(root.named_modules(remove_duplicate=False))
        self.observed = Observed()
        self.called: set[str] = set()
        self.reasons: list[str] = []
        self._root, self._forward, self._arguments = root, forward, arguments
        self._traces = 0

    def explore(self, answers: list[bool], depth: int) -> None:
        """Writes the lines of the paths that begin with those answers."""
        trace = Trace(self._root, self._forward, self._arguments, answers)
        self._traces += 1
        self.observed.add(trace.observed)
        texts, lines = [], self.source.lines
        for node in trace.conditions[len(answers) :]:
            try:
                texts.append(expression(node, self.source, self.modules))
            except Refused as error:
                trace.reason = str(error)
                break
        for i, text in enumerate(texts):
            lines.append("    " * (depth + i) + f"if {text}:")
        self.finish(trace, depth + len(texts))
        for i in reversed(range(len(texts))):
            lines.append("    " * (depth + i) + "else:")
            if self._traces < MOST_TRACES:
                self.explore([*trace.answers[: len(answers) + i], False], depth + i + 1)
            else:
                lines.append("    " * (depth + i + 1) + "return None")

    def finish(self, trace: Trace, depth: int) -> None:
        """Writes the lines of one trace."""
        raise NotImplementedError

    def give_up(self, reason: str, depth: int) -> None:
        """Writes the line of a path without a result."""
        self.reasons.append(reason)
        self.source.lines.append("    " * depth + "return None")

    def write(self, nodes: list[fx.Node], depth: int) -> None:
        """Writes the lines of a path."""
        self.called |= {str(n.target) for n in nodes if n.op == "call_module" or n.meta.get("is_module")}
        self.source.body(nodes, depth)
