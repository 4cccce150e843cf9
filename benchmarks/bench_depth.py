"""Suite `depth`: 1 to 8 stages for kernels with a ring, large and small."""

from __future__ import annotations

from bench_conv1d_depthwise import depthwise_case
from bench_filter2d import stencil_case
from bench_transform import chain_case, graph_case
from sluice.bench import Suite

SCHEDULES = ("multi_stage", "producer_consumer", "thread_scope", "bulk")
DEPTHS = range(1, 9)

SUITE = Suite(
    "depth",
    [
        case
        for schedule in SCHEDULES
        for depth in DEPTHS
        for case in (
            chain_case("bf16", 2**26, schedule=schedule, depth=depth),
            graph_case("bf16", 2**16, schedule=schedule, depth=depth),
            depthwise_case((8, 5120, 2048), 4, "bf16", "cf", schedule=schedule, depth=depth),
            depthwise_case((8, 5120, 2048), 4, "bf16", "cl", schedule=schedule, depth=depth),
            stencil_case((64, 1, 1080, 1920), 5, "fp32", schedule=schedule, depth=depth),
        )
    ],
)
