"""The compiler pass: aten convolutions and the pointwise ops around them become sluice's ops with chains.

    x -> leaky_relu -> convolution -> gelu -> add(residual)
    x -> sluice.conv1d(pre="leaky_relu(0.1)", post="gelu()|add($0,1.0)", post_operands=[residual])

The new node replaces the last of its ops, where all its inputs exist. Stages before a convolution are folded only if
nothing else reads them, so that they are no longer written; stages after it, as long as each value has one reader.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from .convolution import Convolution, contiguous_copy, fake_result, is_convolution, read
from .effects import barriers_of, erase_unused, reader_of_gaps, reader_of_strides
from .graph_stages import ahead, behind
from .moves import may_move, moves_ahead, moves_behind, zeros_of
from .nodes import aten, fake_value, has_contiguous_strides, is_same_place, readers, reads_size, same_sizes
from .policy import ForInductor, Policy
from .stage import GraphChain, GraphStage, compose

log = logging.getLogger("sluice.compile")  # below "sluice", which TORCH_LOGS knows as any package
_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "seq_nr", "original_aten")


class Outcome(NamedTuple):
    """What became of a convolution.

    Attributes:
        weight: its weight's node.
        chains: the texts of its chains.
        reason: why it was left alone; empty if it is sluice's.
    """

    weight: Node
    chains: str
    reason: str


class Fold:
    """The convolutions of one graph, folded one after another.

    Args:
        graph: in aten ops, with fake values.
        policy: which convolutions are worth it.

    Attributes:
        outcomes: of the convolutions that have been visited.
    """

    def __init__(self, graph: Graph, policy: Policy | None = None) -> None:
        self.graph, self.policy = graph, policy or ForInductor()
        self.convolutions = [node for node in graph.nodes if is_convolution(node)]
        self.outcomes: list[Outcome] = []
        self.written: set[Node] = set()  # ahead of convolutions: cheaper written once than computed by each
        self.copies: dict[Node, Node] = {}  # contiguous copies, and the channels-last results that they copy
        self.barriers = barriers_of(graph)
        self.places = {node: place for place, node in enumerate(graph.nodes)}

    def run(self) -> int:
        """Replaces convolutions; returns how many it replaced."""
        return sum(self._fold(node) for node in self.convolutions)

    def _fold(self, node: Node) -> bool:
        self._skip_copy(node)
        convolution = read(node, self.policy.has_guard)
        if convolution.refusal is not None:
            return self._leave(convolution, convolution.refusal)
        ahead_of, behind_it = self._before(convolution), self._after(convolution)
        if (reason := self.policy.why_left(convolution, [*ahead_of.stages, *behind_it.stages])) is not None:
            return self._leave(convolution, reason)
        new = self._replacement(convolution, ahead_of, behind_it)
        if isinstance(new, str) and behind_it.stages:
            behind_it = _Behind([], [], None, new)
            new = self._replacement(convolution, ahead_of, behind_it)
        if isinstance(new, str):
            return self._leave(convolution, new)
        pre, post = new.kwargs.get("pre", ""), new.kwargs.get("post", "")
        log.debug("%s is %s now, with pre=%r and post=%r; %s",
                  node, convolution.op, pre, post, behind_it.stopped)  # fmt: skip
        chains = [f"{name}: {text}" for name, text in (("pre", pre), ("post", post)) if text]
        self.outcomes.append(Outcome(convolution.weight, ", ".join(chains).replace("|", " | "), ""))
        self._put(convolution, new, ahead_of, behind_it)
        return True

    def _leave(self, convolution: Convolution, reason: str) -> bool:
        log.debug("%s left alone: %s", convolution.node, reason)
        self.outcomes.append(Outcome(convolution.weight, "", reason))
        return False

    def _put(self, convolution: Convolution, new: Node, ahead_of: _Ahead, behind_it: _Behind) -> None:
        """Puts the new node into the place of what it computes."""
        node, root = convolution.node, behind_it.root or convolution.node
        last = node if behind_it.moves else root
        is_moved = not same_sizes(_strides(new), _strides(last))
        self.barriers[new], self.places[new] = self.barriers[last], self.places[last]
        if ahead_of.moves:
            ahead_of.moves[-1].update_arg(0, ahead_of.x)
        if behind_it.moves:
            node.replace_all_uses_with(new)
            root.replace_all_uses_with(behind_it.moves[-1])
        else:
            root.replace_all_uses_with(new)
            self._move_sizes(behind_it.stages, new)
        for user in _size_readers(ahead_of.stages, {ahead_of.x}):
            user.update_arg(0, ahead_of.x)
        erase_unused([root, node])
        if is_moved and self.policy.is_final:
            self._copy(new)

    def _copy(self, new: Node) -> None:
        """Gives the readers of a channels-last result a contiguous copy, whose strides they read."""
        with self.graph.inserting_after(new):
            copy = contiguous_copy(self.graph, new)
        new.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy and not reads_size(user))
        self.barriers[copy], self.places[copy] = self.barriers[new], self.places[new]
        self.copies[copy] = new

    def _skip_copy(self, node: Node) -> None:
        """Lets a convolution read another convolution's channels-last result, if it alone reads the result's copy."""
        x = node.args[0]
        if isinstance(x, Node) and (result := self.copies.get(x)) is not None and len(readers(x)) == 1:
            node.replace_input_with(x, result)
            erase_unused([x])

    # --- after ---
    def _after(self, convolution: Convolution) -> _Behind:
        """The stages of `post`."""
        node = convolution.node
        if "post" in node.kwargs or node.kwargs.get("dtype") is not None:
            return _Behind([], [], None, "it has a chain of its own")
        moves = moves_behind(node)
        found, stopped = self._stages_behind(convolution, moves[-1] if moves else node, moves)
        found = _without_widening(found)
        return _Behind(found, moves if found else [], found[-1].root if found else None, stopped)

    def _stages_behind(self, convolution: Convolution, end: Node, moves: list[Node]) -> tuple[list[GraphStage], str]:
        """Stages from `end` on, and why there are no more."""
        value = fake_value(convolution.node)
        assert value is not None
        found: list[GraphStage] = []
        while (stage := behind(end)) is not None:
            reason = (
                stage.why_not()
                or self._why_split(convolution.node, stage)
                or (self._why_not_moved(convolution.node, stage, moves) if moves else self._why_sizes([*found, stage]))
            )  # fmt: skip
            if not reason and not compose([*found, stage], value.dtype).fits(convolution.op, "post"):
                reason = "the chain is full"
            if reason:
                return found, f"{stage.root} is not folded: {reason}"
            found.append(stage)
            end = stage.root
        return found, _why_none(end)

    def _why_not_moved(self, node: Node, stage: GraphStage, moves: list[Node]) -> str:
        """Why a stage cannot move ahead of the trims to the convolution's place."""
        is_late = any(self.places[operand] > self.places[node] for operand in stage.operands)
        return "it depends on positions" if is_late or not may_move(stage, moves) else ""

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

    def _why_split(self, node: Node, stage: GraphStage) -> str:
        """Why a stage cannot be computed where a node is: a value that the stage's nodes read may be written since."""
        return next((why for one in (stage.root, *stage.interior) if (why := self._why_apart(node, one))), "")

    # --- before ---
    def _before(self, convolution: Convolution) -> _Ahead:
        """The stages of `pre`, what they start from, and what is in between."""
        x, sides, moves = convolution.x, (0, 0), list[Node]()
        if "pre" in convolution.options:
            return _Ahead([], x, sides, [])
        takers, pad = self._takers(x), zeros_of(x) if convolution.op == "conv1d" else None
        if takers and pad is not None and not self._why_apart(x, convolution.node):
            assert isinstance(x.args[0], Node)
            x, sides = x.args[0], pad
            takers = takers if len(readers(x)) == 1 else 0
        elif takers == 1 and (moves := moves_ahead(x)) and not self._why_apart(moves[-1], convolution.node):
            x = moves[-1].args[0]  # type: ignore[assignment]
            takers = takers if len(readers(x)) == 1 else 0
        found, start = self._stages_ahead(x, convolution, takers, moves)
        if moves and not found:
            return _Ahead([], convolution.x, sides, [])
        return _Ahead(found, start, sides, moves)

    def _takers(self, x: Node) -> int:
        """How many convolutions read x and nothing else does; 0 if something else does."""
        users = readers(x)
        for user in users:
            if not is_convolution(user) or user.args[0] is not x or x in user.args[1:3]:
                return 0
            if read(user).refusal is not None:
                return 0
        return len(users)

    def _stages_ahead(
        self, x: Node, convolution: Convolution, takers: int, moves: list[Node]
    ) -> tuple[list[GraphStage], Node]:
        wanted, found, end = fake_value(convolution.x), list[GraphStage](), x
        assert wanted is not None
        is_read_alone = takers > 0
        while is_read_alone and (stage := self._stage_ahead(x, convolution, found, takers)) is not None:
            if moves and not may_move(stage, moves):
                break
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
            if stage.why_not() is not None or self._why_split(convolution.node, stage):
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
    def _replacement(self, convolution: Convolution, ahead_of: _Ahead, behind_it: _Behind) -> Node | str:
        node, moves = convolution.node, behind_it.moves
        root = node if moves or behind_it.root is None else behind_it.root
        value, expected = fake_value(node), fake_value(behind_it.root or node)
        place = fake_value(root)
        assert value is not None
        assert expected is not None
        assert place is not None
        x = convolution.x if ahead_of.moves else ahead_of.x
        arguments, options = convolution.padded(*ahead_of.sides)
        pre, post = compose(ahead_of.stages, value.dtype), compose(behind_it.stages, value.dtype)
        named = {**options, **_chain_options("pre", pre), **_chain_options("post", post)}
        if behind_it.stages and post.chain.result_dtype(value.dtype) != expected.dtype:
            named["dtype"] = expected.dtype
        if named == node.kwargs and convolution.is_sluices and not any(ahead_of.sides):
            return "nothing around it is a stage"
        target = getattr(torch.ops.sluice, convolution.op).default
        try:
            result = fake_result(target, (x, *arguments), named, x)
        except RuntimeError as error:
            return str(error)
        if result.dtype != expected.dtype or not is_same_place(result, place):
            return f"its result would be {tuple(result.shape)} of {result.dtype}"
        reader = None
        is_copied = self.policy.is_final and has_contiguous_strides(place)
        if not is_copied and not same_sizes(result.stride(), place.stride()):
            reader = reader_of_strides(root, self.policy.is_final)
        elif moves and behind_it.root is not None:
            reader = reader_of_gaps(behind_it.root)
        if reader is not None:
            return f"its result would have other strides, which {reader} reads"
        with self.graph.inserting_before(root):
            new = self.graph.call_function(target, (x, *arguments), named)
        new.meta.update({key: root.meta[key] for key in _KEPT_META if key in root.meta}, val=result)
        return new


class _Ahead(NamedTuple):
    """What is computed before a convolution.

    Attributes:
        stages: of `pre`.
        x: the value that they start from.
        sides: zeros to the left and right that the convolution adds for a pad.
        moves: pads between the stages and the convolution.
    """

    stages: list[GraphStage]
    x: Node
    sides: tuple[int, int]
    moves: list[Node]


class _Behind(NamedTuple):
    """What is computed after a convolution.

    Attributes:
        stages: of `post`.
        moves: trims between the convolution and the stages.
        root: the node that the stages end in; None without stages.
        stopped: why there are no more.
    """

    stages: list[GraphStage]
    moves: list[Node]
    root: Node | None
    stopped: str


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
    """The nodes that read extents of the stages' nodes; extents of the nodes in `left` do not count."""
    nodes = dict.fromkeys(node for stage in found for node in (stage.x, *stage.interior, stage.root))
    return [user for node in nodes if node not in left for user in node.users if reads_size(user)]


def _strides(node: Node) -> tuple[int | torch.SymInt, ...]:
    value = fake_value(node)
    assert value is not None
    return value.stride()


def _is_of(node: Node, dtype: torch.dtype) -> bool:
    value = fake_value(node)
    return value is not None and value.dtype == dtype


def _why_none(end: Node) -> str:
    users = readers(end)
    if len(users) > 1:
        return f"{end} has {len(users)} readers"
    return f"{end} is read by {next(iter(users), None)}, which is not a stage"
