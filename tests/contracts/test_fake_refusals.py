"""Fake kernels refuse what the ops refuse, in the same words: arguments that are wrong in any way, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sluice

pytestmark = pytest.mark.no_gpu
EXTENTS = [0, 1, 2, 3, 4, 6, 20]
Arguments = tuple[list[Any], dict[str, Any]]


class Draw(random.Random):
    def tensor(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=self.choice([torch.float32] * 12 + [torch.float16, torch.int32]))

    def any_tensor(self, least: int, most: int) -> torch.Tensor:
        return self.tensor(*self.choices(EXTENTS, k=self.randint(least, most)))

    def rarely(self, wrong: Callable[[], Any], right: Callable[[], Any], often: float = 0.1) -> Any:
        return wrong() if self.random() < often else right()

    def index(self, *right: int) -> torch.Tensor:
        dtype = self.choice([torch.int32] * 6 + [torch.int64] * 6 + [torch.int16])
        wrong = self.rarely(lambda: self.choices([0, 1, 2, 3], k=self.randint(1, 3)), lambda: None)
        return torch.zeros(wrong or right, dtype=dtype)

    def options(self, *chains: str) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        if self.random() < 0.05:
            drawn["schedule"] = self.choice(["fastest", "direct", "two_stage", "sync"])
        if self.random() < 0.05:
            drawn["depth"] = self.choice([0, 1, 2, 3, 9, -1])
        return drawn | self.chains(*chains)

    def chains(self, *chains: str) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        for chain in chains:
            if self.random() < 0.15:
                drawn[chain] = self.choice(["add($0)", "silu", "sulu"])
                drawn[chain + "_operands"] = [self.any_tensor(0, 2)]
        return drawn


def transform(draw: Draw) -> Arguments:
    operands = draw.choice([[draw.any_tensor(0, 3)], None])
    return [draw.any_tensor(1, 4), draw.choice(["silu", "add($0)", "silu|cast(float8)"]), operands], draw.options()


def conv1d(draw: Draw) -> Arguments:
    channels = draw.choice([0, 1, 2, 4])
    groups = draw.choice([1, 1, channels, channels, 2, 0, -1])
    taps = draw.choice([0, 1, 2, 3, 9])
    each = channels // groups if groups > 0 else 1
    batch = draw.rarely(list, lambda: [draw.choice(EXTENTS)], 0.2)
    x = draw.rarely(lambda: draw.any_tensor(1, 5), lambda: draw.tensor(*batch, channels, draw.choice(EXTENTS)))
    weight = draw.rarely(
        lambda: draw.any_tensor(1, 4), lambda: draw.tensor(draw.choice([0, 1, 2, 4, 4]), each, taps), 0.1
    )
    bias = draw.choice([None, None, draw.tensor(weight.shape[0]), draw.tensor(3)])
    stride, padding, dilation = (
        draw.choice([1, 1, 1, 2, 0, -1, 2**40]),
        draw.choice([0, 1, 3, 3, -1, 2**33]),
        draw.choice([1, 1, 1, 2, 0, 2**31]),
    )
    options = draw.options("pre", "post")
    if draw.random() < 0.2:
        options["padding_right"] = draw.choice([0, 1, -1, 2**31])
    if draw.random() < 0.1:
        options["dtype"] = draw.choice([torch.float16, torch.int64])
    return [x, weight, bias, stride, padding, dilation, groups], options


def conv_transpose1d(draw: Draw) -> Arguments:
    channels = draw.choice([0, 1, 2, 4, 4])
    groups = draw.choice([1, 1, max(1, channels), 2, 0, -1])
    batch = draw.rarely(list, lambda: [draw.choice(EXTENTS)], 0.2)
    x = draw.rarely(lambda: draw.any_tensor(1, 5), lambda: draw.tensor(*batch, channels, draw.choice(EXTENTS)))
    taps = draw.choice([0, 1, 2, 3, 3, 9])
    weight = draw.rarely(
        lambda: draw.any_tensor(1, 4), lambda: draw.tensor(channels, draw.choice([0, 1, 2, 4, 4]), taps), 0.1
    )
    outputs = weight.shape[1] * max(1, groups) if weight.dim() > 1 else 1
    bias = draw.choice([None, None, draw.tensor(outputs), draw.tensor(3)])
    numbers = (
        draw.choice([1, 1, 2, 2, 3, 0, -1, 2**40]),
        draw.choice([0, 0, 1, 1, 3, -1, 2**33]),
        draw.choice([0, 0, 0, 1, 2, -1]),
        groups,
        draw.choice([1, 1, 1, 2, 0, 2**31]),
    )
    options = draw.options("pre", "post")
    if draw.random() < 0.1:
        options["dtype"] = draw.choice([torch.float16, torch.int64])
    return [x, weight, bias, *numbers], options


def causal_conv1d(draw: Draw) -> Arguments:
    x = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.any_tensor(3, 3))
    channels = x.shape[1] if x.dim() > 1 else 1
    width = draw.choice([0, 1, 3, 4])
    weight = draw.rarely(lambda: draw.any_tensor(0, 3), lambda: draw.tensor(channels, width))
    bias = draw.choice([None, None, draw.tensor(channels), draw.tensor(3)])
    fitting = draw.tensor(x.shape[0], channels, max(0, width - 1))
    states = draw.choice([None, None, fitting, draw.any_tensor(1, 4)])
    activation = draw.rarely(lambda: "gelu", lambda: draw.choice([None, "silu"]))
    return [x, weight, bias, activation, states], draw.options("post")


def packed(draw: Draw) -> tuple[torch.Tensor, list[Any], dict[str, Any], int, int]:
    """x, then weight, bias and activation, the options of sequences, their number and the columns of their history."""
    form = draw.choice(["rows", "ids", "starts", "starts"])
    x = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.any_tensor(3, 3))
    if form == "starts" and x.dim() == 3:
        x = draw.rarely(lambda: x, lambda: x[:1] if x.shape[0] > 0 else draw.tensor(1, *x.shape[1:]))
    channels, length = x.shape[1] if x.dim() > 1 else 1, x.shape[2] if x.dim() > 2 else 1
    width = draw.rarely(lambda: 0, lambda: draw.choice([1, 2, 3, 4, 4]), 0.03)
    dilation = draw.rarely(lambda: draw.choice([0, -1, 2**31, 2**62]), lambda: draw.choice([1, 1, 1, 2]), 0.05)
    weight = draw.rarely(lambda: draw.any_tensor(0, 3), lambda: draw.tensor(channels, width))
    bias = draw.choice([None, None, draw.rarely(lambda: draw.tensor(3), lambda: draw.tensor(channels))])
    sequences, options = x.shape[0], draw.chains("pre", "post")
    if dilation != 1:
        options["dilation"] = dilation
    if form == "ids" or draw.random() < 0.03:
        options["seq_idx"] = draw.index(x.shape[0], length)
    if form == "starts":
        sequences = draw.choice([0, 1, 3])
        options["cu_seqlens"] = draw.index(sequences + 1)
    activation = draw.rarely(lambda: "gelu", lambda: draw.choice([None, "silu"]))
    return x, [weight, bias, activation], options, sequences, max(0, width - 1) * max(0, min(dilation, 9))


def causal_conv1d_sequences(draw: Draw) -> Arguments:
    x, others, options, sequences, history = packed(draw)
    fitting = draw.tensor(sequences, x.shape[1] if x.dim() > 1 else 1, history)
    states = draw.choice([None, fitting, draw.rarely(lambda: draw.any_tensor(0, 4), lambda: fitting)])
    if draw.random() < 0.5 and options.get("dilation", 1) < 2**31:
        options["return_final_states"] = True
    return [x, *others, states], options


def causal_conv1d_paged(draw: Draw) -> Arguments:
    x, others, options, sequences, history = packed(draw)
    slots = sequences + draw.rarely(lambda: 1, lambda: 0)
    if draw.random() < 0.5:
        slots, options["cache_indices"] = draw.choice([1, 2, 5]), draw.index(sequences + draw.choice([0, 0, 2]))
    if draw.random() < 0.3:
        right = draw.rarely(lambda: draw.choices([0, 1, 3], k=draw.randint(0, 2)), lambda: [sequences])
        options["has_initial_state"] = torch.zeros(right, dtype=draw.choice([torch.bool] * 9 + [torch.int32]))
    fitting = draw.tensor(slots, x.shape[1] if x.dim() > 1 else 1, history + draw.choice([-1, 0, 0, 1, 1]) % 99)
    return [x, draw.rarely(lambda: draw.any_tensor(0, 4), lambda: fitting), *others], options


def causal_conv1d_final_states(draw: Draw) -> Arguments:
    states = draw.choice([None, draw.any_tensor(3, 3)])
    return [draw.any_tensor(2, 4), draw.choice([-20, -1, 0, 1, 3]), states], {}


def causal_conv1d_update(draw: Draw) -> Arguments:
    is_packed = draw.random() < 0.3
    x = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.any_tensor(2, 2 if is_packed else 3))
    channels, tokens = x.shape[1] if x.dim() > 1 else 1, x.shape[2] if x.dim() > 2 else 1
    width = draw.rarely(lambda: 0, lambda: draw.choice([1, 2, 3, 4, 4]), 0.03)
    dilation = draw.rarely(lambda: draw.choice([0, -1, 2**31]), lambda: draw.choice([1, 1, 1, 2]), 0.05)
    weight = draw.rarely(lambda: draw.any_tensor(0, 3), lambda: draw.tensor(channels, width))
    bias = draw.choice([None, None, draw.rarely(lambda: draw.tensor(3), lambda: draw.tensor(channels))])
    sequences, options = x.shape[0], draw.chains("pre", "post")

    if is_packed:
        sequences = draw.choice([0, 1, 3])
        options["query_start_loc"] = draw.index(sequences + 1)
    form = draw.choice(["end", "end", "circular", "front", "accepted", "accepted"])
    form = draw.rarely(lambda: "any", lambda: form, 0.05)
    if form in ("circular", "any"):
        options["cache_seqlens"] = draw.index(sequences)
    if form in ("front", "accepted"):
        options["state_at"] = draw.rarely(lambda: "back", lambda: "front", 0.05)
    if form in ("accepted", "any"):
        options["num_accepted_tokens"] = draw.index(sequences)
    slots = sequences
    if draw.random() < 0.3:
        options["conv_state_indices"] = draw.index(*draw.choice([(sequences,), (sequences,), (sequences, 2), (2, 2)]))
        slots = draw.choice([1, 2, 5])
    columns = draw.choice([0, 3, 6, 7, tokens + 2, tokens + 6])
    right = slots + draw.rarely(lambda: 1, lambda: 0)
    state = draw.rarely(lambda: draw.any_tensor(2, 4), lambda: draw.tensor(right, channels, columns))
    if dilation != 1:
        options["dilation"] = dilation
    activation = draw.rarely(lambda: "gelu", lambda: draw.choice([None, "silu"]))
    return [x, state, weight, bias, activation], options


def filter2d(draw: Draw) -> Arguments:
    image = draw.rarely(lambda: draw.any_tensor(1, 1), lambda: draw.any_tensor(2, 4))
    channels = [image.shape[-3]] if image.dim() > 2 and draw.random() < 0.4 else []
    size = draw.choice([0, 1, 1, 3, 3, 5])
    options = draw.options("pre", "post")
    if draw.random() < 0.3:
        kernel = draw.tensor(*channels, size)
        options["row_kernel"] = draw.rarely(lambda: draw.any_tensor(1, 3), lambda: draw.tensor(*channels, 3))
    else:
        kernel = draw.rarely(lambda: draw.any_tensor(1, 4), lambda: draw.tensor(*channels, size, 3))
    bias = draw.choice([None, None, None, draw.tensor(1), draw.tensor(3)])
    if draw.random() < 0.4:
        options["stride"] = draw.choice([[1, 1], [2, 1], [1, 3], [0, 1], [2], [1, 2**31]])
        options["dilation"] = draw.choice([[1, 1], [1, 1], [2, 1], [1, -1], [1, 1, 1]])
        options["padding_mode"] = draw.choice(["zeros", "replicate", "reflect", "circular", "edge"])
    return [image, kernel, bias, draw.choice([None, None, [0, 0], [1, 1], [3], [0, -1], [2**31, 0]])], options


def outcome(op: Any, arguments: list[Any], options: dict[str, Any]) -> object:
    try:
        result = op(*arguments, **options)
    except RuntimeError as error:
        return str(error).split("\nException raised from", 1)[0].strip()
    results = result if isinstance(result, list) else [result]
    return [(tuple(one.shape), one.stride(), one.dtype) for one in results]


DRAWN = [
    *(transform, conv1d, conv_transpose1d, filter2d),
    *(causal_conv1d, causal_conv1d_sequences, causal_conv1d_paged),
    *(causal_conv1d_final_states, causal_conv1d_update),
]


@pytest.mark.parametrize("draw_arguments", DRAWN)
def test_a_fake_refuses_what_the_op_refuses(draw_arguments: Callable[[Draw], Arguments]) -> None:
    draw, op = Draw(5), getattr(torch.ops.sluice, draw_arguments.__name__)
    refused = 0
    for _ in range(1200):
        arguments, options = draw_arguments(draw)
        real = outcome(op, arguments, options)
        with FakeTensorMode() as mode:

            def fake(value: Any, mode: FakeTensorMode = mode) -> Any:
                if isinstance(value, list):
                    return [fake(one) for one in value]
                return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

            found = outcome(op, fake(arguments), {name: fake(value) for name, value in options.items()})
        assert found == real, (arguments, options)
        refused += isinstance(real, str)
    assert 200 < refused < 1200


def test_sizes_of_a_compiled_graph_are_refused_in_the_words_of_the_op() -> None:
    def dense(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, w)

    def valid(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.filter2d(x, w[0], padding="valid")

    for function, words in {
        dense: "conv1d: input must be at least as long as the kernel's reach of .* with its padding",
        valid: "filter2d: image must be at least as large as the kernel, .* with its padding",
    }.items():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="eager", fullgraph=True, dynamic=True)
        assert compiled(torch.zeros(1, 2, 30), torch.zeros(3, 2, 4)).shape[-1] == 27
        with pytest.raises(Exception, match=words):
            compiled(torch.zeros(1, 2, 10), torch.zeros(3, 2, 31))


def test_a_length_of_a_compiled_graph_is_refused_in_the_words_of_the_op() -> None:
    def transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.conv_transpose1d(x, w, padding=3)

    torch._dynamo.reset()
    compiled = torch.compile(transposed, backend="eager", fullgraph=True, dynamic=True)
    w = torch.zeros(2, 3, 4)
    assert compiled(torch.zeros(1, 2, 30), w).shape == (1, 3, 27)
    rule = "conv_transpose1d: padding must leave a result of at least 0 positions, got 3, which leaves .*"
    with pytest.raises(Exception, match=rule):
        compiled(torch.zeros(1, 2, 2), w)
