"""Random depthwise convolutions on a GPU against a copy and torch: where plans lose, and whether another one wins.

    python benchmarks/random_depthwise.py --cases 100 --seed 0
    python benchmarks/random_depthwise.py --only auto,direct,two_stage,producer_consumer

A case is drawn from its seed alone, which its line begins with: `--seed N --cases 1` runs it again. 2 to 600 MB read
and written, 2 to 512 taps, float32, float16 and bfloat16, both layouts, as many odd extents as round ones. `--only`
names the schedules that are timed beside each other: `auto` is the plan's choice, `direct` and the rings are the
depthwise method's kernels without windows and without tensor cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

import sluice
from sluice.bench.timing import ColdClock, Effort, interleave

_LEAST_BYTES, _MOST_BYTES = 2e6, 600e6
_EFFORT = Effort(rounds=3, samples=4, warm_up=2)
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_ROUND = 32

Call = Callable[[], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A convolution's numbers: `sizes` are B, C, L; `layout` is cf or cl; every row has `padding` zeros at each end."""

    sizes: tuple[int, int, int]
    taps: int
    padding: int
    dtype: str
    layout: str

    def __str__(self) -> str:
        return f"{self.sizes} K={self.taps} p={self.padding} {self.dtype} {self.layout}"


@dataclasses.dataclass(frozen=True)
class Result:
    """A case and its microseconds, ours by schedule."""

    seed: int
    shape: Shape
    kernel: str
    ours: dict[str, float]
    copy: float
    native: float

    @property
    def efficiency(self) -> float:
        """The copy's time over ours, by the first schedule asked for."""
        return self.copy / next(iter(self.ours.values()))


def _log_uniform(pick: random.Random, low: float, high: float) -> float:
    return low * (high / low) ** pick.random()


def _extent(pick: random.Random, size: float) -> int:
    """Near `size`; every second one a multiple of 32."""
    extent = max(1, round(size))
    return max(1, extent // _ROUND) * _ROUND if pick.random() < 0.5 else extent


def draw(seed: int) -> Shape:
    """The shape of a seed."""
    pick = random.Random(seed)
    dtype, layout = pick.choice(list(_DTYPES)), pick.choice(("cf", "cl"))
    taps = round(_log_uniform(pick, 2, 512))
    elements = _log_uniform(pick, _LEAST_BYTES, _MOST_BYTES) / (2 * _DTYPES[dtype].itemsize)
    batch = round(_log_uniform(pick, 1, 64))
    channels = _extent(pick, _log_uniform(pick, 2, min(4096, max(2.0, elements / batch / max(taps, 64)))))
    length = max(taps, _extent(pick, elements / batch / channels))
    return Shape((batch, channels, length), taps, pick.choice((0, taps // 2, taps - 1)), dtype, layout)


def measure(seed: int, schedules: list[str], clock: ColdClock) -> Result:
    """The case of a seed, by each schedule that can run it."""
    shape = draw(seed)
    torch.manual_seed(seed)
    batch, channels, length = shape.sizes
    dtype = _DTYPES[shape.dtype]
    if shape.layout == "cf":
        x = torch.randn(batch, channels, length, device="cuda", dtype=dtype)
    else:
        x = torch.randn(batch, length, channels, device="cuda", dtype=dtype).transpose(1, 2)
    w = torch.randn(channels, 1, shape.taps, device="cuda", dtype=dtype) / math.sqrt(shape.taps)
    arguments = (x, w, None, 1, shape.padding, 1, channels)
    calls: dict[str, Call] = {}
    for schedule in schedules:
        try:
            sluice.conv1d(*arguments, schedule=schedule)
        except (ValueError, RuntimeError):  # its stages do not fit
            continue
        calls[schedule] = lambda schedule=schedule: sluice.conv1d(*arguments, schedule=schedule)  # type: ignore[misc]
    target = torch.empty_like(x)
    times = interleave(
        clock, {**calls, "copy": lambda: target.copy_(x), "torch": lambda: F.conv1d(*arguments)}, _EFFORT
    )
    return Result(
        seed,
        shape,
        sluice.plan("conv1d", *arguments, schedule=schedules[0]).kernel,
        {schedule: times[schedule].median_us for schedule in calls},
        times["copy"].median_us,
        times["torch"].median_us,
    )


def results(first_seed: int, count: int, schedules: list[str], clock: ColdClock) -> Iterator[Result]:
    """Of `count` cases."""
    for seed in range(first_seed, first_seed + count):
        yield measure(seed, schedules, clock)


def line(result: Result) -> str:
    """A result in words, with the schedule that won where several were timed."""
    best = min(result.ours, key=lambda schedule: result.ours[schedule])
    first = next(iter(result.ours))
    others = "".join(f", {name} {time:.1f}" for name, time in result.ours.items() if name != first)
    loss = f"  {best} WINS" if result.ours[best] < 0.97 * result.ours[first] else ""
    return (
        f"{result.seed:6} {result.efficiency:5.2f} of a copy, {result.native / result.ours[first]:6.2f}x torch  "
        f"{result.shape}  {result.kernel} {result.ours[first]:.1f} us{others}; copy {result.copy:.1f}{loss}"
    )


def main() -> int:
    """Prints a line for each case and the worst ten; exits 1 where one is 3 % slower than torch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--only", default="auto", help="schedules, with commas between them; the first is judged")
    options = parser.parse_args()
    print(f"seeds {options.seed} to {options.seed + options.cases - 1}")
    found: list[Result] = []
    with torch.inference_mode():
        schedules = options.only.split(",")
        for result in results(options.seed, options.cases, schedules, ColdClock(torch.device("cuda"))):
            if not result.ours:
                continue
            found.append(result)
            print(line(result), flush=True)
    slower = [result.seed for result in found if result.native < next(iter(result.ours.values())) / 1.03]
    mean = math.exp(sum(math.log(result.efficiency) for result in found) / len(found))
    print(f"geometric mean {mean:.2f} of a copy; {len(slower)} of {len(found)} slower than torch: {slower}; the worst:")
    for result in sorted(found, key=lambda result: result.efficiency)[:10]:
        print(line(result))
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
