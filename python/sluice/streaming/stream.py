"""`streaming` and what it returns: a model that takes its input chunk by chunk."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Any, NoReturn

import torch

from .._arguments import check_tensor, integer
from .._autograd import require_forward_only
from .analysis import Analysis, Row
from .build import built
from .layers import Convolution, Layer, Leads, Step
from .reach import receptive_field
from .writes import Memory

_ALIGNMENT = 8  # elements: 16 bytes of half types


class Streaming(torch.nn.Module):
    """A model as a stream: called with chunks, it returns what the model would return for the whole input.

    It has the model's weights as they were when it was made; call `streaming` again after a change of them. It is
    called by one thread at a time; several of one model share weights and their packed values.

    Attributes:
        multiple: the length of a chunk is a multiple of it.
        least_first: positions that the first chunk of a stream needs to be padded as the model pads: more than
            `multiple` with padding by "reflect", which takes inputs after the first.
        slots: the streams that it has room for.
        latency: input positions after its own time that a result needs: what the model drops at its beginning.
        lead: the first results of a stream that the model does not return; they are zeros.
        receptive_field: input positions from the first to the last that a result sees; infinity with recurrent layers.

    Example:
        >>> import torch, sluice
        >>> conv = sluice.nn.CausalConv1d(4, 3, out_channels=4)
        >>> model = torch.nn.Sequential(torch.nn.ELU(), conv).eval()
        >>> stream, x = sluice.streaming(model), torch.randn(1, 4, 6)
        >>> with torch.no_grad():
        ...     chunks = torch.cat([stream(chunk) for chunk in x.split(2, dim=-1)], dim=-1)
        ...     torch.testing.assert_close(chunks, model(x))
    """

    def __init__(self, analysis: Analysis, slots: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        result = analysis.result
        assert result is not None
        self.multiple, self.slots, self.lead = analysis.multiple, slots, result.lead
        self.latency = math.ceil(result.lead / result.rate)
        self.receptive_field = receptive_field(analysis)
        self.rows = analysis.rows
        self._rate = result.rate.as_integer_ratio()
        needed = [math.ceil((layer.numbers.columns + 1) / Fraction(*layer.rate)) for layer in _reflecting(analysis)]
        self.least_first = -(-max([1, *needed]) // self.multiple) * self.multiple
        layers = list(analysis.layers.values())
        self._counts = self.lead > 0 or any(_asks(layer) for layer in layers)
        # Counting ends where no layer asks any more; there, too, all rates give whole positions.
        most = max([1, *(math.ceil(time.lead / time.rate) for time in analysis.times)])
        self._most = float(-(-most // self.multiple) * self.multiple)
        self._leads = self._place_leads(layers, device)
        self._graph = built(analysis)
        self._dtype = dtype
        self._make_states(layers, device)

    def _place_leads(self, layers: list[Layer], device: torch.device) -> Leads:
        """Gives each layer with a lead its place."""
        leading = [layer for layer in layers if isinstance(layer, Convolution) and layer.lead > 0]
        own = [(self.lead, self._rate)] if self.lead > 0 else []
        leads = Leads([(layer.lead, layer.rate) for layer in leading] + own, device)
        for layer in leading:
            layer.place = leads.pairs.index((layer.lead, layer.rate))
        self._place = leads.pairs.index(own[0]) if own else 0
        return leads

    def _make_states(self, layers: list[Layer], device: torch.device) -> None:
        """A tensor for each dtype; a row more than there are slots, for rows without a slot."""
        sums = torch.float64 if self._dtype == torch.float64 else torch.float32
        columns = {self._dtype: 0, sums: 0}
        columns[sums] = _ALIGNMENT if self._counts else 0
        places = []
        for layer in layers:
            own = sums if layer.is_sum else self._dtype
            places.append((layer, own, columns[own]))
            columns[own] += -(-layer.columns // _ALIGNMENT) * _ALIGNMENT
        with torch.inference_mode(False):  # else calls outside of it could not change them
            self._states = {
                own: torch.zeros(self.slots + 1, width, dtype=own, device=device) for own, width in columns.items()
            }
        self._both = self._states[self._dtype], self._states[sums]
        for layer, own, first in places:
            layer.bind(self._states[own], first)
        self._begun = self._both[1][:, 0] if self._counts else None

    @property
    def state(self) -> dict[torch.dtype, torch.Tensor]:
        """What the slots hold, (slots, columns) for each dtype: to save, copy, or move between slots in place."""
        return {own: state[: self.slots] for own, state in self._states.items() if state.shape[1] > 0}

    def reset(self, slots: torch.Tensor | None = None) -> None:
        """Makes slots begin as new, all without an argument; (n,) int32 or int64, negative numbers are skipped."""
        if slots is not None:
            _check_slots(slots)
        for state in self._states.values():
            if slots is None:
                state.zero_()
            else:
                state.index_fill_(0, self._rows_of(slots.to(state.device)), 0)

    def forward(self, x: torch.Tensor, slots: torch.Tensor | None = None) -> torch.Tensor:
        """The results of a chunk.

        Args:
            x: (B, C, S), S a multiple of `multiple`.
            slots: (B,) int32 or int64 on x's device, each row's slot; -1 for a row without a stream, whose result is
                zeros. Without it row n has slot n.

        Raises:
            ValueError: a shape that does not fit.
            TypeError: a dtype that does not fit.
        """
        self._check(x, slots)
        require_forward_only("streaming", (x,))
        with torch.no_grad():
            step = self._step(x, slots)
            y: torch.Tensor = self._graph(x, step, self._both)
            if self.lead > 0:
                y = torch.where(step.kept[self._place], y, 0)
            if step.rows is not None:
                y = y.masked_fill(step.rows.eq(self.slots)[:, None, None], 0)
            self._count(x, step)
            return y

    def _count(self, x: torch.Tensor, step: Step) -> None:
        """Adds the chunk to what its slots have had."""
        if self._begun is None or step.begun is None:
            return
        if step.rows is None:
            self._begun[: x.shape[0]].add_(x.shape[2]).clamp_(max=self._most)
        else:
            lengths = torch.full_like(step.begun, x.shape[2])
            self._begun.index_add_(0, step.rows, lengths).clamp_(max=self._most)

    def _check(self, x: torch.Tensor, slots: torch.Tensor | None) -> None:
        check_tensor("streaming", "x", x)
        if x.dim() != 3:
            raise ValueError(f"streaming: x must have shape (batch, channels, length), got {tuple(x.shape)}")
        if x.dtype != self._dtype:
            raise TypeError(f"streaming: x must have dtype {self._dtype} like the stream, got {x.dtype}")
        if x.shape[2] % self.multiple != 0 or x.shape[2] == 0:
            raise ValueError(f"streaming: x must have a multiple of {self.multiple} positions, got {x.shape[2]}")
        if slots is None:
            if x.shape[0] > self.slots:
                raise ValueError(
                    f"streaming: x must have at most {self.slots} rows, as many as slots, got {x.shape[0]}"
                )
            return
        _check_slots(slots)
        if slots.shape != x.shape[:1]:
            raise ValueError(f"streaming: slots must have shape ({x.shape[0]},), got {tuple(slots.shape)}")

    def _step(self, x: torch.Tensor, slots: torch.Tensor | None) -> Step:
        places = None if slots is None else self._rows_of(slots)
        if self._begun is None:
            return Step(slots, places, None, None, [])
        begun = self._begun[: x.shape[0]] if places is None else self._begun[places]
        return Step(slots, places, begun, begun > 0, self._leads.kept(begun, x.shape[2]))

    def _rows_of(self, slots: torch.Tensor) -> torch.Tensor:
        is_slot = (slots >= 0) & (slots < self.slots)
        return torch.where(is_slot, slots, self.slots).long()

    def _apply(self, fn: Any, recurse: bool = True) -> Streaming:
        raise RuntimeError("streaming: move or cast the model, then make the stream, which shares the model's weights")

    def __deepcopy__(self, memo: dict[int, Any]) -> Streaming:
        """A stream with states and weights of its own."""
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "streaming: a Streaming must not be pickled or copied by copy.copy: save its `state`, and call `streaming` "
            "again; copy.deepcopy copies it"
        )

    def train(self, mode: bool = True) -> Streaming:
        """Nothing: a stream is in eval mode, and modules that it shares with the model keep theirs."""
        return self

    def extra_repr(self) -> str:
        """The numbers that `repr` shows."""
        return f"slots={self.slots}, multiple={self.multiple}, latency={self.latency}"


def _check_slots(slots: torch.Tensor) -> None:
    check_tensor("streaming", "slots", slots)
    if slots.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"streaming: slots must have dtype int32 or int64, got {slots.dtype}")


def _reflecting(analysis: Analysis) -> list[Convolution]:
    layers = [layer for layer in analysis.layers.values() if isinstance(layer, Convolution)]
    return [layer for layer in layers if layer.padding_mode == "reflect"]


def _asks(layer: Layer) -> bool:
    return isinstance(layer, Convolution) and (layer.padding_mode != "zeros" or layer.lead > 0)


def streaming(
    model: torch.nn.Module,
    *,
    slots: int = 1,
    dtype: torch.dtype | None = None,
    device: Any = None,
    dry_run: bool = False,
) -> Streaming | None:
    """A model of causal convolutions as a stream: chunk by chunk it returns what it returns for the whole input.

    The model takes one tensor (B, C, T) and returns one. torch.fx follows its forward, and every op is asked what it
    does to time. What looks back gets a state: the convolutions of transformers' Mimi, EnCodec and code2wav, padding on
    the left before a convolution, transposed convolutions that are trimmed on the right, `sluice.nn.CausalConv1d` and
    `CausalConvTranspose1d`, and LSTMs, GRUs and RNNs of one direction. Pointwise ops, residual sums, norms over
    channels and permutations stay as they are. What lets a result depend on later inputs is refused: symmetric padding,
    norms over time, attention, interpolation. Activations and residual sums move into the convolutions.

    Args:
        model: in eval mode; it does not change.
        slots: streams that run side by side.
        dtype: of inputs and states; the parameters' by default, which it has to be.
        device: of the states; the parameters' by default.
        dry_run: whether only the table is printed.

    Returns:
        A `Streaming`; None with `dry_run`.

    Raises:
        ValueError: the model is no stream; the message is the table of what is refused, with reasons.
        TypeError: `model` is no module, or its convolutions have another dtype than `dtype`.

    Example:
        >>> import torch, sluice
        >>> conv = torch.nn.Conv1d(2, 2, 3, padding=1)
        >>> sluice.streaming(torch.nn.Sequential(conv), dry_run=True)
        module  op      state  why not
        0       Conv1d         pads 1 on the right, so its last results see zeros in the place of later inputs

    Source: Mimi's and Moshi's streaming modules (Defossez et al., 2024).
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"streaming: model must be a torch.nn.Module, got {type(model).__name__}")
    slots = integer("streaming", "slots", slots)
    if slots < 1:
        raise ValueError(f"streaming: slots must be at least 1, got {slots}")
    analysis = Analysis(model)
    if not analysis.refused:
        Memory(analysis).check()
    if dry_run:
        print(table(analysis.rows))
        return None
    if analysis.refused or analysis.result is None:
        raise ValueError(f"streaming: the model must be causal, got\n{table(analysis.refused)}")
    first = next((p for p in model.parameters() if p.is_floating_point()), None)
    dtype = dtype or (torch.get_default_dtype() if first is None else first.dtype)
    for layer in analysis.layers.values():
        if isinstance(layer, Convolution) and (own := layer.weights.weight.dtype) != dtype:
            raise TypeError(f"streaming: dtype must be {own} like the model's convolutions, got {dtype}")
    place = torch.device(device) if device is not None else torch.device("cpu") if first is None else first.device
    return Streaming(analysis, slots, dtype, place)


def table(rows: list[Row]) -> str:
    """The parts of a model as aligned text."""
    lines = [("module", "op", "state", "why not")]
    lines += [(row.module, row.op, "" if row.reason else str(row.columns), row.reason) for row in rows]
    widths = [max(len(line[k]) for line in lines) for k in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[3]]).rstrip()
        for line in lines
    )
