"""The exact bits of random calls, to compare a refactoring of the kernels with.

    result_bits.py write FILE [--calls N] [--linked M] [--seed S]
                                                        digests of N calls an op, on the GPU if there is one, and of
                                                        the first M again with their chains linked
    result_bits.py compare OLD NEW                      prints what differs; exit status 1 where anything does

Calls are drawn from a seed, with inputs made on the CPU, so that both sides run the same calls: dtypes, layouts,
alignments, sizes at the edges of vectors and tiles, chains with and without tensors, every schedule, linked and
interpreted. A refused call counts by its error's text. A call takes a few milliseconds, a linked chain up to a second.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

import sluice
from sluice import bench, stages

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
CHAINS = 4  # chains per op and argument: a link takes a tenth of a second


class Calls:
    """Draws the arguments that the calls of an op share."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(self.random.randrange(2**31))

    def size(self, most: int) -> int:
        """A log-uniform size, often one more or less than a multiple of 8."""
        size = int(2 ** self.random.uniform(0, torch.tensor(float(most)).log2().item()))
        return max(1, size // 8 * 8 + self.random.choice([-1, 0, 0, 0, 1])) if self.random.random() < 0.7 else size

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor: contiguous, unaligned, with its last two dimensions swapped, or every other element."""
        values = torch.randn(shape, generator=self.generator).to(dtype).to(DEVICE)
        layout = self.random.choice(["contiguous", "contiguous", "offset", "swapped", "sliced"])
        if layout == "offset":
            view = values.new_empty(values.numel() + 1)[1:].view(shape)
            return view.copy_(values)
        if layout == "swapped" and len(shape) > 1:
            return values.transpose(-1, -2).contiguous().transpose(-1, -2)
        if layout == "sliced":
            return values.new_empty((*shape[:-1], shape[-1] * 2))[..., ::2].copy_(values)
        return values

    def chain(self, shape: tuple[int, ...], dtype: torch.dtype, may_be_none: bool = True) -> sluice.Chain | None:
        which = self.random.randrange(CHAINS + may_be_none)
        if which == 0:
            return stages.scale(1.5) | stages.gelu() | stages.shift(-0.25)
        if which == 1:
            return stages.add(self.tensor(shape, dtype)) | stages.silu()
        if which == 2:
            rows = (*[1] * (len(shape) - 2), *shape[-2:-1], 1)
            return stages.snake(self.tensor(rows, dtype).abs() + 0.5) | stages.clamp(-1.0, 2.0)
        if which == 3:
            return stages.softplus() | stages.cast(self.random.choice(DTYPES[:3]))
        return None

    def schedule(self) -> dict[str, Any]:
        return {"schedule": self.random.choice(["auto", "auto", "direct", "direct", *bench.SCHEDULES])}


def transform(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    shape = tuple(calls.size(most) for most in calls.random.choice([(60000,), (64, 3000), (5, 24, 700)]))
    chain = calls.chain(shape, dtype, may_be_none=False)
    return sluice.transform(calls.tensor(shape, dtype), chain, **calls.schedule())


def convolution(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    batch, channels, length = calls.size(4), calls.size(80), calls.size(3000)
    multiplier = calls.random.choice([1, 1, 1, 2])
    stride, dilation = calls.random.choice([(1, 1)] * 4 + [(2, 1), (1, 3), (3, 2)])
    taps = calls.random.choice([1, 2, 3, 4, 4, 4, 5, 8, 15, 31, 64])
    padding = calls.random.choice([0, taps - 1, taps // 2]) * dilation
    out = max(0, (length + 2 * padding - dilation * (taps - 1) - 1) // stride + 1)
    return sluice.conv1d(
        calls.tensor((batch, channels, length), dtype),
        calls.tensor((channels * multiplier, 1, taps), dtype),
        calls.tensor((channels * multiplier,), dtype) if calls.random.random() < 0.5 else None,
        stride,
        padding,
        dilation,
        channels,
        pre=calls.chain((batch, channels, length), dtype) if calls.random.random() < 0.3 else None,
        post=calls.chain((batch, channels * multiplier, out), dtype),
        **calls.schedule(),
    )


def transposed(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    batch, channels, length = calls.size(4), calls.size(80), calls.size(1500)
    stride, dilation = calls.random.choice([(1, 1), (1, 3), (2, 1), (2, 1), (3, 2), (8, 1)])
    taps = calls.random.choice([2, 3, 4, 8, 12, 16])
    padding = calls.random.choice([0, taps // 2 * dilation])
    padding = min(padding, ((length - 1) * stride + dilation * (taps - 1)) // 2)
    out = (length - 1) * stride - 2 * padding + dilation * (taps - 1) + 1
    return sluice.conv_transpose1d(
        calls.tensor((batch, channels, length), dtype),
        calls.tensor((channels, 1, taps), dtype),
        calls.tensor((channels,), dtype) if calls.random.random() < 0.5 else None,
        stride,
        padding,
        0,
        channels,
        dilation,
        pre=calls.chain((batch, channels, length), dtype) if calls.random.random() < 0.3 else None,
        post=calls.chain((batch, channels, out), dtype),
        **calls.schedule(),
    )


def causal(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    batch, channels, length = calls.size(4), calls.size(80), calls.size(3000)
    width = calls.random.choice([2, 3, 4, 4, 9])
    state = calls.tensor((batch, channels, width - 1), dtype) if calls.random.random() < 0.5 else None
    result = sluice.causal_conv1d(
        calls.tensor((batch, channels, length), dtype),
        calls.tensor((channels, width), dtype),
        calls.tensor((channels,), dtype) if calls.random.random() < 0.5 else None,
        activation=calls.random.choice([None, "silu"]),
        initial_states=state,
        return_final_states=True,
        **calls.schedule(),
    )
    return torch.cat([part.flatten() for part in result])


def spread(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    batch, inputs, outputs, length = calls.size(4), calls.size(40), calls.size(40), calls.size(200)
    stride, taps = calls.random.choice([(1, 3), (2, 4), (4, 8), (8, 16), (3, 2)])
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    overlap = calls.tensor((batch, outputs, max(0, taps - stride)), kept)
    result = sluice.causal_conv_transpose1d(
        calls.tensor((batch, inputs, length), dtype),
        calls.tensor((inputs, outputs, taps), dtype),
        calls.tensor((outputs,), dtype) if calls.random.random() < 0.5 else None,
        stride=stride,
        overlap_cache=overlap,
        post=calls.chain((batch, outputs, length * stride), dtype),
    )
    return torch.cat([result.double().flatten(), overlap.double().flatten()])


def update(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    batch, channels, width = calls.size(4), calls.size(300), calls.random.choice([2, 3, 4, 4, 9])
    columns = width - 1 + calls.random.choice([0, 0, 1, 5])
    shape = (batch, channels, calls.size(6)) if calls.random.random() < 0.5 else (batch, channels)
    state = calls.tensor((batch, channels, columns), dtype)
    result = sluice.causal_conv1d_update(
        calls.tensor(shape, dtype),
        state,
        calls.tensor((channels, width), dtype),
        calls.tensor((channels,), dtype) if calls.random.random() < 0.5 else None,
        calls.random.choice([None, "silu"]),
        state_at=calls.random.choice(["end", "end", "front"]),
        pre=calls.chain(shape, dtype) if calls.random.random() < 0.3 else None,
        post=calls.chain(shape, dtype) if calls.random.random() < 0.3 else None,
    )
    return torch.cat([result.flatten(), state.flatten()])


def stencil(calls: Calls, dtype: torch.dtype) -> torch.Tensor:
    shape = (calls.size(4), calls.size(8), calls.size(90), calls.size(300))
    height, width = calls.random.choice([(3, 3), (3, 3), (5, 5), (5, 5), (7, 3), (2, 4), (11, 11)])
    column, row = calls.tensor((shape[1], height), dtype), calls.tensor((shape[1], width), dtype)
    separable = calls.random.random() < 0.3
    return sluice.filter2d(
        calls.tensor(shape, dtype),
        (column, row) if separable else calls.tensor((shape[1], height, width), dtype),
        calls.tensor((shape[1],), dtype) if calls.random.random() < 0.5 else None,
        pre=calls.chain(shape, dtype) if calls.random.random() < 0.3 else None,
        post=calls.chain(shape, dtype),
        **calls.schedule(),
    )


OPS: dict[str, Callable[[Calls, torch.dtype], torch.Tensor]] = {
    "transform": transform,
    "conv1d": convolution,
    "conv_transpose1d": transposed,
    "causal_conv1d": causal,
    "causal_conv1d_update": update,
    "causal_conv_transpose1d": spread,
    "filter2d": stencil,
}


def digest(call: Callable[[], torch.Tensor]) -> str:
    try:
        result = call()
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    data = result.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).cpu().numpy().tobytes()
    return f"{tuple(result.shape)} {result.stride()} {hashlib.sha256(data).hexdigest()[:16]}"


def write(path: pathlib.Path, count: int, linked: int, seed: int) -> None:
    found = {}
    counts = {"never": count, "always": min(count, linked) if DEVICE == "cuda" else 0}
    for mode, calls_of_mode in counts.items():
        torch.ops.sluice._set_link_mode(mode)
        for op, function in OPS.items():
            for i in range(calls_of_mode):
                calls = Calls(f"{seed} {op} {i}")
                dtype = calls.random.choice(DTYPES)
                found[f"{op} {i} {mode}"] = digest(lambda f=function, c=calls, d=dtype: f(c, d))
    path.write_text(json.dumps(found, indent=0) + "\n")
    refused = sum("Error" in result for result in found.values())
    print(f"result_bits: {len(found)} calls on {DEVICE}, {refused} refused")


def compare(old: dict[str, str], new: dict[str, str]) -> int:
    different = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in different:
        print(f"{name}: {old.get(name)} -> {new.get(name)}")
    print(f"result_bits: {len(old)} calls before, {len(new)} after, {len(different)} differ")
    return bool(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("file", type=pathlib.Path)
    writing.add_argument("--calls", type=int, default=300)
    writing.add_argument("--linked", type=int, default=40)
    writing.add_argument("--seed", type=int, default=0)
    comparison = commands.add_parser("compare")
    comparison.add_argument("old", type=pathlib.Path)
    comparison.add_argument("new", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.file, arguments.calls, arguments.linked, arguments.seed)
        return 0
    return compare(json.loads(arguments.old.read_text()), json.loads(arguments.new.read_text()))


if __name__ == "__main__":
    sys.exit(main())
