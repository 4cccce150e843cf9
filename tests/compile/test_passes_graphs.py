"""The pass on aten graphs: several ops together, what is left alone and why, extents, strides and writes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from common import DTYPES, HALF_TYPES, assert_close, permuted
from compiled_graphs import FORMS, FoldedRows, calls, folded, of_sluice
from rows import naming

pytestmark = pytest.mark.no_gpu


# --- several ----------------------------------------------------------------------------------------------------------
def texts(module: torch.fx.GraphModule) -> list[tuple[str, str]]:
    return [(node.kwargs.get("pre", ""), node.kwargs.get("post", "")) for node in of_sluice(module)]


def compare(
    module: Callable[..., Any], function: Callable[..., Any], inputs: list[torch.Tensor], factor: float = 10
) -> None:
    with torch.no_grad():
        wide = function(*[value.double() if value.is_floating_point() else value for value in inputs])
        results, named = module(*inputs), function(*inputs)
    lists = [value if isinstance(value, (tuple, list)) else (value,) for value in (results, named, wide)]
    for result, eager, expected in zip(*lists, strict=True):
        assert (result.dtype, result.shape, result.stride()) == (eager.dtype, eager.shape, eager.stride())
        assert_close(result, expected.double(), factor=factor)


def compare_rows(found: FoldedRows, *but: str) -> None:
    """All rows except the rows of these names."""
    for name, (function, inputs) in found.rows.items():
        if name not in but:
            with naming(name):
                compare(lambda *_, name=name: found.results[name], function, inputs)


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    values = [torch.randn(shape, generator=draw) for shape in shapes]
    for value in values[1:]:
        if value.dim() == 3:  # a weight
            value /= math.sqrt(value[0].numel())
    return [value.to(dtype) for value in values]


def residual_block(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    y = F.conv1d(F.leaky_relu(x, 0.1), w, padding=2, dilation=2)
    y = F.conv1d(F.leaky_relu(y, 0.1), v, padding=1)
    return x + y


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("form", FORMS)
def test_a_residual_block_is_two_ops(form: str, mode: str) -> None:
    shapes = (2, 4, 19), (4, 4, 3), (4, 4, 3)
    rows = {dtype: (residual_block, tensors(*shapes, dtype=dtype)) for dtype in DTYPES}
    found = FoldedRows(rows, form=form, mode=mode)
    wanted = [("leaky_relu(0.1)", "leaky_relu(0.1)"), ("", "add($0,1.0)")]
    assert texts(found.module) == wanted * len(rows)
    assert [call for call in calls(found.module) if "sluice" not in call] == []
    compare_rows(found)


def test_a_value_with_two_readers_is_written_once() -> None:
    def both(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(x, w, padding=1)
        return F.relu(y) + torch.cumsum(y, -1)

    inputs = tensors((2, 4, 19), (4, 4, 3))
    module = folded(both, *inputs)
    assert texts(module) == [("", "")]
    compare(module, both, inputs)


def test_an_activation_that_several_convolutions_read_is_in_each() -> None:
    def three(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        y = F.silu(torch.cumsum(x, -1))
        return sum(F.conv1d(y, w, padding=1) for w in weights) / 3

    inputs = tensors((2, 4, 19), (4, 4, 3), (4, 4, 3), (4, 4, 3))
    module = folded(three, *inputs)
    assert texts(module) == [("silu()", ""), ("silu()", "add($0,1.0)"), ("silu()", "add($0,1.0)|div(3.0)")] or (
        [pre for pre, _ in texts(module)] == ["silu()"] * 3
    )
    assert [call for call in calls(module) if "sluice" not in call] == ["aten.cumsum.default"]
    compare(module, three, inputs)


def test_an_activation_that_something_else_reads_stays() -> None:
    def shared(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.tanh(x)
        return F.conv1d(y, w), y.sum(-1)

    inputs = tensors((2, 4, 19), (4, 4, 3))
    module = folded(shared, *inputs)
    assert texts(module) == [("", "")]
    compare(module, shared, inputs)


@pytest.mark.parametrize(("takers", "folds"), [(1, True), (3, True), (4, False)])
def test_a_sum_of_tensors_is_written_once_where_many_read_it(takers: int, folds: bool) -> None:
    def several(x: torch.Tensor, other: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
        y = x + other
        return [F.conv1d(y, w) for w in weights]

    inputs = tensors((2, 4, 19), (2, 4, 19), *[(4, 4, 3)] * takers)
    module = folded(several, *inputs)
    assert [pre for pre, _ in texts(module)] == ["add($0,1.0)" if folds else ""] * takers
    compare(module, several, inputs)


def test_both_terms_of_a_sum_may_be_convolutions() -> None:
    def both(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.conv1d(x, w, padding=1) + F.conv1d(x, v))

    inputs = tensors((2, 4, 19), (4, 4, 3), (4, 4, 1))
    module = folded(both, *inputs)
    assert sorted(post for _, post in texts(module)) == ["", "add($0,1.0)|tanh()"]
    compare(module, both, inputs)


LEFT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "broadcast": lambda y: y + torch.ones(3, 1, 1, 1),
    "view": lambda y: torch.relu(y.transpose(1, 2)),
    "reshape": lambda y: torch.relu(y.reshape(2, -1)),
    "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y),
    "celu": lambda y: F.celu(y, 2.0),
    "integers": lambda y: y * torch.arange(17),
    "booleans": lambda y: y * (torch.arange(17) > 3),
    "reciprocal": lambda y: 1 / y,
    "rounded": lambda y: torch.div(y, 3, rounding_mode="floor"),
    "to_integers": lambda y: (y * 9).long(),
    "where": lambda y: torch.where(y > 0.5, y, y * 0.1),
    "other_where": lambda y: torch.where(y > 0, y * 0.1, y),
    "sine": torch.sin,
    "softmax": lambda y: torch.softmax(y, 1),
    "other_half": lambda y: y * 0.5 * (1.0 + torch.erf(y * 0.7)),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_no_chain_computes_is_left(form: str) -> None:
    def function(name: str) -> Callable[..., torch.Tensor]:
        return lambda x, w: LEFT[name](F.conv1d(x, w))

    found = FoldedRows({name: (function(name), tensors((2, 4, 19), (4, 4, 3))) for name in LEFT}, form=form)
    for name in LEFT:
        with naming(name):
            [node] = found.placeholders[name][0].users
            assert str(node.target).startswith("sluice.")
            assert node.kwargs.get("pre", "") == ""
            assert node.kwargs.get("post", "") == ("scale(9.0)" if name == "to_integers" else "")
            assert any(user.op == "call_function" for user in node.users)
    assert len(of_sluice(found.module)) == len(LEFT)
    compare_rows(found, "to_integers", "reciprocal")


def test_a_chain_that_is_full_ends() -> None:
    def many(x: torch.Tensor, w: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(x, w)
        for other in others:
            y = y + other
        for _ in range(24):
            y = torch.tanh(y + 0.5)
        return y

    inputs = tensors((2, 4, 19), (4, 4, 3), *[(4, 17)] * 14)
    module = folded(many, *inputs)
    [node] = of_sluice(module)
    assert len(node.kwargs["post_operands"]) == 12
    assert calls(module).count("aten.add.Tensor") == 2 + 24
    compare(module, many, inputs)
    inputs = tensors((2, 4, 19), (4, 4, 3), (4, 17))
    module = folded(many, *inputs)
    assert texts(module)[0][1].count("|") == 23
    compare(module, many, inputs)


def test_products_of_products_are_not_multiplied_out() -> None:
    def powers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(F.conv1d(x, w))
        z = y + 1
        for _ in range(60):
            z = z * z * 0.5
        return z * y

    inputs = tensors((2, 4, 19), (4, 4, 3))
    module = folded(powers, *inputs)
    assert texts(module) == [("", "tanh()")]
    compare(module, powers, [value / 100 for value in inputs])


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_casts(dtype: torch.dtype) -> None:
    def widened(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.conv1d(x, w).float())

    inputs = tensors((2, 4, 19), (4, 4, 3), dtype=dtype)
    module = folded(widened, *inputs)
    assert of_sluice(module)[0].kwargs == {"post": "gelu()", "dtype": torch.float32}
    with torch.no_grad():
        assert module(*inputs).dtype == torch.float32
        torch.testing.assert_close(module(*inputs), widened(*inputs), rtol=2e-2, atol=2e-2)
    module = folded(lambda x, w: torch.softmax(F.conv1d(x, w).float(), 1), *inputs)
    assert of_sluice(module)[0].kwargs == {}  # written in half, read in whole


def test_a_narrowing_cast_rounds_where_it_stands() -> None:
    def narrowed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.conv1d(x, w).to(torch.bfloat16).float() * 3)

    def ends(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv1d(x, w)).to(torch.float16)

    inputs = tensors((2, 4, 19), (4, 4, 3))
    module = folded(narrowed, *inputs)
    assert texts(module) == [("", "cast(bfloat16)|scale(3.0)|tanh()")]
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), narrowed(*inputs), rtol=1e-2, atol=1e-2)
    module = folded(ends, *inputs)
    assert texts(module) == [("", "relu()|cast(float16)")]
    compare(module, ends, inputs)


def test_extents_of_values_that_are_written_no_more() -> None:
    def sized(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(F.relu(x), w, stride=2)
        z = torch.tanh(y)
        z = F.conv1d(z, v)
        return torch.sigmoid(z) + x.new_ones(z.shape[-1]) * y.shape[-1] + F.relu(x).shape[1]

    def early(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(x, w)
        return torch.tanh(y) * torch.ones(y.shape[-1])

    inputs = tensors((2, 4, 19), (4, 4, 3), (4, 4, 2))
    module = folded(sized, *inputs, mode="symbolic")
    assert [pre for pre, _ in texts(module)] == ["relu()", ""]
    compare(module, sized, inputs)
    longer = tensors((3, 4, 31), (4, 4, 3), (4, 4, 2))
    compare(module, sized, longer)
    inputs = tensors((2, 4, 19), (4, 4, 3))
    module = folded(early, *inputs, mode="symbolic")
    assert texts(module) == [("", "tanh()")]  # what it is multiplied with is as long as it
    compare(module, early, inputs)


# --- convolutions -----------------------------------------------------------------------------------------------------
CONVOLUTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, int, int]]] = {
    "stride": (lambda x, w: F.conv1d(x, w, stride=2, padding=3, dilation=2), (6, 4, 3)),
    "depthwise": (lambda x, w: F.conv1d(x, w, padding=1, groups=4), (4, 1, 3)),
    "transposed": (lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=1, output_padding=2), (4, 5, 4)),
    "transposed_groups": (lambda x, w: F.conv_transpose1d(x, w, stride=2, groups=2, dilation=2), (4, 3, 4)),
    "same": (lambda x, w: F.conv1d(x, w, padding="same"), (4, 4, 4)),
    "causal": (lambda x, w: F.conv1d(F.pad(x, (4, 0)), w, dilation=2), (4, 4, 3)),
    "padded": (lambda x, w: F.conv1d(F.pad(x, (1, 3)), w, padding=2), (4, 4, 3)),
}  # fmt: skip


def convolved(name: str) -> Callable[..., torch.Tensor]:
    return lambda x, w: torch.tanh(CONVOLUTIONS[name][0](F.elu(x), w))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_every_convolution(mode: str) -> None:
    names = [name for name in CONVOLUTIONS if mode == "fake" or name != "same"]
    rows = {
        (name, dtype): (convolved(name), tensors((2, 4, 19), CONVOLUTIONS[name][1], dtype=dtype))
        for name in names
        for dtype in (DTYPES if mode == "fake" else [torch.float32])
    }
    found = FoldedRows(rows, mode=mode)
    for name in rows:
        with naming(*name):
            node = found.only_node(name)
            assert (node.kwargs.get("pre", ""), node.kwargs.get("post", "")) == ("elu(1.0)", "tanh()")
            assert node.all_input_nodes == found.placeholders[name]
    assert len(calls(found.module)) == len(rows)
    compare_rows(found)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_a_padding_that_is_a_symbol_stays() -> None:  # as the taps are
    assert of_sluice(folded(convolved("same"), *tensors((2, 4, 19), CONVOLUTIONS["same"][1]), mode="symbolic")) == []


@pytest.mark.parametrize("pad", [(-1, 2), (1, 1, 1, 1)])
def test_a_pad_that_is_no_padding_stays(pad: tuple[int, ...]) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv1d(F.pad(F.relu(x), pad), w)

    inputs = tensors((2, 4, 19), (4, 4 if len(pad) == 2 else 6, 3))
    module = folded(function, *inputs)
    assert texts(module) == [("relu()" if len(pad) == 2 else "", "")]
    assert "aten.constant_pad_nd.default" in calls(module)
    compare(module, function, inputs)
    value = folded(lambda x, w: F.conv1d(F.pad(x, (1, 1), value=1.0), w), *tensors((2, 4, 19), (4, 4, 3)))
    assert "aten.constant_pad_nd.default" in calls(value)


OTHERS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor], str]] = {
    "two_dimensions": (F.conv2d, [torch.randn(1, 2, 5, 5), torch.randn(2, 2, 3, 3)], "it has 2 dimensions"),
    "three_dimensions": (F.conv3d, [torch.randn(1, 2, 5, 5, 5), torch.randn(2, 2, 3, 3, 3)], "it has 3 dimensions"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_stay_and_the_log_says_why(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function, inputs, reason = OTHERS[name]
    with caplog.at_level(logging.DEBUG, "sluice.compile"):
        module = folded(function, *inputs)
    assert of_sluice(module) == []
    assert reason in caplog.text
    torch.testing.assert_close(module(*inputs), function(*inputs))


def test_the_log_says_what_was_folded_and_where_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sluice.compile"):
        folded(lambda x, w: torch.sin(F.relu(F.conv1d(x, w))), *tensors((2, 4, 19), (4, 4, 3)))
    assert "convolution is conv1d now, with pre='' and post='relu()'; relu is read by sin" in caplog.text


# --- strides and writes -----------------------------------------------------------------------------------------------
def channels_last(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.conv1d(x.transpose(1, 2), w)).transpose(1, 2)


def test_other_strides_where_nothing_reads_them() -> None:
    inputs = tensors((2, 19, 4), (4, 4, 3))
    module = folded(channels_last, *inputs)
    assert texts(module) == [("", "gelu()")]
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), channels_last(*inputs))


def test_other_strides_where_something_reads_them(caplog: pytest.LogCaptureFixture) -> None:
    def read(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(x.transpose(1, 2), w)
        return torch.as_strided(y, (5,), (1,)) if y.is_contiguous() else torch.as_strided(y, (5,), (2,))

    inputs = tensors((2, 19, 4), (4, 4, 3))
    with caplog.at_level(logging.DEBUG, "sluice.compile"):
        module = folded(read, *inputs)
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), read(*inputs))
    assert of_sluice(module) != [] or "other strides, which as_strided reads" in caplog.text


def test_no_op_is_moved_behind_a_write() -> None:
    def writes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(x, w)
        x.mul_(2)
        return torch.tanh(y) + x.sum()

    inputs = tensors((2, 4, 19), (4, 4, 3))
    module = folded(writes, *inputs)
    assert texts(module) == [("", "")]
    with torch.no_grad():
        torch.testing.assert_close(module(inputs[0].clone(), inputs[1]), writes(*inputs))


def test_permuted_inputs(device: str) -> None:
    inputs = tensors((2, 4, 19), (4, 4, 3), (4, 4, 3))
    inputs[0] = permuted(inputs[0])
    module = folded(residual_block, *inputs)
    assert len(of_sluice(module)) == 2
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), residual_block(*inputs))


@pytest.mark.parametrize(
    ("dtype", "groups", "count"),
    [
        (torch.float32, 1, 0),
        (torch.float32, 4, 0),
        (torch.float32, 8, 1),
        (torch.float16, 1, 1),
        (torch.bfloat16, 4, 1),
    ],
)
def test_what_torchs_kernel_sums_on_a_gpu_is_left_to_inductor(dtype: torch.dtype, groups: int, count: int) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 8, 20, device="cuda", dtype=dtype)
        weight = torch.empty(8, 8 // groups, 3, device="cuda", dtype=dtype)
        graph = folded(lambda x, w: F.conv1d(x, w, groups=groups).relu(), x, weight, mode="real")
    assert len(of_sluice(graph)) == count
