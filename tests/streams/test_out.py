"""`stream_map`: outs, files, arguments, progress. On the CPU, and on a GPU if there is one."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from sluice import stages
from stream_calls import ORDERS, exact, stream


# --- out --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "offset"])
@pytest.mark.parametrize("dim", [0, 1])
def test_out_of_any_strides(device: str, layout: str, dim: int) -> None:
    x = torch.randn(60, 41)
    nan = torch.full((200, 200), float("nan"))
    out = {
        "contiguous": nan[:60, :41].contiguous(),
        "transposed": nan[:41, :60].t(),
        "sliced": nan[::3, 5::4][:60, :41],
        "offset": nan.flatten()[1 : 1 + 60 * 41].view(60, 41),
    }[layout]
    assert stream(torch.exp, x, device=device, dim=dim, chunk_size=7, out=out) is out
    torch.testing.assert_close(out, torch.exp(x))
    if layout == "sliced":
        assert nan.isnan().sum() == nan.numel() - x.numel()  # nothing beside it was written


@pytest.mark.parametrize("rows", [10, 3000])
@pytest.mark.parametrize("name", ["none", "chain", "callable"])
def test_an_inference_tensor_as_out(device: str, name: str, rows: int) -> None:
    fn = {"none": None, "chain": stages.scale(2.0), "callable": lambda x: x * 2}[name]
    x = torch.randn(rows, 100)
    with torch.inference_mode():
        out = torch.zeros_like(x)
    assert stream(fn, x, device=device, chunk_size=rows // 5, out=out) is out
    exact(out, x if fn is None else x * 2)


def test_a_refused_out_is_not_called_written(device: str) -> None:
    x = torch.randn(1000, 100)
    for out in (torch.zeros(1000, 100, dtype=torch.float64), torch.zeros(1000, 101)):
        with pytest.raises((TypeError, ValueError), match="out must have") as caught:
            stream(stages.scale(2.0), x, device=device, chunk_size=100, out=out)
        assert not getattr(caught.value, "__notes__", [])


def test_out_in_a_structure(device: str) -> None:
    x = torch.randn(20, 3)
    outs = {"a": torch.empty(20, 3), "b": torch.empty(20)}
    assert stream(lambda x: {"a": x + 1, "b": x[:, 0]}, x, device=device, chunk_size=6, out=outs) is outs
    exact(outs["a"], x + 1)
    exact(outs["b"], x[:, 0])
    swapped = {"b": torch.empty(20), "a": torch.empty(20, 3)}  # matched by key, not by order
    stream(lambda x: {"a": x + 1, "b": x[:, 0]}, x, device=device, chunk_size=6, out=swapped)
    exact(swapped["a"], x + 1)
    listed = [torch.empty(20, 3), torch.empty(20)]  # and a plain sequence by position
    stream(lambda x: {"a": x + 1, "b": x[:, 0]}, x, device=device, chunk_size=6, out=listed)
    exact(listed[1], x[:, 0])
    with pytest.raises(
        ValueError, match=r"out must have the structure of fn's result, out\[0\], out\[1\], got out\[0\]"
    ):
        stream(lambda x: (x, x), x, device=device, out=(torch.empty(20, 3),))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("halo", [0, 2, (9, 0)])
def test_out_may_be_the_input_itself(device: str, order: str, halo: Any) -> None:
    x = torch.randn(64, 5)
    wanted = F.pad(x, (0, 0, 1, 1))
    wanted = wanted[:-2] + wanted[2:] if halo == 2 else x + 1

    def fn(x: torch.Tensor) -> torch.Tensor:
        if halo != 2:
            return x + 1
        y = F.pad(x, (0, 0, 1, 1))
        return y[:-2] + y[2:]

    version = x._version
    assert stream(fn, x, device=device, chunk_size=7, halo=halo, order=order, out=x) is x
    torch.testing.assert_close(x, wanted)
    assert x._version > version  # autograd and later streams see that it was written


def test_out_may_be_an_input_whose_chunks_change_their_extent(device: str) -> None:
    x = torch.arange(12.0)
    kept = torch.cat([x[:0], x])
    # First chunk: 3 rows of 4, last: 5 of 4; the total is the extent.
    fn = lambda c: c[1:] if c[0] == 0 else torch.cat([c, c[:1]]) if c[0] == 8 else c  # noqa: E731
    wanted = torch.cat([fn(c) for c in kept.split(4)])
    assert stream(fn, x, device=device, chunk_size=4, out=x) is x
    exact(x, wanted)


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (torch.empty(9), ValueError, r"out must have shape \(8,\), got \(9,\)"),
        (torch.empty(8, 1), ValueError, r"out must have shape .*, got \(8, 1\)"),
        (torch.empty(8, dtype=torch.float64), TypeError, "out must have dtype torch.float32, got torch.float64"),
        (torch.empty(8, device="meta"), ValueError, "out must be a strided tensor on the host or a GPU"),
        (torch.empty(1).expand(8), ValueError, "out must not have two elements at one address, got strides"),
        (3, TypeError, "out must be a tensor or a pytree of tensors, got int"),
    ],
)
def test_an_out_that_does_not_fit_is_not_touched(device: str, out: Any, error: type[Exception], text: str) -> None:
    if isinstance(out, torch.Tensor) and not out.is_meta:
        out.fill_(7)
    with pytest.raises(error, match=f"^stream_map: {text}"):
        stream(torch.neg, torch.arange(8.0), device=device, chunk_size=3, out=out)
    if isinstance(out, torch.Tensor) and not out.is_meta:
        assert bool((out == 7).all())


def test_an_out_that_overlaps_an_input_is_refused(device: str) -> None:
    store = torch.zeros(20)
    with pytest.raises(
        ValueError, match=r"out must not overlap inputs\[0\] unless it is that tensor, got memory in common"
    ):
        stream(torch.neg, store[:10], device=device, out=store[1:11])
    with pytest.raises(ValueError, match=r"out\[1\] must not overlap out\[0\]"):
        stream(lambda x: (x, x), torch.ones(5), device=device, out=(store[:5], store[4:9]))
    assert not store.any()


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("fits", [True, False])
def test_an_out_is_written_with_its_sign(device: str, resident: bool, fits: bool) -> None:
    x = torch.randn(20, 3, device=device if resident else "cpu")
    fn = (lambda c: c * 2) if fits else (lambda c: torch.cat([c, c]) * 2)
    wanted = x * 2 if fits else torch.cat([torch.cat([c, c]) * 2 for c in x.split(6)])
    real = torch._neg_view(torch.zeros_like(wanted))
    imaginary = torch.zeros(wanted.shape, dtype=torch.complex64, device=x.device).conj().imag
    for out in (real, imaginary):
        version = out._version
        assert stream(fn, x, device=device, chunk_size=6, out=out) is out
        assert out.is_neg()
        exact(out.cpu(), wanted.cpu())
        assert out._version > version
    conjugated = torch.zeros(wanted.shape, dtype=torch.complex64, device=x.device).conj()
    stream(lambda c: torch.complex(fn(c), fn(c)), x, device=device, chunk_size=6, out=conjugated)
    exact(conjugated.cpu().resolve_conj(), torch.complex(wanted, wanted).cpu())


def test_a_lazily_negated_out_may_be_the_input(device: str) -> None:
    x = torch._neg_view(torch.randn(20, 3))
    wanted = x + 1
    assert stream(lambda c: c + 1, x, device=device, chunk_size=6, out=x) is x
    exact(x, wanted)
    y = torch.randn(20, 3)  # and one with the input's bytes, but not its values
    wanted = y + 1
    exact(stream(lambda c: c + 1, y, device=device, chunk_size=6, out=torch._neg_view(y)), wanted)


def test_a_call_that_fails_has_changed_its_out(device: str) -> None:
    x, out, calls = torch.ones(30), torch.zeros(30), iter(range(9))

    def fail_late(chunk: torch.Tensor) -> torch.Tensor:
        if next(calls) == 8:
            raise KeyError("enough")
        return chunk + 1

    version = out._version
    with pytest.raises(KeyError, match="enough"):
        stream(fail_late, x, device=device, chunk_size=3, out=out)
    assert out.any()
    assert out._version > version


def test_an_out_beside_the_input_is_taken(device: str) -> None:
    store = torch.randn(20, 6)
    for x, out in ((store[::2], store[1::2]), (store[:, :3], store[:, 3:]), (store[:10], store[10:])):
        copy = x.clone()
        stream(torch.exp, x, device=device, chunk_size=3, out=out)
        torch.testing.assert_close(out, torch.exp(copy))
        exact(x, copy)
    both = (store[:, 0:2], store[:, 2:4])
    stream(lambda x: (x + 1, x + 2), torch.ones(20, 2), device=device, chunk_size=3, out=both)
    exact(store[:, :4], torch.tensor([2.0, 2.0, 3.0, 3.0]).expand(20, 4))
    with pytest.raises(ValueError, match=r"out must not have two elements at one address, got strides \(2, 1\)"):
        stream(torch.exp, torch.ones(3, 4), device=device, out=torch.zeros(16).as_strided((3, 4), (2, 1)))


# --- sources that are files -------------------------------------------------------------------------------------------
def test_memory_mapped_sources_and_outs(device: str, tmp_path: pathlib.Path) -> None:
    numpy = pytest.importorskip("numpy")
    x = torch.randn(500, 16)
    path = tmp_path / "x.bin"
    x.numpy().tofile(path)
    for shared in (True, False):
        source = torch.from_file(str(path), shared=shared, size=x.numel()).view(500, 16)
        exact(stream(lambda x: x * 2, source, device=device, chunk_size=64), x * 2)
    for mode in ("r", "r+", "c"):
        array = numpy.memmap(path, dtype="float32", mode=mode, shape=(500, 16))
        exact(stream(lambda x: x * 2, array, device=device, chunk_size=64), x * 2)
    written = numpy.memmap(tmp_path / "y.bin", dtype="float32", mode="w+", shape=(500, 16))
    stream(lambda x: x * 2, array, device=device, chunk_size=64, out=torch.from_numpy(written))
    written.flush()
    exact(torch.from_file(str(tmp_path / "y.bin"), size=x.numel()).view(500, 16), x * 2)


def test_safetensors(device: str, tmp_path: pathlib.Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    x = torch.randn(300, 8)
    safetensors.save_file({"x": x}, str(tmp_path / "x.safetensors"))
    exact(
        stream(torch.neg, safetensors.load_file(str(tmp_path / "x.safetensors"))["x"], device=device, chunk_size=64), -x
    )


def test_a_large_mapped_file_is_dropped_behind_the_reader(tmp_path: pathlib.Path) -> None:
    size = 160 << 20
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(size)
    x = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)

    def resident_file_bytes() -> int:
        text = pathlib.Path("/proc/self/status").read_text()
        return int(text.split("RssFile:")[1].split()[0]) << 10

    before, most = resident_file_bytes(), 0

    def fn(x: torch.Tensor) -> torch.Tensor:
        nonlocal most
        most = max(most, resident_file_bytes() - before)
        return x[::4096]

    result = sluice.stream_map(fn, x, devices="cpu", chunk_size=8 << 20)
    assert not result.any()
    assert result.shape == (size // 4096,)
    assert most < size // 3


# --- inputs and their errors ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
        ({"chunk_size": -3}, ValueError, "chunk_size must be at least 1, got -3"),
        ({"result": "gpu"}, ValueError, "result must be one of host, device, got 'gpu'"),
        (
            {"result": "device", "devices": ["cpu:0", "cpu:1"]},
            ValueError,
            'devices must be one device for result="device", got cpu:0, cpu:1',
        ),
        ({"chunk_size": 2.0}, TypeError, "chunk_size must be an int, got float"),
        ({"dim": 2}, ValueError, r"dim must be in range of inputs\[0\], which has 2 dimensions, got 2"),
        ({"dim": -3}, ValueError, r"dim must be in range of inputs\[0\], which has 2 dimensions, got -3"),
        ({"halo": -1}, ValueError, "halo must be at least 0, got -1"),
        ({"halo": (1, 2, 3)}, ValueError, r"halo must be an int or \(left, right\), got \(1, 2, 3\)"),
        ({"depth": 0}, ValueError, "depth must be 1 to 256, got 0"),
        ({"depth": True}, TypeError, "depth must be an int, got bool"),
        ({"order": "random"}, ValueError, "order must be one of depth_first, breadth_first, sequential, got 'random'"),
        ({"staging": "magic"}, ValueError, "staging must be one of auto, register, ring, pageable, got 'magic'"),
        ({"memory_budget": -1}, ValueError, "memory_budget must be at least 0, got -1"),
        ({"pinned_budget": "1G"}, TypeError, "pinned_budget must be an int, got str"),
        ({"progress": 3}, TypeError, "progress must be a bool or a callable, got int"),
        ({"non_blocking": 1}, TypeError, "non_blocking must be a bool, got int"),
        ({"devices": "tpu:0"}, ValueError, "devices must be CUDA devices or the CPU, got 'tpu:0'"),
        ({"devices": []}, ValueError, r"devices must be different devices, got \[\]"),
        ({"devices": ["cpu", "cpu"]}, ValueError, "devices must be different devices"),
        ({"devices": 3.5}, TypeError, "devices must be a device or a list of devices, got float"),
    ],
)
def test_arguments_are_checked_before_any_work(options: dict[str, Any], error: type[Exception], text: str) -> None:
    calls: list[int] = []
    with pytest.raises(error, match=f"^stream_map: {text}"):
        sluice.stream_map(lambda x: calls.append(1) or x, torch.zeros(10, 3), **options)
    assert not calls


def test_inputs_are_checked_before_any_work() -> None:
    def never(*_: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    for inputs, error, text in (
        ((), ValueError, "inputs must hold at least one tensor, got none"),
        (([1.0],), TypeError, r"inputs\[0\] must be a torch.Tensor or a NumPy array, got list"),
        ((torch.zeros(3), torch.zeros(4)), ValueError, "inputs must have one extent in dimension 0, got 3, 4"),
        ((torch.zeros(()),), ValueError, r"dim must be in range of inputs\[0\], which has 0 dimensions, got 0"),
        ((torch.zeros(3, device="meta"),), ValueError, r"inputs\[0\] must be a strided tensor on the host or a GPU"),
        ((torch.zeros(3).to_sparse(),), ValueError, r"inputs\[0\] must be a strided tensor"),
    ):
        with pytest.raises(error, match=f"^stream_map: {text}"):
            sluice.stream_map(never, *inputs)
    with pytest.raises(TypeError, match="^stream_map: fn must be callable, got int"):
        sluice.stream_map(3, torch.zeros(3))
    with pytest.raises(ValueError, match="^stream_map: fn must have a callable for each device, got none for cpu"):
        sluice.stream_map({}, torch.zeros(3), devices="cpu")


def test_forward_only() -> None:
    x = torch.randn(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="stream_map: sluice is forward-only and an input requires grad"):
        sluice.stream_map(torch.neg, x)
    with torch.no_grad():
        exact(sluice.stream_map(torch.neg, x), -x.detach())
    with pytest.raises(RuntimeError, match="stream_map: sluice is forward-only and out requires grad"):
        sluice.stream_map(torch.neg, x.detach(), out=torch.zeros(4, requires_grad=True))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones(4))
        with pytest.raises(RuntimeError, match="stream_map: sluice has no forward-mode gradients and an input is"):
            sluice.stream_map(torch.neg, dual)
        with pytest.raises(RuntimeError, match="stream_map: sluice has no forward-mode gradients and out is"):
            sluice.stream_map(torch.neg, x.detach(), out=dual)
    weight = torch.ones(3, requires_grad=True)
    assert not sluice.stream_map(lambda x: x * weight.to(x.device), torch.randn(6, 3), chunk_size=2).requires_grad


def test_pageable_staging_warns(device: str) -> None:
    with pytest.warns(UserWarning, match='staging="pageable"'):
        exact(stream(torch.neg, torch.arange(9.0), device=device, chunk_size=2, staging="pageable"), -torch.arange(9.0))


# --- progress -------------------------------------------------------------------------------------------------------
def test_progress_calls(device: str) -> None:
    calls: list[tuple[int, int]] = []
    x = torch.randn(100, 4)
    stream(lambda x: x.half(), x, device=device, chunk_size=10, progress=lambda d, t: calls.append((d, t)))
    assert calls[-1] == (x.nbytes + x.nbytes // 2, x.nbytes + x.nbytes // 2)
    assert all(done <= total for done, total in calls)
    assert [c[0] for c in calls] == sorted({c[0] for c in calls})
    assert len(calls) > 1


def test_a_progress_bar(device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    x = torch.randn(1000, 4)
    stream(torch.neg, x, device=device, chunk_size=100, progress=True)
    text = capsys.readouterr().err
    assert "stream_map" in text
    assert "100%" in text
    assert "32.0k/32.0k" in text
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    exact(stream(torch.neg, x, device=device, chunk_size=100, progress=True), -x)  # without tqdm there is no bar
    assert capsys.readouterr().err == ""


def test_a_result_without_tensors_fills_no_out(device: str) -> None:
    x = torch.randn(6, 4)
    with pytest.raises(ValueError, match="out must have the structure of fn's result, no tensor, got out"):
        stream(lambda x: [], x, device=device, out=torch.empty_like(x), chunk_size=2)
