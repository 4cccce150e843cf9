"""Random dense convolutions with GELU behind them on a GPU against torch: which of them are slower.

    python benchmarks/random_dense.py --cases 100 --seed 0 [--strided]

A case is drawn from its seed alone, which its line begins with: `--seed N --cases 1` runs it again. 1 to 2048 channels,
1 to 65 taps, 1 to 200,000 positions, as many small as large ones; with `--strided` strides of 1 to 8, and in half of
the cases groups of 8 to 128 channels.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from sluice.bench.timing import ColdClock, Effort, interleave

_MOST_ELEMENTS = 1 << 28
_MOST_PRODUCTS = 1 << 41  # six milliseconds of tensor cores
_EFFORT = Effort(rounds=3, samples=4, warm_up=2)

Call = Callable[[], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A call of ours, torch's, and why ours is what it is."""

    text: str
    ours: Call
    native: Call
    reason: str


def _extent(pick: random.Random, low: int, high: int) -> int:
    """Between the two, as many small as large ones; every second one a multiple of 8."""
    extent = int(low * (high / low) ** pick.random())
    return max(low, extent // 8 * 8) if pick.random() < 0.5 else extent


def _draw_groups(pick: random.Random, inputs: int, outputs: int) -> tuple[int, int, int]:
    """Channels in and out, and groups, about as many channels as given."""
    groups = max(1, max(inputs, outputs) // _extent(pick, 8, 128))
    return max(1, inputs // groups) * groups, max(1, outputs // groups) * groups, groups


def draw(seed: int, strided: bool) -> Drawn | None:
    """The case of a seed, or None where it would be too large, or without a result."""
    pick = random.Random(seed)
    inputs, outputs = _extent(pick, 1, 2048), _extent(pick, 1, 2048)
    taps, length, batch = _extent(pick, 1, 65), _extent(pick, 1, 200_000), pick.choice((1, 2, 4, 8, 16, 64))
    dilation = pick.choice((1, 1, 1, 2, 3, 9))
    padding = pick.choice((0, (taps - 1) * dilation // 2))
    last, dtype = pick.random() < 0.3, pick.choice((torch.float16, torch.bfloat16))
    stride, groups = (pick.randint(1, 8), 1) if strided else (1, 1)
    if strided and pick.random() < 0.5:
        inputs, outputs, groups = _draw_groups(pick, inputs, outputs)
    output_length = (length + 2 * padding - (taps - 1) * dilation - 1) // stride + 1
    elements = batch * (inputs + outputs) * length
    products = batch * outputs * length * (inputs // groups) * taps // stride
    if output_length < 1 or elements > _MOST_ELEMENTS or products > _MOST_PRODUCTS:
        return None
    torch.manual_seed(seed)
    options: dict[str, Any] = {"device": "cuda", "dtype": dtype}
    if last:
        x = torch.randn(batch, length, inputs, **options).transpose(1, 2)
    else:
        x = torch.randn(batch, inputs, length, **options)
    w = torch.randn(outputs, inputs // groups, taps, **options) / math.sqrt(inputs // groups * taps)
    b = torch.randn(outputs, **options)
    arguments = (x, w, b, stride, padding, dilation, groups)
    kind = str(dtype).removeprefix("torch.")
    text = f"{batch}x{inputs}x{length} to {outputs} K={taps} s={stride} d={dilation} p={padding} g={groups} {kind} "
    text += "cl" if last else "cf"
    sluice.prepare(stages.gelu(), *arguments, op="conv1d")
    return Drawn(
        text,
        lambda: sluice.conv1d(*arguments, post=stages.gelu()),
        lambda: F.gelu(F.conv1d(*arguments)),
        sluice.plan("conv1d", *arguments, post=stages.gelu()).reason,
    )


@dataclasses.dataclass(frozen=True)
class Result:
    """A case and its microseconds."""

    seed: int
    drawn: Drawn
    ours: float
    native: float

    @property
    def ratio(self) -> float:
        """torch's time over ours."""
        return self.native / self.ours


def results(first_seed: int, count: int, strided: bool, clock: ColdClock) -> Iterator[Result]:
    """Of `count` cases."""
    seed = first_seed
    while count > 0:
        if (drawn := draw(seed, strided)) is not None:
            times = interleave(clock, {"sluice": drawn.ours, "torch": drawn.native}, _EFFORT)
            yield Result(seed, drawn, times["sluice"].median_us, times["torch"].median_us)
            count -= 1
        seed += 1


def main() -> int:
    """Prints a line for each case, and the slowest ten with their reasons; exits 1 where one is 3 % slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--strided", action="store_true", help="with strides and groups")
    options = parser.parse_args()
    found: list[Result] = []
    with torch.inference_mode():
        for result in results(options.seed, options.cases, options.strided, ColdClock(torch.device("cuda"))):
            found.append(result)
            print(
                f"{result.seed:6} {result.ours:9.1f} us, torch {result.native:9.1f} us, {result.ratio:6.2f}x  "
                f"{result.drawn.text}  {result.drawn.reason}",
                flush=True,
            )
    mean = math.exp(sum(math.log(result.ratio) for result in found) / len(found))
    slower = [result.seed for result in found if result.ratio < 1 / 1.03]
    print(f"geometric mean {mean:.2f}x; {len(slower)} of {len(found)} slower than torch: seeds {slower}; the slowest:")
    for result in sorted(found, key=lambda result: result.ratio)[:10]:
        print(f"{result.seed:6} {result.ratio:6.2f}x  {result.drawn.text}  {result.drawn.reason}")
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
