"""`stream_iter`: items of any shapes, in and out as slots become free."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sluice
from sluice.stream.device.engine import EngineDevice
from stream_calls import two
from stream_fuzz import DelayedEngine, streamer_on


def collect(results: Iterator[torch.Tensor], into: list[float]) -> None:
    for result in results:
        into.append(float(result[0]))


def items(count: int) -> list[torch.Tensor]:
    return [torch.randn(i % 5 + 1, 7) for i in range(count)]


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 40])
def test_results_in_order(device: str, depth: int, count: int) -> None:
    given = items(count)
    results = list(sluice.stream_iter(lambda x: x.mul_(2), given, depth=depth, devices=device))
    assert len(results) == count
    copies = [x * 2 for x in given]
    assert all(torch.equal(a, b) for a, b in zip(results, copies, strict=True))
    assert all(result.device.type == "cpu" for result in results)


def test_growing_and_shrinking_items(device: str) -> None:
    given = [torch.randn(size) for size in (1, 100_000, 10, 300_000, 0, 5, 200_000)]
    results = list(sluice.stream_iter(lambda x: torch.cat([x, x]), given, devices=device))
    assert all(torch.equal(r, torch.cat([x, x])) for r, x in zip(results, given, strict=True))


def test_what_an_item_may_be(device: str) -> None:
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    call = lambda fn, item: next(sluice.stream_iter(fn, [item], devices=device))  # noqa: E731
    assert torch.equal(call(torch.add, (x, y)), x + y)  # a tuple is fn's arguments
    assert torch.equal(call(lambda batch: batch["x"] - batch["y"][0], {"x": x, "y": [y]}), x - y)
    assert torch.equal(call(lambda x, k, name: x * k if name == "k" else x, (x, 3, "k")), x * 3)
    assert torch.equal(call(lambda x: x + 1, torch.tensor(3.0)), torch.tensor(4.0))  # without a dimension
    assert torch.equal(call(lambda x: x.sum(), x.double()), x.double().sum()) or device == "cuda"
    assert torch.equal(call(torch.neg, x.t()), -x.t())
    assert torch.equal(call(torch.neg, x.numpy()), -x)
    assert torch.equal(call(lambda k: torch.full((2,), k, device=device), 5), torch.full((2,), 5))
    assert call(lambda x: {"a": x, "b": x}, x).keys() == {"a", "b"}
    on_device = x.to(device)
    assert torch.equal(call(torch.neg, on_device), -x)


def test_earlier_results_stay_valid(device: str) -> None:
    given = [torch.full((1000,), float(i)) for i in range(30)]
    results = list(sluice.stream_iter(lambda x: x, given, depth=2, devices=device))
    assert [float(r[0]) for r in results] == [float(r[-1]) for r in results] == list(range(30))


# --- sources that fill their buffers again ----------------------------------------------------------------------------
Fill = Callable[[torch.Tensor, float], object]
FILLS: dict[str, Fill] = {
    "torch": lambda buffer, value: buffer.fill_(value),
    "numpy": lambda buffer, value: buffer.numpy().fill(value),  # no version counter sees it
}


class ReadEarly(DelayedEngine):
    """A planted bug: reports that memory has been read before it has."""

    def wait_read(self, event_set: int, directly: bool, milliseconds: int) -> bool:
        return True


def refilled(count: int, buffers: list[torch.Tensor], fill: Fill) -> Iterator[torch.Tensor]:
    for i in range(count):
        fill(buffers[i % len(buffers)], i)
        yield buffers[i % len(buffers)]


def refilled_results(
    device: str, engine: type[DelayedEngine], pinned: bool, pool: int, fill: Fill
) -> list[tuple[float, float]]:
    buffers = [torch.empty(1 << 21, pin_memory=pinned) for _ in range(pool)]
    with streamer_on(engine, 1, device, 3) as streamer:
        results = list(streamer.iter(lambda x: x * 2, refilled(12, buffers, fill)))
    return [(float(result.min()), float(result.max())) for result in results]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("pool", [1, 2, 5])
def test_buffers_that_are_filled_again(device: str, pool: int, fill: str) -> None:
    wanted = [(2.0 * i, 2.0 * i) for i in range(12)]
    for pinned in {False, device == "cuda"}:
        assert refilled_results(device, DelayedEngine, pinned, pool, FILLS[fill]) == wanted


@pytest.mark.usefixtures("through_the_engine")
def test_a_source_that_is_asked_too_early_is_caught(device: str) -> None:
    wanted = [(2.0 * i, 2.0 * i) for i in range(12)]
    got = (refilled_results(device, ReadEarly, device == "cuda", 1, FILLS["numpy"]) for _ in range(20))
    assert any(result != wanted for result in got)


@pytest.mark.parametrize("several", [False, True])
def test_several_devices_and_a_buffer_that_is_filled_again(device: str, several: bool) -> None:
    buffers = [torch.empty(1 << 21)]
    results = sluice.stream_iter(
        lambda x: x + 1, refilled(20, buffers, FILLS["numpy"]), devices=two(device) if several else device
    )
    assert [(float(r.min()), float(r.max())) for r in results] == [(i + 1.0, i + 1.0) for i in range(20)]


@pytest.mark.usefixtures("through_the_engine")
@pytest.mark.parametrize("several", [False, True])
def test_what_exists_already_is_not_waited_for(device: str, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = 0
    wait_read = EngineDevice.wait_read

    def counted(engine: EngineDevice, event_set: int, directly: bool, milliseconds: int) -> bool:
        nonlocal waited
        waited += 1
        return wait_read(engine, event_set, directly, milliseconds)

    monkeypatch.setattr(EngineDevice, "wait_read", counted)
    devices = two(device) if several else device
    given = items(8)
    assert len(list(sluice.stream_iter(torch.neg, given, devices=devices))) == waited + 8 == 8
    assert len(list(sluice.stream_iter(torch.neg, iter(tuple(given)), devices=devices))) == waited + 8 == 8
    assert len(list(sluice.stream_iter(torch.neg, (x for x in given), devices=devices))) == 8
    assert waited >= 8


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", [list, iter])
def test_an_item_of_a_list_that_changes_under_way(device: str, kind: Callable[..., Any], several: bool) -> None:
    given = [torch.zeros(100) for _ in range(6)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for item in given:
            item.add_(1)
        return x

    with pytest.raises(RuntimeError, match=r"stream_iter: tensor 0 of item \d must not change while it is streamed"):
        list(sluice.stream_iter(fn, kind(given), devices=two(device) if several else device))


class Counted:
    """An iterator that records how far it was pulled, and whether it was closed."""

    def __init__(self, count: int) -> None:
        self.pulled, self.closed, self._count = 0, False, count

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        if self.pulled == self._count:
            raise StopIteration
        self.pulled += 1
        return torch.full((10,), float(self.pulled))

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("several", [False, True])
def test_a_slow_consumer_holds_the_source_back(device: str, depth: int, several: bool) -> None:
    source = Counted(40)
    devices = two(device) if several else device
    for given, result in enumerate(sluice.stream_iter(torch.neg, source, depth=depth, devices=devices), 1):
        assert float(result[0]) == -given
        assert source.pulled - given <= depth + 2
        if given < 5:
            time.sleep(0.01)
            assert source.pulled - given <= depth + 2
    assert source.closed


@pytest.mark.parametrize("several", [False, True])
def test_leaving_early_closes_the_source(device: str, several: bool) -> None:
    source = Counted(1000)
    results = sluice.stream_iter(torch.neg, source, devices=two(device) if several else device)
    kept = [next(results) for _ in range(3)]
    assert not source.closed
    results.close()
    assert source.closed
    assert source.pulled <= 3 + 3 + 2
    assert [float(r[0]) for r in kept] == [-1, -2, -3]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("at", [0, 1, 10])
def test_a_source_that_raises(device: str, at: int, several: bool) -> None:
    def source() -> Iterator[torch.Tensor]:
        for i in range(at):
            yield torch.full((3,), float(i))
        raise LookupError("empty shelf")

    got: list[float] = []
    results = sluice.stream_iter(torch.neg, source(), devices=two(device) if several else device)
    with pytest.raises(LookupError, match="empty shelf"):
        collect(results, got)
    assert got == [-float(i) for i in range(at)]  # earlier results are yielded first


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("at", [0, 1, 10])
def test_fn_that_raises(device: str, at: int, several: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x[0] == at:
            raise LookupError("broken")
        return x

    source = (torch.full((3,), float(i)) for i in range(100))
    with sluice.Streamer(two(device) if several else device) as streamer:
        got: list[float] = []
        with pytest.raises(LookupError, match="broken") as caught:
            collect(streamer.iter(fn, source), got)
        assert got == [float(i) for i in range(at)]
        assert f"stream_iter: raised by fn for item {at}" in "".join(caught.value.__notes__)
        assert [float(r) for r in streamer.iter(torch.neg, [torch.ones(1)])] == [-1.0]
        assert streamer.stats().chunks == 1


def test_unordered_results_are_all_there(device: str) -> None:
    given = [torch.full((2,), float(i)) for i in range(50)]
    results = sluice.stream_iter(lambda x: x, given, devices=two(device), ordered=False)
    assert sorted(float(r[0]) for r in results) == list(range(50))


def test_several_devices_share_the_items(device: str) -> None:
    threads = set()

    def fn(x: torch.Tensor) -> torch.Tensor:
        threads.add(threading.get_ident())
        time.sleep(0.002)
        return x + 1

    with sluice.Streamer(two(device)) as streamer:
        results = list(streamer.iter(fn, items(40)))
        assert len(results) == 40
        assert len(threads) == 2
        assert min(streamer.stats().chunks_by_device) > 0


def test_a_streamer_serves_one_iterator_at_a_time(device: str) -> None:
    x = torch.ones(4)
    with sluice.Streamer(device) as streamer:
        results = streamer.iter(torch.neg, [x, x, x])
        next(results)
        with pytest.raises(RuntimeError, match="a Streamer must do one thing at a time"):
            streamer.map(torch.neg, x)
        results.close()
        assert torch.equal(streamer.map(torch.neg, x), -x)


def test_an_iterator_may_be_cancelled(device: str) -> None:
    import concurrent.futures

    with sluice.Streamer(device) as streamer:
        results = streamer.iter(torch.neg, (torch.ones(3) for _ in range(100)))
        next(results)
        streamer.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            list(results)
        assert torch.equal(streamer.map(torch.neg, torch.ones(3)), -torch.ones(3))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((torch.neg, 3), {}, TypeError, "iterable must be an iterable, got int"),
        ((3, []), {}, TypeError, "fn must be callable, got int"),
        ((torch.neg, []), {"depth": 0}, ValueError, "depth must be 1 to 256, got 0"),
        ((torch.neg, []), {"ordered": 1}, TypeError, "ordered must be a bool, got int"),
        ((torch.neg, []), {"devices": "tpu"}, ValueError, "devices must be CUDA devices or the CPU, got 'tpu'"),
    ],
)
def test_arguments(arguments: Any, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^stream_iter: {text}"):
        sluice.stream_iter(*arguments, **options)


def test_what_fn_must_not_return(device: str) -> None:
    with pytest.raises(TypeError, match="fn must return a tensor or a pytree of tensors, got int for item 0"):
        list(sluice.stream_iter(lambda x: 3, [torch.ones(2)], devices=device))
    with sluice.Streamer(device, memory_budget=2000) as streamer:
        assert len(list(streamer.iter(torch.neg, [torch.ones(10)]))) == 1
        with pytest.raises(ValueError, match="stream_iter: memory_budget must be at least .* for item 0, got 2000"):
            list(streamer.iter(torch.neg, [torch.ones(1000)]))
