"""Suite `schedules`: every schedule forced on the same problems, and the row that `auto` picks.

Each op has a small, a large and an unaligned problem, then random shapes, which are the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from bench_conv1d_depthwise import depthwise_case
from bench_filter2d import stencil_case
from bench_transform import chain_case
from sluice.bench import SCHEDULES, Case, Suite

Make = Callable[[str], Case]  # the case of a schedule


def _fixed() -> Iterator[Make]:
    for n, offset in ((2**16, 0), (2**26, 0), (2**26 + 3, 1)):
        yield lambda schedule, n=n, offset=offset: chain_case("bf16", n, offset=offset, schedule=schedule)
    yield lambda schedule: chain_case("fp32", 2**26, schedule=schedule)
    for layout in ("cf", "cl"):
        for shape, taps in (((1, 512, 512), 4), ((8, 5120, 2048), 4), ((3, 1023, 2999), 31)):
            yield lambda schedule, shape=shape, taps=taps, layout=layout: depthwise_case(
                shape, taps, "bf16", layout, schedule=schedule
            )
    yield lambda schedule: depthwise_case((8, 768, 8192), 128, "bf16", "cf", schedule=schedule)
    for shape, size in (((1, 1, 270, 480), 3), ((64, 1, 1080, 1920), 5), ((16, 1, 1079, 1919), 11)):
        yield lambda schedule, shape=shape, size=size: stencil_case(shape, size, "fp32", schedule=schedule)


def _random() -> Iterator[Make]:
    draw = random.Random(20261121)
    for _ in range(3):
        n, dtype = draw.randrange(2**18, 2**27), draw.choice(["bf16", "fp32"])
        yield lambda schedule, n=n, dtype=dtype: chain_case(dtype, n, schedule=schedule)
    for _ in range(4):
        shape = (draw.randrange(1, 9), draw.randrange(64, 4096), draw.randrange(500, 8000))
        taps, dtype, layout = draw.choice([3, 4, 7, 15, 64]), draw.choice(["bf16", "fp32"]), draw.choice(["cf", "cl"])
        yield lambda schedule, shape=shape, taps=taps, dtype=dtype, layout=layout: depthwise_case(
            shape, taps, dtype, layout, schedule=schedule
        )
    for _ in range(3):
        frame = (draw.randrange(1, 33), draw.randrange(1, 4), draw.randrange(200, 1200), draw.randrange(200, 2000))
        size, dtype = draw.choice([3, 5, 7, 9, 15]), draw.choice(["fp16", "fp32"])
        yield lambda schedule, frame=frame, size=size, dtype=dtype: stencil_case(frame, size, dtype, schedule=schedule)


SUITE = Suite(
    "schedules",
    [make(schedule) for make in (*_fixed(), *_random()) for schedule in ("auto", *SCHEDULES)],
)
