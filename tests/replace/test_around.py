"""What other code does to swapped modules: scripts and traces them, patches them, and gives them attributes."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from sluice import stages

pytestmark = [
    pytest.mark.no_gpu,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

# One of each class that is swapped, and an input.
KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(4, 4, 3, padding=1, groups=4), (2, 4, 9)),
    "reflecting Conv1d": (
        lambda: nn.Conv1d(4, 4, 3, padding=1, groups=4, padding_mode="reflect", bias=False),
        (2, 4, 9),
    ),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=4), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 5, 6)),
}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """torch's module, the same one swapped, and an input."""
    torch.manual_seed(3)
    make, shape = KINDS[request.param]
    theirs = make().eval()
    swapped = sluice.replace(copy.deepcopy(theirs)).model
    assert type(swapped) is not type(theirs)
    return theirs, swapped, torch.randn(shape)


def check(module: Callable[..., torch.Tensor], theirs: nn.Module, x: torch.Tensor) -> None:
    """Two calls have the results of torch's module: the second call may take another way."""
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(module(x), theirs(x), rtol=1e-5, atol=1e-5)


# --- TorchScript and torch.fx -----------------------------------------------------------------------------------------
def test_swapped_modules_are_scripted_and_traced(pair: Any) -> None:
    theirs, swapped, x = pair
    check(torch.jit.script(swapped), theirs, x)
    model = nn.Sequential(nn.Tanh(), swapped)
    check(torch.jit.script(model), nn.Sequential(nn.Tanh(), theirs), x)
    assert model[1] is swapped
    assert "sluice" in type(swapped).__module__
    with torch.no_grad():
        check(torch.jit.trace(swapped, x), theirs, x)


class Unit(nn.Module):
    """A residual unit with a loop; its forward has names that only this file knows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 4, 3, padding=1, groups=4)
        self.second = nn.Conv1d(4, 4, 3, padding=1, groups=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(F.leaky_relu(x, 0.1))
        return x + self.second(F.leaky_relu(y, 0.1))


class Padded(nn.Module):
    """A convolution with its own padding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, groups=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (2, 0)))


def test_whole_models_are_scripted_and_traced() -> None:
    theirs = nn.Sequential(Unit(), nn.Tanh(), Padded(), nn.ELU(), nn.ConvTranspose1d(4, 4, 4, 2, groups=4)).eval()
    model = copy.deepcopy(theirs)
    replacement = sluice.replace(model)
    kinds = [type(module) for module in model.modules()]
    assert not {nn.Conv1d, nn.ConvTranspose1d} & set(kinds)
    x = torch.randn(2, 4, 9)
    check(torch.jit.script(model), theirs, x)
    with torch.no_grad():
        check(torch.jit.trace(model, x), theirs, x)
    assert [type(module) for module in model.modules()] == kinds
    check(model, theirs, x)
    assert [type(module) for module in replacement.undo().modules()] == [type(module) for module in theirs.modules()]


@pytest.mark.parametrize(
    "layer",
    [
        sluice.nn.Conv1d(4, 4, 3, post="relu()"),
        sluice.nn.ConvTranspose1d(4, 4, 3, pre=nn.ReLU()),
        sluice.nn.CausalConv1d(4, 3),
        sluice.nn.Transform("tanh()"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_modules_with_chains_refuse_scripts(layer: nn.Module) -> None:
    rule = "a module must have a forward of torch and no chains for torch.jit.script"
    message = f"{type(layer).__name__}: {rule}; torch.jit.trace and torch.export take this one"
    for one in (layer, nn.Sequential(layer)):
        with pytest.raises(TypeError, match=f"^{message}$"):
            torch.jit.script(one)
    x = torch.randn(2, 4, 9)
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.trace(layer, x)(x), layer(x))


def test_a_swapped_root_is_traced_by_fx(pair: Any) -> None:
    theirs, swapped, x = pair
    check(swapped, theirs, x)
    if not isinstance(theirs, nn.ConvTranspose1d):  # torch.fx does not trace torch's either: it asks for output_size
        graph = torch.fx.symbolic_trace(swapped)
        assert [node.target for node in graph.graph.nodes if node.op == "placeholder"] == ["input"]
        check(graph, theirs, x)
        check(copy.deepcopy(graph), theirs, x)
    graph = torch.fx.symbolic_trace(swapped, concrete_args={"output_size": None} if theirs.transposed else None)
    check(graph, theirs, x)


# --- devices without autocast -----------------------------------------------------------------------------------------
def test_calls_on_the_meta_device(pair: Any) -> None:
    theirs, swapped, x = pair
    for module in (swapped.to("meta"), nn.Sequential(nn.Tanh(), swapped)):
        with torch.no_grad():
            for _ in range(2):
                assert module(x.to("meta")).shape == theirs(x).shape
            with torch.autocast("cpu", torch.bfloat16):
                assert module(x.to("meta")).dtype == x.dtype


# --- patches ----------------------------------------------------------------------------------------------------------
def _loud(self: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return F.conv1d(input * 2, weight, bias, padding=1, groups=self.groups)


def test_a_patched_convolution_stays() -> None:
    layer = nn.Conv1d(4, 4, 3, padding=1, groups=4)
    layer._conv_forward = types.MethodType(_loud, layer)  # type: ignore[method-assign]
    other = nn.ConvTranspose1d(4, 4, 3)
    other._output_padding = lambda *_: (0,)  # type: ignore[assignment,method-assign,return-value]
    rows = sluice.replace(nn.Sequential(layer, other)).rows
    assert [type(layer), type(other)] == [nn.Conv1d, nn.ConvTranspose1d]
    names = "_conv_forward", "_output_padding"
    assert [row.note for row in rows] == [f"its {name} has been replaced" for name in names]


def test_a_patch_of_torchs_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped, x = sluice.replace(nn.Conv1d(4, 4, 3, padding=1, groups=4)).model, torch.randn(2, 4, 9)
    check(swapped, copy.deepcopy(swapped), x)
    monkeypatch.setattr(nn.Conv1d, "_conv_forward", _loud)
    check(swapped, lambda x: F.conv1d(x * 2, swapped.weight, swapped.bias, padding=1, groups=4), x)  # type: ignore[arg-type]
    row = sluice.replace(nn.Conv1d(4, 4, 3, padding=1, groups=4)).rows[0]
    assert row.note == "its _conv_forward has been replaced"


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
def test_a_later_patch_runs(kind: Any) -> None:
    """Also within a folded forward, and where a class in between has it."""
    dims = 1 if kind is nn.Conv1d else 2
    x = torch.randn(2, 4, *[7] * dims)
    theirs = nn.Sequential(nn.Tanh(), kind(4, 4, 3, padding=1, groups=4), nn.Sigmoid()).eval()
    model = sluice.replace(copy.deepcopy(theirs)).model
    check(model, theirs, x)

    def loud(self: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return kind._conv_forward(self, input * 2, weight, bias)

    for module in (model[1], theirs[1]):
        module._conv_forward = types.MethodType(loud, module)
    check(model[1], theirs[1], x)
    check(model, theirs, x)
    for module in (model[1], theirs[1]):
        del module._conv_forward
        module.__class__ = type("Loud", (type(module),), {"_conv_forward": loud})
    check(model[1], theirs[1], x)
    check(model, theirs, x)


def test_a_later_patch_of_the_output_padding_runs() -> None:
    theirs = nn.ConvTranspose1d(4, 4, 4, 2, groups=4)
    swapped, x = sluice.replace(copy.deepcopy(theirs)).model, torch.randn(2, 4, 7)
    check(swapped, theirs, x)
    for module in (theirs, swapped):
        module._output_padding = lambda *_: (1,)  # type: ignore[assignment,method-assign,return-value]
    check(swapped, theirs, x)


# --- attributes of the module's owner ---------------------------------------------------------------------------------
NAMES = (
    "pre", "post", "_last", "_packed", "chain", "chain_names", "set_chain", "is_torchs", "with_gradients", "raw_call",
    "shown_chains", "_operands", "_is_torchs", "last", "packed", "chains", "stages", "_by_torch",
)  # fmt: skip


def _values() -> list[Any]:
    return [nn.ReLU(), stages.relu(), torch.ones(2), 3, "text", nn.Parameter(torch.ones(3), requires_grad=False)]


@pytest.mark.parametrize("is_later", [False, True])
def test_attributes_of_the_owner_are_kept_and_never_run(pair: Any, is_later: bool) -> None:
    theirs, _, x = pair
    for values in (_values(), _values()[3:] + _values()[:3]):
        own = dict(zip(NAMES, values * 3, strict=True))
        model = nn.Sequential(copy.deepcopy(theirs), nn.Tanh()).eval()
        if not is_later:
            for name, value in own.items():
                setattr(model[0], name, value)
        replacement = sluice.replace(model)
        if is_later:
            for name, value in own.items():
                setattr(model[0], name, value)
        assert isinstance(model[0], type(theirs))
        assert type(model[0]) is not type(theirs)
        for one in (model, copy.deepcopy(model)):
            check(one, nn.Sequential(theirs, nn.Tanh()), x)
            check(one[0], theirs, x)
        assert repr(theirs).removesuffix(")").partition("(")[2] in repr(model[0])
        assert all(getattr(model[0], name) is value for name, value in own.items())
        replacement.undo()
        assert all(getattr(model[0], name) is value for name, value in own.items())
        assert type(model[0]) is type(theirs)
        check(model[0], theirs, x)


def test_parents_add_no_public_name() -> None:
    model = nn.Sequential(Unit(), Padded())
    before = [set(dir(module)) for module in model.modules()]
    sluice.replace(model)
    for module, names in zip(model.modules(), before, strict=True):
        added = {name for name in set(dir(module)) - names if not name.startswith("_sluice")}
        assert added <= {"__prepare_scriptable__", "__jit_ignored_attributes__"}


def test_no_public_name_is_added(pair: Any) -> None:
    theirs, swapped, _ = pair
    assert {name for name in dir(swapped) if not name.startswith("_sluice")} - set(dir(theirs)) <= {
        "__prepare_scriptable__"
    }
    theirs._sluice = 3
    assert sluice.replace(theirs).rows[0].note == "has an attribute _sluice"


def test_chains_of_the_constructor_stay_public() -> None:
    layer, x = sluice.nn.Conv1d(4, 4, 3, groups=4, post=stages.relu()), torch.randn(2, 4, 9)
    with torch.no_grad():
        assert float(layer(x).min()) >= 0
        layer.post = None
        plain = layer(x)
        for pre, ahead in ((stages.scale(2.0), x * 2), (nn.LeakyReLU(0.5), F.leaky_relu(x, 0.5))):
            layer.pre = pre
            for one in (layer, copy.deepcopy(layer)):
                torch.testing.assert_close(one(x), F.conv1d(ahead, layer.weight, layer.bias, groups=4))
        layer.pre = None
        torch.testing.assert_close(layer(x), plain)
