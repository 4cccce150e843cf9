"""Random causal models: the chunks of any cut, in any slots, give the results of a run over the whole input."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from common import DTYPES
from stream_models import Calls, Cut, Padded, check_stream

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:LSTM with projections:UserWarning")
MOST_RATE, MOST_LEAD = 12, 40


def history_of(conv: Any) -> int:
    """Columns of the convolution's state; results of a transposed convolution that depend on later inputs."""
    return max(0, conv.dilation[0] * (conv.kernel_size[0] - 1) + 1 - conv.stride[0])


def gap_of(conv: Any) -> int:
    """Positions of a stride that no tap sees."""
    return max(0, conv.stride[0] - conv.dilation[0] * (conv.kernel_size[0] - 1) - 1)


class OwnConv1d(nn.Conv1d):
    """A convolution that pads itself, with a forward of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(F.pad(x, (history_of(self), 0)))


class OwnConvTranspose1d(nn.ConvTranspose1d):
    """A transposed convolution that trims itself."""

    def forward(self, x: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        return F.conv_transpose1d(
            x,
            self.weight,
            self.bias,
            self.stride,
            groups=self.groups,
            output_padding=gap_of(self),
            dilation=self.dilation,
        )[..., : x.shape[-1] * self.stride[0]]


def _halves(self: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = self.first(x).chunk(2, dim=1)
    return a * torch.sigmoid(b)


def _slices(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.first(x)
    half = y.shape[1] // 2
    return torch.sigmoid(y[:, :half]) * y[:, half:].tanh()


def _batch_first(self: Any, x: torch.Tensor) -> torch.Tensor:
    y, _ = self.rnn(x.transpose(1, 2))
    return y.transpose(1, 2)


def _time_first(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.rnn(x.permute(2, 0, 1))[0].permute(1, 2, 0)


def _with_sum(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.rnn(x.mT)[0].mT + x


def _in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    F.relu(x, inplace=True)  # its result is not used
    return x


def _normed(self: Any, x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(dim=1, keepdim=True)
    return (x - mean) * torch.rsqrt((x - mean).pow(2).mean(1, keepdim=True) + 1e-2)


ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Mish, nn.Hardswish, nn.PReLU, nn.Identity,
    lambda: nn.LeakyReLU(0.1), lambda: nn.ELU(0.7, inplace=True), lambda: nn.ReLU(inplace=True),
    lambda: nn.Dropout(0.5), lambda: nn.GELU("tanh"), lambda: nn.Sequential(nn.Tanh(), nn.Hardtanh(-0.5, 0.7)),
    lambda: nn.SiLU(inplace=True), lambda: Calls(lambda self, x: x.sigmoid_()),
    lambda: Calls(lambda self, x: F.elu(x, 0.8)), lambda: Calls(lambda self, x: F.leaky_relu(x, 0.2, inplace=True)),
    lambda: Calls(lambda self, x: torch.tanh(x)), lambda: Calls(lambda self, x: F.gelu(x, approximate="tanh")),
    lambda: Calls(lambda self, x: F.silu(x).contiguous()),
    lambda: Calls(lambda self, x: F.relu_(x)), lambda: Calls(lambda self, x: x.clamp(min=-1.5, max=1.0)),
    lambda: Calls(lambda self, x: F.dropout(x, 0.5, training=self.training)), lambda: Calls(_in_place),
    lambda: Calls(lambda self, x: torch.where(x > 0, x, 0.3 * x)), lambda: Calls(_normed),
]  # fmt: skip


@functools.cache
def snakes() -> list[Any]:
    """Makers of transformers' Snakes for a number of channels; none without transformers."""
    try:
        from transformers.models.dac.modeling_dac import Snake1d
        from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen
    except ImportError:
        return []
    return [Snake1d, getattr(qwen, "Qwen3OmniMoeSnakeBeta", None) or qwen.SnakeBeta]


@dataclasses.dataclass(frozen=True)
class Signal:
    """What a layer gets: channels, positions for each input position, and results dropped so far."""

    channels: int
    rate: Fraction = Fraction(1)
    lead: int = 0


Made = tuple[nn.Module, Signal]


class Draw(random.Random):
    """Random models; torch's seed decides them.

    Attributes:
        mode: how paddings of the model fill, "constant" or "replicate".
    """

    def __init__(self) -> None:
        super().__init__(int(torch.randint(2**62, ())))
        self.mode = self.choice(["constant", "constant", "replicate"])

    def model(self) -> tuple[nn.Module, int]:
        """A model of some layers and blocks, and the channels of its input."""
        first = signal = Signal(self.choice([1, 2, 4, 6]))
        layers: list[nn.Module] = []
        rates = self.choice(
            [["down"] * 2, ["up"] * 2, ["up", "down"], ["both"], ["down", "both"], ["both", "down"], []]
        )
        for kind in rates or [""]:
            for _ in range(self.choice([0, 1, 2])):
                signal = self._add(layers, self.level(signal))
            if kind:
                signal = self._add(layers, getattr(self, kind)(signal))
        for _ in range(self.choice([1, 2, 3])):
            signal = self._add(layers, self.level(signal))
        return self._whole(layers), first.channels

    def _add(self, layers: list[nn.Module], made: Made) -> Signal:
        layers.append(made[0])
        return made[1]

    def _whole(self, layers: list[nn.Module]) -> nn.Module:
        if self.random() < 0.5:
            return nn.Sequential(*layers)

        def run(self: Any, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

        return Calls(run, layers=nn.ModuleList(layers))

    def level(self, signal: Signal, channels: int | None = None) -> Made:
        """A layer or a block of as many results as inputs, perhaps of given channels."""
        kinds = [self.same, self.same, self.block, self.joined, self.gated]
        if channels is None:
            kinds += [self.activation, self.activation, self.norm, self.twice]
            if signal.lead == 0:
                kinds.append(self.recurrent)
        return self.choice(kinds)(signal, channels)

    # --- convolutions -------------------------------------------------------------------------------------------------
    def same(self, signal: Signal, channels: int | None = None) -> Made:
        """A convolution of stride 1, or a transposed convolution of stride 1."""
        if self.random() < 0.15:
            return self.up(signal, channels, 1)
        return self.down(signal, channels, 1)

    def down(self, signal: Signal, channels: int | None = None, stride: int | None = None) -> Made:
        """A convolution, padded in some way."""
        channels = channels or self.choice([2, 4, 6, 12])
        if stride is None:
            fits = [s for s in (1, 2, 3, 4) if signal.lead % s == 0 and signal.rate / s * MOST_RATE >= 1]
            stride = self.choice(fits)
        taps, dilation = self.choice([1, 2, 3, 4, 5, 7, 9]), self.choice([1, 1, 1, 2, 3])
        groups = self.choice([g for g in (1, 1, 1, 2, 3, signal.channels) if signal.channels % g == channels % g == 0])
        numbers: dict[str, Any] = {
            "stride": stride,
            "dilation": dilation,
            "groups": groups,
            "bias": self.random() < 0.8,
        }
        made = dataclasses.replace(signal, channels=channels, rate=signal.rate / stride, lead=signal.lead // stride)
        kind, mode = self.choice(["pad", "module", "chomp", "own", "ours"]), "constant" if signal.lead else self.mode
        if kind == "ours":
            chains = {
                name: nn.Sequential(self.choice(ACTIVATIONS[:7])()) for name in ("pre", "post") if self.random() < 0.3
            }
            own = sluice.nn.CausalConv1d(
                signal.channels, taps, out_channels=channels, padding_mode="zeros" if mode == "constant" else mode,
                activation=self.choice([None, None, "silu"]), **numbers, **chains,
            )  # fmt: skip
            return self._ready(own), made
        if kind == "own" and mode == "constant":
            return self._ready(OwnConv1d(signal.channels, channels, taps, **numbers)), made
        conv = nn.Conv1d(signal.channels, channels, taps, **numbers)
        history = history_of(conv)
        if kind == "chomp" and mode == "constant":
            whole = nn.Conv1d(signal.channels, channels, taps, padding=history, **numbers)
            after = (history + gap_of(whole)) // stride
            form = self.choice(["slice", "shape", "narrow", *(["input"] if stride == 1 and signal.lead == 0 else [])])
            return Cut(self._ready(whole), 0, after, form), made
        if kind == "module" and history > 0:
            pad = nn.ReplicationPad1d if mode == "replicate" else functools.partial(nn.ConstantPad1d, value=0.0)
            return nn.Sequential(pad((history, 0)), self._ready(conv)), made
        return Padded(self._ready(conv), history, mode), made

    def up(self, signal: Signal, channels: int | None = None, stride: int | None = None) -> Made:
        """A transposed convolution that is trimmed on the right."""
        return self._spread(signal, channels, stride, trims_both=False)

    def both(self, signal: Signal, channels: int | None = None) -> Made:
        """A transposed convolution that is trimmed on both sides."""
        return self._spread(signal, channels, None, trims_both=True)

    def _spread(self, signal: Signal, channels: int | None, stride: int | None, trims_both: bool) -> Made:
        channels = channels or self.choice([2, 4, 6, 12])
        fits = [s for s in (1, 2, 3, 4) if signal.rate * s <= MOST_RATE and signal.lead * s <= MOST_LEAD]
        stride = stride or self.choice(fits)
        taps, dilation = self.choice([1, 2, 3, 4, 7, 2 * stride, 2 * stride, 3 * stride]), self.choice([1, 1, 1, 2])
        groups = self.choice([g for g in (1, 1, 2, 3) if signal.channels % g == channels % g == 0])
        numbers: dict[str, Any] = {
            "stride": stride,
            "dilation": dilation,
            "groups": groups,
            "bias": self.random() < 0.8,
        }
        made = dataclasses.replace(signal, channels=channels, rate=signal.rate * stride, lead=signal.lead * stride)
        if not trims_both and self.random() < 0.3:
            chains = {
                name: nn.Sequential(self.choice(ACTIVATIONS[:7])()) for name in ("pre", "post") if self.random() < 0.3
            }
            own = sluice.nn.CausalConvTranspose1d(signal.channels, channels, taps, **numbers, **chains)
            return self._ready(own), made
        if signal.lead == 0 and not trims_both and self.random() < 0.3:
            return self._ready(OwnConvTranspose1d(signal.channels, channels, taps, **numbers)), made
        conv = nn.ConvTranspose1d(signal.channels, channels, taps, **numbers)
        overlap, gap, first = history_of(conv), gap_of(conv), 0
        if gap > 0:
            conv = nn.ConvTranspose1d(signal.channels, channels, taps, output_padding=gap, **numbers)
        elif trims_both and overlap > 0:
            first = self.randint(1, overlap)
            if self.random() < 0.5:
                conv = nn.ConvTranspose1d(signal.channels, channels, taps, padding=first, **numbers)
        form = self.choice(["slice", "shape", "narrow", *(["input"] if signal.lead == 0 and first == 0 else [])])
        own_first = 0 if conv.padding[0] else first
        whole = Cut(self._ready(conv), own_first, overlap - conv.padding[0], form, stride)
        return whole, dataclasses.replace(made, lead=made.lead + first)

    def _ready(self, conv: Any) -> nn.Module:
        """Weights that keep the values' size, perhaps of weight_norm."""
        fan = conv.in_channels // conv.groups * conv.kernel_size[0] / (conv.stride[0] if conv.transposed else 1)
        nn.init.normal_(conv.weight, std=max(1.0, fan) ** -0.5)
        if type(conv) in (nn.Conv1d, nn.ConvTranspose1d, OwnConv1d, OwnConvTranspose1d):
            norm = self.choice([None] * 6 + [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm])
            conv = conv if norm is None else norm(conv)
        return conv  # type: ignore[no-any-return]

    # --- other layers -------------------------------------------------------------------------------------------------
    def activation(self, signal: Signal, channels: int | None = None) -> Made:
        """An activation, as a module or a function; a gain for each channel."""
        count = signal.channels
        if self.random() < 0.15 and snakes():
            snake = self.choice(snakes())(count)
            for parameter in snake.parameters():
                nn.init.uniform_(parameter, 0.3, 1.2)
            return snake, signal
        if self.random() < 0.1:
            gain = nn.Parameter(torch.rand(count, 1) + 0.5)
            return Calls(lambda self, x: x * self.gain + self.gain, gain=gain), signal
        return (nn.PReLU(count) if self.random() < 0.05 else self.choice(ACTIVATIONS)()), signal

    def norm(self, signal: Signal, channels: int | None = None) -> Made:
        """A norm or a sum over channels."""
        count = signal.channels
        layer = self.choice(
            [nn.LayerNorm(count, eps=1e-2), nn.Linear(count, count), nn.Softmax(-1), nn.BatchNorm1d(count)]
        )
        if isinstance(layer, nn.BatchNorm1d):
            nn.init.uniform_(layer.running_mean, -0.5, 0.5)  # type: ignore[arg-type]
            nn.init.uniform_(layer.running_var, 0.5, 1.5)  # type: ignore[arg-type]
            return layer, signal
        around = [
            lambda self, x: self.layer(x.permute(0, 2, 1)).permute(0, 2, 1),
            lambda self, x: self.layer(x.transpose(1, 2)).transpose(-1, -2),
            lambda self, x: self.layer(x.mT).movedim(1, 2),
            lambda self, x: self.layer(x.unsqueeze(1).permute(0, 1, 3, 2)).permute(0, 1, 3, 2).squeeze(1),
        ]
        return Calls(self.choice(around), layer=layer), signal

    def gated(self, signal: Signal, channels: int | None = None) -> Made:
        """A gate over twice the channels."""
        channels = channels or self.choice([2, 4])
        first, wide = self.same(signal, 2 * channels)
        gates = [
            lambda self, x: nn.functional.glu(self.first(x), 1),
            lambda self, x: self.glu(self.first(x)),
            _halves,
            _slices,
        ]
        whole = Calls(self.choice(gates), first=first, glu=nn.GLU(1))
        return whole, dataclasses.replace(wide, channels=channels)

    def recurrent(self, signal: Signal, channels: int | None = None) -> Made:
        """A recurrent layer, with a residual sum in some draws."""
        count, is_first = signal.channels, self.random() < 0.5
        options: dict[str, Any] = {
            "num_layers": self.choice([1, 2]),
            "batch_first": is_first,
            "bias": self.random() < 0.8,
        }
        kind = self.choice([nn.LSTM, nn.LSTM, nn.GRU, nn.RNN])
        if kind is nn.LSTM and count > 1 and self.random() < 0.2:
            options["proj_size"] = count // 2
            made = dataclasses.replace(signal, channels=count // 2)
            return Calls(_batch_first if is_first else _time_first, rnn=kind(count, count, **options)), made
        run = self.choice([_batch_first, _with_sum] if is_first else [_time_first])
        return Calls(run, rnn=kind(count, count, **options)), signal

    def block(self, signal: Signal, channels: int | None = None) -> Made:
        """A residual sum, with a shortcut of one tap where channels differ, and in some draws where not."""
        channels = channels or self.choice([signal.channels, signal.channels, 4])
        layers: list[nn.Module] = []
        inner = signal
        for _ in range(self.choice([0, 1, 1, 2])):
            inner = self._add(layers, self.choice([self.activation, self.same, self.activation])(inner))
        inner = self._add(layers, self.same(inner, channels))
        if self.random() < 0.3:
            inner = self._add(layers, self.activation(inner))
        shortcut: nn.Module = nn.Identity()
        if channels != signal.channels or self.random() < 0.3:
            shortcut = self._ready(nn.Conv1d(signal.channels, channels, 1))
        sums = [
            lambda self, x: self.shortcut(x) + self.main(x),
            lambda self, x: self.main(x) + self.shortcut(x),
            lambda self, x: torch.add(self.shortcut(x), self.main(x)),
            lambda self, x: self.main(x).add_(self.shortcut(x)),
            lambda self, x: (self.main(x) + self.shortcut(x)) * 0.7,
        ]
        return Calls(self.choice(sums), main=nn.Sequential(*layers), shortcut=shortcut), inner

    def joined(self, signal: Signal, channels: int | None = None) -> Made:
        """Channels of two branches, concatenated or added."""
        channels = channels or 4
        left, right = (self.same(signal, channels // 2)[0] for _ in range(2))
        begin, _ = self.activation(signal)
        made = dataclasses.replace(signal, channels=channels)
        joins = [
            lambda self, x: torch.cat([self.left(x), self.right(self.begin(x))], dim=1),
            lambda self, x: torch.cat((self.left(self.begin(x)), self.right(x)), 1),
            lambda self, x: torch.cat([self.left(x), torch.stack([self.right(x), self.left(x)], 1).amax(dim=1)], -2),
        ]
        return Calls(self.choice(joins), left=left, right=right, begin=begin), made

    def twice(self, signal: Signal, channels: int | None = None) -> Made:
        """A module that is called twice; each call has a state of its own."""
        inner, _ = self.same(signal, signal.channels)
        between, _ = self.activation(signal)
        return Calls(lambda self, x: self.inner(self.between(self.inner(x))), inner=inner, between=between), signal


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_cuts_of_random_models(device: str, dtype: torch.dtype, part: int) -> None:
    """Five hundred models in all, with callers that come and go, and rows without a slot."""
    for _ in range(25):
        draw = Draw()
        with torch.no_grad():
            model, channels = draw.model()
            model = model.eval().to(device, dtype)
        probe = sluice.streaming(model, dtype=dtype)
        steps = math.ceil(probe.latency / probe.multiple) + draw.choice([3, 6, 12])
        x = torch.randn(draw.choice([1, 2, 3]), channels, steps * probe.multiple, device=device).to(dtype)
        check_stream(model, x, draw)
