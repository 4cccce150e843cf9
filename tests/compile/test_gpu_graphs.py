"""What the pass makes of a GPU's graphs that run as they are; the tensors are fake, so no GPU is needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

import sluice
from sluice.compile.constants import constants_of, pack_weights
from sluice.compile.convolution import call, read
from sluice.compile.fold import Fold
from sluice.compile.in_place import without_writes
from sluice.compile.layout import to_channels_last
from sluice.compile.policy import AsItIs, ForInductor
from sluice.compile.transforms import fold_transforms
from sluice.pack import packed_shape_transposed
from tf32 import Setting

aten = torch.ops.aten


class Drawn:
    """A graph that is written by hand, with fake values of a GPU."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.graph, self.mode, self.dtype = Graph(), FakeTensorMode(), dtype

    def input(self, *shape: int) -> Node:
        node = self.graph.placeholder(f"p{len(self.graph.nodes)}")
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=self.dtype, device="cuda")
        return node

    def convolution(self, x: Node, weight: Node, bias: Node | None) -> Node:
        """Three taps that keep the length. torch has no fake convolution of a GPU that is not there."""
        node = self.graph.call_function(
            aten.convolution.default, (x, weight, bias, [1], [1], [1], False, [0], 1)
        )  # fmt: skip
        shape = x.meta["val"].shape[0], weight.meta["val"].shape[0], x.meta["val"].shape[2]
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=self.dtype, device="cuda")
        return node

    def pointwise(self, op: Any, x: Node, *args: Any) -> Node:
        node = self.graph.call_function(op, (x, *args))
        node.meta["val"] = x.meta["val"]
        return node

    def targets(self) -> list[str]:
        self.graph.eliminate_dead_code()
        return [str(node.target).removesuffix(".default") for node in self.graph.nodes if node.op == "call_function"]


def block(dtype: torch.dtype, *ops: Any, reads: Callable[[Drawn, Node, Node], Any] | None = None) -> Drawn:
    """convolution -> ops, in a graph that returns the end, or what `reads` makes of the convolution and the end."""
    drawn = Drawn(dtype)
    x, weight, bias = drawn.input(2, 8, 30), drawn.input(8, 8, 3), drawn.input(8)
    first = end = drawn.convolution(x, weight, bias)
    for op in ops:
        end = drawn.pointwise(op, end)
    drawn.graph.output(end if reads is None else reads(drawn, first, end))
    return drawn


def pretend_kernels(patch: pytest.MonkeyPatch, are_there: bool = True) -> None:
    """Whether the tensors' GPU has tensor-core kernels."""
    patch.setattr("sluice.nn.packing.has_kernels", lambda device: are_there)
    patch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: are_there)


def test_a_bias_joins_the_row_behind_torchs_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch, False)
    drawn = block(torch.float32, aten.gelu.default)
    assert Fold(drawn.graph, AsItIs()).run() == 0
    assert fold_transforms(drawn.graph) == 1
    assert drawn.targets() == ["aten.convolution", "aten.unsqueeze", "sluice.transform"]
    convolution, column, transform = (node for node in drawn.graph.nodes if node.op == "call_function")
    assert convolution.args[2] is None
    assert transform.args == (convolution, "add($0,1.0)|gelu()")
    assert transform.kwargs == {"operands": [column]}


@pytest.mark.parametrize("case", ["no op", "another reader"])
def test_a_bias_that_stays(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch, False)
    drawn = (
        block(torch.float32)
        if case == "no op"
        else block(torch.float32, aten.gelu.default, reads=lambda drawn, first, end: (first, end))
    )
    assert fold_transforms(drawn.graph) == 0
    assert drawn.targets()[0] == "aten.convolution"


def test_half_types_are_folded_and_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch)
    drawn = block(torch.float16, aten.gelu.default)
    assert Fold(drawn.graph, AsItIs()).run() == 1
    inputs = set(drawn.graph.find_nodes(op="placeholder"))
    pack_weights(drawn.graph, inputs)
    assert drawn.targets() == ["sluice._pack_conv1d_weight", "sluice.conv1d"]
    packed, convolution = (node for node in drawn.graph.nodes if node.op == "call_function")
    assert packed.args[0] is convolution.args[1]
    assert convolution.kwargs["packed"] is packed
    pack_weights(drawn.graph, inputs)
    assert len(drawn.targets()) == 2


def test_float32_is_folded_and_packed_for_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch)
    for (precision, options, taps), policy in itertools.product(
        (("tf32", {"precision": "tf32"}, 3), ("ieee", {}, 6)), (AsItIs(), ForInductor(has_guard=True))
    ):
        Setting(monkeypatch).put(precision)
        drawn = block(torch.float32, aten.gelu.default)
        assert Fold(drawn.graph, policy).run() == 1
        pack_weights(drawn.graph, set(drawn.graph.find_nodes(op="placeholder")))
        assert drawn.targets() == ["sluice._pack_conv1d_weight", "sluice.conv1d"]
        packed, convolution = (node for node in drawn.graph.nodes if node.op == "call_function")
        assert packed.kwargs == options
        assert packed.meta["val"].shape == (1, taps, 8, 8)
        assert convolution.kwargs == {**options, "post": "gelu()", "packed": packed}


@pytest.mark.parametrize("taps", [4, 5])
def test_transposed_weights_are_packed_for_the_layout(taps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch)
    for last in (False, True):
        drawn = Drawn(torch.float16)
        x, weight = drawn.input(2, 8, 30), drawn.input(8, 8, taps)
        if last:
            x.meta["val"] = x.meta["val"].new_empty(2, 30, 8).transpose(1, 2)
        node = call(drawn.graph, torch.ops.sluice.conv_transpose1d.default, x, weight, None, 2)
        drawn.graph.output(node)
        pack_weights(drawn.graph, {weight})
        drawn.graph.lint()
        ranges = 2 if taps % 2 else 1
        assert drawn.targets().count("sluice._pack_conv1d_weight") == ranges
        found = node.kwargs["packed"].meta["val"]
        numbers = 2, 1, 1 if last or ranges == 2 else 4
        assert list(found.shape) == packed_shape_transposed(weight.meta["val"], torch.float16, "ieee", *numbers)
        assert all(one in constants_of(drawn.graph, {weight}) for one in node.kwargs["packed"].all_input_nodes)


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_float32_is_left_to_torch_without_a_guard(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's convolution follows a setting that changes later."""
    pretend_kernels(monkeypatch)
    Setting(monkeypatch).put(precision)
    drawn = block(torch.float32, aten.gelu.default)
    assert Fold(drawn.graph, ForInductor()).run() == 0
    assert drawn.targets() == ["aten.convolution", "aten.gelu"]


@pytest.mark.parametrize("options", [{}, {"precision": "tf32"}], ids=str)
def test_sluices_convolutions_of_float32_are_folded_as_they_are(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_kernels(monkeypatch)
    for setting, policy in itertools.product(("tf32", "ieee"), (AsItIs(), ForInductor())):
        Setting(monkeypatch).put(setting)
        drawn = Drawn(torch.float32)
        x, weight = drawn.input(2, 8, 30), drawn.input(8, 8, 3)
        node = call(drawn.graph, torch.ops.sluice.conv1d.default, x, weight, None, 1, 1, 1, 1, **options)
        drawn.graph.output(drawn.pointwise(aten.gelu.default, node))
        assert Fold(drawn.graph, policy).run() == 1
        assert drawn.targets() == ["sluice.conv1d"]
        [convolution] = drawn.graph.find_nodes(op="call_function", target=torch.ops.sluice.conv1d.default)
        assert convolution.kwargs == {**options, "post": "gelu()"}


def test_tf32_is_of_dense_float32_convolutions_with_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    Setting(monkeypatch).put("tf32")
    pretend_kernels(monkeypatch)
    for dtype, channels, groups, has_guard, wanted in (
        (torch.float32, 8, 1, True, {"precision": "tf32"}),
        (torch.float32, 4, 2, True, {"precision": "tf32"}),
        (torch.float32, 1, 8, True, {}),
        (torch.float32, 8, 1, False, {}),
        (torch.float16, 8, 1, True, {}),
        (torch.float64, 8, 1, True, {}),
    ):
        drawn = Drawn(dtype)
        node = drawn.convolution(drawn.input(2, 8, 30), drawn.input(8, channels, 3), None)
        node.update_arg(8, groups)
        assert read(node, has_guard).options == wanted


def test_float32_is_torchs_on_a_gpu_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    Setting(monkeypatch).put("tf32")
    pretend_kernels(monkeypatch, False)
    for policy in (AsItIs(), ForInductor(has_guard=True)):
        drawn = block(torch.float32, aten.gelu.default)
        assert Fold(drawn.graph, policy).run() == 0
        assert "aten.convolution" in drawn.targets()


def test_a_weight_that_a_call_computes_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch)
    drawn = block(torch.float16, aten.gelu.default)
    Fold(drawn.graph, AsItIs()).run()
    x, _, bias = drawn.graph.find_nodes(op="placeholder")
    pack_weights(drawn.graph, {x, bias})
    assert drawn.targets() == ["sluice.conv1d"]


@pytest.mark.parametrize("form", ["new sums", "in place"])
def test_the_mean_of_residual_branches_is_in_the_convolutions(form: str) -> None:
    """HiFi-GAN's: each branch ends with a convolution and a residual; all sums and the quotient are in chains."""
    drawn = Drawn(torch.float16)
    x, *weights = drawn.input(2, 8, 30), *(drawn.input(8, 8, 3) for _ in range(7))
    branches = []
    for first, second in zip(weights[0:6:2], weights[1:6:2], strict=True):
        y = drawn.convolution(drawn.pointwise(aten.leaky_relu.default, x, 0.1), first, None)
        y = drawn.convolution(drawn.pointwise(aten.leaky_relu.default, y, 0.1), second, None)
        branches.append(drawn.pointwise(aten.add.Tensor, y, x))
    add = aten.add.Tensor if form == "new sums" else aten.add_.Tensor
    total = drawn.pointwise(add, drawn.pointwise(add, *branches[:2]), branches[2])
    end = drawn.pointwise(aten.leaky_relu.default, drawn.pointwise(aten.div.Tensor, total, 3), 0.1)
    drawn.graph.output(drawn.convolution(end, weights[6], None))
    without_writes(drawn.graph)
    assert Fold(drawn.graph, AsItIs()).run() == 7
    assert drawn.targets() == ["sluice.conv1d"] * 7
    posts = [node.kwargs.get("post", "") for node in drawn.graph.nodes if node.op == "call_function"]
    act = "leaky_relu(0.1)"
    sums = "add($0,1.0)|add($1,1.0)|add($2,1.0)|div(3.0)"
    assert sorted(posts) == sorted([act, act, act, "add($0,1.0)", "add($0,1.0)", f"{sums}|{act}", ""])


# --- layout -----------------------------------------------------------------------------------------------------------
def stack(count: int, channels: int = 8, dtype: torch.dtype = torch.float16) -> Drawn:
    """Convolutions with GELUs, each with the previous result as a residual; the last has a result of `channels`."""
    drawn = Drawn(dtype)
    x = drawn.input(2, 8, 30)
    weights = [drawn.input(8, 8, 3) for _ in range(count - 1)] + [drawn.input(channels, 8, 3)]
    for weight in weights[:-1]:
        y = drawn.pointwise(aten.gelu.default, drawn.convolution(x, weight, None))
        x = drawn.pointwise(aten.add.Tensor, y, x)
    drawn.graph.output(drawn.convolution(x, weights[-1], None))
    assert Fold(drawn.graph, AsItIs()).run() == count
    return drawn


def test_regions_are_channels_last() -> None:
    drawn = stack(5)
    assert to_channels_last(drawn.graph, set()) == 1
    assert drawn.targets() == (
        ["aten.transpose.int", "aten.clone", "aten.transpose.int"] + ["sluice.conv1d"] * 5 + ["aten.clone"]
    )
    convolutions = drawn.graph.find_nodes(op="call_function", target=torch.ops.sluice.conv1d.default)
    assert {node.meta["val"].stride() for node in convolutions} == {(240, 1, 8)}
    [copy, restored] = drawn.graph.find_nodes(op="call_function", target=aten.clone.default)
    assert convolutions[0].kwargs["post_operands"] == [convolutions[0].args[0]]
    assert copy.args[0].args[0].op == "placeholder"
    assert restored.meta["val"].stride() == (240, 30, 1)
    drawn.graph.lint()


def test_a_result_of_one_channel_has_torchs_strides() -> None:
    drawn = stack(4, channels=1)
    assert to_channels_last(drawn.graph, set()) == 1
    [end] = drawn.graph.find_nodes(op="output")[0].all_input_nodes
    assert end.meta["val"].stride() == (30, 30, 1)


@pytest.mark.parametrize("case", ["few", "float32", "written"])
def test_regions_that_stay(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_kernels(monkeypatch)
    drawn = stack(3 if case == "few" else 6, dtype=torch.float32 if case == "float32" else torch.float16)
    if case == "written":
        [end] = drawn.graph.find_nodes(op="output")
        with drawn.graph.inserting_before(end):
            drawn.graph.call_function(aten.relu_.default, (end.all_input_nodes[0],))
    assert to_channels_last(drawn.graph, set()) == 0
