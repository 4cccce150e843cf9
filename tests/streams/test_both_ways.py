"""`stream_map`: nested results, plain transfers, calls of fn, progress of futures."""

from __future__ import annotations

import collections

import pytest
import torch

import sluice
from stream_calls import exact, stream

Pair = collections.namedtuple("Pair", ["sum", "all"])


# --- structures -------------------------------------------------------------------------------------------------------
def test_a_nested_result(device: str) -> None:
    x = torch.randn(20, 3)
    fn = lambda x: {"a": (x + 1, [x[:, 0], {"b": x * 2}]), "c": Pair(x.sum(1), x)}  # noqa: E731
    result, wanted = stream(fn, x, device=device, chunk_size=6), fn(x)
    assert isinstance(result["a"], tuple)
    assert isinstance(result["c"], Pair)
    exact(result["a"][0], wanted["a"][0])
    exact(result["a"][1][0], wanted["a"][1][0])
    exact(result["a"][1][1]["b"], wanted["a"][1][1]["b"])
    torch.testing.assert_close(result["c"].sum, wanted["c"].sum)
    exact(result["c"].all, x)


def test_torchs_own_result_types(device: str) -> None:
    x = torch.randn(20, 30)
    result = stream(lambda x: x.sort(1), x, device=device, chunk_size=6)
    assert type(result) is torch.return_types.sort
    exact(result.values, x.sort(1).values)
    exact(result.indices, x.sort(1).indices)


def test_a_nested_out(device: str) -> None:
    x = torch.randn(20, 3)
    out = [{"y": torch.empty(20)}, (torch.empty(20, 3),)]
    assert stream(lambda x: [{"y": x[:, 1]}, (x - 1,)], x, device=device, chunk_size=6, out=out) is out
    exact(out[0]["y"], x[:, 1])
    exact(out[1][0], x - 1)
    with pytest.raises(
        ValueError, match=r"structure of fn's result, out\['y'\], out\['z'\], got out\['y'\], out\['x'\]"
    ):
        stream(lambda x: {"y": x, "z": x}, x, device=device, out={"y": x.clone(), "x": x.clone()})


def test_a_dict_may_change_its_order_but_not_its_keys(device: str) -> None:
    x = torch.arange(8.0)
    swap = lambda x: {"a": x, "b": -x} if x[0] < 4 else {"b": -x, "a": x}  # noqa: E731
    result = stream(swap, x, device=device, chunk_size=2)
    exact(result["a"], x)
    exact(result["b"], -x)
    with pytest.raises(ValueError, match="return the structure of the first chunk for each chunk.*for chunk 2"):
        stream(lambda x: {"a": x} if x[0] < 4 else {"b": x}, x, device=device, chunk_size=2)


def test_items_with_nested_results(device: str) -> None:
    items = [torch.full((n,), 2.0) for n in (1, 3)]
    results = list(sluice.stream_iter(lambda x: {"a": (x + 1, [x.sum()])}, items, devices=device))
    exact(results[1]["a"][0], items[1] + 1)
    exact(results[1]["a"][1][0], torch.tensor(6.0))


# --- chunks and calls -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [21, 22, 10**12])
@pytest.mark.parametrize("extent", [21, 0])
def test_a_chunk_beyond_the_extent_is_one_chunk(device: str, size: int, extent: int) -> None:
    x, calls = torch.randn(extent, 2), []
    with sluice.Streamer(device) as streamer:
        exact(streamer.map(lambda x: calls.append(len(x)) or x + 1, x, chunk_size=size, halo=3), x + 1)
        assert calls == [extent]
        assert streamer.stats().chunks == 1


@pytest.mark.parametrize("devices", ["one", "two"])
def test_an_iterator_calls_fn_once_for_an_item(device: str, devices: str) -> None:
    if devices == "two" and device != "cpu":
        pytest.skip("two CPUs stand for two devices")
    calls: list[int] = []
    given = device if devices == "one" else ["cpu:0", "cpu:1"]
    items = [torch.full((3,), float(n)) for n in range(10)]
    results = list(sluice.stream_iter(lambda x: calls.append(int(x[0])) or x + 1, items, devices=given))
    assert sorted(calls) == list(range(10))
    for x, y in zip(items, results, strict=True):
        exact(y, x + 1)


def test_no_fn_is_a_plain_transfer(device: str) -> None:
    x, y = torch.randn(30, 4), torch.arange(30)
    result = stream(None, x, device=device, chunk_size=7)
    exact(result, x)
    assert result.data_ptr() != x.data_ptr()
    both = stream(None, x, y, device=device, chunk_size=7)
    exact(both[0], x)
    exact(both[1], y)
    out = torch.zeros(60, 4)[::2]
    assert stream(None, x, device=device, chunk_size=7, out=out) is out
    exact(out, x)
    exact(next(iter(sluice.stream_iter(None, [x], devices=device))), x)


@pytest.mark.parametrize("result", ["host", "device", None])
def test_on_the_cpu_both_sides_are_one(result: str | None) -> None:
    x = torch.randn(30, 4)
    exact(stream(torch.neg, x, device="cpu", chunk_size=7, result=result), -x)
    out = torch.empty_like(x)
    assert stream(torch.neg, x, device="cpu", chunk_size=7, result=result, out=out) is out


# --- futures ----------------------------------------------------------------------------------------------------------
def test_the_progress_of_a_future_can_be_polled(device: str) -> None:
    x, calls = torch.randn(100, 4), []
    future = stream(
        lambda x: x.half(), x, device=device, chunk_size=10, non_blocking=True,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    total = x.nbytes + x.nbytes // 2
    done, of = future.progress()
    assert 0 <= done <= total == of
    while not future.done():
        pass
    assert future.progress() == calls[-1] == (total, total)
    exact(future.result(), x.half())


def test_a_progress_callback_that_raises_ends_the_future(device: str) -> None:
    def refuse(done: int, total: int) -> None:
        raise KeyError("no")

    with sluice.Streamer(device) as streamer:
        future = streamer.map(torch.neg, torch.randn(100), chunk_size=50, non_blocking=True, progress=None)
        future._run.reporter._call = refuse
        with pytest.raises(KeyError, match="no"):
            future.result()
        with pytest.raises(KeyError, match="no"):
            future.result()
        exact(streamer.map(torch.neg, torch.ones(4)), -torch.ones(4))
