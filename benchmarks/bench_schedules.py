"""Suite `schedules`: every schedule forced on the same problems, and the row that `auto` picks.

For each op a small problem, a large one and one at an odd place in memory; then shapes drawn at random, the same in
every run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

from sluice.bench import SCHEDULES, Case, Suite, checkout_root, load_suite


def _cases_of(suite: str) -> ModuleType:
    """The module of another suite, for its functions that make cases."""
    load_suite(checkout_root(), suite)
    return sys.modules[f"bench_{suite}"]


_chain = _cases_of("transform").chain_case
_depthwise = _cases_of("conv1d_depthwise").depthwise_case
_stencil = _cases_of("filter2d").stencil_case

Make = Callable[[str], Case]  # of a schedule


def _fixed() -> Iterator[Make]:
    for n, offset in ((2**16, 0), (2**26, 0), (2**26 + 3, 1)):
        yield lambda schedule, n=n, offset=offset: _chain("bf16", n, offset=offset, schedule=schedule)
    yield lambda schedule: _chain("fp32", 2**26, schedule=schedule)
    for layout in ("cf", "cl"):
        for shape, taps in (((1, 512, 512), 4), ((8, 5120, 2048), 4), ((3, 1023, 2999), 31)):
            yield lambda schedule, shape=shape, taps=taps, layout=layout: _depthwise(
                shape, taps, "bf16", layout, schedule=schedule
            )
    yield lambda schedule: _depthwise((8, 768, 8192), 128, "bf16", "cf", schedule=schedule)
    for shape, size in (((1, 1, 270, 480), 3), ((64, 1, 1080, 1920), 5), ((16, 1, 1079, 1919), 11)):
        yield lambda schedule, shape=shape, size=size: _stencil(shape, size, "fp32", schedule=schedule)


def _random() -> Iterator[Make]:
    draw = random.Random(20261121)
    for _ in range(3):
        n, dtype = draw.randrange(2**18, 2**27), draw.choice(["bf16", "fp32"])
        yield lambda schedule, n=n, dtype=dtype: _chain(dtype, n, schedule=schedule)
    for _ in range(4):
        shape = (draw.randrange(1, 9), draw.randrange(64, 4096), draw.randrange(500, 8000))
        taps, dtype, layout = draw.choice([3, 4, 7, 15, 64]), draw.choice(["bf16", "fp32"]), draw.choice(["cf", "cl"])
        yield lambda schedule, shape=shape, taps=taps, dtype=dtype, layout=layout: _depthwise(
            shape, taps, dtype, layout, schedule=schedule
        )
    for _ in range(3):
        frame = (draw.randrange(1, 33), draw.randrange(1, 4), draw.randrange(200, 1200), draw.randrange(200, 2000))
        size, dtype = draw.choice([3, 5, 7, 9, 15]), draw.choice(["fp16", "fp32"])
        yield lambda schedule, frame=frame, size=size, dtype=dtype: _stencil(frame, size, dtype, schedule=schedule)


SUITE = Suite(
    "schedules",
    [make(schedule) for make in (*_fixed(), *_random()) for schedule in ("auto", *SCHEDULES)],
)
