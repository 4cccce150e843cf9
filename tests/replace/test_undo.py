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
    """Convolutions that are swapped, and parts around them."""

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
    assert sum(a is not b for a, b in zip(replaced, kinds(theirs), strict=True)) == 4
    check(model, theirs)
    both = [(model, replacement), copied((model, replacement))]
    assert both[1][1].model is both[1][0]
    check(both[1][0], theirs)
    assert both[1][1].rows == replacement.rows
    for i in order:
        assert kinds(both[i][0]) == replaced
        assert both[i][1].undo() is both[i][0]
        assert kinds(both[i][0]) == kinds(theirs)
        assert names(both[i][0]) == names(theirs)
        check(both[i][0], theirs)


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_copies_with_norms(norm: Any) -> None:
    with torch.enable_grad():
        model = nn.Sequential(norm(nn.Conv1d(4, 4, 3, groups=4)), nn.ELU()).eval()
    replacement = sluice.replace(model)
    expected, keys = model(X), list(model.state_dict())
    twin, other = copy.deepcopy((model, replacement)) if norm is parametrizations.weight_norm else (None, None)
    for undone, one in ((twin, other), (model, replacement)):
        if one is not None:
            torch.testing.assert_close(undone(X), expected)
            one.undo()
            assert list(undone.state_dict()) == keys
            torch.testing.assert_close(undone(X), expected)


# --- changes by others ------------------------------------------------------------------------------------------------
class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2


def test_parametrizations_that_came_since_stay(theirs: Model) -> None:
    """They are on swapped modules and those around them, and more than one on some."""
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
        theirs, model = (nn.Sequential(nn.Conv1d(4, 4, 3, groups=4), nn.Tanh()) for _ in range(2))
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
    expected = model(X)
    for _ in range(2):  # the second call says it again
        with pytest.warns(UserWarning, match="^undo") as caught:
            replacement.undo()
        message = "undo: first is left as it is: it keeps its class Written, which others made of Conv1d"
        assert [str(one.message) for one in caught] == [message]
        torch.testing.assert_close(model(X), expected)
        assert [type(model.unit[1]), type(model.up), type(model.padded.conv)] == [
            nn.Conv1d, nn.ConvTranspose1d, nn.Conv1d
        ]  # fmt: skip
    model.first.__class__ = Written.__bases__[0]  # type: ignore[assignment]
    replacement.undo()
    assert kinds(model) == kinds(theirs)
    assert names(model) == names(theirs)


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
