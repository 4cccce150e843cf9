"""Random problems of a family on a GPU, timed against a copy and torch to find plans that lose.

    python benchmarks/random_shapes.py depthwise --cases 100 --seed 0
    python benchmarks/random_shapes.py depthwise --schedules auto,direct,two_stage,producer_consumer

The families come from random_cases.py; suite `random` publishes them. A line begins with its seed:
`--seed N --cases 1` runs it again. All of `--schedules` are timed, the first is judged; `auto` is the plan's choice.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence

import torch

from random_cases import FAMILIES, draw
from sluice.bench import Workload
from sluice.bench.ceilings import copy_of
from sluice.bench.timing import Call, Clock, ColdClock, Effort, interleave

_EFFORT = Effort(rounds=3, samples=4, warm_up=2)
_SLOWER = 1 / 1.03  # torch's time over ours below which we are slower, beyond the measurement's error


@dataclasses.dataclass(frozen=True)
class Result:
    """A case and its microseconds; sluice's are by schedule."""

    name: str
    kernel: str
    reason: str
    ours: dict[str, float]
    copy: float
    native: float

    @property
    def time(self) -> float:
        return next(iter(self.ours.values()))

    @property
    def efficiency(self) -> float:
        """The time of a copy of as many bytes over ours."""
        return self.copy / self.time

    @property
    def ratio(self) -> float:
        """torch's time over ours."""
        return self.native / self.time


def measure(family: str, seed: int, schedules: Sequence[str], clock: Clock, device: torch.device) -> Result | None:
    """Times the case of a seed by each schedule that can run it; None without a case, or if the first cannot."""
    case = draw(family, seed)
    if case is None:
        return None
    with case.tf32_setting():
        return _measured(family, seed, schedules, clock, device)


def _measured(family: str, seed: int, schedules: Sequence[str], clock: Clock, device: torch.device) -> Result | None:
    made: dict[str, Workload] = {}
    name = ""
    for schedule in schedules:
        case = draw(family, seed, schedule)
        assert case is not None
        name = name or case.name
        torch.manual_seed(seed)
        try:
            workload = case.make(device)
            workload.ours()
        except (ValueError, RuntimeError):  # its stages do not fit
            if not made:
                return None
            continue
        made[schedule] = workload
    first = next(iter(made.values()))
    native = first.peers["torch"]
    assert native is not None
    calls: dict[str, Call] = {schedule: workload.ours for schedule, workload in made.items()}
    times = interleave(clock, calls | {"copy": copy_of(first.traffic, device), "torch": native}, _EFFORT)
    ours = {schedule: times[schedule].median_us for schedule in made}
    return Result(name, first.plan.kernel, first.plan.reason, ours, times["copy"].median_us, times["torch"].median_us)


def results(
    family: str, first_seed: int, count: int, schedules: Sequence[str], device: torch.device
) -> Iterator[Result]:
    """Yields the results of `count` cases."""
    clock, seed = ColdClock(device), first_seed
    while count > 0:
        if (result := measure(family, seed, schedules, clock, device)) is not None:
            yield result
            count -= 1
        seed += 1


def line(result: Result) -> str:
    """The line of a result, with the fastest schedule if several were timed."""
    best = min(result.ours, key=lambda schedule: result.ours[schedule])
    others = "".join(f", {name} {time:.1f}" for name, time in list(result.ours.items())[1:])
    loss = f"  {best} WINS" if result.ours[best] < 0.97 * result.time else ""
    return (
        f"{result.efficiency:5.2f} of a copy, {result.ratio:6.2f}x torch  {result.name}  {result.kernel} "
        f"{result.time:.1f} us{others}; copy {result.copy:.1f}{loss}"
    )


def summary(found: Sequence[Result]) -> list[str]:
    """The summary: efficiencies against a copy, ratios against torch, and the worst ten of each."""
    shares = sorted(result.efficiency for result in found)
    ratios = [result.ratio for result in found]
    slower = [result.name.partition(":")[0] for result in found if result.ratio < _SLOWER]
    return [
        f"of a copy: least {shares[0]:.2f}, tenth percentile {shares[len(shares) // 10]:.2f}, "
        f"median {statistics.median(shares):.2f}, geometric mean {_mean(shares):.2f}",
        f"against torch: geometric mean {_mean(ratios):.2f}x; {len(slower)} of {len(found)} slower: {slower}",
        "the least shares:",
        *map(line, sorted(found, key=lambda result: result.efficiency)[:10]),
        "the slowest against torch:",
        *(f"{line(r)}  {r.reason}" for r in sorted(found, key=lambda result: result.ratio)[:10]),
    ]


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> int:
    """Prints a line for each case, then the summary; exits 1 if one is 3 % slower than torch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--schedules", default="auto", help="with commas between them; the first is judged")
    options = parser.parse_args()
    found: list[Result] = []
    with torch.inference_mode():
        schedules = options.schedules.split(",")
        for result in results(options.family, options.seed, options.cases, schedules, torch.device("cuda")):
            found.append(result)
            print(line(result), flush=True)
    print("\n".join(summary(found)))
    return 1 if any(result.ratio < _SLOWER for result in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
