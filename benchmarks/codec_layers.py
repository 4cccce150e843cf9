"""Single causal convolutions chunk by chunk, beside the same layer by hand in torch: rows of suite `codecs`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import sluice
from codec_parts import convolved_chunk, transposed_chunk
from direct_clock import Direct
from sluice.bench import ALLOWS_TF32, DTYPES, Case, Workload, compiled, fresh
from sluice.bench.check import TOLERANCES, WrongResultError, relative_error
from sluice.pack import pack_transposed

# Calls with a cache have no choice of schedule, and `sluice.plan` has no plan for them.
_PLAN = sluice.Plan(schedule="chunk", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="a chunk")
# The convolution of a chunk may be torch's, whose float32 sums have larger errors than sluice's.
_STRICT = 2e-5


class Layer(NamedTuple):
    """A layer's numbers: `length` inputs of each of `batch` streams are a step."""

    op: str
    batch: int
    inputs: int
    outputs: int
    length: int
    taps: int
    stride: int

    @property
    def is_transposed(self) -> bool:
        return self.op == "causal_conv_transpose1d"

    @property
    def columns(self) -> int:
        """What a stream keeps of a channel: inputs, or sums of a transposed convolution."""
        return self.taps - self.stride


class Step:
    """The tensors of a layer's step, whose rows have half of the slots in random order.

    The state before the first step never changes.
    """

    def __init__(self, layer: Layer, dtype: str, device: torch.device) -> None:
        self.layer = layer
        _, batch, inputs, outputs, length, taps, stride = layer
        make = functools.partial(fresh, dtype=dtype, device=device)
        self.x, self.bias = make(batch, inputs, length), make(outputs)
        # Scaled so that results have a variance of about 1.
        sums = inputs * taps / (stride if layer.is_transposed else 1)
        sizes = (inputs, outputs) if layer.is_transposed else (outputs, inputs)
        self.weight = make(*sizes, taps) * sums**-0.5
        # As a Streaming has it: the channels of a column are adjacent, and overlaps are float32.
        kept, channels = ("fp32", outputs) if layer.is_transposed else (dtype, inputs)
        self.state = fresh(2 * batch, layer.columns, channels, dtype=kept, device=device).transpose(1, 2)
        self.slots = torch.randperm(2 * batch, device=device)[:batch].int()
        if layer.is_transposed:
            self.packed = pack_transposed(self.weight, None, stride, 1, channels_last=False)
        else:
            self.packed = sluice.pack(self.weight)

    def options(self, state: torch.Tensor) -> dict[str, Any]:
        name = "overlap_cache" if self.layer.is_transposed else "state_cache"
        return {"stride": self.layer.stride, name: state, "cache_indices": self.slots}

    def run(self, state: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """sluice's call; the state moves on."""
        return getattr(sluice, self.layer.op)(self.x, self.packed, self.bias, **self.options(state), out=out)

    @functools.cached_property
    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The result and the state after the first step, in float64."""
        wide = (tensor.double() for tensor in (self.x, self.weight, self.bias))
        with torch.backends.cudnn.flags(enabled=False):  # cuDNN would search algorithms to run it once
            return getattr(sluice.reference, self.layer.op)(*wide, **self.options(self.state.double()))

    def check_state(self, state: torch.Tensor, tolerance: float) -> None:
        """Raises unless the state is the expected state: inputs have its bits, sums are within the tolerance."""
        expected = self.expected[1]
        if self.layer.is_transposed:
            error = relative_error(state, expected)
            if not error <= tolerance:
                raise WrongResultError(f"overlaps must have an error of at most {tolerance:g}, got {error:g}")
        elif not torch.equal(state, expected.to(state.dtype)):
            raise WrongResultError("the state must have the bits of the reference's")

    def by_hand(self) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
        """The code that users write, and its arguments with a state of its own, whose row n is of stream n."""
        rows = self.state[self.slots.long()].contiguous().to(self.x.dtype)
        function = transposed_chunk if self.layer.is_transposed else convolved_chunk
        return function, (self.x, rows, self.weight, self.bias, self.layer.stride)

    def traffic(self) -> int:
        """Bytes: a row's state read and written, the result written, everything else read once."""
        results = self.expected[0].numel() * self.x.element_size()
        read = (self.x, self.weight, self.bias, self.slots)
        return sum(tensor.nbytes for tensor in read) + results + 2 * len(self.x) * self.state[0].nbytes

    def matmul_flops(self) -> int:
        positions = self.layer.length // (1 if self.layer.is_transposed else self.layer.stride)
        return 2 * len(self.x) * positions * self.weight.numel()


def _called(function: Callable[..., torch.Tensor], arguments: tuple[Any, ...]) -> Callable[[], torch.Tensor]:
    return lambda: function(*arguments)


def _make(layer: Layer, dtype: str, device: torch.device) -> Workload:
    torch._dynamo.reset()  # each row is compiled anew, and dynamo allows a function few shapes
    step = Step(layer, dtype, device)
    # Each call has a state of its own. The check compares the first result of `ours` with that of `write`.
    ours, eager = step.state.clone(), step.state.clone()
    tolerance = tolerance_of(dtype)

    def write(out: torch.Tensor) -> None:
        state = step.state.clone()
        step.run(state, out)
        step.check_state(state, tolerance)

    function, arguments = step.by_hand()
    return Workload(
        ours=lambda: step.run(ours),
        write=write,
        reference=lambda: step.expected[0],
        plan=_PLAN,
        traffic=step.traffic(),
        matmul_flops=step.matmul_flops(),
        peers={
            "sluice_eager": Direct(lambda: step.run(eager)),
            "torch": Direct(_called(function, arguments)),
            "torch_graph": _called(*step.by_hand()),
            "torch_compile": compiled(function, *step.by_hand()[1]),
        },
        linked=False,
    )


def tolerance_of(dtype: str) -> float:
    return _STRICT if dtype == "fp32" else TOLERANCES[dtype]


def layer_case(layer: Layer, dtype: str, part: str) -> Case:
    """A row of a layer; float32 with torch's TF32 setting on ("tf32") and off ("fp32")."""
    op, batch, inputs, outputs, length, taps, stride = layer
    spread = (f" s={stride}" if stride > 1 else "") + (" transposed" if layer.is_transposed else "")
    return Case(
        name=f"{batch}x{inputs}x{length} to {outputs} K={taps}{spread} {dtype}",
        params={
            "B": batch,
            "Cin": inputs,
            "Cout": outputs,
            "L": length,
            "K": taps,
            "stride": stride,
            "dtype": dtype,
            "layout": "cf",
            "op": op,
            "fn": "identity",
        },
        make=functools.partial(_make, layer, dtype),
        tolerance=tolerance_of(dtype),
        part=part,
        allows_tf32=ALLOWS_TF32.get(dtype),
    )


_CONV, _TRANSPOSED = "causal_conv1d", "causal_conv_transpose1d"
# By part: layers in the middle of codecs, with the inputs of a step and the streams of a server.
LAYERS = {
    "dense": [Layer(_CONV, batch, 512, 512, length, 7, 1) for length in (1, 8) for batch in (1, 16)],
    "strided": [Layer(_CONV, batch, 512, 1024, length, 16, 8) for length in (8, 16) for batch in (1, 8)],
    "transposed": [Layer(_TRANSPOSED, batch, 512, 256, length, 16, 8) for length in (1, 8) for batch in (1, 16)],
}


def layer_cases() -> list[Case]:
    return [layer_case(layer, dtype, part) for part, layers in LAYERS.items() for layer in layers for dtype in DTYPES]
