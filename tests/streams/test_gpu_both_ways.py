"""Inputs, outs and results on either side of the host link."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sluice
from marks import ON_GPU
from sluice import stages
from stream_calls import MIB, ORDERS, exact

pytestmark = ON_GPU

FUNCTIONS: dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = {
    "none": (None, lambda x: x),
    "chain": (stages.scale(2.0) | stages.relu(), lambda x: (x * 2).relu()),
    "callable": (lambda x: x.mul_(2).relu_(), lambda x: (x * 2).relu()),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("pinned", [True, False])
def test_an_upload(name: str, pinned: bool, order: str) -> None:
    fn, whole = FUNCTIONS[name]
    x = torch.randn(100, 33)
    source = x.pin_memory() if pinned else x.clone()
    result = sluice.stream_map(fn, source, chunk_size=7, result="device", order=order)
    assert result.device.type == "cuda"
    exact(result.cpu(), whole(x))
    for shape in ((100, 33), (33, 100)):
        out = torch.zeros(shape, device="cuda")
        out = out if shape == (100, 33) else out.t()
        assert sluice.stream_map(fn, source, chunk_size=7, out=out, order=order) is out
        exact(out.cpu(), whole(x))
    exact(source, x)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_a_drain(name: str, order: str) -> None:
    fn, whole = FUNCTIONS[name]
    x = torch.randn(100, 33, device="cuda")
    kept = x.clone()
    exact(sluice.stream_map(fn, x, chunk_size=7, result="host", order=order), whole(kept).cpu())
    for out in (torch.empty(100, 33), torch.empty(100, 33).pin_memory(), torch.empty(33, 200)[:, ::2].t()):
        assert sluice.stream_map(fn, x, chunk_size=7, out=out, order=order) is out
        exact(out, whole(kept).cpu())
    assert torch.equal(x, kept)


def test_activations_drain_into_a_mapped_file(tmp_path: pathlib.Path) -> None:
    x = torch.randn(500, 16, device="cuda")
    out = torch.from_file(str(tmp_path / "y"), shared=True, size=x.numel()).view(500, 16)
    sluice.stream_map(lambda x: x * 2, x, chunk_size=64, out=out)
    exact(torch.from_file(str(tmp_path / "y"), size=x.numel()).view(500, 16), (x * 2).cpu())


@pytest.mark.parametrize("result", ["host", "device", None])
@pytest.mark.parametrize("halo", [0, 2])
def test_inputs_on_both_sides(result: str | None, halo: int) -> None:
    x, y = torch.randn(100, 5), torch.randn(100, 5, device="cuda")
    got = sluice.stream_map(torch.sub, x, y, chunk_size=7, halo=halo, result=result)
    assert got.device.type == ("cuda" if result == "device" else "cpu")
    exact(got.cpu(), x - y.cpu())
    future = sluice.stream_map(torch.sub, x, y, chunk_size=7, non_blocking=True, result=result)
    exact(future.result().cpu(), x - y.cpu())


def test_an_out_on_the_other_side_that_changes_its_extent() -> None:
    x = torch.randn(100, 5)
    uneven = lambda x: x[x[:, 0] > 0]  # noqa: E731
    exact(sluice.stream_map(uneven, x, chunk_size=7, result="device").cpu(), uneven(x))
    out = torch.empty_like(uneven(x), device="cuda")
    sluice.stream_map(uneven, x, chunk_size=7, out=out)
    exact(out.cpu(), uneven(x))
    exact(sluice.stream_map(uneven, x.cuda(), chunk_size=7, result="host"), uneven(x))


def test_an_upload_waits_for_the_caller_and_the_caller_for_it() -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(64, 1 << 16).pin_memory()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.copy_(torch.ones(64, 1 << 16, device="cuda"), non_blocking=True)
        out = sluice.stream_map(torch.neg, x, chunk_size=4, result="device")
        assert float(out.sum()) == -(1 << 22)


def test_an_upload_moves_bytes_one_way() -> None:
    with sluice.Streamer() as streamer:
        streamer.map(None, torch.randn(64, 1024).pin_memory(), chunk_size=8, result="device")
        stats = streamer.stats()
        assert stats.bytes_in == {"direct": 64 * 4096}
        assert stats.bytes_out == {}
        assert 0 < sluice.overlap_report(stats).link_utilisation <= 1.2
        streamer.map(None, torch.randn(64, 1024, device="cuda"), chunk_size=8, out=torch.empty(64, 1024))
        assert streamer.stats().bytes_in == {}
        assert streamer.stats().bytes_out == {"ring": 64 * 4096}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"result": "host", "out": torch.empty(8)}, None),
        ({"result": "device", "out": torch.empty(8)}, "out must be on the device, as result says, got one on cpu"),
        ({"devices": "cpu", "out": "cuda"}, "devices must be the device cuda:0 of inputs and out, got cpu"),
        ({"result": "host", "out": "cuda"}, "out must be on the host, as result says, got one on cuda:0"),
        ({"out": "both"}, "out must be all on the host or all on a GPU, got cuda:0, cpu"),
    ],
)
def test_sides_that_contradict(options: dict[str, Any], text: str | None) -> None:
    options, x, fn = dict(options), torch.arange(8.0), torch.neg
    if options["out"] == "cuda":
        options["out"] = torch.empty(8, device="cuda")
    elif options["out"] == "both":
        options["out"], fn = (torch.empty(8, device="cuda"), torch.empty(8)), lambda x: (x, x)
    if text is None:
        sluice.stream_map(fn, x, **options)
        return
    with pytest.raises(ValueError, match=f"^stream_map: {text}"):
        sluice.stream_map(fn, x, **options)


def test_the_budget_covers_a_result_on_the_device() -> None:
    x = torch.randn(64, MIB // 4)  # 64 MiB
    with sluice.Streamer(memory_budget=100 * MIB) as streamer:
        exact(streamer.map(None, x, result="device").cpu(), x)
    with sluice.Streamer(memory_budget=40 * MIB) as streamer:
        exact(streamer.map(None, x), x)
        with pytest.raises(ValueError, match="memory_budget must be at least 7[0-9]+ for chunks of one row at depth 3"):
            streamer.map(None, x, result="device")
        out = torch.empty_like(x, device="cuda")  # the caller's memory does not count
        exact(streamer.map(None, x, out=out).cpu(), x)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with sluice.Streamer(memory_budget=80 * MIB) as streamer:
        y = streamer.map(lambda x: x * 2, x, result="device")
        assert torch.cuda.max_memory_allocated() - before <= 80 * MIB
        exact(y.cpu(), x * 2)
