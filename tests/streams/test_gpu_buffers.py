"""Streams and the caller's memory, in cases that only a GPU shows: refilled, registered, truncated."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest
import torch

import sluice
from marks import ON_GPU
from stream_calls import MIB

pytestmark = ON_GPU


# --- sources that refill one buffer -----------------------------------------------------------------------------------
def refilled(count: int, buffer: torch.Tensor) -> Iterator[torch.Tensor]:
    for i in range(count):
        buffer.numpy().fill(i)
        yield buffer


@pytest.mark.parametrize("make", [lambda: torch.empty(4 * MIB).pin_memory(), lambda: torch.empty(4 * MIB)])
def test_a_host_buffer_that_is_filled_again(make: Callable[[], torch.Tensor]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(2_000_000)
        return x[:: MIB // 4]

    results = list(sluice.stream_iter(fn, refilled(40, make())))
    assert all((result == i).all() for i, result in enumerate(results))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_tensor_on_the_gpu_that_is_filled_again(devices: int) -> None:
    if torch.cuda.device_count() < devices:
        pytest.skip("needs two GPUs")
    buffer = torch.zeros(1000, device="cuda")

    def source() -> Iterator[torch.Tensor]:
        for i in range(12):
            torch.cuda._sleep(2_000_000)  # written long after the item was yielded
            buffer.fill_(i)
            yield buffer

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(5_000_000)  # and read long after the next item could have been written
        return x + 1

    def on_another(x: torch.Tensor) -> torch.Tensor:
        return fn(x.to("cuda:1"))

    functions = {0: fn, 1: on_another}
    fns = fn if devices == 1 else functions
    results = list(sluice.stream_iter(fns, source(), devices=list(range(devices))))
    assert [(float(r.min()), float(r.max())) for r in results] == [(i + 1.0, i + 1.0) for i in range(12)]


@pytest.mark.alone
def test_copies_of_a_refilled_buffer_run_under_compute() -> None:
    buffer = torch.empty(16 * MIB).pin_memory()

    def source() -> Iterator[torch.Tensor]:
        for _ in range(12):
            yield buffer

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(4_000_000)
        return x

    with sluice.Streamer() as streamer:
        for _ in range(2):
            for _ in streamer.iter(fn, source()):
                pass
        assert sluice.overlap_report(streamer.stats()).overlap > 0.3


# --- registered memory ------------------------------------------------------------------------------------------------
def test_batches_are_let_go_one_after_the_other() -> None:
    kept: list[torch.Tensor] = []
    with sluice.Streamer() as streamer:
        for i in range(4):
            batch = torch.full((1024, 1024), float(i))
            assert torch.equal(streamer.map(torch.neg, batch, staging="register"), -batch)
            assert set(streamer.stats().bytes_in) == {"direct"}
            assert streamer._lender.registered.nbytes <= 2 * batch.nbytes
            kept = [batch]
        assert kept[-1].is_pinned()
    assert not any(batch.is_pinned() for batch in kept)


def test_locked_memory_is_within_the_budget() -> None:
    batches = [torch.randn(4096, 1024) for _ in range(3)]  # 16 MiB each
    rings = 2 * 8 * 8 * MIB
    with sluice.Streamer(pinned_budget=rings + 40 * MIB) as streamer:
        for batch in batches:
            assert torch.equal(streamer.map(torch.neg, batch, staging="register"), -batch)
            assert set(streamer.stats().bytes_in) == {"direct"}
            assert batch.nbytes <= streamer._lender.registered.nbytes <= 40 * MIB
        assert not batches[0].is_pinned()
        large = torch.randn(4096, 3 * 1024)
        assert torch.equal(streamer.map(torch.neg, large, staging="register"), -large)
        assert "pinned_budget allows" in streamer.stats().fallbacks[0]
        assert not large.is_pinned()


@pytest.mark.parametrize("index", [0, 1])
def test_host_registered_waits_for_every_device(index: int) -> None:
    if torch.cuda.device_count() <= index:
        pytest.skip("needs two GPUs")
    torch.cuda.set_device(0)
    there = torch.zeros(MIB, device=f"cuda:{index}")
    x = torch.ones(MIB)
    stream = torch.cuda.Stream(index)
    torch.cuda.synchronize(index)
    with sluice.host_registered(x), torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        there.copy_(x, non_blocking=True)
        assert not stream.query()
    assert stream.query()
    assert torch.cuda.current_device() == 0
    assert bool((there == 1).all())


# --- files that are truncated under plain copies ----------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:.*pageable")
def test_a_mapped_file_under_plain_copies(tmp_path: pathlib.Path) -> None:
    x, size = torch.randn(3000, 1001), 3000 * 1001
    (tmp_path / "x.bin").write_bytes(x.numpy().tobytes())
    (tmp_path / "y.bin").write_bytes(b"\0" * x.nbytes)
    mapped, out = (torch.from_file(str(tmp_path / f"{n}.bin"), shared=True, size=size).view(3000, 1001) for n in "xy")
    with sluice.Streamer() as streamer:
        for source, target in ((mapped, out), (mapped[:, 5:], out[:, 5:]), (mapped.t(), out.t())):
            out.zero_()
            assert streamer.map(torch.neg, source, out=target, chunk_size=500, staging="pageable") is target
            assert torch.equal(target, -source)
            assert set(streamer.stats().bytes_in) == set(streamer.stats().bytes_out) == {"pageable"}
        os.truncate(tmp_path / "y.bin", 8192)
        with pytest.raises(OSError, match="a file ended while it was written"):
            streamer.map(torch.neg, mapped, out=out, chunk_size=500, staging="pageable")
        os.truncate(tmp_path / "x.bin", 8192)
        with pytest.raises(OSError, match="a file ended while it was read"):
            streamer.map(torch.neg, mapped, chunk_size=500, staging="pageable")
        assert torch.equal(streamer.map(torch.neg, x), -x)
