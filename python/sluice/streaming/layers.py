"""The layers of a stream that look back: convolutions with a state, and recurrent layers."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch

from ..causal_conv1d import causal_conv1d
from ..causal_conv_transpose1d import causal_conv_transpose1d
from ..chain import Chain
from ..pack import PackedWeight
from ..stages import add
from .values import Numbers


class Step(NamedTuple):
    """What a step's layers share.

    Attributes:
        slots: (B,) the rows' slots; None: row n has slot n.
        rows: (B,) the same, int64, and the row after the slots where there is none; None as before.
        begun: (B,) inputs that a slot has had, float32; None where no layer asks.
        has_begun: (B,) whether it has had any; None likewise.
        kept: by a place in `Leads`, (B, 1, S) the positions of its tensor that do not count as zeros.
    """

    slots: torch.Tensor | None
    rows: torch.Tensor | None
    begun: torch.Tensor | None
    has_begun: torch.Tensor | None
    kept: list[torch.Tensor]


# States of the model's dtype, and of sums' dtype.
States = tuple[torch.Tensor, torch.Tensor]


class Layer(torch.nn.Module):
    """A layer with columns of the state.

    Attributes:
        columns: of a slot, all of its channels.
        is_sum: whether its state holds sums, which are float32 whatever the model's dtype.
    """

    columns: int
    is_sum = False

    def bind(self, state: torch.Tensor, first: int) -> None:
        """Gives it its columns of the state (slots, columns), from the first on."""
        self._first, self._slots = first, state.shape[0]
        self._view = self._of(state)

    def _of(self, state: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def state_in(self, state: torch.Tensor) -> torch.Tensor:
        """The layer's part of the state; a compiler sees it as a view, eager code has made it before."""
        return self._of(state) if torch.compiler.is_compiling() else self._view


@dataclasses.dataclass
class Weights:
    """A convolution's tensors, which several streams of a model share."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    packed: PackedWeight | None


class Convolution(Layer):
    """A causal convolution, transposed or not.

    Attributes:
        numbers: of the convolution.
        padding_mode: what is before a stream's first input.
        lead: positions of a stream before which its input counts as zeros; 0 where a result sees one of them alone.
        rate: input positions of this layer for each of the stream's, as numerator and denominator.
        place: of its lead in a stream's `Leads`.
        ahead: a chain on its input that makes something of zeros, so it comes before them.
        before: the chain on its input.
        behind: the chain on its result.
    """

    def __init__(self, weights: Weights, numbers: Numbers, groups: int, transposed: bool, channels: int) -> None:
        super().__init__()
        self.weights, self.numbers, self.groups, self.transposed = weights, numbers, groups, transposed
        self.channels, self.padding_mode, self.lead, self.rate, self.place = channels, "zeros", 0, (1, 1), 0
        first, second = weights.weight.shape[0], weights.weight.shape[1] * groups
        self.inputs, self.outputs = (first, second) if transposed else (second, first)
        self.ahead: Chain | None = None
        self.before: Chain | None = None
        self.behind: Chain | None = None
        self.is_sum = transposed
        self.columns = numbers.columns * channels

    def _of(self, state: torch.Tensor) -> torch.Tensor:
        """(slots, channels, columns), the channels of a column adjacent."""
        own = state[:, self._first : self._first + self.columns]
        shaped: torch.Tensor = own.unflatten(1, (self.numbers.columns, self.channels)).transpose(1, 2)
        return shaped

    def forward(
        self,
        x: torch.Tensor,
        step: Step,
        states: States,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The results of a chunk, plus `residual`; the state moves on."""
        if self.ahead is not None:
            x = self.ahead(x)
        if self.lead > 0:
            x = torch.where(step.kept[self.place], x, 0)
        if residual is not None and residual.shape[1] > self.outputs:  # so the sum is wider than the result
            y = self._convolved(x, step, states, None) + residual
            return y if self.behind is None else self.behind(y)
        behind = self.behind
        if residual is not None:
            behind = add(residual) if behind is None else add(residual) | behind
        return self._convolved(x, step, states, behind)

    def may_act_before(self, chain: Chain) -> bool:
        """Whether the chain may be `before`: it keeps zeros, or it meets none ahead of a stream's first input."""
        if self.lead == 0 and (self.transposed or self.columns == 0 or self.padding_mode != "zeros"):
            return True
        weight = self.weights.weight
        zeros = torch.zeros(1, self.inputs, 1, dtype=weight.dtype, device=weight.device)
        with torch.no_grad():
            return not bool(chain(zeros).any())

    def _convolved(self, x: torch.Tensor, step: Step, states: States, behind: Chain | None) -> torch.Tensor:
        weight = self.weights.packed or self.weights.weight
        options: dict[str, Any] = {"pre": self.before, "post": behind, "cache_indices": step.slots}
        numbers, state = self.numbers, self.state_in(states[int(self.is_sum)])
        if step.slots is None:
            state = state[: x.shape[0]]
        options |= {"stride": numbers.stride, "dilation": numbers.dilation, "groups": self.groups}
        if self.transposed:
            return causal_conv_transpose1d(x, weight, self.weights.bias, overlap_cache=state, **options)
        if self.padding_mode != "zeros":
            options |= {"padding_mode": self.padding_mode, "has_initial_state": step.has_begun}
        result = causal_conv1d(x, weight, self.weights.bias, state_cache=state, **options)
        assert isinstance(result, torch.Tensor)
        return result

    def extra_repr(self) -> str:
        """The numbers that `repr` shows."""
        n = self.numbers
        shown = f"{tuple(self.weights.weight.shape)}, stride={n.stride}, dilation={n.dilation}, groups={self.groups}"
        return f"{shown}, transposed" if self.transposed else shown


_FUNCTIONS: dict[str, Any] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}


class Recurrent(Layer):
    """An LSTM, a GRU or an RNN of one direction, whose states are in slots.

    It has the numbers and the parameters of torch's module, which torch.compile does not follow.
    """

    def __init__(self, module: torch.nn.RNNBase) -> None:
        super().__init__()
        self.count, self.has_bias, self.batch_first = module.num_layers, module.bias, module.batch_first
        self.mode, self.weights = (
            module.mode,
            [weight.detach() for weight in module._flat_weights if weight is not None],
        )
        sizes = [module.proj_size or module.hidden_size]
        if module.mode == "LSTM":
            sizes.append(module.hidden_size)
        self._widths = [size * self.count for size in sizes]
        self.columns = sum(self._widths)

    def _of(self, state: torch.Tensor) -> torch.Tensor:
        """(slots, columns): of each of its states, layer after layer."""
        return state[:, self._first : self._first + self.columns]

    def forward(self, x: torch.Tensor, step: Step, states: States) -> torch.Tensor:
        """The results of a chunk, in the module's layout."""
        state, batch = self.state_in(states[0]), x.shape[0 if self.batch_first else 1]
        rows = state[:batch] if step.rows is None else state[step.rows]
        parts = [
            part.unflatten(1, (self.count, -1)).transpose(0, 1).contiguous() for part in rows.split(self._widths, 1)
        ]
        y: torch.Tensor
        y, *last = _FUNCTIONS[self.mode](
            x, parts if self.mode == "LSTM" else parts[0], self.weights, self.has_bias, self.count, 0.0, False, False,
            self.batch_first,
        )  # fmt: skip
        new = torch.cat([part.transpose(0, 1).flatten(1) for part in last], dim=1)
        if step.rows is None:
            state[:batch].copy_(new)
            return y
        state.index_copy_(0, step.rows, new)
        has_slot = (step.rows < self._slots - 1).view((-1, 1, 1) if self.batch_first else (1, -1, 1))
        kept: torch.Tensor = torch.where(has_slot, y, 0)
        return kept


class Leads:
    """The positions before which tensors of a stream count as zeros, each pair of a lead and a rate once."""

    def __init__(self, pairs: list[tuple[int, tuple[int, int]]], device: torch.device) -> None:
        self.pairs = sorted(set(pairs))
        numbers = [(lead, *rate) for lead, rate in self.pairs]
        columns = torch.tensor(numbers, dtype=torch.float32, device=device).view(-1, 3).unbind(1)
        self._leads, self._numerators, self._denominators = columns

    def kept(self, begun: torch.Tensor, length: int) -> list[torch.Tensor]:
        """(B, 1, S) for each pair: a slot has had `begun` * rate positions, and has S = `length` * rate of the step."""
        if not self.pairs:
            return []
        lengths = [length * rate[0] // rate[1] for _, rate in self.pairs]
        positions = torch.arange(max(lengths), device=begun.device)
        firsts = self._leads - begun[:, None] * self._numerators / self._denominators
        return [
            (positions[:own] >= first[:, None])[:, None] for own, first in zip(lengths, firsts.unbind(1), strict=True)
        ]
