"""Streams and memory: wrappers, modes, private pages, budgets of pinned memory, threads that cannot start."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sluice
from sluice.stream.device import memory
from sluice.stream.device.registered import Registered
from stream_calls import two


# --- tensors without memory -----------------------------------------------------------------------------------------
class Wrapper(torch.Tensor):
    """Like DTensor: a shape, and another tensor that holds the bytes."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        unwrap = lambda value: value.inner if isinstance(value, Wrapper) else value  # noqa: E731
        return function(*map(unwrap, args), **(kwargs or {}))


class Named(torch.Tensor):
    """A subclass with memory of its own."""


def test_wrappers_are_refused(device: str) -> None:
    x = torch.ones(10)
    rule = "must be a tensor with memory of its own, which a wrapper lacks, got Wrapper"
    with pytest.raises(TypeError, match=rf"^stream_map: inputs\[1\] {rule}$"):
        sluice.stream_map(torch.add, x, Wrapper(x), devices=device)
    with pytest.raises(TypeError, match=f"^stream_map: out {rule}$"):
        sluice.stream_map(torch.neg, x, out=Wrapper(x), devices=device)
    with pytest.raises(TypeError, match=rf"^stream_map: the result\[0\] {rule} for chunk 0"):
        sluice.stream_map(lambda x: (Wrapper(x),), x, devices=device)
    with pytest.raises(TypeError, match=f"^stream_iter: a tensor of item 0 {rule}$"):
        list(sluice.stream_iter(torch.neg, [Wrapper(x)], devices=device))
    with pytest.raises(TypeError, match=f"^stream_iter: the result {rule} for item 0$"):
        list(sluice.stream_iter(Wrapper, [x], devices=device))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    with pytest.raises(TypeError, match=r"stream_map: inputs\[0\] must be a tensor with memory .* got FakeTensor"):
        sluice.stream_map(torch.neg, fake, devices=device)
    for transform in (torch.func.vmap, torch.func.functionalize):
        with pytest.raises(TypeError, match=r"stream_map: inputs\[0\] must be a tensor with memory"):
            transform(lambda x: sluice.stream_map(torch.neg, x, devices=device))(torch.ones(2, 3))
    with pytest.raises(TypeError, match="host_registered: tensor must be a tensor with memory"):
        sluice.host_registered(Wrapper(x)).__enter__()


def test_subclasses_with_memory_are_taken(device: str) -> None:
    x = torch.randn(30, 3)
    for given in (x.as_subclass(Named), torch.nn.Parameter(x, requires_grad=False)):
        assert torch.equal(sluice.stream_map(torch.neg, given, chunk_size=7, devices=device), -x)
        (result,) = sluice.stream_iter(lambda x: x.as_subclass(Named), [given], devices=device)
        assert torch.equal(result, x)


def test_the_default_device_is_the_callers(device: str) -> None:
    x = torch.randn(100, 3)
    with sluice.Streamer(device, staging_threads=2) as streamer, torch.device("meta"):
        assert torch.equal(streamer.map(lambda x: x * 2, x, chunk_size=7), x * 2)
        assert torch.equal(streamer.map(lambda x: x[:1] if len(x) < 7 else x, x, chunk_size=7), x[:99])
        assert torch.equal(next(streamer.iter(lambda x: (x * 2).sum(), [x.double()])), (x.double() * 2).sum())
        assert sluice.stream.device.limits._measure(torch.device(device, 0)).host_memcpy > 0


def test_modes_without_memory_are_refused(device: str) -> None:
    x = torch.randn(100, 3)
    rule = "the call must not be under a mode that makes tensors without memory, got one that makes a FakeTensor"
    with sluice.Streamer(device) as streamer:
        assert torch.equal(streamer.map(torch.neg, x), -x)
        with FakeTensorMode(), pytest.raises(RuntimeError, match=f"^stream_map: {rule}$"):
            streamer.map(torch.neg, x)
        with FakeTensorMode(), pytest.raises(RuntimeError, match=f"^stream_iter: {rule}$"):
            list(streamer.iter(torch.neg, [x]))
        assert torch.equal(streamer.map(torch.neg, x), -x)


# --- files ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE, mmap.MAP_SHARED])
def test_what_was_written_into_a_mapping_stays(
    flags: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_DROP_FROM", 1)
    size, path = 1 << 20, tmp_path / "x.bin"
    path.write_bytes(b"\0" * size)
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), size, flags=flags)
    x = torch.frombuffer(mapped, dtype=torch.uint8)
    x.copy_(torch.arange(size).to(torch.uint8))
    wanted = x.clone()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(size), mmap.PROT_READ) == 0
    assert torch.equal(sluice.stream_map(lambda x: x, x, chunk_size=size // 4, devices="cpu"), wanted)
    assert torch.equal(x, wanted)


# --- registered memory ------------------------------------------------------------------------------------------------
@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Addresses that a machine with CUDA would pin."""
    addresses: set[int] = set()

    def register(tensor: torch.Tensor) -> str:
        assert tensor.data_ptr() not in addresses
        addresses.add(tensor.data_ptr())
        return ""

    monkeypatch.setattr(memory, "register", register)
    monkeypatch.setattr(memory, "unregister", lambda tensor: addresses.remove(tensor.data_ptr()))
    return addresses


def test_a_batch_that_is_gone_is_let_go(locked: set[int]) -> None:
    registered = Registered(1 << 20, shared=True)
    kept = torch.ones(100)
    for _ in range(5):
        batch = torch.ones(1000)
        registered.begin([kept, batch])
        assert registered.lock(kept) == registered.lock(batch.detach()) == ""
        assert locked == {kept.data_ptr(), batch.data_ptr()}
        assert registered.nbytes == 4400
        registered.begin([])
        assert locked == {kept.data_ptr(), batch.data_ptr()}  # its caller still holds it
        del batch
        registered.begin([])
        assert locked == {kept.data_ptr()}
    registered.release()
    assert locked == set()


def test_what_is_locked_is_within_the_budget(locked: set[int]) -> None:
    registered, apart = Registered(10_000, shared=True), Registered(10_000, shared=False)
    batches = [torch.ones(1000) for _ in range(4)]
    for i, batch in enumerate(batches):
        registered.begin([batch])
        assert registered.lock(batch) == ""
        assert locked == {b.data_ptr() for b in batches[max(i - 1, 0) : i + 1]}  # the oldest was unpinned
    registered.begin(batches)
    assert registered.lock(batches[0]) == "it has 4000 bytes, but pinned_budget allows 2000"
    assert registered.lock(torch.ones(5000)) == "it has 20000 bytes, but pinned_budget allows 10000"
    assert locked == {batches[2].data_ptr(), batches[3].data_ptr()}
    assert registered.charged == registered.nbytes == 8000
    assert apart.lock(torch.ones(1000)) == ""
    assert (apart.charged, apart.nbytes) == (0, 4000)
    apart.release()
    registered.release()
    assert locked == set()


def test_a_call_does_not_keep_its_inputs(device: str) -> None:
    x = torch.randn(100, 3)
    gone = weakref.ref(x)
    with sluice.Streamer(device) as streamer:
        gc.disable()
        try:
            streamer.map(torch.neg, x, chunk_size=7)
            streamer.map(torch.neg, x, chunk_size=7, non_blocking=True).result()
            del x
            assert gone() is None
        finally:
            gc.enable()
        assert streamer.stats().chunks == 15


# --- threads that cannot be started -----------------------------------------------------------------------------------
LIMITED = """
import os, resource, sys, time
import torch, sluice
torch.set_num_threads(1)
if os.getuid() == 0:
    os.setuid(54321)  # root has no limit
count = lambda: len(os.listdir("/proc/self/task"))
before, x, hard = count(), torch.arange(1000.0), resource.getrlimit(resource.RLIMIT_NPROC)[1]
devices = sys.argv[1:]
for left in [*range(24), None]:
    resource.setrlimit(resource.RLIMIT_NPROC, (hard if left is None else before + left, hard))
    done = []
    for call in ("map", "iter"):
        with sluice.Streamer(devices, staging_threads=4) as streamer:
            try:
                if call == "map":
                    assert torch.equal(streamer.map(torch.neg, x, chunk_size=50), -x)
                else:
                    assert all(torch.equal(y, -x) for y in streamer.iter(torch.neg, [x] * 5))
                done.append("done")
            except RuntimeError as error:
                done.append(f"{error}")
        deadline = time.monotonic() + 60  # the system lists a thread for a moment after it was joined
        while count() != before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert count() == before, (left, count(), before)
    print(left, *done, sep="|", flush=True)
"""


@pytest.mark.parametrize("several", [False, True])
def test_threads_that_cannot_be_started(several: bool, tmp_path: pathlib.Path) -> None:
    devices = two("cpu") if several else ["cpu"]
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, *devices], capture_output=True, text=True, timeout=100, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split("|") for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == [*map(str, range(24)), "None"]
    assert lines[-1][1:] == ["done", "done"]
    texts = {text for line in lines for text in line[1:]}
    if texts == {"done"}:
        pytest.skip("the system does not count threads")
    known = "done|can't start new thread|Streamer: the system must be able to start a thread, got .+"
    assert all(re.fullmatch(known, text) for text in texts), texts


# --- the process's handler of SIGBUS ----------------------------------------------------------------------------------
def bus_handler() -> bytes:
    """The C function that handles SIGBUS now, as bytes."""
    action = ctypes.create_string_buffer(512)
    assert ctypes.CDLL(None).sigaction(signal.SIGBUS, None, action) == 0
    return action.raw[:8]


def test_the_bus_handler_is_the_processs_own_between_calls(device: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\1" * 400_000)
    x = torch.from_file(str(path), shared=True, size=100_000)
    former = signal.signal(signal.SIGBUS, lambda *_: None)
    try:
        own = bus_handler()
        with sluice.Streamer(device) as streamer:
            streamer.map(torch.neg, x, chunk_size=10_000)
            assert bus_handler() == own
            os.truncate(path, 8192)
            with pytest.raises(OSError, match="must keep its file's length"):
                streamer.map(torch.neg, x, chunk_size=10_000)
            assert bus_handler() == own
            list(streamer.iter(torch.neg, [torch.ones(3)]))
            assert bus_handler() == own
    finally:
        signal.signal(signal.SIGBUS, former)
