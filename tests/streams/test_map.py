"""`stream_map`: chunks, arguments and results of fn, outs. On the CPU, and on a GPU if there is one."""

from __future__ import annotations

import collections
import pathlib
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, load_packaged
from sluice import stages
from sluice.stream.device.layout import DIRECT, Endpoint
from stream_calls import ORDERS, exact, stream

STAGINGS = ["auto", "register", "ring", "pageable"]


# --- chunks ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 3, 7, 20, 21, None])
def test_any_chunk_size_depth_and_order(device: str, order: str, depth: int, size: int | None) -> None:
    x = torch.randn(21, 6)
    exact(stream(lambda x: x * 2 + 1, x, device=device, chunk_size=size, depth=depth, order=order), x * 2 + 1)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_chunks_along_any_dimension(device: str, dim: int) -> None:
    x, y = torch.randn(9, 8, 7), torch.randn(9, 8, 7)
    exact(stream(torch.sub, x, y, device=device, dim=dim, chunk_size=2), x - y)


def test_a_negative_dimension_is_each_tensors_own(device: str) -> None:
    x, y = torch.randn(4, 10), torch.randn(10)
    exact(stream(torch.add, x, y, device=device, dim=-1, chunk_size=3), x + y)


def test_what_chunks_there_are(device: str) -> None:
    seen: list[tuple[int, ...]] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(x.flatten().int().tolist()))
        return x

    x = torch.arange(8.0)
    exact(stream(fn, x, device=device, chunk_size=3), x)
    assert seen == [(0, 1, 2), (3, 4, 5), (6, 7)]  # the last is shorter, never padded


@pytest.mark.parametrize("halo", [0, 1, 3, (2, 0), (0, 2), (5, 1), 30])
@pytest.mark.parametrize("size", [1, 4, 11])
def test_a_halo_gives_neighbours_and_is_cut_off(device: str, halo: Any, size: int) -> None:
    left, right = halo if isinstance(halo, tuple) else (halo, halo)
    x, seen = torch.arange(11), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.tolist())
        return x * 10

    exact(stream(fn, x, device=device, chunk_size=size, halo=halo), x * 10)
    wanted = [range(max(0, b - left), min(11, min(b + size, 11) + right)) for b in range(0, 11, size)]
    assert seen == [list(rows) for rows in wanted]  # fewer at the ends, no zero fill


def test_a_chunked_convolution_equals_the_whole_one(device: str) -> None:
    x, w = torch.randn(2, 3, 1000, dtype=torch.float64), torch.randn(3, 1, 7, dtype=torch.float64)
    on_device = w.to(device)
    fn = lambda x: F.conv1d(x, on_device, padding=3, groups=3)  # noqa: E731
    result = stream(fn, x, device=device, dim=2, chunk_size=96, halo=3)
    torch.testing.assert_close(result, F.conv1d(x, w, padding=3, groups=3), rtol=1e-12, atol=1e-12)


def test_a_sluice_op_and_a_chain_as_fn(device: str) -> None:
    x = torch.randn(1000, 33)
    chain = stages.scale(1.5) | stages.silu()
    exact(stream(chain, x, device=device, chunk_size=170), chain(x.to(device)).cpu())


def test_a_compiled_function(device: str) -> None:
    x = torch.randn(100, 8)
    program = torch.compile(lambda x: torch.sin(x) * x, backend="eager" if device == "cpu" else "inductor")
    torch.testing.assert_close(stream(program, x, device=device, chunk_size=32), torch.sin(x) * x)


def test_a_program_compiled_ahead_of_time(device: str, tmp_path: pathlib.Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU()).to(device).eval()
    x = torch.randn(250, 64)
    with torch.no_grad():
        rows = torch.export.Dim("rows", min=2, max=4096)
        exported = torch.export.export(model, (x[:32].to(device),), dynamic_shapes=({0: rows},))
        path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
        program = load_packaged(path, device)
        wanted = model(x.to(device)).cpu()
        torch.testing.assert_close(stream(program, x, device=device, chunk_size=32), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("error")
def test_torch_compile_leaves_the_driver_alone() -> None:
    x = torch.randn(10, 3)

    def program(x: torch.Tensor) -> torch.Tensor:
        return sluice.stream_map(torch.neg, x + 1, chunk_size=4) * 2

    torch.testing.assert_close(torch.compile(program, backend="eager")(x), -(x + 1) * 2)


@pytest.mark.filterwarnings("error:.*lru_cache")
def test_a_streamer_may_be_made_in_a_compiled_function() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return sluice.Streamer().map(torch.neg, x + 1) * 2

    x = torch.randn(10, 3)
    torch.testing.assert_close(torch.compile(program, backend="eager")(x), -(x + 1) * 2)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 2)])
@pytest.mark.parametrize("size", [None, 1])
def test_an_empty_tensor_runs_fn_once(device: str, shape: tuple[int, ...], size: int | None) -> None:
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(tuple(x.shape))
        return x.to(torch.int32).unsqueeze(-1).expand(*x.shape, 4)

    result = stream(fn, torch.randn(shape), device=device, chunk_size=size)
    exact(result, torch.empty(*shape, 4, dtype=torch.int32))
    assert calls == [shape]


# --- what fn gets -----------------------------------------------------------------------------------------------------
LAYOUTS = {
    "transposed": lambda x: x.t().contiguous().t(),
    "every third": lambda x: torch.stack([x, x, x], -1).flatten(1)[:, 1::3],
    "rows of wider": lambda x: torch.cat([x, x], 1)[:, 3 : 3 + x.shape[1]],
    "reversed by copy": lambda x: x.flip(0),
    "offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "expanded": lambda x: x[:, :1].expand(x.shape),
    "expanded rows": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.parametrize("staging", STAGINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.filterwarnings("ignore:.*pageable.*")
def test_strided_sources(device: str, layout: str, dim: int, staging: str) -> None:
    x = LAYOUTS[layout](torch.randn(70, 50))
    exact(stream(lambda x: x + 1, x, device=device, dim=dim, chunk_size=13, staging=staging), x + 1)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.uint8, torch.int64, torch.complex64])
def test_dtypes(device: str, dtype: torch.dtype) -> None:
    x = (torch.randn(100, 7) * 10).to(dtype)
    exact(stream(torch.clone, x, device=device, chunk_size=9), x)


def test_lazy_conjugates_and_negations(device: str) -> None:
    x = torch.randn(30, 5, dtype=torch.complex64)
    exact(stream(torch.clone, x.conj(), device=device, chunk_size=7), x.conj().resolve_conj())
    exact(stream(torch.clone, x.conj().imag, device=device, chunk_size=7), -x.imag)


def test_fn_may_change_its_chunks_but_never_the_source(device: str) -> None:
    x = torch.randn(50, 4)
    before = x.clone()
    exact(stream(lambda x: x.mul_(3), x, device=device, chunk_size=6), before * 3)
    assert torch.equal(x, before)
    exact(
        stream(lambda x: x.unsqueeze_(1).t_() if x.dim() == 1 else x, torch.ones(6, 2), device=device), torch.ones(6, 2)
    )
    assert x._version == 0


@pytest.mark.parametrize("order", ORDERS)
def test_fn_may_return_its_input_a_view_or_the_same_storage(device: str, order: str) -> None:
    x = torch.randn(64, 6)
    options: dict[str, Any] = {"device": device, "chunk_size": 5, "order": order}
    exact(stream(lambda x: x, x, **options), x)
    exact(stream(lambda x: x[:, ::2], x, **options), x[:, ::2])
    store = torch.empty(5, 6, device=device)

    def same_storage(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=store[: x.shape[0]])

    exact(stream(same_storage, x, **options), x + 1)


def test_the_callers_thread_and_modes(device: str) -> None:
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        seen.append((threading.get_ident(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                     torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)))  # fmt: skip
        return x

    x, me = torch.randn(6), threading.get_ident()
    with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16):
        result = stream(fn, x, device=device, chunk_size=2)
    with torch.no_grad():
        stream(fn, x, device=device, chunk_size=2)
    stream(fn, x, device=device, chunk_size=2)
    assert {s[0] for s in seen} == {me}
    assert [s[1:4] for s in seen] == [(False, True, True)] * 3 + [(False, False, False)] * 3 + [
        (True, False, False)
    ] * 3
    assert seen[0][4] == torch.bfloat16
    assert result.is_inference()
    # Slots first used in inference mode work in other modes too.
    exact(stream(lambda x: x.add_(1), x, device=device, chunk_size=2), x + 1)


# --- what fn gives --------------------------------------------------------------------------------------------------
Pair = collections.namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize("make", [lambda *t: t, lambda *t: list(t), lambda a, b: {"a": a, "b": b}, Pair])
def test_the_result_has_fns_structure(device: str, make: Any) -> None:
    x = torch.randn(23, 4)
    result = stream(lambda x: make(x + 1, x.sum(1)), x, device=device, chunk_size=5)
    wanted = make(x + 1, x.sum(1))
    assert type(result) is type(wanted)
    pairs = [(result[key], wanted[key]) for key in (wanted if isinstance(wanted, dict) else range(len(wanted)))]
    for got, want in pairs:
        torch.testing.assert_close(got, want)
    assert stream(lambda x: (), x, device=device, chunk_size=5) == ()


def test_a_dimension_may_come_and_go(device: str) -> None:
    x = torch.randn(10, 4)
    exact(stream(lambda x: x.amax(1), x, device=device, chunk_size=3), x.amax(1))
    exact(stream(lambda x: x[:, None].half(), x, device=device, chunk_size=3), x[:, None].half())


@pytest.mark.parametrize("extent", [24, 25])
@pytest.mark.parametrize("dim", [0, 1])
def test_chunks_may_change_the_extent(device: str, extent: int, dim: int) -> None:
    x = torch.randn(extent, extent)
    chunks = x.split(5, dim)
    for fn in (
        lambda x: x.narrow(dim, 0, 1),  # one row a chunk
        lambda x: torch.cat([x, x], dim),
        lambda x: x.narrow(dim, 0, x.shape[dim] // 2),
        lambda x: x.narrow(dim, 0, 0),
    ):
        exact(stream(fn, x, device=device, dim=dim, chunk_size=5), torch.cat([fn(c) for c in chunks], dim))


def test_what_is_kept_of_chunks_is_bounded() -> None:
    rows = torch.zeros(3000, 2)
    host = Endpoint(rows, 0, DIRECT)
    for extent in range(1, 2001):
        assert host.copy(1, extent, 512) == Endpoint(rows, 0, DIRECT).copy(1, extent, 512)
    assert len(host._tails) < 300


def test_extents_may_depend_on_the_data(device: str) -> None:
    x = torch.randn(300)
    exact(stream(lambda x: x[x > 0], x, device=device, chunk_size=17), x[x > 0])
    out = torch.empty(int((x > 0).sum()))
    assert stream(lambda x: x[x > 0], x, device=device, chunk_size=17, out=out) is out
    exact(out, x[x > 0])


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda x: 3, TypeError, "fn must return a tensor or a pytree of tensors, got int"),
        (lambda x: (x, [3, x]), TypeError, "got a tuple with int"),
        (lambda x: None, TypeError, "got NoneType"),
        (lambda x: x.sum(), ValueError, r"the result must have a dimension 0, got shape \(\) for chunk 0"),
        (lambda x: x.to("meta"), ValueError, "the result must be a strided tensor on .*, got one on meta"),
        (lambda x: x.half() if x[0] > 3 else x, ValueError, "dtype torch.float32 .*, got torch.float16 for chunk 2"),
        (lambda x: x[:, None] if x[0] > 3 else x, ValueError, r"shape .* got \(2, 1\) for chunk 2, rows 4 to 6"),
        (lambda x: (x,) if x[0] > 3 else x, ValueError, "return the structure of the first chunk .*chunk 2"),
    ],
)  # fmt: skip
def test_what_fn_must_not_return(device: str, fn: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^stream_map: .*{text}"):
        stream(fn, torch.arange(8.0), device=device, chunk_size=2)


def test_a_halo_needs_the_extent(device: str) -> None:
    with pytest.raises(ValueError, match="keep the extent 4 of its chunk, because there is a halo, got 3 for chunk 0"):
        stream(lambda x: x[1:], torch.arange(8.0), device=device, chunk_size=3, halo=1)
