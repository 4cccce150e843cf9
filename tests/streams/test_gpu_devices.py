"""Streams on the second of two GPUs leave the first GPU alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from marks import ON_GPU

pytestmark = ON_GPU

# A context takes hundreds of MiB of the device's memory.
PROGRAM = """
import torch, sluice

def used():
    return [torch._C._cuda_hasPrimaryContext(i) for i in range(2)]

x = torch.randn(1 << 16)
steps = {
    "map": lambda: sluice.stream_map(torch.sin, x, devices="cuda:1", chunk_size=1 << 14),
    "futures": lambda: sluice.stream_map(torch.sin, x, devices="cuda:1", non_blocking=True).result(),
    "iter": lambda: list(sluice.stream_iter(torch.sin, [x, x], devices="cuda:1")),
    "host_registered": lambda: sluice.host_registered(x).__enter__() is x,
    "link_limits": lambda: sluice.link_limits("cuda:1"),
    "run_concurrent": lambda: sluice.run_concurrent([lambda: torch.ones(3, device="cuda:1")], device="cuda:1"),
    "thread_stream": lambda: sluice.thread_stream("cuda:1"),
    "transform": lambda: sluice.transform(x.to("cuda:1"), sluice.stages.silu()),
    "info": sluice.info,
}
for name, step in steps.items():
    step()
    assert not used()[0], f"{name} made a context on cuda:0"
    assert torch.cuda.current_device() == 0, name
assert used()[1]
assert torch.ones(2, device="cuda").device.index == 0
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_no_context_is_made_on_a_device_that_is_not_used() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
