"""Suite `depth`: 1 to 8 stages for kernels with a ring, large and small."""

from __future__ import annotations

import sys
from types import ModuleType

from sluice.bench import Suite, checkout_root, load_suite


def _cases_of(suite: str) -> ModuleType:
    load_suite(checkout_root(), suite)
    return sys.modules[f"bench_{suite}"]


_transform = _cases_of("transform")
_depthwise = _cases_of("conv1d_depthwise").depthwise_case
_stencil = _cases_of("filter2d").stencil_case

SCHEDULES = ("multi_stage", "producer_consumer", "thread_scope", "bulk")
DEPTHS = range(1, 9)

SUITE = Suite(
    "depth",
    [
        case
        for schedule in SCHEDULES
        for depth in DEPTHS
        for case in (
            _transform.chain_case("bf16", 2**26, schedule=schedule, depth=depth),
            _transform.graph_case("bf16", 2**16, schedule=schedule, depth=depth),
            _depthwise((8, 5120, 2048), 4, "bf16", "cf", schedule=schedule, depth=depth),
            _depthwise((8, 5120, 2048), 4, "bf16", "cl", schedule=schedule, depth=depth),
            _stencil((64, 1, 1080, 1920), 5, "fp32", schedule=schedule, depth=depth),
        )
    ],
)
