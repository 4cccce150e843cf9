"""Suite `stream_devices`: host tensors through one GPU and through two, as in suite `stream`.

A machine with one GPU has the rows of one. The floor of two GPUs is half that of one for pinned memory; for pageable
memory it is at least the time of the host's copies.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import torch

from bench_stream import Row, stream_case
from sluice.bench import Case, HostClock, Suite

_SIN = "sin(x) * x + 1"


def _cases() -> Iterator[Case]:
    most = min(2, max(1, torch.cuda.device_count()))  # asks NVML, so listing does not initialise CUDA
    for row in (Row(rows=4 * Row.rows), Row(_SIN), Row(source="pageable"), Row(_SIN, "pageable")):
        for devices in range(1, most + 1):
            case = stream_case(dataclasses.replace(row, devices=devices))
            yield dataclasses.replace(case, name=f"{case.name}, {devices} GPU{'s' * (devices > 1)}")


SUITE = Suite(
    "stream_devices",
    list(_cases()),
    clock=functools.partial(HostClock, calls=1),
)
