"""What moves into a stream's convolutions, and what has to stay where it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import sluice
from stream_models import Calls, Cut, Padded

Forward = Callable[[Any, torch.Tensor], torch.Tensor]


def in_place_later(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    y.relu_()  # a statement: y is returned
    return y


def in_place_by_function(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    F.elu(y, 0.5, inplace=True)
    return y


def in_place_by_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    self.relu(y)
    return y


def residual_changed_in_between(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    F.relu_(x)
    return y + x


def input_changed_in_between(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.silu(x)
    z = F.relu_(x)
    return self.conv(y) + z


def sum_in_place_that_is_read(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.other(x)
    part = y[:, :2]
    z = y.add_(self.conv(x))
    return torch.cat([z, part], 1)


def sum_in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.other(x)
    return y.add_(self.conv(y))


def begins_in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + self.conv(self.relu(x))


def view_changed(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.other(x)
    F.relu_(y[:, :2])
    return self.conv(y)


def wide_residual(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(self.mono(x) + x)


def narrow_residual(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(self.conv(x) + self.mono(x))


def scaled_sum(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.add(x, self.conv(x), alpha=0.5)


def twice_the_same(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    return y + y


def read_twice(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.relu(self.conv(x))
    return y * torch.sigmoid(y)


def many_activations(self: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = torch.tanh(F.leaky_relu(F.silu(x), 0.3))
    x = self.conv(x)
    for _ in range(3):
        x = torch.sigmoid(F.elu(F.gelu(x)))
    return x


def zeros_become_something(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.conv(torch.sigmoid(x))


def residual_of_later(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    return y + self.other(y)


def residual_and_input(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.elu(x)
    z = self.conv(y) + y
    return torch.cat([z, self.other(y)], 1)


def residuals_in_a_row(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = F.elu(self.conv(x))
    y = self.other(x) + x
    return F.elu(self.mono(F.elu(y)) + self.other(x) + y)


FORWARDS: list[Forward] = [
    residual_and_input, residuals_in_a_row,
    in_place_later, in_place_by_function, in_place_by_module, residual_changed_in_between, input_changed_in_between,
    sum_in_place_that_is_read, sum_in_place, begins_in_place, view_changed, wide_residual, narrow_residual, scaled_sum,
    twice_the_same, read_twice, many_activations, zeros_become_something, residual_of_later,
]  # fmt: skip


def model_of(forward: Forward, device: str, **modules: nn.Module) -> nn.Module:
    model = Calls(
        forward, conv=Padded(nn.Conv1d(4, 4, 3), 2), other=nn.Conv1d(4, 4, 1), mono=nn.Conv1d(4, 1, 1),
        relu=nn.ReLU(inplace=True), **modules,
    )  # fmt: skip
    return model.eval().to(device)


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
def test_results(device: str, forward: Forward) -> None:
    """Whatever is written in place, summed or read in between."""
    model = model_of(forward, device)
    stream, x = sluice.streaming(model), torch.randn(1, 4, 12, device=device)
    with torch.no_grad():
        chunks = torch.cat([stream(chunk.clone()) for chunk in x.split([1, 4, 2, 5], -1)], -1)
        torch.testing.assert_close(chunks, model(x.clone()))


class Program(nn.Module):
    """A random sequence of ops on values of one or four channels, which are read again and changed in place."""

    ACTIVATIONS = F.elu, F.silu, torch.tanh, torch.sigmoid, F.gelu, F.relu

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.convs = nn.ModuleList([Padded(nn.Conv1d(4, 4, taps), taps - 1) for taps in (1, 3, 3)])
        self.mono, self.wide, self.relu = nn.Conv1d(4, 1, 1), nn.Conv1d(1, 4, 1), nn.ReLU(inplace=True)
        self.steps: list[tuple[str, int, int, int]] = []
        channels = [4]
        for count in range(1, draw.randint(4, 12)):
            kind = draw.choice(
                ["conv", "conv", "conv", "act", "act", "add", "add", "in place", "module", "add_", "view"]
            )
            # Mostly the last values, so that ops have one user; sometimes earlier values.
            first, second = (draw.choice([count - 1, count - 1, draw.randrange(count)]) for _ in range(2))
            if kind == "conv":
                kind = draw.choice(["conv", "conv", "conv", "mono"]) if channels[first] == 4 else "wide"
            if kind == "add_" and channels[second] < channels[first]:
                first, second = second, first
            self.steps.append((kind, first, second, draw.randrange(6)))
            sizes = {"conv": 4, "wide": 4, "mono": 1, "view": 1, "add": max(channels[first], channels[second])}
            channels.append(sizes.get(kind, channels[second if kind == "add_" else first]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = [x]
        for kind, first, second, number in self.steps:
            a, b = values[first], values[second]
            if kind == "conv":
                values.append(self.convs[number % 3](a))
            elif kind in ("mono", "wide"):
                values.append(getattr(self, kind)(a))
            elif kind == "act":
                values.append(self.ACTIVATIONS[number](a))
            elif kind == "in place":
                values.append(F.leaky_relu(a, 0.1, inplace=True) if number % 2 else F.relu_(a))
            elif kind == "module":
                values.append(self.relu(a))
            elif kind == "view":
                values.append(a[:, :1])
            else:
                values.append(a + b if kind == "add" else (b.clone() if number < 2 else b).add_(a))
        return values[-1] + values[len(values) // 2]


@pytest.mark.parametrize("part", range(4))
def test_random_programs(device: str, part: int) -> None:
    """A hundred programs: whatever moves, the results stay."""
    for _ in range(25):
        draw = random.Random(int(torch.randint(2**62, ())))
        model = Program(draw).eval().to(device, torch.float64)
        x = torch.randn(1, 4, 10, device=device, dtype=torch.float64)
        with torch.no_grad():
            try:
                wanted = model(x.clone())
            except RuntimeError:  # a sum in place of a tensor and a view of it
                continue
            stream = sluice.streaming(model)
            chunks = torch.cat([stream(chunk.clone()) for chunk in x.split([1, 4, 2, 3], -1)], -1)
            torch.testing.assert_close(chunks, wanted, msg=lambda text, model=model: f"{text}: {model.steps}")


PRE: dict[str, Callable[[], nn.Module]] = {
    "its own padding": lambda: Calls(
        lambda self, x: self.c(x)[..., :-2], c=sluice.nn.Conv1d(4, 4, 3, padding=2, pre=SIGMOID)
    ),
    "padding in front": lambda: nn.Sequential(nn.ZeroPad1d((2, 0)), sluice.nn.Conv1d(4, 4, 3, pre=SIGMOID)),
    "replicate in front": lambda: nn.Sequential(nn.ReplicationPad1d((2, 0)), sluice.nn.Conv1d(4, 4, 3, pre=SIGMOID)),
    "causal": lambda: nn.Sequential(sluice.nn.CausalConv1d(4, 3, pre=SIGMOID)),
    "causal, dense": lambda: nn.Sequential(sluice.nn.CausalConv1d(4, 3, out_channels=2, pre=SIGMOID)),
    "causal, replicate": lambda: nn.Sequential(
        sluice.nn.CausalConv1d(4, 3, out_channels=2, padding_mode="replicate", pre=SIGMOID)
    ),
    "transposed": lambda: nn.Sequential(sluice.nn.CausalConvTranspose1d(4, 2, 5, 2, pre=SIGMOID)),
    "dropped, causal": lambda: nn.Sequential(nn.Conv1d(4, 4, 3), sluice.nn.CausalConv1d(4, 3, pre=SIGMOID)),
    "dropped, padding in front": lambda: nn.Sequential(
        nn.Conv1d(4, 4, 3), nn.ZeroPad1d((2, 0)), sluice.nn.Conv1d(4, 4, 3, pre=SIGMOID)
    ),
    "dropped, no padding": lambda: nn.Sequential(nn.Conv1d(4, 4, 3), sluice.nn.Conv1d(4, 4, 3, pre=SIGMOID)),
    "dropped, transposed": lambda: nn.Sequential(
        nn.Conv1d(4, 4, 3), sluice.nn.CausalConvTranspose1d(4, 2, 5, 2, pre=SIGMOID)
    ),
    "an activation in front": lambda: nn.Sequential(nn.ELU(), sluice.nn.CausalConv1d(4, 3, pre=SIGMOID)),
    "sums of other channels": lambda: nn.Sequential(nn.PReLU(4), Cut(nn.ConvTranspose1d(4, 2, 5, 2), 0, 3, "slice")),
    "a transform": lambda: nn.Sequential(
        sluice.nn.Transform(sluice.stages.mul(torch.rand(4, 1)) | sluice.stages.shift(1.0))
    ),
}
SIGMOID = "sigmoid()"


@pytest.mark.parametrize("name", PRE)
def test_chains_that_make_something_of_zeros(device: str, name: str) -> None:
    """They act before the module's own padding, and on padding in front of the module."""
    model = PRE[name]().to(device)
    stream, x = sluice.streaming(model, device=device), torch.randn(1, 4, 16, device=device)
    with torch.no_grad():
        chunks = torch.cat([stream(chunk) for chunk in x.split([1, 1, 4, 2, 8], -1)], -1)
        torch.testing.assert_close(chunks[..., stream.lead :], model(x))


def left(forward: Forward, device: str, **modules: nn.Module) -> list[str]:
    """The ops of a stream beside its layers."""
    stream = sluice.streaming(model_of(forward, device, **modules))
    names = []
    for node in stream._graph.graph.nodes:
        if node.op == "call_module" and not node.target.startswith("layers."):
            names.append(type(stream._graph.get_submodule(node.target)).__name__)
        elif node.op in ("call_function", "call_method"):
            names.append(node.target if isinstance(node.target, str) else node.target.__name__)
    return names


def test_what_moves(device: str) -> None:
    """Activations and residual sums become chains of the convolutions; identities and padding vanish."""
    assert left(lambda self, x: x + self.conv(F.elu(self.other(F.gelu(x)))), device) == []
    assert left(lambda self, x: torch.tanh(self.other(x) + self.conv(F.relu_(x.contiguous()))), device) == []
    assert left(lambda self, x: F.dropout(self.drop(self.conv(x)), 0.5, False), device, drop=nn.Dropout()) == []
    assert left(sum_in_place, device) == []
    assert left(begins_in_place, device) == ["ReLU"]  # the sum reads what it has changed


def test_what_stays(device: str) -> None:
    """Activations of values that others read, and of zeros that they would change; more than four stages."""
    assert left(read_twice, device) == ["sigmoid", "mul"]
    assert left(zeros_become_something, device) == ["sigmoid"]
    assert left(residual_changed_in_between, device) == ["relu_", "add"]
    assert left(scaled_sum, device) == ["add"]
    assert left(residual_of_later, device) == []
    assert len(left(many_activations, device)) == 10


def test_the_model_does_not_change(device: str) -> None:
    """Neither its modules, nor its tensors, nor what it computes."""
    model = (
        nn.Sequential(nn.Conv1d(4, 4, 1), nn.ELU(), Padded(nn.Conv1d(4, 4, 3), 2), nn.BatchNorm1d(4)).eval().to(device)
    )
    names, tensors = [*dict(model.named_modules())], {name: t.clone() for name, t in model.state_dict().items()}
    x = torch.randn(2, 4, 6, device=device)
    with torch.no_grad():
        wanted = model(x)
        sluice.streaming(model, slots=2)(x)
        assert torch.equal(model(x), wanted)
    assert [*dict(model.named_modules())] == names
    assert all(torch.equal(t, tensors[name]) for name, t in model.state_dict().items())
    assert not model[2].conv._forward_hooks


class Keeps(nn.Conv1d):
    """A convolution that pads itself and keeps what it was called with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        self.mean = x.mean(1)
        return super().forward(F.pad(x, (2, 0)))


NORMS = [lambda conv: conv, nn.utils.parametrizations.weight_norm, nn.utils.weight_norm]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("norm", NORMS, ids=["plain", "parametrization", "hook"])
def test_subclasses_with_a_forward_of_their_own(device: str, norm: Callable[[nn.Module], nn.Module]) -> None:
    """Their forward counts, not their base's; what it sets is as it was before."""
    with torch.no_grad():
        conv = Keeps(4, 4, 3)
        conv.register_buffer("mean", torch.zeros(4))
        model = nn.Sequential(nn.ELU(), norm(conv)).to(device)
        stream, same = sluice.streaming(model), sluice.streaming(model)
        assert not hasattr(conv, "last")
        assert all(type(value) in (torch.Tensor, nn.Parameter) for value in (conv.weight, conv.mean))
        x = torch.randn(1, 4, 12, device=device)
        chunks = torch.cat([stream(chunk) for chunk in x.split([1, 4, 7], -1)], -1)
        torch.testing.assert_close(chunks, model(x))
        if norm is NORMS[0]:
            first, second = (s._graph.get_submodule("layers.0").weights for s in (stream, same))
            assert first is second
            assert first.weight.data_ptr() == conv.weight.data_ptr()


def test_a_forward_that_its_owner_has_set(device: str) -> None:
    conv = nn.Conv1d(4, 4, 3, device=device)
    own = conv.forward
    conv.forward = lambda x: own(F.pad(x, (2, 0))) * 2.0  # type: ignore[method-assign]
    stream, x = sluice.streaming(nn.Sequential(conv)), torch.randn(1, 4, 12, device=device)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([stream(chunk) for chunk in x.split(3, -1)], -1), conv(x))


def test_the_text_of_a_stream(device: str) -> None:
    stream = sluice.streaming(
        nn.Sequential(Padded(nn.Conv1d(4, 6, 4, 2), 2), nn.ConvTranspose1d(6, 2, 2, 2)).to(device), slots=3
    )
    text = repr(stream)
    assert "slots=3, multiple=2, latency=0" in text
    assert "Convolution((6, 4, 4), stride=2, dilation=1, groups=1)" in text
    assert "Convolution((6, 2, 2), stride=2, dilation=1, groups=1, transposed)" in text


class Counting(TorchDispatchMode):
    """Counts aten's ops by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def test_zeros_before_a_lead_are_few_ops(device: str) -> None:
    """Layers whose results see one input need none, and layers of the same lead share what tells where they are."""
    trimmed = Cut(nn.ConvTranspose1d(2, 2, 8, 4), 3, 4, "slice")
    looking = [sluice.nn.CausalConv1d(2, 3, out_channels=2) for _ in range(3)]
    model = nn.Sequential(trimmed, looking[0], nn.Conv1d(2, 2, 1), nn.Sigmoid(), looking[1], looking[2]).to(device)
    stream, x = sluice.streaming(model, device=device), torch.randn(1, 2, 6, device=device)
    with torch.no_grad(), Counting() as counting:
        chunks = torch.cat([stream(chunk) for chunk in x.split(2, -1)], -1)
    with torch.no_grad():
        torch.testing.assert_close(chunks[..., stream.lead :], model(x))
    assert stream.lead == 3
    assert counting.counts["where"] == 3 * (3 + 1)  # the last for the stream's result
    assert counting.counts["ge"] == 3
