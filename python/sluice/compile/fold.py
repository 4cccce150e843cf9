"""The compiler pass: aten convolutions and the pointwise ops around them become sluice's ops with chains.

    x -> leaky_relu -> convolution -> gelu -> add(residual)
    x -> sluice.conv1d(pre="leaky_relu(0.1)", post="gelu()|add($0,1.0)", post_operands=[residual])

The new node replaces the last of its ops, where all its inputs exist. Stages before a convolution are folded only if
nothing else reads them, so that they are no longer written; stages after it, as long as each value has one reader.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch.fx import Graph, Node

from .convolution import Convolution, fake_result, is_convolution, read
from .graph_stages import ahead, behind
from .nodes import aten, fake_value, given, is_number, is_same_place, readers, reads_size, same_sizes
from .stage import GraphChain, GraphStage, compose

log = logging.getLogger("sluice.compile")  # below "sluice", which TORCH_LOGS knows as any package
_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "seq_nr", "original_aten")


class Fold:
    """The convolutions of one graph, folded one after another."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.convolutions = [node for node in graph.nodes if is_convolution(node)]
        self.written: set[Node] = set()  # ahead of convolutions: cheaper written once than computed by each
        self.barriers: dict[Node, int] = {}  # ahead of each node: ops that write in place
        self.places: dict[Node, int] = {}
        count = 0
        for place, node in enumerate(graph.nodes):
            count += _is_barrier(node)
            self.barriers[node], self.places[node] = count, place

    def run(self) -> int:
        """Replaces convolutions; returns the number of replaced ones."""
        return sum(self._fold(node) for node in self.convolutions)

    def _fold(self, node: Node) -> bool:
        convolution = read(node)
        if convolution.refusal is not None:
            log.debug("%s left alone: %s", node, convolution.refusal)
            return False
        before, x, sides = self._before(convolution)
        after, stopped = self._after(convolution)
        root = after[-1].root if after else node
        new = self._replacement(convolution, x, sides, before, after, root)
        if isinstance(new, str):
            log.debug("%s left alone: %s", node, new)
            return False
        log.debug("%s is %s now, with pre=%r and post=%r; %s",
                  node, convolution.op, new.kwargs.get("pre", ""), new.kwargs.get("post", ""), stopped)  # fmt: skip
        self.barriers[new], self.places[new] = self.barriers[root], self.places[root]
        root.replace_all_uses_with(new)
        for user in _size_readers(before, {x}):
            user.update_arg(0, x)
        self._move_sizes(after, new)
        _erase_unused([root])
        return True

    # --- after ---
    def _after(self, convolution: Convolution) -> tuple[list[GraphStage], str]:
        """The stages of `post`, and why there are no more."""
        value = fake_value(convolution.node)
        assert value is not None
        found: list[GraphStage] = []
        end = convolution.node
        while True:
            stage = behind(end)
            if stage is None:
                reason = _why_none(end)
                break
            reason = (
                stage.why_not()
                or self._why_apart(convolution.node, stage.root)
                or self._why_sizes([*found, stage])
            )  # fmt: skip
            if not reason and not compose([*found, stage], value.dtype).fits(convolution.op, "post"):
                reason = "the chain is full"
            if reason:
                reason = f"{stage.root} is not folded: {reason}"
                break
            found.append(stage)
            end = stage.root
        return _without_widening(found), reason

    def _why_sizes(self, found: list[GraphStage]) -> str:
        """Why a value that is written no more must be there: something needs its extent ahead of the chain's end."""
        last = self.places[found[-1].root]
        for user in _size_readers(found, {found[-1].root}):
            if any(self.places[reader] < last for reader in user.users if not _is_inside(reader, found)):
                return f"{user} is needed before it"
        return ""

    def _move_sizes(self, found: list[GraphStage], new: Node) -> None:
        """Takes the extents of values that are no longer written from the new node, after which they are needed."""
        for user in _size_readers(found, {new}):
            with self.graph.inserting_after(new):
                size = self.graph.call_function(aten.sym_size.int, (new, user.args[1]))
            size.meta.update(user.meta)
            self.places[size], self.barriers[size] = self.places[new], self.barriers[new]
            user.replace_all_uses_with(size)
            self.graph.erase_node(user)

    def _why_apart(self, first: Node, last: Node) -> str:
        return "" if self.barriers[first] == self.barriers[last] else "an op in between writes in place"

    # --- before ---
    def _before(self, convolution: Convolution) -> tuple[list[GraphStage], Node, tuple[int, int]]:
        """The stages of `pre`, what they start from, and zeros to the left and right that a pad puts in between."""
        x, sides = convolution.x, (0, 0)
        takers = self._takers(x)
        if takers and (pad := _zeros(x, convolution)) is not None and not self._why_apart(x, convolution.node):
            assert isinstance(x.args[0], Node)
            x, sides = x.args[0], pad
            takers = takers if len(readers(x)) == 1 else 0
        return *self._stages_ahead(x, convolution, takers), sides

    def _takers(self, x: Node) -> int:
        """How many convolutions read x and nothing else does; 0 if something else does."""
        users = readers(x)
        for user in users:
            if not is_convolution(user) or user.args[0] is not x or x in user.args[1:3]:
                return 0
            if read(user).refusal is not None:
                return 0
        return len(users)

    def _stages_ahead(self, x: Node, convolution: Convolution, takers: int) -> tuple[list[GraphStage], Node]:
        wanted, found, end = fake_value(convolution.x), list[GraphStage](), x
        assert wanted is not None
        is_read_alone = takers > 0
        while is_read_alone and (stage := self._stage_ahead(x, convolution, found, takers)) is not None:
            found.insert(0, stage)
            x = stage.x
            inside = stage.interior | {stage.root}
            is_read_alone = all(user in inside for user in readers(x))
        while found and not _is_of(found[0].x, wanted.dtype):
            x = found.pop(0).root
        return ([], end) if all(stage.only_casts for stage in found) else (found, x)

    def _stage_ahead(
        self, root: Node, convolution: Convolution, found: list[GraphStage], takers: int
    ) -> GraphStage | None:
        wanted = fake_value(convolution.x)
        assert wanted is not None
        for stage in ahead(root):
            if stage.why_not() is not None or self._why_apart(stage.root, convolution.node):
                continue
            chain = compose([stage, *found], wanted.dtype)
            if chain.fits(convolution.op, "pre") and not self._is_written(root, stage, takers):
                return stage
        return None

    def _is_written(self, root: Node, stage: GraphStage, takers: int) -> bool:
        """Whether it costs less to write a value once than to read for each taker what it is made from.

        Folded, each taker reads x and the operands of its size; else these are read once, and the value is written
        and read by each taker.
        """
        shape = fake_value(root)
        values = [fake_value(operand) for operand in stage.operands]
        whole = sum(1 for value in values if value is not None and shape is not None and is_same_place(value, shape))
        if takers * (1 + whole) > (1 + whole) + 1 + takers:
            self.written.add(root)
        return root in self.written

    # --- the new node ---
    def _replacement(
        self,
        convolution: Convolution,
        x: Node,
        sides: tuple[int, int],
        before: list[GraphStage],
        after: list[GraphStage],
        root: Node,
    ) -> Node | str:
        value, expected = fake_value(convolution.node), fake_value(root)
        assert value is not None
        assert expected is not None
        arguments, options = convolution.padded(*sides)
        pre, post = compose(before, value.dtype), compose(after, value.dtype)
        named = {**_chain_options("pre", pre), **_chain_options("post", post), **options}
        if post.chain.result_dtype(value.dtype) != expected.dtype:
            named["dtype"] = expected.dtype
        target = getattr(torch.ops.sluice, convolution.op).default
        try:
            result = fake_result(target, (x, *arguments), named, x)
        except RuntimeError as error:
            return str(error)
        if result.dtype != expected.dtype or not is_same_place(result, expected):
            return f"its result would be {tuple(result.shape)} of {result.dtype}"
        if not same_sizes(result.stride(), expected.stride()) and (reader := _reader_of_strides(root)) is not None:
            return f"its result would have other strides, which {reader} reads"
        with self.graph.inserting_before(root):
            new = self.graph.call_function(target, (x, *arguments), named)
        new.meta.update({key: root.meta[key] for key in _KEPT_META if key in root.meta}, val=result)
        return new


def _chain_options(argument: str, found: GraphChain) -> dict[str, Any]:
    if not found.chain:
        return {}
    operands = {f"{argument}_operands": found.operands} if found.operands else {}
    return {argument: found.chain.text, **operands}


def _without_widening(found: list[GraphStage]) -> list[GraphStage]:
    """The stages without casts at their end that only widen, and views of the same shape after them.

    The value is shorter to write then, and the kernel that reads it widens it for free.
    """
    for place in range(len(found) - 1, -1, -1):
        stage = found[place]
        x, result = fake_value(stage.x), fake_value(stage.root)
        assert x is not None
        assert result is not None
        if stage.only_casts and result.dtype.itemsize > x.dtype.itemsize:
            return _without_widening(found[:place])
        if stage.calls:
            break
    return found


def _is_inside(node: Node, found: list[GraphStage]) -> bool:
    return any(node is stage.root or node in stage.interior for stage in found)


def _size_readers(found: list[GraphStage], left: set[Node]) -> list[Node]:
    """The nodes that read extents of the stages' nodes, except of those in `left`."""
    nodes = dict.fromkeys(node for stage in found for node in (stage.x, *stage.interior, stage.root))
    return [user for node in nodes if node not in left for user in node.users if reads_size(user)]


def _is_of(node: Node, dtype: torch.dtype) -> bool:
    value = fake_value(node)
    return value is not None and value.dtype == dtype


def _zeros(x: Node, convolution: Convolution) -> tuple[int, int] | None:
    """The positions that a pad of zeros adds to the left and right."""
    if x.target is not aten.constant_pad_nd.default or convolution.op != "conv1d":
        return None
    pad = x.args[1]
    is_known = isinstance(pad, (list, tuple)) and len(pad) == 2 and all(type(n) is int and n >= 0 for n in pad)
    return (pad[0], pad[1]) if is_known and is_number(given(x, "value", 0), 0) else None  # type: ignore


def _why_none(end: Node) -> str:
    users = readers(end)
    if len(users) > 1:
        return f"{end} has {len(users)} readers"
    return f"{end} is read by {next(iter(users), None)}, which is not a stage"


def _is_barrier(node: Node) -> bool:
    """Whether it may write to memory that others read: an op in place, or one that runs graphs or kernels."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return node.op not in ("placeholder", "get_attr", "output") and not _is_python(node)
    return node.target._schema.is_mutable


def _is_python(node: Node) -> bool:
    return getattr(node.target, "__module__", None) in ("_operator", "operator", "math")


def _reader_of_strides(root: Node) -> Node | None:
    """A node after `root` whose result may depend on the strides of what it reads; None where there is none.

    Inductor gives the graph's outputs the strides that they had, and makes reshapes of views.
    """
    seen: set[Node] = set()
    level = list(root.users)
    while level:
        for node in level:
            if node.op != "output" and not _is_python(node) and _reads_strides(node.target):
                return node
        seen.update(level)
        level = [user for user in dict.fromkeys(user for node in level for user in node.users) if user not in seen]
    return None


def _reads_strides(target: object) -> bool:
    if target is aten.copy_.default:
        return False
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims", "sluice"):
        return True
    return "strid" in str(target) or target is aten.view.dtype or target._schema.is_mutable


def _erase_unused(ends: list[Node]) -> None:
    """Erases nodes without users, and what they alone read."""
    while ends:
        node = ends.pop()
        if node._erased or node.users or node.op in ("placeholder", "output") or node.is_impure():
            continue
        inputs = node.all_input_nodes
        node.graph.erase_node(node)
        ends.extend(inputs)
