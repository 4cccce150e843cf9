"""What is saved and copied of a stream: its state; a deep copy is a stream of its own, and a pickle is refused."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sluice
from stream_models import Calls, Cut, Padded


def codec(device: str) -> nn.Module:
    """With states of both kinds, a count of positions, and ops beside the layers, one of them in place."""

    def mixed(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x.mT).mT
        z = y
        y += self.gain
        return y * z

    return nn.Sequential(
        Padded(nn.Conv1d(2, 4, 5, 2), 3, "replicate"), nn.PReLU(4), Calls(mixed, norm=nn.LayerNorm(4), gain=gain()),
        Cut(nn.ConvTranspose1d(4, 3, 6, 2), 0, 4, "slice"),
    ).eval().to(device)  # fmt: skip


def gain() -> nn.Parameter:
    return nn.Parameter(torch.rand(4, 1))


def test_a_saved_state(device: str) -> None:
    """torch.save writes it, a load of weights alone reads it, and another stream of the model goes on from it."""
    model = codec(device)
    stream, file = sluice.streaming(model, slots=2), io.BytesIO()
    first, second = torch.randn(2, 2, 2, 6, device=device)
    stream(first)
    torch.save(stream.state, file)
    wanted = stream(second)
    file.seek(0)
    other = sluice.streaming(model, slots=2)
    for dtype, state in torch.load(file, weights_only=True).items():
        assert state.shape == other.state[dtype].shape
        other.state[dtype].copy_(state)
    assert torch.equal(other(second), wanted)


def test_a_deep_copy(device: str) -> None:
    """Alone or in a module: its states are its own, which `reset` and `state` change, and it is a stream as before."""
    stream = sluice.streaming(codec(device), slots=2)
    first, second = torch.randn(2, 2, 2, 6, device=device)
    begun = stream(first)
    before = {dtype: state.clone() for dtype, state in stream.state.items()}
    copies = copy.deepcopy(stream), copy.deepcopy(nn.Sequential(stream))[0], copy.deepcopy(copy.deepcopy(stream))
    later = [other(second) for other in copies]
    assert all(torch.equal(state, before[dtype]) for dtype, state in stream.state.items())
    assert all(torch.equal(result, later[0]) for result in later)
    assert torch.equal(stream(second), later[0])
    for other in copies:
        other.reset()
        assert not any(state.any() for state in other.state.values())
        assert torch.equal(other(first), begun)
        assert all(torch.equal(state, before[dtype]) for dtype, state in other.state.items())


SAVES: dict[str, Callable[[Any], object]] = {
    "pickle": pickle.dumps,
    "torch.save": lambda stream: torch.save(stream, io.BytesIO()),
    "torch.save in a module": lambda stream: torch.save(nn.Sequential(stream), io.BytesIO()),
    "copy.copy": copy.copy,
}


@pytest.mark.parametrize("name", SAVES)
def test_a_pickle_is_refused(device: str, name: str) -> None:
    """Instead of a file that cannot be read, or a copy that shares states."""
    rule = "^streaming: a Streaming must not be pickled or copied by copy.copy: save its `state`"
    with pytest.raises(TypeError, match=rule):
        SAVES[name](sluice.streaming(codec(device)))


def test_the_state_dict_has_no_weights_of_layers(device: str) -> None:
    """Only what modules beside the layers share with the model."""
    stream = sluice.streaming(codec(device))
    assert {name.rpartition(".")[2] for name in stream.state_dict()} <= {"weight", "bias", "gain"}
    layers = [module for module in stream.modules() if type(module).__name__ == "Convolution"]
    assert len(layers) == 2
    assert not any(layer.state_dict() or [*layer.parameters()] for layer in layers)
    only = sluice.streaming(nn.Sequential(Padded(nn.Conv1d(2, 4, 5), 4), nn.ELU()).to(device))
    assert not only.state_dict()
    assert not [*only.parameters()]
