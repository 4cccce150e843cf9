"""Arguments that `streaming`, a stream and its `reset` refuse, before a state changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sluice
from stream_models import Calls


def encoder(device: str, **options: Any) -> nn.Module:
    layers = [sluice.nn.CausalConv1d(4, 5, out_channels=6, stride=s, device=device, **options) for s in (3, 2)]
    return nn.Sequential(layers[0], nn.Conv1d(6, 4, 1, device=device), layers[1]).eval()


CALLS: dict[str, tuple[Callable[[torch.Tensor], tuple[Any, ...]], type[Exception], str]] = {
    "length": (lambda x: (x[..., :8],), ValueError, "x must have a multiple of 6 positions, got 8"),
    "no positions": (lambda x: (x[..., :0],), ValueError, "x must have a multiple of 6 positions, got 0"),
    "rank": (lambda x: (x[0],), ValueError, "x must have shape (batch, channels, length), got (4, 12)"),
    "dtype": (lambda x: (x.half(),), TypeError, "x must have dtype torch.float32 like the stream, got torch.float16"),
    "integers": (lambda x: (x.long(),), TypeError, "x must have dtype torch.float32 like the stream, got torch.int64"),
    "no tensor": (lambda x: (x.tolist(),), TypeError, "x must be a torch.Tensor, got list"),
    "rows": (lambda x: (x.repeat(2, 1, 1),), ValueError, "x must have at most 3 rows, as many as slots, got 4"),
    "too few slots": (lambda x: (x, torch.tensor([0])), ValueError, "slots must have shape (2,), got (1,)"),
    "slots of two dimensions": (
        lambda x: (x, torch.tensor([[0, 1]])), ValueError, "slots must have shape (2,), got (1, 2)",
    ),
    "floating slots": (
        lambda x: (x, torch.tensor([0.0, 1.0])), TypeError, "slots must have dtype int32 or int64, got torch.float32",
    ),
    "short slots": (
        lambda x: (x, torch.tensor([0, 1], dtype=torch.int16)), TypeError,
        "slots must have dtype int32 or int64, got torch.int16",
    ),
    "a list of slots": (lambda x: (x, [0, 1]), TypeError, "slots must be a torch.Tensor, got list"),
    "a gradient": (
        lambda x: (x.clone().requires_grad_(),), RuntimeError, "sluice is forward-only and an input requires grad",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(device: str, name: str) -> None:
    """The message has the rule and what was given, and no state has changed."""
    make, kind, message = CALLS[name]
    stream, x = sluice.streaming(encoder(device), slots=3), torch.randn(2, 4, 12, device=device)
    stream(x)
    states = {dtype: state.clone() for dtype, state in stream.state.items()}
    arguments = [one.to(device) if isinstance(one, torch.Tensor) else one for one in make(x)]
    with pytest.raises(kind, match="^streaming: " + re.escape(message)):
        stream(*arguments)
    for dtype, state in stream.state.items():
        assert torch.equal(state, states[dtype])


def test_channels(device: str) -> None:
    """The first layer that meets them refuses them."""
    with pytest.raises(ValueError, match=r"weight must have shape \(out_channels, 3, taps\) for 3 channels"):
        sluice.streaming(encoder(device))(torch.randn(1, 3, 12, device=device))


def test_resets(device: str) -> None:
    stream = sluice.streaming(encoder(device), slots=3)
    with pytest.raises(TypeError, match="streaming: slots must be a torch.Tensor, got list"):
        stream.reset([0])
    with pytest.raises(TypeError, match=r"streaming: slots must have dtype int32 or int64, got torch\.float32"):
        stream.reset(torch.zeros(1, device=device))


def test_a_gradient_is_refused_where_it_would_be_lost(device: str) -> None:
    """Parameters may require grad, and so may inputs under no_grad."""
    stream, x = sluice.streaming(encoder(device)), torch.randn(1, 4, 12, device=device, requires_grad=True)
    assert not stream(x.detach()).requires_grad
    with torch.no_grad():
        assert not stream(x).requires_grad
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises(RuntimeError, match="streaming: sluice has no forward-mode gradients"):
            stream(dual)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"slots": 0}, ValueError, "slots must be at least 1, got 0"),
        ({"slots": -2}, ValueError, "slots must be at least 1, got -2"),
        ({"slots": 1.0}, TypeError, "slots must be an int, got float"),
        ({"slots": True}, TypeError, "slots must be an int, got bool"),
        (
            {"dtype": torch.float16}, TypeError,
            "dtype must be torch.float32 like the model's convolutions, got torch.float16",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_options(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match="^streaming: " + re.escape(message)):
        sluice.streaming(encoder("cpu"), **options)


@pytest.mark.parametrize("model", [torch.tanh, None, "model", nn.Conv1d], ids=["function", "None", "text", "class"])
def test_no_module(model: Any) -> None:
    with pytest.raises(TypeError, match=r"^streaming: model must be a torch\.nn\.Module, got "):
        sluice.streaming(model)


@pytest.mark.parametrize("move", ["float", "double", "half", "cpu", "to", "to_empty", "share_memory"])
def test_a_stream_does_not_move(device: str, move: str) -> None:
    """Else the states, and weights that others share, would be somewhere else."""
    stream, x = sluice.streaming(encoder(device)), torch.randn(1, 4, 12, device=device)
    arguments = {"to": (torch.bfloat16,), "to_empty": (), "share_memory": ()}.get(move, ())
    with pytest.raises(RuntimeError, match="^streaming: move or cast the model, then make the stream"):
        getattr(stream, move)(*arguments, **({"device": "meta"} if move == "to_empty" else {}))
    with pytest.raises(RuntimeError, match="^streaming: move or cast the model"):
        getattr(nn.Sequential(stream), move)(*arguments, **({"device": "meta"} if move == "to_empty" else {}))
    assert stream(x).shape == (1, 6, 2)


def test_modes_stay(device: str) -> None:
    """A stream is in eval mode: the model's mode and its own do not change each other."""
    model = nn.Sequential(nn.BatchNorm1d(4, device=device), encoder(device)).eval()
    stream, x = sluice.streaming(model), torch.randn(1, 4, 12, device=device)
    before = stream(x)
    assert stream.train() is stream
    assert not model[0].training
    stream.reset()
    assert torch.equal(stream(x), before)
    model.train()
    nn.Sequential(stream).eval()
    assert model[0].training
    stream.reset()
    assert torch.equal(stream(x), before)
    assert torch.equal(model[0].running_mean, torch.zeros(4, device=device))


def test_a_module_that_is_called_with_names(device: str) -> None:
    model = Calls(
        lambda self, x: self.conv(input=self.tanh(input=x)), tanh=nn.Tanh(), conv=nn.Conv1d(4, 4, 1, device=device)
    )
    stream, x = sluice.streaming(model), torch.randn(1, 4, 5, device=device)
    with torch.no_grad():
        torch.testing.assert_close(stream(x), model(x))
