"""What a model changes in place, and who reads it afterwards by another name.

A stream's graph runs the model's writes in the model's order. It differs from the model in three ways, and so may what
a write changes:
- padding, which copies, is left to the layer behind it, and so is `contiguous`, which copies some layouts
- a slice of time is all positions of a chunk, and a layer leaves positions out
- what does not depend on the input is computed once
"""

from __future__ import annotations

import torch

from .analysis import Analysis
from .functions import NEW
from .trace import function_name, is_in_place, may_return_input
from .values import Constant, Length, NoStreamError, Other, Parts, Shape, Time

Nodes = frozenset[torch.fx.Node]


class Memory:
    """Whose memory the value of each node is, or may be: the nodes that have made it.

    Attributes:
        whole: as the model runs; `contiguous` copies.
        stream: as the stream's graph does, in which padding and `contiguous` are their inputs.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._order = {node: place for place, node in enumerate(analysis.graph.nodes)}
        self.whole: dict[torch.fx.Node, Nodes] = {}
        self.stream: dict[torch.fx.Node, Nodes] = {}
        self._copies = {node for node in self._order if self._is_copy(node)}
        self._sources = {node: self._shared(node) for node in self._order}
        for node, shared in self._sources.items():
            own = frozenset([node])
            self.stream[node] = frozenset().union(*(self.stream[other] for other in shared)) or own
            both = frozenset().union(*(self.whole[other] for other in shared)) or own
            self.whole[node] = own if node in self._copies else both

    def check(self) -> None:
        """Refuses writes that a stream would not do as the model does; adds to `copied` what has to be a copy."""
        for node in self._order:
            if self._writes(node):
                try:
                    self._check(node)
                except NoStreamError as refusal:
                    self._analysis.refuse(node, str(refusal))

    def _check(self, write: torch.fx.Node) -> None:
        target, value = write.args[0], self._analysis.value_of(write)
        if not isinstance(target, torch.fx.Node):
            raise NoStreamError("changes several tensors in place")
        makers = self.stream[target]
        readers = [node for node in self._order if makers & self.stream[node]]
        if isinstance(value, Constant):
            if any(self._has_read(node, write) for node in readers):
                raise NoStreamError("changes in place what was read before, and does not depend on the input")
            return
        if any(isinstance(self._analysis.value_of(node), Constant) for node in makers):
            raise NoStreamError("changes in place what does not depend on the input")
        for reader in readers:
            if not self._is_read(reader, write, target):
                continue
            if self.whole[target] & self.whole[reader]:
                self._check_times(target, reader)
            else:
                self._copy(write, self.whole[target] | self.whole[reader], is_read=True)
        if any(node.op == "placeholder" for node in makers - self.whole[target]):
            self._copy(write, self.whole[target], is_read=False)

    def _has_read(self, node: torch.fx.Node, write: torch.fx.Node) -> bool:
        """Whether the value is read before the write by what depends on the input, and so has its last value there."""
        users = [user for user in self._readers(node) if self._order[user] < self._order[write]]
        return any(not isinstance(self._analysis.value_of(user), Constant) for user in users)

    def _is_read(self, node: torch.fx.Node, write: torch.fx.Node, target: torch.fx.Node) -> bool:
        """Whether the value is read after the write, or by it beside the target, and is no later copy."""
        if all(maker in self._copies and self._order[maker] > self._order[write] for maker in self.whole[node]):
            return False
        is_beside = node is not target and write in node.users
        return is_beside or any(self._order[user] > self._order[write] for user in self._readers(node))

    def _readers(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Users that read the node's memory: views of it are read in their place, sizes do not depend on it."""
        users = [user for user in node.users if not self._is_number(user)]
        return [user for user in users if node not in self._sources[user] or self._is_copy(user) or self._writes(user)]

    def _copy(self, write: torch.fx.Node, makers: Nodes, *, is_read: bool) -> None:
        """Has padding before the write copy; `is_read`: whether the model reads the other memory, not the caller."""
        for node in makers & self._copies:
            if self._order[node] < self._order[write]:
                if is_read and function_name(node) == "contiguous":
                    raise NoStreamError("changes in place what is read later, and what contiguous() may have copied")
                self._analysis.copied.add(node)

    def _check_times(self, target: torch.fx.Node, reader: torch.fx.Node) -> None:
        """Raises if the reader has positions that the write leaves out."""
        written, read = (
            value.of if isinstance(value, Parts) else value
            for value in (self._analysis.value_of(target), self._analysis.value_of(reader))
        )
        if isinstance(written, Time) and isinstance(read, Time):
            is_all_behind = written.tail >= 0 or read.tail <= written.tail
            if written.start > read.start or not is_all_behind:
                raise NoStreamError("changes a slice of time in place, and what is read later has more positions")

    def _writes(self, node: torch.fx.Node) -> bool:
        return is_in_place(node, self._analysis.module_of(node))

    def _is_copy(self, node: torch.fx.Node) -> bool:
        name = "" if node.op not in ("call_function", "call_method") else function_name(node)
        return name == "contiguous" or (node in self._analysis.skipped and name != "narrow")

    def _is_number(self, node: torch.fx.Node) -> bool:
        value = self._analysis.value_of(node)
        is_asked = isinstance(value, Other) and function_name(node) in ("getattr", "size", "dim", "ndimension")
        return is_asked or isinstance(value, (Length, Shape))

    def _shared(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """The inputs whose memory the node's value may have: the first, where it is a tensor."""
        module = self._analysis.module_of(node)
        if node.op in ("placeholder", "get_attr", "output") or node in self._analysis.layers or self._is_number(node):
            return []
        first = node.args[0] if node.args else None
        shared = [first] if isinstance(first, torch.fx.Node) else node.all_input_nodes
        if self._is_copy(node) or self._writes(node):
            return shared
        if module is not None:
            is_constant = isinstance(self._analysis.value_of(node), Constant)
            return shared if is_constant or may_return_input(module) else []
        name = function_name(node)
        is_product = name == "einsum" and len(shared) > 1
        return [] if is_product or name in NEW else shared
