"""Gates in the pass: products with a sigmoid and `glu`, before convolutions, behind them and alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, assert_close
from compiled_graphs import FORMS, FoldedRows, calls, folded, of_sluice, traced
from rows import naming
from sluice.compile.gates import glus_as_gates
from sluice.compile.transforms import fold_transforms

pytestmark = pytest.mark.no_gpu
Gate = Callable[[torch.Tensor], torch.Tensor]


def halves(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return y[:, :4], y[:, 4:]


def wavenet(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(a) * torch.sigmoid(b)


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]


# By name: a function of (2, 8, 19), whose result has half the elements, and the chain that it becomes.
AHEAD: dict[str, tuple[Gate, str]] = {
    "glu": (lambda y: F.glu(y, dim=1), "gate($0)"),
    "glu_and_more": (lambda y: F.gelu(F.glu(y, dim=-2) * 2), "gate($0)|scale(2.0)|gelu()"),
    "sliced": (lambda y: wavenet(*halves(y)), "tanh()|gate($0)"),
    "chunked": (lambda y: wavenet(*y.chunk(2, dim=1)), "tanh()|gate($0)"),
    "split": (lambda y: wavenet(*torch.split(y, [4, 4], dim=1)), "tanh()|gate($0)"),
    "narrowed": (lambda y: wavenet(y.narrow(1, 0, 4), y.narrow(1, 4, 4)), "tanh()|gate($0)"),
    "sigmoid_first": (lambda y: torch.sigmoid(y[:, 4:]) * torch.tanh(y[:, :4]), "tanh()|gate($0)"),
    "product": (lambda y: y[:, :4] * torch.sigmoid(y[:, 4:]), "gate($0)"),
    "two_sigmoids": (lambda y: torch.sigmoid(y[:, :4]) * torch.sigmoid(y[:, 4:]), "sigmoid()|gate($0)"),
    "swiglu": (lambda y: F.silu(y[:, :4]) * y[:, 4:], "silu()|mul($0)"),
    "more_in_the_sigmoid": (lambda y: y[:, :4] * torch.sigmoid(y[:, 4:] + 0.5), "shift(0.5)|sigmoid()|mul($0)"),
    "a_step_for_a_channel": (lambda y: y[:, :4] * torch.sigmoid(y[:, 4:].mean(-1, keepdim=True)), "mul($0)"),
}


def before(gate: Gate) -> Callable[..., torch.Tensor]:
    return lambda x, w: F.conv1d(gate(torch.cumsum(x, -1).reshape(2, 8, -1)), w, padding=1)


@pytest.mark.parametrize(("form", "mode"), [("kept", "fake"), ("decomposed", "fake"), ("kept", "symbolic")])
def test_gates_before_a_convolution(form: str, mode: str) -> None:
    names = AHEAD if mode == "fake" else ("glu", "chunked", "product", "a_step_for_a_channel")
    rows = {
        (name, dtype): (before(AHEAD[name][0]), tensors((2, 8, 19), (4, 4, 3), dtype=dtype))
        for name in names
        for dtype in (DTYPES if name in ("glu", "sliced") and mode == "fake" else [torch.float32])
    }
    found = FoldedRows(rows, form=form, mode=mode)
    convolutions = of_sluice(found.module)
    assert [node.kwargs.get("pre", "") for node in convolutions] == [AHEAD[name][1] for name, _ in rows]
    for (name, dtype), (function, inputs) in rows.items():
        with naming(name, dtype), torch.no_grad():
            result, expected = found.results[name, dtype], function(*[value.double() for value in inputs])
            assert (result.dtype, result.stride()) == (dtype, expected.stride())
            assert_close(result, expected, factor=10)
    left = {"aten.tanh.default", "aten.mul.Tensor", "aten.glu.default"}.intersection(calls(found.module))
    assert left == set()
    assert calls(found.module).count("aten.sigmoid.default") == sum(name == "a_step_for_a_channel" for name, _ in rows)


def test_gates_behind_a_convolution() -> None:
    def plain(x: torch.Tensor, w: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, w) * torch.sigmoid(torch.flip(other, (-1,)))

    def two(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.tanh(F.conv1d(x, w)) * torch.sigmoid(F.conv1d(x, v)))

    def of_channels(x: torch.Tensor, w: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, w) * torch.sigmoid(torch.flip(other, (0,)))

    rows = {
        "plain": (plain, tensors((2, 4, 19), (4, 4, 3), (2, 4, 17))),
        "two": (two, tensors((2, 4, 19), (4, 4, 3), (4, 4, 3))),
        "of_channels": (of_channels, tensors((2, 4, 19), (4, 4, 3), (4, 1))),
    }
    found = FoldedRows(rows)
    posts = sorted(node.kwargs.get("post", "") for node in of_sluice(found.module))
    assert posts == ["", "gate($0)", "mul($0)", "tanh()|gate($0)|relu()"]
    assert calls(found.module).count("aten.sigmoid.default") == 1  # one for each channel
    for name, (function, inputs) in rows.items():
        with naming(name), torch.no_grad():
            assert_close(found.results[name], function(*[value.double() for value in inputs]), factor=10)


def test_a_gate_that_two_convolutions_read_is_in_both() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = wavenet(*halves(torch.cumsum(x, -1)))
        return F.conv1d(y, w) + F.conv1d(y, v)

    inputs = tensors((2, 8, 19), (4, 4, 3), (4, 4, 3))
    module = folded(layer, *inputs)
    assert [node.kwargs["pre"] for node in of_sluice(module)] == ["tanh()|gate($0)"] * 2
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), layer(*inputs))


STAY: dict[str, tuple[Callable[..., object], list[str]]] = {
    "the sigmoid is a result": (
        lambda y, w: (lambda s: (F.conv1d(torch.tanh(y[:, :4]) * s, w), s))(torch.sigmoid(y[:, 4:])),
        ["tanh()|mul($0)"],
    ),
    "the value is a result": (
        lambda y, w: (lambda z: (F.conv1d(z, w), z))(F.glu(y, dim=1)),
        [""],
    ),
    "a write after the sigmoid": (
        lambda y, w: _written(y, w, lambda a, s: torch.tanh(a) * s),
        ["tanh()|mul($0)"],
    ),
    "a write in a silu": (
        lambda y, w: _written(y, w, lambda a, s: a * s, 0),
        ["mul($0)"],
    ),
}  # fmt: skip


def _written(y: torch.Tensor, w: torch.Tensor, join: Callable[..., torch.Tensor], first: int = 4) -> torch.Tensor:
    a, b = y[:, :4], y[:, first : first + 4]
    gate = torch.sigmoid(a if first == 0 else b)
    y.mul_(2)
    return F.conv1d(join(a, gate), w)


@pytest.mark.parametrize("case", STAY)
def test_gates_that_stay(case: str) -> None:
    function, pre = STAY[case]
    inputs = tensors((2, 8, 19), (4, 4, 3))
    module = folded(function, *inputs)
    assert [node.kwargs.get("pre", "") for node in of_sluice(module)] == pre  # and no transform
    with torch.no_grad():
        result, expected = ([value.clone() for value in inputs] for _ in range(2))
        torch.testing.assert_close(module(*result), function(*expected))
    torch.testing.assert_close(result, expected)


ALONE: dict[str, tuple[Gate, list[str]]] = {
    "glu": (lambda y: F.glu(y, dim=1), ["aten.glu.default"]),
    "glu_of_positions": (lambda y: F.glu(y), ["aten.glu.default"]),
    "glu_twice": (lambda y: F.glu(F.glu(y, dim=1), dim=1), ["aten.glu.default"] * 2),
    "glu_and_more": (lambda y: F.relu(F.glu(y, dim=1)), ["gate($0)|relu()"]),
    "glu_of_sums": (lambda y: F.glu(y * 2 + 1, dim=1), ["scale(2.0)|shift(1.0)", "aten.glu.default"]),
    "wavenet": (lambda y: wavenet(*halves(y)), ["tanh()|gate($0)"]),
    "product": (lambda y: torch.sigmoid(y[:, 4:]) * y[:, :4], ["gate($0)"]),
    "quick_gelu": (lambda y: y * torch.sigmoid(1.702 * y), ["scale(1.702)|sigmoid()|mul($0)"]),
    "both_sides": (
        lambda y: torch.tanh(y[:, :4] + 1) * torch.sigmoid(y[:, 4:] - 1),
        ["aten.sub.Tensor", "shift(1.0)|tanh()|gate($0)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ALONE)
def test_gates_that_stand_alone(case: str) -> None:
    function, expected = ALONE[case]
    for shape in ((2, 8, 18), (8, 8)):
        [y] = tensors(shape)
        for given in (y, y.movedim(0, -1).contiguous().movedim(-1, 0), y.repeat_interleave(2, 0)[::2]):
            module = traced(function, given, form="kept")
            with glus_as_gates(module.graph):
                fold_transforms(module.graph)
            module.graph.lint()
            module.recompile()
            nodes = [node for node in module.graph.nodes if node.op == "call_function"]
            of_all = [str(node.args[1]) if node in of_sluice(module) else str(node.target) for node in nodes]
            assert [one for one in of_all if one not in ("aten.slice.Tensor",)] == expected
            result, wanted = module(given), function(given)
            assert result.stride() == wanted.stride()
            torch.testing.assert_close(result, wanted)


def test_the_compiler_pass_takes_a_glu() -> None:
    inputs = tensors((2, 8, 19), (4, 4, 3))
    module = traced(lambda x, w: F.glu(F.conv1d(F.glu(x, dim=1), w), dim=1), *inputs)
    sluice.compile.passes(module.graph, is_inference=True)
    names = [name for name in calls(module) if name != "aten.slice.Tensor"]
    assert names == ["sluice.conv1d.default", "aten.glu.default"]
    assert of_sluice(module)[0].kwargs["pre"] == "gate($0)"


@pytest.mark.parametrize("form", FORMS)
def test_a_glu_behind_a_convolution_stays(form: str) -> None:
    inputs = tensors((2, 4, 19), (8, 4, 3))
    module = folded(lambda x, w: F.glu(F.conv1d(x, w), dim=1), *inputs, form=form)
    assert calls(module) == ["sluice.conv1d.default", "aten.glu.default"]
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), F.glu(F.conv1d(*inputs), dim=1))
