"""sluice.replace: which modules are swapped, what stays of them, and the way back."""

from __future__ import annotations

import copy
import cProfile
import io
import pickle
import sys
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.profiler import ProfilerActivity, profile

import sluice
from common import DTYPES, assert_close

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:.*(weight_norm|spectral_norm).*:FutureWarning")]
NORMS = {
    "weight_norm": parametrizations.weight_norm,
    "old weight_norm": torch.nn.utils.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "old spectral_norm": torch.nn.utils.spectral_norm,
}


def stem() -> nn.Sequential:
    """One of each class that is swapped."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv1d(4, 8, 3, padding=1, groups=4), nn.LeakyReLU(0.1), nn.ConvTranspose1d(8, 8, 4, 2, 1, groups=8),
        nn.ELU(), nn.Unflatten(1, (8, 1)), nn.Conv2d(8, 8, (1, 5), padding="same", groups=8), nn.Flatten(1, 2),
    )  # fmt: skip


def state_of(model: nn.Module) -> list[tuple[type, dict[str, Any]]]:
    """Every module's class and attributes, dictionaries by what they hold."""
    return [
        (type(module), {k: dict(v) if isinstance(v, dict) else v for k, v in module.__dict__.items()})
        for module in model.modules()
    ]


def assert_same_state(model: nn.Module, before: list[tuple[type, dict[str, Any]]]) -> None:
    for (kind, attributes), (former, then) in zip(state_of(model), before, strict=True):
        assert kind is former
        assert list(attributes) == list(then)
        for name, value in then.items():
            now = attributes[name]
            if isinstance(value, dict):
                assert list(now) == list(value)
                assert all(now[key] is value[key] for key in value)
            elif name == "__jit_ignored_attributes__":
                assert now == value
            else:
                assert now is value


def results(model: nn.Module, *args: Any) -> Any:
    with torch.no_grad():
        return model(*args)


# --- what is swapped --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_modules_are_swapped_in_place(device: str, dtype: torch.dtype) -> None:
    model = stem().eval().to(device, dtype)
    twin, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    parts, keys = list(model), list(model.state_dict())
    replacement = sluice.replace(model)
    assert replacement.model is model
    assert all(a is b for a, b in zip(model, parts, strict=True))
    assert isinstance(model[0], nn.Conv1d)
    assert [type(model[i]) for i in (0, 2)] == [sluice.nn.Conv1d, sluice.nn.ConvTranspose1d]
    assert isinstance(model[5], nn.Conv2d)
    assert type(model[5]) is not nn.Conv2d
    assert list(model.state_dict()) == keys
    for length in (16, 29):
        x = torch.randn(2, 4, length, device=device, dtype=dtype)
        result = results(model, x)
        assert (result.dtype, result.shape) == (dtype, results(twin, x).shape)
        assert_close(result, results(wide, x.double()), factor=4)
    assert [(row.module, row.now, row.folded) for row in replacement.rows] == [
        ("0", "sluice.nn.Conv1d", "post: leaky_relu(0.1)"), ("2", "sluice.nn.ConvTranspose1d", "post: elu(1.0)"),
        ("5", "sluice.filter2d", ""),
    ]  # fmt: skip


def test_what_stays_says_why() -> None:
    class Own(nn.Conv1d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2

    class Named(nn.Conv1d):
        pass

    replaced = nn.Conv1d(4, 4, 1)
    replaced.forward = lambda x: x  # type: ignore[method-assign]
    model = nn.ModuleList([Own(4, 4, 3), Named(4, 4, 3), replaced, nn.Conv1d(4, 4, 1), nn.LazyConv1d(4, 3)])
    model.extend([nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 1, groups=4), nn.Conv2d(4, 8, 3, groups=4)])
    model.append(torch.ao.nn.quantized.Conv1d(4, 4, 3))
    kinds = [type(module) for module in model]
    replacement = sluice.replace(model, only=lambda name, module: name != "3")
    assert [type(module) for module in model] == kinds
    notes = {row.module: row.note for row in replacement.rows}
    assert notes == {
        "0": "has a forward of its own", "1": "a subclass, Named", "2": "its forward has been replaced",
        "3": "`only` leaves it", "4": "a subclass, LazyConv1d", "8": "is quantised",
    }  # fmt: skip


def test_only_takes_names_and_modules() -> None:
    model, seen = stem(), []

    def only(name: str, module: nn.Module) -> bool:
        seen.append((name, module))
        return name == "2"

    sluice.replace(model, only=only)
    assert [(name, id(module)) for name, module in seen] == [(name, id(model[int(name)])) for name in ("0", "2", "5")]
    assert [type(model[i]) for i in (0, 2)] == [nn.Conv1d, sluice.nn.ConvTranspose1d]


def test_refusals() -> None:
    with pytest.raises(TypeError, match=r"replace: model must be a torch.nn.Module, got list"):
        sluice.replace([])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="replace: only must be a function of a name and a module, got str"):
        sluice.replace(stem(), only="0")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("options", [{}, {"padding": (1, 2)}, {"padding": "same"}, {"stride": 2, "dilation": (1, 2)}])
def test_depthwise_images(device: str, options: dict[str, Any], mode: str) -> None:
    layer = nn.Conv2d(6, 6, (3, 4), groups=6, padding_mode=mode, **options).to(device)
    twin = copy.deepcopy(layer).double()
    model = nn.Sequential(nn.SiLU(), layer, nn.Tanh()).eval()
    sluice.replace(model)
    for shape in ((2, 6, 9, 11), (6, 7, 8)):
        x = torch.randn(shape, device=device)
        assert_close(results(model, x), results(twin, F.silu(x.double())).tanh())
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        assert model(torch.randn(2, 6, 9, 11, device=device)).dtype == torch.bfloat16


# --- the way back -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("norm", [None, *NORMS])
def test_undo_leaves_no_trace(norm: str | None) -> None:
    model = stem()
    if norm is not None:
        NORMS[norm](model[0])
    before = state_of(model)
    replacement = sluice.replace(model)
    assert type(model[0]) is not before[1][0]
    assert model._compiled_call_impl is not None
    assert replacement.undo() is model
    assert_same_state(model, before)
    replacement.undo()
    assert_same_state(model, before)


def test_a_dry_run_changes_nothing() -> None:
    model = stem()
    before = state_of(model)
    dry = sluice.replace(model, dry_run=True)
    assert_same_state(model, before)
    assert dry.rows == sluice.replace(model).rows  # before a call
    assert str(dry).splitlines()[0].split() == ["module", "was", "is", "now", "folded", "why", "not"]
    assert "sluice.nn.ConvTranspose1d" in str(dry)


def test_a_failure_in_only_changes_nothing() -> None:
    model = stem()
    before = state_of(model)
    with pytest.raises(ZeroDivisionError):
        sluice.replace(model, only=lambda name, module: name == "0" or 1 // 0)
    assert_same_state(model, before)


def test_twice_changes_nothing() -> None:
    model = stem()
    first = sluice.replace(model)
    before = state_of(model)
    second = sluice.replace(model)
    assert_same_state(model, before)
    assert {row.note for row in second.rows} == {"is sluice's already"}
    second.undo()
    assert_same_state(model, before)
    first.undo()
    assert type(model) is nn.Sequential


def test_more_may_be_swapped_later() -> None:
    model = stem().eval()
    original = state_of(model)
    first = sluice.replace(model, only=lambda name, module: name == "0")
    x = torch.randn(2, 4, 16)
    expected, halfway = results(model, x), state_of(model)
    second = sluice.replace(model)
    torch.testing.assert_close(results(model, x), expected)
    assert [row.folded for row in second.rows if row.module == "2"] == ["post: elu(1.0)"]
    assert [row.folded for row in first.rows if row.module == "0"] == ["post: leaky_relu(0.1)"]
    second.undo()
    assert_same_state(model, halfway)
    first.undo()
    assert_same_state(model, original)


# --- norms ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("norm", NORMS)
def test_norms_follow_their_factors(device: str, norm: str) -> None:
    def make() -> nn.Sequential:
        convolutions = NORMS[norm](nn.Conv1d(4, 4, 3, groups=4)), NORMS[norm](nn.ConvTranspose1d(4, 6, 4))
        return nn.Sequential(nn.Tanh(), convolutions[0], nn.ELU(), convolutions[1]).to(device, torch.float64).eval()

    def check() -> None:
        torch.testing.assert_close(results(model, x), results(twin, x))
        for one, other in zip(model[1::2], twin[1::2], strict=True):  # outside of the traced model
            torch.testing.assert_close(results(one, x[:, : one.in_channels]), results(other, x[:, : one.in_channels]))

    model, twin = make(), make()
    twin.load_state_dict(model.state_dict())
    replacement = sluice.replace(model)
    x = torch.randn(2, 4, 15, device=device, dtype=torch.float64)
    check()
    assert replacement.rows[0].folded == "pre: tanh(), post: elu(1.0)"
    check()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        with torch.no_grad():
            other.copy_(parameter.uniform_(0.5, 1.0))
    check()
    torch.testing.assert_close(model.train()(x), twin.train()(x))  # a step of spectral_norm's power iteration
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)
    model.eval(), twin.eval()
    check()
    replacement.undo()
    check()


@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_is_computed_once(norm: str) -> None:
    """Also where the model is not traced."""
    layer = NORMS[norm](nn.Conv1d(4, 4, 3)).eval()
    model = nn.Sequential(copy.deepcopy(layer) if norm in ("weight_norm", "spectral_norm") else layer)
    sluice.replace(model, fold=False)
    x, counts = torch.randn(2, 4, 15), []
    for _ in range(3):
        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as recorded:
            model(x)
        counts.append(sum(event.name in ("aten::_weight_norm", "aten::mv", "aten::dot") for event in recorded.events()))
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


@pytest.mark.parametrize("norm", NORMS)
def test_a_weight_of_inference_mode_has_a_backward_later(norm: str) -> None:
    # The slope is nowhere zero, which tanh's is for the weight that spectral_norm makes of some vectors.
    model = nn.Sequential(NORMS[norm](nn.Conv1d(4, 4, 3)), nn.LeakyReLU(0.1)).eval().requires_grad_(False)
    sluice.replace(model, fold=False)
    with torch.inference_mode():
        expected = model(torch.ones(2, 4, 15))
    x = torch.ones(2, 4, 15, requires_grad=True)
    y = model(x)
    torch.testing.assert_close(y.detach(), expected)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.any()


def test_a_parametrization_may_come_and_go_in_between() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Conv1d(4, 4, 3, groups=4)), nn.Conv1d(4, 4, 1, groups=4))
    replacement = sluice.replace(model)
    x = torch.randn(2, 4, 15)
    expected = results(model, x)
    parametrize.remove_parametrizations(model[0], "weight")
    parametrizations.weight_norm(model[1])
    assert type(model[0]) is sluice.nn.Conv1d
    torch.testing.assert_close(results(model, x), expected)
    replacement.undo()
    assert type(model[0]) is nn.Conv1d
    assert parametrize.type_before_parametrizations(model[1]) is nn.Conv1d
    torch.testing.assert_close(results(model, x), expected)


# --- what users do with modules ---------------------------------------------------------------------------------------
def test_shared_modules_and_tied_weights() -> None:
    shared, tied = (nn.Conv1d(4, 4, 3, padding=1, groups=4) for _ in range(2))
    tied.weight = shared.weight
    model = nn.Sequential(shared, nn.Tanh(), tied, shared, nn.ReLU()).eval()
    twin = copy.deepcopy(model)
    sluice.replace(model)
    assert model[0] is model[3]
    assert model[2].weight is model[0].weight
    x = torch.randn(2, 4, 15)
    torch.testing.assert_close(results(model, x), results(twin, x))


def test_new_weights_copies_and_files() -> None:
    model, other = stem().eval(), stem().eval()
    sluice.replace(model)
    x = torch.randn(2, 4, 16)
    results(model, x)
    for value in other.state_dict().values():
        value.uniform_(-1, 1)
    model.load_state_dict(other.state_dict())
    expected = results(other, x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (model, copy.deepcopy(model), torch.load(file, weights_only=False), pickle.loads(pickle.dumps(model))):
        assert type(twin) is type(model)
        torch.testing.assert_close(results(twin, x), expected)
    twin = copy.deepcopy(model)
    twin[0].weight.data.zero_()
    torch.testing.assert_close(results(model, x), expected)
    half = copy.deepcopy(model).bfloat16()
    assert results(half, x.bfloat16()).dtype == torch.bfloat16


def test_functional_calls_and_graphs() -> None:
    model, twin = stem().eval(), stem().eval()
    sluice.replace(model)
    x = torch.randn(2, 4, 16)
    weights = {name: torch.randn_like(value) for name, value in twin.state_dict().items()}
    with torch.no_grad():
        torch.testing.assert_close(
            torch.func.functional_call(model, weights, x), torch.func.functional_call(twin, weights, x)
        )
        expected = twin(x)
        torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), expected)
        torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(x), expected)
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected)
        torch.testing.assert_close(torch.vmap(model)(x[None]), expected[None])


def test_swapped_modules_train(device: str) -> None:
    model = stem().to(device)
    twin = copy.deepcopy(model)
    sluice.replace(model)
    for mode in (True, False):
        inputs = [torch.ones(2, 4, 16, device=device).cumsum(-1).requires_grad_() for _ in range(2)]
        for module, x in zip((model.train(mode), twin.train(mode)), inputs, strict=True):
            module.zero_grad()
            module(x).square().sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


def test_profilers_go_on() -> None:
    profile, former, events = cProfile.Profile(), sys.getprofile(), []

    def own(frame: Any, event: str, argument: Any) -> None:
        events.append(event)

    x = torch.randn(2, 4, 16)
    profile.enable()
    rows = sluice.replace(stem()).trace(x).rows
    stem()
    profile.disable()
    assert any("stem" in str(entry.code) for entry in profile.getstats())
    sys.setprofile(own)
    assert sluice.replace(stem()).trace(x).rows == rows
    assert sys.getprofile() is own
    sys.setprofile(former)
    assert [row.folded for row in rows[:2]] == ["post: leaky_relu(0.1)", "post: elu(1.0)"]


def test_hundreds_of_modules_take_little_time() -> None:
    for _ in range(5):  # one of them is enough: a busy machine slows some
        model = nn.Sequential(*(nn.Sequential(nn.ReLU(), nn.Conv1d(4, 4, 3, groups=4)) for _ in range(200)))
        begin = time.process_time()
        replacement = sluice.replace(model)
        seconds = time.process_time() - begin
        assert sum(row.now == "sluice.nn.Conv1d" for row in replacement.rows) == 200
        if seconds < 1.0:
            break
    else:
        pytest.fail(f"the last of five took {seconds:.1f} s")
