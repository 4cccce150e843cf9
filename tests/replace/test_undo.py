"""The way back of copies, and after other code has changed what `replace` changed."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import sluice

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")]


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="undo")
        yield


class Snake(nn.Module):
    """transformers' Snake1d of DAC."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        shape = hidden_states.shape
        hidden_states = hidden_states.reshape(shape[0], shape[1], -1)
        hidden_states = hidden_states + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * hidden_states).pow(2)
        hidden_states = hidden_states.reshape(shape)
        return hidden_states  # noqa: RET504


class Padded(nn.Module):
    """A convolution wrapper with a parameter that its forward does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, groups=4)
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (2, 0)))


class Model(nn.Module):
    """A part of each kind that `replace` changes: swapped, folded, wrapped and in one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 4, 3, padding=1, groups=4)
        self.unit = nn.Sequential(nn.Tanh(), nn.Conv1d(4, 4, 3, padding=1, groups=4), nn.ELU())
        self.padded = Padded()
        self.snake = Snake(4)
        self.up = nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=4)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.snake(self.unit(F.relu(self.first(x))))
        return self.up(self.padded(F.relu(x * self.scale)))


def kinds(model: nn.Module) -> list[type]:
    return [type(module) for module in model.modules()]


def names(model: nn.Module) -> list[list[str]]:
    return [sorted(module.__dict__) for module in model.modules()]


@pytest.fixture
def theirs() -> Model:
    torch.manual_seed(3)
    return Model().eval()


X = torch.linspace(-1, 1, 2 * 4 * 9).view(2, 4, 9)


def check(model: nn.Module, theirs: nn.Module, x: torch.Tensor = X) -> None:
    torch.testing.assert_close(model(x), theirs(x), rtol=1e-5, atol=1e-5)


# --- copies -----------------------------------------------------------------------------------------------------------
def _by_pickle(both: Any) -> Any:
    return pickle.loads(pickle.dumps(both))


@pytest.mark.parametrize("copied", [copy.deepcopy, _by_pickle])
@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_copies_undo_their_own_changes(theirs: Model, copied: Any, order: tuple[int, int]) -> None:
    model = copy.deepcopy(theirs)
    replacement = sluice.replace(model)
    replaced = kinds(model)
    assert sum(a is not b for a, b in zip(replaced, kinds(theirs), strict=True)) == 8
    check(model, theirs)
    both = [(model, replacement), copied((model, replacement))]
    assert both[1][1].model is both[1][0]
    assert both[1][1].rows == replacement.rows
    for i in order:
        assert kinds(both[i][0]) == replaced
        assert both[i][1].undo() is both[i][0]
        assert kinds(both[i][0]) == kinds(theirs)
        assert names(both[i][0]) == names(theirs)
        check(both[i][0], theirs)


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_copies_with_folded_norms(norm: Any) -> None:
    with torch.enable_grad():
        model = nn.Sequential(norm(nn.Conv1d(4, 4, 3)), nn.ELU())
    replacement = sluice.replace(model, fold_weight_norm=True)
    expected, keys = model(X), ["0.bias", "0.weight"]
    twin, other = copy.deepcopy((model, replacement))
    if norm is nn.utils.weight_norm:  # torch's other one leaves a hook on the model that cannot be pickled
        message = "^replace: a Replacement with a folded weight_norm cannot be pickled; pickle its model$"
        with pytest.raises(TypeError, match=message):
            pickle.dumps(replacement)
    for undone, one in ((twin, other), (model, replacement)):
        assert list(undone.state_dict()) == keys
        one.undo()
        assert len(undone.state_dict()) == 3
        torch.testing.assert_close(undone(X), expected)
    twin[0].bias.add_(1)
    torch.testing.assert_close(model(X), expected)


# --- changes by others ------------------------------------------------------------------------------------------------
class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2


def test_parametrizations_that_came_since_stay(theirs: Model) -> None:
    """They are on swapped, folded, wrapping and one-pass modules, and more than one on some."""
    model = copy.deepcopy(theirs)
    replacement = sluice.replace(model)
    for one in (model, theirs):
        for path, name in (("first", "weight"), ("first", "bias"), ("up", "bias"), ("", "scale"), ("snake", "alpha"),
                           ("padded", "gain"), ("padded.conv", "weight")):  # fmt: skip
            parametrize.register_parametrization(one.get_submodule(path), name, Doubled())
    check(model, theirs)
    replacement.undo()
    for module, other in zip(model.modules(), theirs.modules(), strict=True):
        assert type(module).__name__ == type(other).__name__
        assert type(module).__bases__ == type(other).__bases__
    check(model, theirs)
    for one in (model, theirs):
        parametrize.remove_parametrizations(one.first, "bias")
        parametrize.remove_parametrizations(one.first, "weight")
        parametrize.remove_parametrizations(one, "scale")
    assert [type(model), type(model.first)] == [Model, nn.Conv1d]
    check(model, theirs)


def test_one_more_and_one_less_parametrization() -> None:
    """A module that was parametrised when it was swapped."""
    for add, remove in ((("bias",), ()), (("bias",), ("weight",)), ((), ("weight",))):
        theirs, model = (nn.Sequential(nn.Conv1d(4, 4, 3), nn.Tanh()) for _ in range(2))
        model.load_state_dict(theirs.state_dict())
        for one in (theirs, model):
            parametrize.register_parametrization(one[0], "weight", Doubled())
        former = type(model[0])
        replacement = sluice.replace(model)
        for one in (theirs, model):
            for name in add:
                parametrize.register_parametrization(one[0], name, Doubled())
            for name in remove:
                parametrize.remove_parametrizations(one[0], name)
        check(model, theirs)
        replacement.undo()
        assert type(model[0]) is not former
        assert not any(issubclass(kind, sluice.nn.Conv1d) for kind in kinds(model))
        check(model, theirs)


def _sharded(module: nn.Module) -> None:
    """Changes the class as fully_shard does."""
    mixin = type("FSDPModule", (), {"unshard": lambda self: None})
    module.__class__ = type(f"FSDP{type(module).__name__}", (mixin, type(module)), {})


def test_classes_made_of_ours_are_made_of_torchs(theirs: Model) -> None:
    model = copy.deepcopy(theirs)
    replacement = sluice.replace(model)
    parts = list(model.modules())
    for module in parts:
        _sharded(module)
    parametrize.register_parametrization(model.first, "weight", Doubled())
    parametrize.register_parametrization(theirs.first, "weight", Doubled())
    replacement.undo()
    check(model, theirs)
    assert type(model.first).__mro__[1].__name__ == "FSDPConv1d"
    for module in parts:
        assert hasattr(module, "unshard")
        assert not any(base.__module__.startswith("sluice") for base in type(module).__mro__)


class Written(sluice.nn.Conv1d):
    """A class that somebody wrote on sluice's, which has no other base."""

    def forward(self, input: torch.Tensor, **options: Any) -> torch.Tensor:
        return super().forward(input, **options) * 2


def test_the_rest_is_undone_and_named(theirs: Model) -> None:
    model = copy.deepcopy(theirs)
    replacement = sluice.replace(model)
    model.first.__class__ = Written

    class Local(type(model.padded)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    model.padded.__class__ = Local
    expected = model(X)
    for _ in range(2):  # the second call says it again
        with pytest.warns(UserWarning, match="^undo") as caught:
            replacement.undo()
        assert sorted(str(one.message) for one in caught) == [
            "undo: first is left as it is: it keeps its class Written, which others made of Conv1d",
            "undo: padded is left as it is: it keeps its class Local, which others made of Padded",
        ]
        torch.testing.assert_close(model(X), expected)
        assert [type(model), type(model.unit[1]), type(model.up), type(model.padded.conv)] == [
            Model, nn.Conv1d, nn.ConvTranspose1d, nn.Conv1d
        ]  # fmt: skip
    model.first.__class__, model.padded.__class__ = Written.__bases__[0], Local.__bases__[0]  # type: ignore[assignment]
    replacement.undo()
    assert kinds(model) == kinds(theirs)
    assert names(model) == names(theirs)


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_a_folded_norm_stays_under_another_norm(norm: Any) -> None:
    model = nn.Sequential(norm(nn.Conv1d(4, 4, 3)), nn.ELU(), norm(nn.Conv1d(4, 4, 3)))
    replacement = sluice.replace(model, fold_weight_norm=True)
    norm(model[0])
    expected = model(X)
    message = "its weight_norm stays folded, because it is parametrised again or has another class"
    with pytest.warns(UserWarning, match=f"^undo: 0 is left as it is: {message}$"):
        replacement.undo()
    assert not any(issubclass(kind, sluice.nn.Conv1d) for kind in kinds(model))
    assert len(model[2].state_dict()) == 3
    torch.testing.assert_close(model(X), expected)


def test_a_folded_norm_beside_a_parametrised_bias_comes_back() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Conv1d(4, 4, 3)), nn.ELU())
    parametrize.register_parametrization(model[0], "bias", Doubled())
    expected, kind, keys = model(X), type(model[0]), list(model.state_dict())
    replacement = sluice.replace(model, fold_weight_norm=True)
    assert sorted(model.state_dict()) == ["0.parametrizations.bias.original", "0.weight"]
    torch.testing.assert_close(model(X), expected)
    replacement.undo()
    assert type(model[0]) is kind
    assert sorted(model.state_dict()) == sorted(keys)
    torch.testing.assert_close(model(X), expected)


def test_wrappers_of_a_forward_stay_right_after_undo(theirs: Model) -> None:
    """As of a library that keeps the forward it found and puts its own in the place."""
    model = copy.deepcopy(theirs)
    replacement = sluice.replace(model)
    for module in (model.first, model.unit[1], model.up, model.padded, model.snake, model):
        module.forward = lambda *args, former=module.forward: former(*args)  # type: ignore[method-assign,misc]
    check(model, theirs)
    replacement.undo()
    assert kinds(model) == kinds(theirs)
    check(model, theirs)


def test_parametrised_snakes_stay() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Flatten(0, 0), Snake(4))
    parametrize.register_parametrization(model[2], "alpha", Doubled())
    kind, expected = type(model[2]), model(X)
    sluice.replace(model)
    assert type(model[2]) is kind
    parametrize.remove_parametrizations(model[2], "alpha")
    torch.testing.assert_close(model(X), expected)
