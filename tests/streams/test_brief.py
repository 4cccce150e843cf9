"""Small calls of `map`, which are one chunk: which calls these are, and that they are like any other."""

from __future__ import annotations

import functools
import os
import pathlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sluice
from common import DTYPES
from sluice import stages
from sluice.stream.map import brief
from stream_calls import exact, stream

Calls = list[str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The small calls that were run."""
    seen: Calls = []
    issue = brief.BriefRun.issue

    def noted(run: brief.BriefRun) -> None:
        seen.append(run.op)
        issue(run)

    monkeypatch.setattr(brief.BriefRun, "issue", noted)
    return seen


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


X = torch.randn(6, 5, 4)
# name -> arguments of a small call of `doubled`.
SMALL: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {
    "plain": (X, {}),
    "dim": (X, {"dim": -1}),
    "chunk_size": (X, {"chunk_size": 6}),
    "a larger chunk_size": (X, {"chunk_size": 1000}),
    "order": (X, {"order": "sequential"}),
    "result": (X, {"result": "host"}),
    "no progress": (X, {"progress": False}),
    "out": (X, {"out": torch.empty_like(X)}),
    "256 KiB": (torch.randn(64, 1024), {}),
}
OTHERS: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {
    "chunks": (X, {"chunk_size": 5}),
    "halo": (X, {"halo": 1}),
    "progress": (X, {"progress": lambda done, total: None}),
    "staging": (X, {"staging": "ring"}),
    "more than 256 KiB": (torch.randn(65, 1024), {}),
    "strides": (X.transpose(0, 1), {}),
    "lazily negated": (torch._neg_view(X), {}),
    "empty": (X[:0], {}),
    "out with strides": (X, {"out": torch.empty(4, 5, 6).permute(2, 1, 0)}),
}


@pytest.mark.parametrize("case", SMALL)
def test_what_small_calls_are(device: str, calls: Calls, case: str) -> None:
    x, options = SMALL[case]
    result = stream(doubled, x, device=device, **options)
    exact(result, x * 2)
    assert "out" not in options or result is options["out"]
    assert calls == ["stream_map"]


@pytest.mark.parametrize("case", OTHERS)
def test_what_no_small_calls_are(device: str, calls: Calls, case: str) -> None:
    x, options = OTHERS[case]
    exact(stream(doubled, x, device=device, **options), x * 2)
    assert calls == []


@pytest.mark.parametrize("rows", [65, 512, 513])
@pytest.mark.parametrize("pinned", [False, True])
def test_calls_from_pinned_memory_may_be_larger(device: str, calls: Calls, rows: int, pinned: bool) -> None:
    x = torch.randn(rows, 1024)
    x = x.pin_memory() if pinned and torch.cuda.is_available() else x
    exact(stream(doubled, x, device=device), x * 2)
    assert calls == (["stream_map"] if device == "cuda" and pinned and rows <= 512 else [])


def test_a_future_and_a_budget_need_more(device: str, calls: Calls) -> None:
    exact(stream(doubled, X, device=device, non_blocking=True).result(), X * 2)
    exact(stream(doubled, X, device=device, memory_budget=1 << 20), X * 2)
    assert calls == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pinned", [False, True])
def test_any_dtype(device: str, calls: Calls, dtype: torch.dtype, pinned: bool) -> None:
    x = (torch.randn(33, 7) * 9).to(dtype)
    x = x.pin_memory() if pinned and torch.cuda.is_available() else x
    out = torch.empty_like(x)
    exact(stream(None, x, device=device), x)
    assert stream(None, x, device=device, out=out) is out
    exact(out, x)
    assert len(calls) == 2


# Results of any kind, for a chunk x.
RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "its input": lambda x: x,
    "a view": lambda x: x[:, 1:].transpose(1, 2),
    "its input, changed": lambda x: x.mul_(3),
    "expanded": lambda x: x[:, :1].expand(-1, 7, -1),
    "another dtype": lambda x: x.double(),
    "one row": lambda x: x.sum(0, keepdim=True),
    "nothing": lambda x: x[:0],
    "lazily negated": torch._neg_view,
    "lazily conjugated": lambda x: torch.complex(x, x).conj(),
    "a tuple": lambda x: (x, x + 1),
    "a dict": lambda x: {"a": x, "b": [x + 1, (x.long(), x.sum(dim=(1, 2)))]},
    "more than 256 KiB": lambda x: x.repeat(1, 1, 10000),
}


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("with_out", [False, True])
def test_any_result(device: str, calls: Calls, case: str, with_out: bool) -> None:
    fn = RESULTS[case]
    wanted = fn(X.clone())
    is_tensor = isinstance(wanted, torch.Tensor)
    out = torch.empty(wanted.shape, dtype=wanted.dtype) if with_out and is_tensor else None
    kept = X.clone()
    result = stream(fn, X, device=device, out=out)
    assert out is None or result is out
    torch.testing.assert_close(result, wanted)  # sums of a GPU differ from the CPU's
    assert torch.equal(X, kept)
    assert calls == ["stream_map"]
    leaves = [result] if is_tensor else torch.utils._pytree.tree_leaves(result)
    assert all(leaf.untyped_storage().data_ptr() != X.untyped_storage().data_ptr() for leaf in leaves)


@pytest.mark.parametrize(
    "fn",
    [None, stages.relu() | stages.neg(), functools.partial(sluice.transform, chain=stages.neg())],
)
def test_known_functions(device: str, calls: Calls, fn: Any) -> None:
    plain = X if fn is None else fn(X)
    exact(stream(fn, X, device=device), plain)
    exact(stream(fn, X, device=device, out=torch.empty_like(X)), plain)
    assert len(calls) == 2


def test_several_inputs_and_an_input_as_out(device: str, calls: Calls) -> None:
    x, y = torch.randn(8, 3), torch.randn(8, 3)
    wanted, version = x - y, x._version
    assert stream(torch.sub, x, y, device=device, out=x) is x
    exact(x, wanted)
    assert x._version > version  # autograd sees the change
    assert calls == ["stream_map"]


def test_modes(device: str, calls: Calls) -> None:
    with torch.inference_mode():
        x, out = torch.randn(5, 4), torch.empty(5, 4)
        result = stream(lambda x: x * 2 if torch.is_inference_mode_enabled() else x, x, device=device, out=out)
        exact(result, x * 2)
    assert calls == ["stream_map"]
    exact(stream(doubled, x, device=device), x * 2)
    with torch.device("meta"):  # makes tensors elsewhere, so the longer way is taken
        exact(stream(doubled, X, device=device), X * 2)
    weight = torch.ones(4, requires_grad=True, device="cuda" if device == "cuda" else "cpu")
    result = stream(lambda x: x * weight, X, device=device)
    assert not result.requires_grad


def test_errors_are_those_of_any_call(device: str, calls: Calls) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with sluice.Streamer(device) as streamer:
        with pytest.raises(KeyError) as raised:
            streamer.map(fails, X, out=torch.empty_like(X))
        assert "raised by fn for chunk 0, rows 0 to 6 of dimension 0 (1 chunks)" in raised.value.__notes__[0]
        with pytest.raises(TypeError, match=r"fn must return a tensor or a pytree of tensors, got int"):
            streamer.map(lambda x: 3, X)
        with pytest.raises(TypeError, match=r"out must have dtype torch.float64, got torch.float32"):
            streamer.map(lambda x: x.double(), X, out=torch.empty_like(X))
        with pytest.raises(ValueError, match=r"out must have shape \(6, 5, 5\) except in dimension 0, got"):
            streamer.map(lambda x: torch.cat([x, x[..., :1]], -1), X, out=torch.empty_like(X))
        with pytest.raises(ValueError, match=r"must have a dimension 2, got shape \(6,\)"):
            streamer.map(lambda x: x.sum(dim=(1, 2)), X, dim=2)
        with pytest.raises(ValueError, match=r"the result must be a strided tensor on"):
            streamer.map(lambda x: x.to("meta"), X)
        whole = torch.randn(9, 4)
        with pytest.raises(ValueError, match="must not overlap"):
            streamer.map(doubled, whole[:8], out=whole[1:])
        with pytest.raises(RuntimeError, match="from within its own run"):
            streamer.map(lambda x: streamer.map(doubled, X), X)
        with pytest.raises(TypeError, match="fn must be callable"):
            streamer.map(3, X)
        x = X.clone()
        with pytest.raises(RuntimeError, match=r"inputs\[0\] must not change while it is streamed, got 1 changes"):
            streamer.map(lambda chunk: (chunk, x.add_(1))[0], x)
        exact(streamer.map(doubled, X), X * 2)
        assert streamer.stats().chunks == 1
    with pytest.raises(RuntimeError, match="must be open"):
        streamer.map(doubled, X)


def test_numbers(device: str, calls: Calls) -> None:
    with sluice.Streamer(device) as streamer:
        streamer.map(lambda x: x.double(), X, order="breadth_first")
        stats = streamer.stats()
    assert (stats.chunks, stats.chunk_size, stats.order) == (1, 6, "breadth_first")
    assert sum(stats.bytes_in.values()) == X.nbytes
    assert sum(stats.bytes_out.values()) == 2 * X.nbytes
    (times,) = stats.timeline
    ends = (*times.h2d, *times.compute, *times.d2h)
    assert list(ends) == sorted(ends)
    assert ends[-1] <= stats.seconds + 1e-3


def test_a_cancelled_call_has_no_result(device: str, calls: Calls) -> None:
    with sluice.Streamer(device) as streamer:

        def fn(x: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=streamer.cancel)
            thread.start()
            thread.join()
            return x

        with pytest.raises(sluice.stream.faults.CancelledError):
            streamer.map(fn, X)
        exact(streamer.map(doubled, X), X * 2)
    assert len(calls) == 2


@pytest.mark.parametrize("as_out", [False, True])
def test_a_mapped_file_that_is_cut_short(device: str, calls: Calls, tmp_path: pathlib.Path, as_out: bool) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(64 << 10))
    mapped = torch.from_file(str(path), shared=True, size=16 << 10)
    os.truncate(path, 0)
    x = torch.ones(16 << 10)
    with pytest.raises(OSError, match="must keep its file's length"):
        stream(doubled, x if as_out else mapped, device=device, out=mapped if as_out else None)
    assert calls == ["stream_map"]


def test_a_small_call_that_is_too_large_is_divided(device: str, calls: Calls) -> None:
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        if len(x) > 2:
            raise torch.OutOfMemoryError("no room")
        return x * 2

    with sluice.Streamer(device) as streamer:
        out = torch.empty_like(X)
        assert streamer.map(fn, X, out=out) is out
        exact(out, X * 2)
        assert seen[:2] == [6, 6]  # as a small call, and as any other
        assert streamer.stats().tries == ("6 rows: out of memory", "3 rows: out of memory")
        with pytest.raises(torch.OutOfMemoryError):  # one row is not divided
            streamer.map(fn, X[:, 0].contiguous().reshape(24, 1), dim=1)
        assert streamer.stats().chunks == 0
    assert len(calls) == 2


def test_a_failed_call_keeps_nothing(device: str, calls: Calls) -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        made = x * 2
        kept.append(weakref.ref(made))
        return [made, made.to("meta")]

    with sluice.Streamer(device) as streamer, pytest.raises(ValueError, match="strided tensor"):
        streamer.map(fn, X)
    assert kept[0]() is None
    assert len(calls) == 1
