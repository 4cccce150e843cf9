"""Random convolutions and stencils on the CPU, timed against torch to find slower cases.

    python benchmarks/random_cpu.py --op conv1d --cases 100 --threads 1 --seed 0

A case is drawn only from its seed, which begins its line: `--seed N --cases 1` runs it again. Cases that take torch
less than 50 us are skipped. Times are the best of interleaved runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import sluice

OPS = ("conv1d", "causal_conv1d", "filter2d")
_SHORTEST = 50e-6  # seconds: torch's shortest time that is compared
_ELEMENTS = 1 << 22
_WORK = 1 << 30  # products, so that torch finishes within a second


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A call of each library, with the same arguments."""

    text: str
    ours: Callable[[], Any]
    native: Callable[[], Any]


def _extent(pick: random.Random, low: int, high: int) -> int:
    """A log-uniform number between the two; about half are multiples of 8."""
    extent = int(low * (high / low) ** pick.random())
    return max(low, extent // 8 * 8) if pick.random() < 0.5 else extent


def _tensor(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


def _conv1d(pick: random.Random, generator: torch.Generator, dtype: torch.dtype) -> Drawn | None:
    batch, channels, length = pick.choice((1, 2, 8, 32)), _extent(pick, 1, 1024), _extent(pick, 8, 100_000)
    taps = pick.choice((2, 3, 4, 5, 7, 15, 31, 127, 255))
    stride, dilation = pick.choice((1, 1, 1, 2)), pick.choice((1, 1, 1, 2, 5))
    elements = batch * channels * length
    if elements > _ELEMENTS or elements * taps > _WORK or length <= (taps - 1) * dilation:
        return None
    last = pick.random() < 0.3
    x = _tensor(generator, dtype, batch, channels, length)
    if last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    w, b = _tensor(generator, dtype, channels, 1, taps), _tensor(generator, dtype, channels)
    padding = pick.choice((0, taps // 2))
    arguments = (x, w, b, stride, padding, dilation, channels)
    text = f"({batch}, {channels}, {length}) {'cl' if last else 'cf'} K={taps} {stride=} {padding=} {dilation=}"
    return Drawn(text, lambda: sluice.conv1d(*arguments), lambda: F.conv1d(*arguments))


def _causal_conv1d(pick: random.Random, generator: torch.Generator, dtype: torch.dtype) -> Drawn | None:
    batch, channels, length = pick.choice((1, 2, 8, 32)), _extent(pick, 8, 2048), _extent(pick, 8, 10_000)
    taps, last = pick.choice((2, 3, 4, 4, 4, 7, 31)), pick.random() < 0.5
    if batch * channels * length > _ELEMENTS or batch * channels * length * taps > _WORK:
        return None
    x = _tensor(generator, dtype, batch, channels, length)
    if last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    w, b = _tensor(generator, dtype, channels, taps), _tensor(generator, dtype, channels)

    def native() -> torch.Tensor:
        return F.conv1d(x, w[:, None], b, padding=taps - 1, groups=channels)[..., :length]

    text = f"({batch}, {channels}, {length}) {'cl' if last else 'cf'} K={taps}"
    return Drawn(text, lambda: sluice.causal_conv1d(x, w, b), native)


def _filter2d(pick: random.Random, generator: torch.Generator, dtype: torch.dtype) -> Drawn | None:
    batch, channels = pick.choice((1, 2, 8, 32)), _extent(pick, 1, 512)
    height, width = _extent(pick, 7, 2000), _extent(pick, 7, 2000)
    side, last = pick.choice((3, 3, 5, 7, 11)), pick.random() < 0.3
    elements = batch * channels * height * width
    if elements > _ELEMENTS or elements * side**2 > _WORK:
        return None
    x = _tensor(generator, dtype, batch, channels, height, width)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    kernel = _tensor(generator, dtype, channels, side, side)
    text = f"({batch}, {channels}, {height}, {width}) {'cl' if last else 'cf'} {side}x{side}"
    return Drawn(
        text,
        lambda: sluice.filter2d(x, kernel),
        lambda: F.conv2d(x, kernel[:, None], padding=side // 2, groups=channels),
    )


_DRAW = {"conv1d": _conv1d, "causal_conv1d": _causal_conv1d, "filter2d": _filter2d}


def draw(op: str, seed: int) -> Drawn | None:
    """The case of a seed; None if it would be too large."""
    pick, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    dtype = pick.choice((torch.float32, torch.float32, torch.bfloat16))
    drawn = _DRAW[op](pick, generator, dtype)
    return drawn and dataclasses.replace(drawn, text=f"{str(dtype).removeprefix('torch.')} {drawn.text}")


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(drawn: Drawn, rounds: int = 5) -> tuple[float, float]:
    """Seconds of sluice and of torch: the best of interleaved runs of a few milliseconds each."""
    repeats = max(1, min(50, int(2e-3 / max(_seconds(drawn.native), 1e-6))))
    ours, native = [], []
    for _ in range(rounds):
        ours += [_seconds(drawn.ours) for _ in range(repeats)]
        native += [_seconds(drawn.native) for _ in range(repeats)]
    return min(ours), min(native)


def cases(op: str, first_seed: int, count: int) -> Iterator[tuple[int, str, float, float]]:
    """Yields (seed, text, sluice's seconds, torch's seconds) of `count` cases that take torch long enough."""
    seed = first_seed
    while count > 0:
        drawn = draw(op, seed)
        if drawn is not None:
            ours, native = compare(drawn)
            if native >= _SHORTEST:
                yield seed, drawn.text, ours, native
                count -= 1
        seed += 1


def main() -> int:
    """Prints a line for each case; exits 1 if one is slower than torch by more than 3 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", choices=OPS, default="conv1d")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    slower = []
    with torch.inference_mode():
        for seed, text, ours, native in cases(options.op, options.seed, options.cases):
            ratio = native / ours
            print(f"{seed:6} {ours * 1e6:10.1f} us, torch {native * 1e6:10.1f} us, {ratio:6.2f}x  {text}", flush=True)
            if ratio < 1 / 1.03:
                slower.append(seed)
    print(f"{len(slower)} of {options.cases} slower than torch: seeds {slower}")
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
