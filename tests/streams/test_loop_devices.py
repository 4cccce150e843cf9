"""Loops over equal chunks on several devices, which take them in blocks."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import sluice
from sluice import stages
from sluice.stream.map import loop
from sluice.stream.map.chunks import Chunks
from sluice.stream.map.ledger import Ledger, blocks_of
from sluice.stream.map.work import DeviceWork
from stream_calls import assert_convolved_in_bfloat16, exact, two
from stream_loops import recorded_loops

CHAIN = stages.scale(2.0) | stages.relu()

pytestmark = pytest.mark.usefixtures("through_the_engine")


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("depth", [1, 3, 20])
def test_blocks(devices: int, depth: int) -> None:
    for count in range(200):
        chunks = range(5, 5 + count)
        blocks = blocks_of(chunks, devices, depth)
        assert [i for block in blocks for i in block] == list(chunks)
        sizes = list(map(len, blocks))
        assert sizes == sorted(sizes, reverse=True)
        assert all(size >= max(8, 2 * depth) for size in sizes[:-1])
        assert len(sizes) >= min(2 * devices, count // max(8, 2 * depth))


@pytest.mark.parametrize("halo", [0, 2, (30, 5)])
@pytest.mark.parametrize("fn", [None, CHAIN], ids=["none", "chain"])
@pytest.mark.parametrize("depth", [1, 3])
def test_each_chunk_is_issued_once(device: str, fn: Any, halo: Any, depth: int) -> None:
    x = torch.randn(1000, 33)
    wanted = x if fn is None else (x * 2).relu()
    chunks = Chunks(1000, 9, (halo, halo) if isinstance(halo, int) else halo)
    others = {i for i in range(1, len(chunks)) if i not in chunks.equal}
    both = 0
    with sluice.Streamer(two(device), depth=depth) as streamer:
        for call in range(10):
            out = torch.full_like(x, float("nan")) if call % 2 else None
            with recorded_loops() as (told, by_python):
                exact(streamer.map(fn, x, chunk_size=9, halo=halo, out=out), wanted)
            stats = streamer.stats()
            assert sorted(times.chunk for times in stats.timeline) == list(range(112))
            assert sum(stats.chunks_by_device) == 112
            assert set(by_python) == others
            assert len(by_python) == len(others)
            assert told
            both += min(stats.chunks_by_device) > 0
    assert both > 0


def test_a_function_that_is_not_known_on_one_device(device: str) -> None:
    devices, x = two(device), torch.randn(300, 5)
    unknown = lambda x: CHAIN(x)  # noqa: E731
    for functions in ((CHAIN, unknown), (unknown, CHAIN)):
        with recorded_loops() as (told, by_python):
            given = dict(zip(devices, functions, strict=True))
            exact(sluice.stream_map(given, x, devices=devices, chunk_size=4), (x * 2).relu())
        assert told == []
        assert sorted(by_python) == list(range(1, 75))
    given = {devices[0]: CHAIN, devices[1]: functools.partial(sluice.transform, chain=CHAIN)}
    with recorded_loops() as (told, by_python):
        exact(sluice.stream_map(given, x, devices=devices, chunk_size=4), (x * 2).relu())
    assert told
    assert by_python == []


def test_blocks_that_python_issues_because_it_converts_an_input(device: str) -> None:
    x, weight = torch.randn(400, 6, 30), torch.randn(6, 1, 5)
    devices = two(device)
    fn = {d: functools.partial(sluice.conv1d, weight=weight.to(d), padding=2, groups=6) for d in devices}
    with sluice.Streamer(devices) as streamer, torch.autocast(device, dtype=torch.bfloat16):
        for _ in range(3):
            with recorded_loops() as (told, by_python):
                got = streamer.map(fn, x, chunk_size=4)
            assert set(told) == {""}
            assert sorted(by_python) == list(range(1, 100))
            assert_convolved_in_bfloat16(got, x, weight)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_device_that_fails_stops_the_others(device: str, failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    devices, x = two(device), torch.randn(2000, 8)
    call, entered = loop._call, []

    def torn(work: DeviceWork, numbers: list[int], *rest: Any) -> str:
        if str(work.device) == devices[failing]:
            entered.append(1)
            raise RuntimeError("torn")
        return call(work, numbers, *rest)

    with sluice.Streamer(devices) as streamer:
        monkeypatch.setattr(loop, "_call", torn)

        def call_until_given_a_block() -> None:
            for _ in range(50):
                streamer.map(CHAIN, x, chunk_size=2)

        with pytest.raises(RuntimeError, match="torn"):
            call_until_given_a_block()
        assert entered
        monkeypatch.undo()
        monkeypatch.setattr("sluice.stream.map.inline.enabled", False)
        exact(streamer.map(CHAIN, x, chunk_size=2), (x * 2).relu())


def test_a_failed_device_is_seen_between_two_calls_of_a_loop(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2000, 8)
    checked = Ledger.checkpoint

    def stopped(self: Ledger) -> None:
        if self.equal:
            self.stop(KeyError("elsewhere"))
        checked(self)

    with sluice.Streamer(two(device)) as streamer, recorded_loops() as (told, _):
        monkeypatch.setattr(Ledger, "checkpoint", stopped)
        with pytest.raises(KeyError, match="elsewhere"):
            streamer.map(CHAIN, x, chunk_size=2)
        assert told == []
