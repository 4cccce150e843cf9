"""DTensor: every op in every placement, what is communicated for it, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import sharded_calls
import sharded_checks
import torch
from ranks import Ranks
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from sluice import _vmap
from sluice.distributed.shapes import describe
from sluice.distributed.splits import RULES, tensors_of

pytestmark = pytest.mark.no_gpu
SIZE = 4


@pytest.fixture
def four(ranks: Callable[[int], Ranks]) -> Ranks:
    return ranks(SIZE)


def seed() -> int:
    return int(torch.randint(2**31, ()))


def test_every_raw_op_has_a_rule_and_a_case() -> None:
    assert set(RULES) == {*_vmap.RULES, "_pack_conv1d_weight"}
    assert {case.op for case in sharded_calls.CASES.values()} == set(_vmap.RULES)


@pytest.mark.parametrize("name", sharded_calls.CASES)
def test_every_placement_gives_the_unsharded_result(name: str, four: Ranks) -> None:
    tried = four.run(sharded_calls.try_placements, name, seed(), 8)
    assert min(tried) >= 12


def test_a_wrong_rule_is_seen(four: Ranks) -> None:
    assert four.run(sharded_checks.a_wrong_rule_is_seen) == [True] * SIZE


def test_meshes_of_two_dimensions(four: Ranks) -> None:
    assert four.run(sharded_calls.try_two_dimensions, seed(), 40) == [40] * SIZE


NONE: dict[str, int] = {}
GATHER = {"all_gather_into_tensor": 1}


@pytest.mark.parametrize(
    ("name", "where", "collectives", "batches", "result"),
    [
        # What is sharded needs no collective.
        ("chain", {"x": Shard(2), "h": Shard(2)}, NONE, 0, Shard(2)),
        ("depthwise", {"x": Shard(0)}, NONE, 0, Shard(0)),
        ("depthwise", {"x": Shard(1), "w": Shard(0), "b": Shard(0)}, NONE, 0, Shard(1)),
        ("depthwise", {"x": Shard(1)}, NONE, 0, Shard(1)),  # replicated weights are cut
        ("four groups", {"x": Shard(1), "w": Shard(0)}, NONE, 0, Shard(1)),
        ("dense", {"x": Shard(0)}, NONE, 0, Shard(0)),
        ("dense", {"w": Shard(0)}, NONE, 0, Shard(1)),
        ("transposed", {"w": Shard(1)}, NONE, 0, Shard(1)),
        ("stencil of channels", {"image": Shard(1)}, NONE, 0, Shard(1)),
        ("causal", {"x": Shard(1), "s": Shard(1)}, NONE, 0, Shard(1)),
        ("packed", {"x": Shard(1)}, NONE, 0, Shard(1)),
        ("update", {"x": Shard(0), "state": Shard(0)}, NONE, 0, Shard(0)),
        ("chunk of rows", {"x": Shard(0), "cache": Shard(0)}, NONE, 0, Shard(0)),
        ("chunk of rows", {"w": Shard(0)}, NONE, 0, Shard(1)),  # every rank writes the cache
        ("depthwise chunk", {"x": Shard(1), "cache": Shard(1)}, NONE, 0, Shard(1)),
        ("transposed chunk of rows", {"x": Shard(0), "cache": Shard(0)}, NONE, 0, Shard(0)),
        ("transposed chunk of slots", {"w": Shard(1), "cache": Shard(1)}, NONE, 0, Shard(1)),
        ("update", {"state": Shard(1)}, NONE, 0, Shard(1)),
        # A sharded sequence has a halo.
        ("depthwise", {"x": Shard(2)}, NONE, 1, Shard(2)),
        ("dense", {"x": Shard(2)}, NONE, 1, Shard(2)),
        ("causal", {"x": Shard(2)}, NONE, 1, Shard(2)),
        ("dense causal rows", {"x": Shard(2)}, NONE, 1, Shard(2)),
        # Everything else is redistributed: the smallest tensors that will do.
        ("dense", {"x": Shard(0), "w": Shard(0)}, GATHER, 0, Shard(0)),
        ("dense", {"w": Shard(1)}, GATHER, 0, Shard(1)),
        ("causal", {"x": Partial()}, {"all_reduce": 1}, 0, Replicate()),
        ("update", {"x": Shard(0)}, GATHER, 0, Replicate()),  # the state stays where it is
        ("update of slots", {"state": Shard(0)}, {"all_gather_into_tensor": 2}, 0, Shard(1)),  # there and back
    ],
)  # fmt: skip
def test_what_is_communicated(
    name: str, where: dict[str, Placement], collectives: dict[str, int], batches: int, result: Placement, four: Ranks
) -> None:
    found = four.run(sharded_checks.communication, name, where)
    assert [counts for counts, _, _ in found] == [collectives] * SIZE
    assert max(count for _, count, _ in found) == batches  # a rank without positions takes no part
    assert [where for _, _, where in found] == [{str(result)}] * SIZE


def test_modules_take_dtensors(four: Ranks) -> None:
    for equal in four.run(sharded_checks.modules):
        assert equal == [True] * (3 * 6 * 4)


@pytest.mark.parametrize("outs", [sharded_checks.outs, sharded_checks.chunk_outs])
def test_outs_keep_their_placement(outs: Callable[[], list[tuple[str, bool]]], four: Ranks) -> None:
    for found in four.run(outs):
        assert [where for where, is_right in found if not is_right] == []


def test_an_own_stage_is_computed_by_its_reference(four: Ranks) -> None:
    assert four.run(sharded_checks.own_stage) == [True] * SIZE


def test_ranks_outside_of_the_mesh_have_an_empty_result(four: Ranks) -> None:
    outside, first, second, _ = four.run(sharded_checks.mesh_of_some)
    assert outside == ((4, 6, 7), (0,), True)
    assert first == ((4, 6, 7), (4, 6, 4), True)
    assert second == ((4, 6, 7), (4, 6, 3), True)


def test_compiled_graphs_redistribute_sequences(four: Ranks) -> None:
    for found in four.run(sharded_checks.compiled):
        assert [where for where, is_right in found if not is_right] == []
        assert [where for where, _ in found][:2] == ["S(0) S(0)", "S(1) S(1)"]


def test_inference_mode(four: Ranks) -> None:
    assert four.run(sharded_checks.in_inference_mode) == [True] * SIZE


def test_plain_tensors_are_replicated_where_torch_allows_it(four: Ranks) -> None:
    assert four.run(sharded_checks.implicitly_replicated) == [True] * SIZE


def test_errors_name_the_whole_shapes(four: Ranks) -> None:
    mixed = "conv1d: {} must be a DTensor when another argument is one, got a Tensor of shape {}".format
    groups = "conv1d: groups must divide the input's 4 channels, got 3"
    wanted = [
        ("ValueError", mixed("weight", (4, 1, 3))),
        ("ValueError", mixed("input", (4, 4, 9))),
        ("ValueError", groups),
        ("RuntimeError", groups),
        ("ValueError", "conv1d: weight must be on the other DTensors' mesh DeviceMesh(.*), got DeviceMesh(.*)"),
        ("ValueError", mixed("post_operands", (4, 1))),
        ("ValueError", mixed("out", (4, 4, 7))),
        ("ValueError", "conv1d: out must have shape (4, 4, 7), got (4, 4, 9)"),
        ("ValueError", "causal_conv1d_update: conv_state must be replicated or sharded to be written, "
                       "got (Partial(sum),)"),
        ("TypeError", "conv1d: x_local must be a plain tensor, this rank's piece (sluice's own functions take a "
                      "DTensor), got DTensor"),
    ]  # fmt: skip
    for found in four.run(sharded_checks.refused):
        for (kind, text), (wanted_kind, wanted_text) in zip(found, wanted, strict=True):
            assert kind == wanted_kind, text
            assert re.fullmatch(re.escape(wanted_text).replace(r"\.\*", ".*"), text)


def test_rules_name_arguments_of_their_ops() -> None:
    for case in sharded_calls.CASES.values():
        schema = getattr(torch.ops.sluice, case.op).default._schema
        first = next(iter(case.tensors.values()))
        x = describe(torch.empty(first))
        given = {one.name: describe(torch.empty(3, 1, 3)) for one in schema.arguments if str(one.type) == "Tensor"}
        given[schema.arguments[0].name] = x
        for split in RULES[case.op](given):
            assert set(split.dims) <= {one.name for one in schema.arguments}
            assert set(split.dims) & {name for name, _, _ in tensors_of(given)}
