"""Known pitfalls of pipelines and streams: each fault gives a wrong result, each cure a right result."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest
import torch

from nvcc_program import nvcc_program

pytestmark = pytest.mark.gpu
KIB = 1024


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("traps")
    return nvcc_program(folder / "traps", ["tests/gpu/traps.cu"], "-O3", "--expt-relaxed-constexpr")


@pytest.fixture(scope="module")
def stream_cases(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("stream_cases")
    return nvcc_program(folder / "stream_cases", ["tests/gpu/stream_cases.cu"], "-O3", "--expt-relaxed-constexpr")


@pytest.mark.parametrize("form", ["cure", "fault"])
@pytest.mark.parametrize("trap", ["grid_size", "output_offset", "last_batch", "no_wait", "occupancy"])
def test_a_fault_is_wrong_and_its_cure_is_right(traps: pathlib.Path, trap: str, form: str) -> None:
    result = subprocess.run([str(traps), trap, form], timeout=60, check=False)
    assert result.returncode == {"cure": 0, "fault": 1}[form]


# --- copies from pageable memory --------------------------------------------------------------------------------------
def returns_while_the_stream_is_held(kib: int) -> bool:
    """Whether a copy of `kib` KiB from pageable memory returns while an earlier kernel still holds its stream."""
    source = torch.randn(kib * KIB // 4)
    target = torch.zeros(kib * KIB // 4, device="cuda")
    stream, before = torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)  # first uses may wait for the stream
        torch.cuda._sleep(1000)
        stream.synchronize()
        target.zero_()
        torch.cuda._sleep(100_000_000)  # 50 ms
        before.record()
        target.copy_(source, non_blocking=True)
        is_held = not before.query()
    stream.synchronize()
    assert torch.equal(target.cpu(), source)
    return is_held


@pytest.mark.alone
@pytest.mark.usefixtures("cuda")
def test_small_pageable_copies_return_before_they_are_done(record_property: Callable[[str, object], None]) -> None:
    """The programming guide's rule: copies of at most 64 KB from host to device are asynchronous."""
    # One of five is enough: the host may be interrupted, but a copy that waits for the stream never returns early.
    assert any(returns_while_the_stream_is_held(64) for _ in range(5))
    # The driver may wait for the stream before it stages a larger copy, or not: this is recorded, not asserted.
    waited = sum(not returns_while_the_stream_is_held(KIB) for _ in range(5))
    record_property("copies of 1 MiB that waited for the stream, of five", waited)


# --- the default stream -----------------------------------------------------------------------------------------------
def kernels_in_all(stream_cases: pathlib.Path, case: str, path: pathlib.Path) -> float:
    """The time of eight kernels over the time of one: the least of three runs, because the host may be interrupted."""
    ratios = []
    for _ in range(3):
        subprocess.run([str(stream_cases), case, "--json", str(path)], timeout=60, check=True)
        spans = json.loads(path.read_text())["spans_us"]
        assert len(spans) == 8
        one = sum(end - begin for begin, end in spans) / len(spans)
        ratios.append((max(end for _, end in spans) - min(begin for begin, _ in spans)) / one)
    return min(ratios)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("case", "waits"),
    [
        ("legacy_between_blocking", True),
        ("legacy_between_non_blocking", False),
        ("per_thread", False),
        ("threads_on_legacy", True),
        ("threads_per_thread", False),
    ],
)
def test_who_waits_for_the_default_stream(
    stream_cases: pathlib.Path, tmp_path: pathlib.Path, case: str, waits: bool
) -> None:
    ratio = kernels_in_all(stream_cases, case, tmp_path / "spans.json")
    assert ratio >= 6 if waits else ratio <= 3
