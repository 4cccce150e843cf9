"""Models that are no streams: the table of names and reasons, before anything runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from stream_models import LENGTH, UNKNOWN, Calls, Cut, Padded, assert_refused

pytestmark = [
    pytest.mark.no_gpu,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:dropout option adds dropout:UserWarning"),
]
Function = Callable[[Any, torch.Tensor], Any]
conv = functools.partial(nn.Conv1d, 4, 4)
transposed = functools.partial(nn.ConvTranspose1d, 4, 4)
pad = functools.partial(F.pad, pad=(4, 0))


def of(function: Function, **modules: nn.Module) -> nn.Module:
    """A model whose module "0" has the function as its forward."""
    return nn.Sequential(Calls(function, **modules))


def hooked(kind: str) -> nn.Module:
    layer = sluice.nn.CausalConv1d(4, 3)
    getattr(layer, f"register_{kind}")(lambda *arguments: None)
    return nn.Sequential(layer)


def in_training(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Identity(), layer).train()


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


# The model, the module and the op of its row, and the reason.
Case = tuple[Callable[[], nn.Module], str, str, str]
PADDING: dict[str, Case] = {
    "symmetric padding": (
        lambda: nn.Sequential(nn.ReLU(), conv(3, padding=1)), "1", "Conv1d",
        "pads 1 on the right, so its last results see zeros in the place of later inputs",
    ),
    "padding same": (
        lambda: nn.Sequential(conv(4, padding="same")), "0", "Conv1d",
        "pads 2 on the right, so its last results see zeros in the place of later inputs",
    ),
    "F.pad on both sides": (
        lambda: of(lambda self, x: self.conv(F.pad(x, (2, 2))), conv=conv(5)), "0.conv", "Conv1d",
        "pads 2 on the right, so its last results see zeros in the place of later inputs",
    ),
    "only the second convolution": (
        lambda: nn.Sequential(Padded(conv(3), 2), conv(3, padding=1)), "1", "Conv1d",
        "pads 1 on the right, so its last results see zeros in the place of later inputs",
    ),
    "too much on the left": (
        lambda: nn.Sequential(Padded(conv(3), 5)), "0.conv", "Conv1d",
        "pads 5 on the left, where a causal convolution has 2",
    ),
    "parts of a stride": (
        lambda: nn.Sequential(Padded(conv(4, stride=2), 1)), "0.conv", "Conv1d",
        "pads 1 on the left, where a causal convolution has 2: they differ by parts of a stride",
    ),
    "replicate, too little": (
        lambda: nn.Sequential(Padded(conv(4), 2, "replicate")), "0.conv", "Conv1d",
        "pads 2 on the left by 'replicate', where a causal convolution has 3",
    ),
    "replicate on both sides": (
        lambda: of(lambda self, x: self.conv(F.pad(x, (1, 1), mode="replicate")), conv=conv(3)), "0", "pad",
        "pads by the last inputs, which a stream does not know",
    ),
    "reflect on both sides": (
        lambda: nn.Sequential(nn.ReflectionPad1d(1), conv(3)), "0", "ReflectionPad1d",
        "pads by the last inputs, which a stream does not know",
    ),
    "a convolution's own reflect": (
        lambda: nn.Sequential(conv(3, padding=1, padding_mode="reflect")), "0", "Conv1d",
        "pads by 'reflect' on both sides",
    ),
    "circular": (
        lambda: of(lambda self, x: self.conv(F.pad(x, (2, 0), mode="circular")), conv=conv(3)), "0", "pad",
        "pads by 'circular', which takes the last inputs",
    ),
    "circular module": (
        lambda: nn.Sequential(nn.CircularPad1d((2, 0)), conv(3)), "0", "CircularPad1d",
        "pads by 'circular', which takes the last inputs",
    ),
    "another value": (
        lambda: nn.Sequential(nn.ConstantPad1d((2, 0), 1.5), conv(3)), "0", "ConstantPad1d",
        "pads by 1.5, where a stream has zeros",
    ),
    "channels": (
        lambda: of(lambda self, x: F.pad(x, (0, 0, 1, 0))), "0", "pad", "pads other dimensions than time",
    ),
    "to whole strides": (
        lambda: of(lambda self, x: F.pad(x, (0, -x.shape[-1] % 4))), "0", "neg", LENGTH,
    ),
    "reflect twice": (
        lambda: nn.Sequential(nn.ReflectionPad1d((1, 0)), Padded(conv(3), 1, "reflect")), "1", "pad",
        "pads in two ways, or where the first results were dropped",
    ),
    "replicate after zeros": (
        lambda: nn.Sequential(nn.ZeroPad1d((1, 0)), Padded(conv(3), 1, "replicate")), "1", "pad",
        "pads in two ways, or where the first results were dropped",
    ),
    "replicate where results are dropped": (
        lambda: nn.Sequential(conv(3), Padded(conv(3), 2, "replicate")), "1", "pad",
        "pads in two ways, or where the first results were dropped",
    ),
    "a pad where results are dropped": (
        lambda: of(lambda self, x: F.pad(x[..., :-1], (0, 1))), "0", "pad",
        "pads on the right, where the last results were dropped",
    ),
    "a convolution where results are dropped": (
        lambda: of(lambda self, x: self.conv(x[..., :-1]), conv=conv(3, padding=2)), "0.conv", "Conv1d",
        "pads on the right, where the last results were dropped",
    ),
    "a padded result": (
        lambda: nn.Sequential(nn.Tanh(), nn.ZeroPad1d((3, 0))), "", "output", "pads its result",
    ),
    "a result padded on the right": (
        lambda: nn.Sequential(nn.Tanh(), nn.ZeroPad1d((0, 3))), "", "output", "pads its result on the right",
    ),
    "an activation of padded values": (
        lambda: nn.Sequential(nn.ZeroPad1d((2, 0)), nn.Tanh(), conv(3)), "1", "Tanh",
        "has padded values, which only a convolution may take",
    ),
    "a sum of padded values": (
        lambda: of(lambda self, x: pad(x) + 1), "0", "add", "has padded values, which only a convolution may take",
    ),
    "no trimming": (
        lambda: nn.Sequential(transposed(6, 2)), "0", "ConvTranspose1d",
        "its last 4 results depend on later inputs; a causal one trims them",
    ),
    "too little trimming": (
        lambda: nn.Sequential(Cut(transposed(6, 2), 0, 3, "slice")), "0.conv", "ConvTranspose1d",
        "its last 4 results depend on later inputs; a causal one trims them",
    ),
    "half of the trimming": (
        lambda: nn.Sequential(transposed(6, 2, padding=2)), "0", "ConvTranspose1d",
        "its last 2 results depend on later inputs; a causal one trims them",
    ),
    "too much trimming": (
        lambda: nn.Sequential(Cut(transposed(6, 2), 0, 5, "shape")), "", "output",
        "drops its last 1 results, which a stream has",
    ),
    "transposed, padded": (
        lambda: of(lambda self, x: self.conv(pad(x)), conv=transposed(4, 2)), "0.conv", "ConvTranspose1d",
        "transposes values that are padded",
    ),
    "transposed, dropped": (
        lambda: of(lambda self, x: self.conv(x[..., :-1]), conv=transposed(4, 2)), "0.conv", "ConvTranspose1d",
        "transposes values whose last results were dropped",
    ),
}  # fmt: skip
MODULES: dict[str, Case] = {
    "GroupNorm": (lambda: nn.Sequential(nn.GroupNorm(2, 4)), "0", "GroupNorm", "normalises over time"),
    "InstanceNorm1d": (lambda: nn.Sequential(nn.InstanceNorm1d(4)), "0", "InstanceNorm1d", "normalises over time"),
    "LayerNorm": (lambda: nn.Sequential(nn.LayerNorm(8)), "0", "LayerNorm", "works along time"),
    "LayerNorm of two": (lambda: nn.Sequential(nn.LayerNorm([4, 8])), "0", "LayerNorm", "works along time"),
    "Linear": (lambda: nn.Sequential(nn.Linear(8, 8)), "0", "Linear", "works along time"),
    "BatchNorm1d over time": (
        lambda: of(lambda self, x: self.norm(x.mT).mT, norm=nn.BatchNorm1d(8)), "0.norm", "BatchNorm1d",
        "works along time",
    ),
    "BatchNorm1d in training": (
        lambda: in_training(nn.BatchNorm1d(4)), "1", "BatchNorm1d",
        "is in training mode, in which it normalises over time",
    ),
    "Dropout in training": (
        lambda: in_training(nn.Dropout(0.5)), "1", "Dropout", "is in training mode; call eval()",
    ),
    "RReLU in training": (lambda: in_training(nn.RReLU()), "1", "RReLU", "is in training mode; call eval()"),
    "Dropout as post, in training": (
        lambda: in_training(sluice.nn.CausalConv1d(4, 3, post=nn.Dropout(0.5).eval())), "1", "CausalConv1d",
        "has a module in pre or post without a stage, such as a Dropout in training",
    ),
    "a chain with positions": (
        lambda: nn.Sequential(sluice.nn.CausalConv1d(4, 3, post=sluice.stages.mul(torch.ones(4, 8)))), "0",
        "CausalConv1d", "has a chain with a tensor of 8 positions",
    ),
    "Transform with positions": (
        lambda: nn.Sequential(sluice.nn.Transform(sluice.stages.mul(torch.ones(8)))), "0", "Transform",
        "has a chain with a tensor of 8 positions",
    ),
    "padding on both sides of pre": (
        lambda: nn.Sequential(nn.ZeroPad1d((1, 0)), sluice.nn.Conv1d(4, 4, 3, padding=1, pre="sigmoid()")), "1",
        "Conv1d", "pads on both sides of a `pre` that makes something of zeros",
    ),
    "padding in front of a causal pre": (
        lambda: nn.Sequential(nn.ZeroPad1d((1, 0)), sluice.nn.CausalConv1d(4, 3, pre="relu()")), "1", "CausalConv1d",
        "has a `pre` in front of its padding, and is padded",
    ),
    "attention": (
        lambda: of(lambda self, x: self.heads(x.mT, x.mT, x.mT)[0].mT, heads=nn.MultiheadAttention(4, 2)), "0.heads",
        "MultiheadAttention", "takes more than a tensor with a time axis",
    ),
    "an encoder layer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8)), "0", "TransformerEncoderLayer", UNKNOWN,
    ),
    "Upsample": (lambda: nn.Sequential(nn.Upsample(scale_factor=2)), "0", "Upsample", "interpolates over time"),
    "MaxPool1d": (lambda: nn.Sequential(nn.MaxPool1d(2)), "0", "MaxPool1d", "pools over time"),
    "AvgPool1d": (lambda: nn.Sequential(nn.AvgPool1d(2)), "0", "AvgPool1d", "pools over time"),
    "AdaptiveAvgPool1d": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool1d(2)), "0", "AdaptiveAvgPool1d", "pools over time",
    ),
    "AdaptiveMaxPool1d": (
        lambda: nn.Sequential(nn.AdaptiveMaxPool1d(2)), "0", "AdaptiveMaxPool1d", "pools over time",
    ),
    "GLU": (lambda: nn.Sequential(nn.GLU()), "0", "GLU", "works along time"),
    "Softmax": (lambda: nn.Sequential(nn.Softmax(2)), "0", "Softmax", "works along time"),
    "Softmin": (lambda: nn.Sequential(nn.Softmin(-1)), "0", "Softmin", "works along time"),
    "Softmax of no dimension": (
        lambda: nn.Sequential(nn.Softmax()), "0", "Softmax", "works along a dimension that is not given",
    ),
    "Flatten": (lambda: nn.Sequential(nn.Flatten()), "0", "Flatten", UNKNOWN),
    "a convolution along channels": (
        lambda: of(lambda self, x: self.conv(x.mT).mT, conv=conv(1)), "0.conv", "Conv1d",
        "takes time in dimension 1 of 3, where a stream has it in dimension 2 of 3",
    ),
    "LSTM of both directions": (
        lambda: of(lambda self, x: self.rnn(x.mT)[0].mT, rnn=nn.LSTM(4, 2, batch_first=True, bidirectional=True)),
        "0.rnn", "LSTM", "runs in both directions of time",
    ),
    "LSTM along channels": (
        lambda: of(lambda self, x: self.rnn(x)[0], rnn=nn.LSTM(4, 4, batch_first=True)), "0.rnn", "LSTM",
        "takes time in another dimension than the stream's",
    ),
    "LSTM with a dropout in training": (
        lambda: in_training(
            Calls(lambda self, x: self.rnn(x.mT)[0].mT, rnn=nn.LSTM(4, 4, 2, batch_first=True, dropout=0.5))
        ), "1.rnn", "LSTM", "has a dropout in training mode; call eval()",
    ),
    "LSTM after dropped results": (
        lambda: nn.Sequential(conv(3), Calls(lambda self, x: self.rnn(x.mT)[0].mT, rnn=nn.RNN(4, 4, batch_first=True))),
        "1.rnn", "RNN", "follows a layer that pads, or whose first or last results are dropped",
    ),
    "LSTM with a state": (
        lambda: of(lambda self, x: self.rnn(x.mT, x)[0].mT, rnn=nn.GRU(4, 4, batch_first=True)), "0.rnn", "GRU",
        "takes more than a tensor with a time axis",
    ),
    "LSTM whose state is used": (
        lambda: of(lambda self, x: x * self.rnn(x.mT)[1][0][-1][..., None], rnn=nn.LSTM(4, 4, batch_first=True)), "0",
        "getitem", "takes the state of a recurrent layer",
    ),
    "rows as channels": (
        lambda: of(lambda self, x: self.conv(x.transpose(0, 1)), conv=conv(1)), "0.conv", "Conv1d",
        "takes the batch in dimension 1, where a stream has it in dimension 0",
    ),
    "LSTM along the batch": (
        lambda: of(lambda self, x: self.rnn(x.permute(1, 2, 0))[0], rnn=nn.LSTM(4, 4, batch_first=True)), "0.rnn",
        "LSTM", "takes the batch in another dimension than the stream's",
    ),
    "PReLU along time": (
        lambda: of(lambda self, x: self.prelu(x.mT).mT, prelu=nn.PReLU(8)), "0.prelu", "PReLU", "works along time",
    ),
    "channels first": (
        lambda: Calls(lambda self, x: x.transpose(0, 1)), "", "output",
        "has the batch in dimension 1, not in dimension 0",
    ),
    "a hook": (
        lambda: hooked("forward_hook"), "0", "CausalConv1d", "has hooks, which a stream would not call",
    ),
    "a hook before": (
        lambda: hooked("forward_pre_hook"), "0", "CausalConv1d", "has hooks, which a stream would not call",
    ),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.spectral_norm(conv(1))), "0", "Conv1d",
        "has hooks, which a stream would not call",
    ),
    "an attribute": (
        lambda: of(lambda self, x: x.data), "", "getattr",
        "takes 'data' of a tensor, which is not known to leave time as it is",
    ),
    "the model itself": (lambda: nn.GroupNorm(2, 4), "", "GroupNorm", "normalises over time"),
    "a model of two inputs": (
        TwoInputs, "", "TwoInputs",
        "torch.fx cannot follow its forward: TwoInputs.forward() missing 1 required positional argument: 'y'",
    ),
    "control flow": (
        Branches, "", "Branches",
        "torch.fx cannot follow its forward: symbolically traced variables cannot be used as inputs to control flow",
    ),
    "a tuple": (lambda: Calls(lambda self, x: (x, x)), "", "output", "must return a tensor with a time axis"),
    "a number": (lambda: Calls(lambda self, x: 5), "", "output", "must return a tensor with a time axis"),
    "time first": (
        lambda: Calls(lambda self, x: x.mT), "", "output", "has time in dimension 1 of 3, not in dimension 2 of 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*PADDING, *MODULES])
def test_reasons(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the module, the op and the reason; `dry_run` prints it and returns nothing."""
    make, *row = {**PADDING, **MODULES}[name]
    model = make()
    assert_refused(model if "training" in name else model.eval(), row, capsys)


def test_every_refused_part_is_in_the_table() -> None:
    """What comes after a refused part is not named for it, what stands beside it is."""
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.MaxPool1d(2), conv(3, padding=1))
    with pytest.raises(ValueError) as refusal:
        sluice.streaming(model)
    assert str(refusal.value).splitlines()[2:] == ["0       GroupNorm         normalises over time"]
    beside = Calls(lambda self, x: self.pool(x) + self.conv(x), pool=nn.MaxPool1d(2), conv=transposed(4, 2))
    with pytest.raises(ValueError) as refusal:
        sluice.streaming(beside)
    assert str(refusal.value).splitlines()[2:] == ["pool    MaxPool1d         pools over time"]
    both = Calls(lambda self, x: self.pool(x) + self.norm(x), pool=nn.MaxPool1d(2), norm=nn.GroupNorm(2, 4))
    with pytest.raises(ValueError) as refusal:
        sluice.streaming(both)
    lines = "pool    MaxPool1d         pools over time", "norm    GroupNorm         normalises over time"
    assert str(refusal.value).splitlines()[2:] == [*lines]


def test_a_dry_run_of_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """The columns of each layer's state: channels times positions."""
    model = nn.Sequential(Padded(conv(5, stride=2), 3), nn.ELU(), Cut(transposed(6, 2), 0, 4, "slice"))
    assert sluice.streaming(model, dry_run=True) is None
    lines = "module  op               state  why not", "0.conv  Conv1d           12", "2.conv  ConvTranspose1d  16"
    assert capsys.readouterr().out.splitlines() == [*lines]


def test_nothing_runs_before_a_refusal() -> None:
    """Neither a forward on real tensors nor a change of the model."""
    calls: list[torch.Tensor] = []
    layer = Calls(lambda self, x: (calls.append(x), x)[1])
    with pytest.raises(ValueError):
        sluice.streaming(nn.Sequential(layer, nn.GroupNorm(2, 4)))
    assert not any(isinstance(x, torch.Tensor) for x in calls)
