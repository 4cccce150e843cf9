"""`stream_iter` over a DataLoader, whose batches are pinned by the loader or staged by sluice, never both."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable

import pytest
import torch
from torch.utils.data import DataLoader

import sluice
from loaded_rows import ROWS, SAMPLES, Rows, StreamedRows, open_streamer
from sluice.stream.device import memory
from sluice.stream.device.layout import Endpoint
from sluice.stream.device.routes import Routes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH = 5  # the last batch is smaller
BATCHES = -(-ROWS // BATCH)
METHODS = ["fork", "spawn"]

pytestmark = pytest.mark.usefixtures("through_the_engine")


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What is pinned, by anyone. Without a GPU the loader copies instead, and the host's engine takes its routes."""
    made: list[torch.Tensor] = []
    pin = torch.Tensor.pin_memory if DEVICE == "cuda" else torch.Tensor.clone

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        made.append(pin(tensor))
        return made[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    if DEVICE == "cuda":
        return made
    for name, value in {
        "is_available": True,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "set_device_index": None,
    }.items():
        monkeypatch.setattr(torch.accelerator, name, lambda *_, value=value: value)
    addresses = lambda: {tensor.data_ptr() for tensor in made}  # noqa: E731
    monkeypatch.setattr(memory, "is_pinned", lambda tensor: tensor.data_ptr() in addresses())
    route_of = Routes.of

    def of(routes: Routes, tensor: torch.Tensor, dim: int, extent: int, device: torch.device, name: str) -> Endpoint:
        del device
        return route_of(routes, tensor, dim, extent, torch.device("cuda", 0), name)

    monkeypatch.setattr(Routes, "of", of)
    return made


def loader(method: str | None, pin_memory: bool) -> DataLoader[torch.Tensor]:
    workers = 0 if method is None else 2
    return DataLoader(
        Rows(), batch_size=BATCH, num_workers=workers, multiprocessing_context=method, pin_memory=pin_memory
    )


def bytes_by_route(batches: DataLoader[torch.Tensor]) -> dict[str, int]:
    """Streams the batches and tells how their bytes came in."""
    with sluice.Streamer(DEVICE) as streamer:
        results = list(streamer.iter(lambda x: x * 2, batches))
        bytes_in = streamer.stats().bytes_in
    assert [len(result) for result in results] == [BATCH] * (BATCHES - 1) + [ROWS - BATCH * (BATCHES - 1)]
    assert torch.equal(torch.cat(results), torch.arange(ROWS)[:, None].expand(ROWS, SAMPLES) * 2.0)
    return {route: nbytes for route, nbytes in bytes_in.items() if nbytes}


@pytest.mark.parametrize("method", [None, *METHODS])
@pytest.mark.parametrize(("by_loader", "route"), [(False, "ring"), (True, "direct")])
def test_batches_are_pinned_once(method: str | None, by_loader: bool, route: str, pins: list[torch.Tensor]) -> None:
    assert bytes_by_route(loader(method, by_loader)) == {route: ROWS * SAMPLES * 4}
    assert len(pins) == (BATCHES if by_loader else 0)


def never_pinned(tensor: torch.Tensor) -> bool:
    return False


def pinned_again(tensor: torch.Tensor) -> bool:
    return tensor.pin_memory() is not None


@pytest.mark.parametrize(
    ("bug", "route", "times"), [(never_pinned, "ring", BATCHES), (pinned_again, "direct", 2 * BATCHES)]
)
def test_batches_that_are_pinned_twice_are_seen(
    bug: Callable[[torch.Tensor], bool],
    route: str,
    times: int,
    pins: list[torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bugs: the loader's batches are copied into the pinned ring, or to pinned memory of their own."""
    monkeypatch.setattr(memory, "is_pinned", bug)
    assert bytes_by_route(loader(None, True)).get(route) == ROWS * SAMPLES * 4
    assert len(pins) >= times


@pytest.mark.parametrize("pin_memory", [False, True])
def test_leaving_early_ends_the_workers(pin_memory: bool, pins: list[torch.Tensor]) -> None:
    """At once, not when garbage is collected: torch would then wait five seconds for each."""
    before = set(multiprocessing.active_children())  # other tests' too, in any order
    results = sluice.stream_iter(lambda x: x * 2, loader("fork", pin_memory), devices=DEVICE)
    gc.collect()
    gc.disable()
    try:
        assert torch.equal(next(results)[:, 0], torch.arange(BATCH) * 2.0)
        assert len(multiprocessing.active_children()) == len(before) + 2
        results.close()
        assert set(multiprocessing.active_children()) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("method", METHODS)
def test_workers_that_stream_themselves(method: str) -> None:
    """Each with its own Streamer and budget, whatever its parent has."""
    with sluice.Streamer("cpu") as streamer:
        streamer.map(torch.neg, torch.ones(10))
        batches = list(
            DataLoader(
                StreamedRows(),
                batch_size=BATCH,
                num_workers=2,
                multiprocessing_context=method,
                worker_init_fn=open_streamer,
            )
        )
        assert torch.equal(streamer.map(torch.neg, torch.ones(10)), -torch.ones(10))
    y = torch.cat([batch["y"] for batch in batches])
    assert torch.equal(y, torch.arange(ROWS)[:, None].expand(ROWS, SAMPLES) * 2.0 + 1)
    processes = torch.cat([batch["process"] for batch in batches]).unique().tolist()
    assert len(processes) == 2
    assert os.getpid() not in processes
    slot_bytes = torch.cat([batch["slot_bytes"] for batch in batches])
    assert 0 < slot_bytes.min() <= slot_bytes.max() <= StreamedRows.budget
