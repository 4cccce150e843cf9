"""Plans without a GPU: the devices to plan for, tensors without memory, and what is true of every plan."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from common import FIXED_DEPTH, ROOT
from sluice.plan import H200, Device, Plan

# Compute capability, SMs, threads and shared memory of one, shared memory of a block.
DEVICES = {
    "8.0": Device(80, 108, 2048, 164 << 10, 163 << 10),
    "8.6": Device(86, 84, 1536, 100 << 10, 99 << 10),
    "8.9": Device(89, 142, 1536, 100 << 10, 99 << 10),
    "9.0": H200,
    "10.0": Device(100, 148, 2048, 228 << 10, 227 << 10),
    "12.0": Device(120, 188, 1536, 100 << 10, 99 << 10),
}
# Bytes of shared memory that a pipe keeps beside the ring.
STATIC = int(
    re.findall(r"kStaticSharedMemory = (\d+);", (ROOT / "kernels/shared/common/device_properties.h").read_text())[0]
)


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


# The detail of plans for channels-last tensors that go through rows of positions.
IS_BY_ROWS = "the input is transposed into rows of positions in a workspace, the result out of one"

Call = tuple[str, tuple[object, ...], dict[str, object]]  # an op, arguments and options


def rows_of(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """512 rows in every layout: contiguous, channels-last, stepped and unbatched."""
    x = meta(8, 512, 2048, dtype=dtype)
    yield from (x, x.new_empty(8, 2048, 512).transpose(1, 2), x[..., ::2], meta(1, 512, 2048, dtype=dtype)[0])


def check(plan: Plan, device: Device, schedule: str) -> None:
    assert plan.grid >= 1
    assert plan.grid < 2**31
    assert 32 <= plan.threads <= 1024
    assert plan.tile >= 1
    static = STATIC if plan.schedule != "direct" else 0
    assert 0 <= plan.shared_memory <= device.shared_memory_per_block - static
    assert 1 <= plan.depth <= 8
    assert plan.method
    assert plan.kernel
    assert (plan.workspace_bytes > 0) == (plan.method in ("fourier", "dense") or IS_BY_ROWS in plan.detail)
    assert plan.alignment in (2, 4, 8, 16)
    assert plan.copy_width % plan.alignment == 0
    assert plan.resident_blocks * plan.threads <= device.threads_per_multiprocessor
    assert plan.resident_blocks * plan.shared_memory <= device.shared_memory_per_multiprocessor
    if plan.schedule != "direct":
        assert plan.grid <= max(1, plan.resident_blocks) * device.multiprocessors
    assert plan.depth == FIXED_DEPTH.get(plan.schedule, plan.depth)
    if schedule == "auto":
        assert plan.reason
    else:
        assert plan.schedule == schedule
        assert plan.reason.startswith("forced: ")
