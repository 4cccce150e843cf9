"""Weights of float32 packed for one of two precisions: shapes, values, and which calls read them."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import sluice
from common import NARROW_TYPES
from dense_problems import HAS_CODE
from rows import naming
from sluice import PackedWeight
from sluice.nn import packing
from sluice.pack import has_kernels
from sluice.plan import H200
from tf32 import Setting, fakes, input_and_weight

pytestmark = pytest.mark.no_gpu
SHAPES = [(5, 3, 2), (32, 32, 3), (40, 100, 5), (128, 64, 1), (7, 20, 4), (1, 130, 11), (96, 96, 7)]
PRECISIONS = ("ieee", "tf32")
PAIRS = list(itertools.product(PRECISIONS, PRECISIONS))


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(monkeypatch)


# --- packing ----------------------------------------------------------------------------------------------------------
def packed_for(w: torch.Tensor, precision: str) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.sluice._pack_conv1d_weight(w, precision=precision)
    return packed


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_shapes_of_packed_weights(dtype: torch.dtype, precision: str) -> None:
    parts = 2 if dtype == torch.float32 and precision == "ieee" else 1
    for shape in SHAPES:
        with naming(shape):
            packed = packed_for(torch.randn(shape, dtype=dtype), precision)
            assert packed.dtype == dtype
            assert list(packed.shape) == torch.ops.sluice._packed_conv1d_shape(*shape, dtype, precision)
            k_blocks, taps, rows, k_block = packed.shape
            assert k_block * dtype.itemsize in (32, 64, 128)  # bytes of a row
            assert (k_blocks - 1) * k_block < shape[1] <= k_blocks * k_block
            assert (taps, rows) == (parts * shape[2], -(-shape[0] // 8) * 8)
            with FakeTensorMode():
                fake = packed_for(torch.empty(shape, dtype=dtype), precision)
            assert (fake.shape, fake.dtype) == (packed.shape, dtype)


def test_shapes_without_a_dtype_or_a_precision() -> None:
    shape = torch.ops.sluice._packed_conv1d_shape
    assert shape(8, 64, 3) == [1, 3, 8, 64]  # half types
    assert shape(8, 64, 3, torch.float32) == shape(8, 64, 3, torch.float32, "ieee") == [2, 6, 8, 32]
    with pytest.raises(RuntimeError, match="pack: dtype must have dtype float32, float16 or bfloat16, got float64"):
        shape(8, 64, 3, torch.float64)
    w = torch.randn(8, 64, 3)
    assert torch.equal(torch.ops.sluice._pack_conv1d_weight(w), packed_for(w, "ieee"))
    assert torch.equal(packed_for(w.half(), "tf32"), packed_for(w.half(), "ieee"))


@pytest.mark.parametrize("precision", ["bf16", "", "TF32"])
def test_a_weight_is_not_packed_for_an_unknown_precision(precision: str) -> None:
    w = torch.zeros(8, 4, 3)
    words = f'pack: precision must be "ieee" or "tf32", got {precision}'
    for call in (
        lambda: packed_for(w, precision),
        lambda: packed_for(w.half(), precision),
        lambda: packed_for(w.to("meta"), precision),
        lambda: packed_for(input_and_weight()[1], precision),
        lambda: torch.ops.sluice._packed_conv1d_shape(8, 4, 3, torch.float32, precision),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value).split("\n", 1)[0].strip() == words.strip()


def test_values_that_are_packed_for_tf32_are_rounded() -> None:
    w = torch.randn(8, 8, 1)
    packed = packed_for(w, "tf32")
    assert (packed.view(torch.int32) & 0x1FFF == 0).all()
    torch.testing.assert_close(packed.flatten().sort().values, w.flatten().sort().values, rtol=2**-11, atol=0)
    assert not torch.equal(packed.flatten().sort().values, w.flatten().sort().values)


def parts_of(values: list[float] | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low parts of float32 values, a multiple of 64, in the order in which they are packed."""
    w = torch.as_tensor(values, dtype=torch.float32)
    packed = packed_for(w.view(8, -1, 1), "ieee")
    k_blocks, taps, rows, k_block = packed.shape
    assert (taps, rows) == (2, 8)
    high, low = packed.view(k_blocks, 2, rows, k_block).unbind(1)
    return high.flatten(), low.flatten()


def test_parts_of_a_float32_value_add_up_to_it() -> None:
    """`high` is the nearest TF32 number; tensor cores cut the low part to 19 bits."""
    exponents = torch.arange(-100, 124, dtype=torch.float32).repeat(8)
    w = torch.randn(exponents.numel()).sign() * (1 + torch.rand(exponents.numel())) * exponents.exp2()
    few_bits = [0.0, 1.0, -1.5, 1 + 2**-10, 1 + 2**-11, -1 - 2**-23, 2 - 2**-23, -3e38]
    denormal = [2.0**-149, -(2.0**-127), 3e-39, 2.0**-126 - 2.0**-149]
    largest = torch.finfo(torch.float32).max  # it rounds to infinity in TF32
    w = torch.cat([w, torch.tensor([*few_bits, *denormal, largest, -largest] + [0.0] * 50)])
    high, low = parts_of(w)
    assert (high.view(torch.int32) & 0x1FFF == 0).all()
    assert high.isfinite().all()
    assert low.isfinite().all()
    sums = high.double() + low.double() / 2048
    assert torch.equal(sums.float()[sums != 0].sort().values, w[w != 0].sort().values)  # k-blocks end with zeros
    cut = (low.view(torch.int32) & ~0x1FFF).view(torch.float32)
    torch.testing.assert_close(high.double() + cut.double() / 2048, sums, rtol=2**-21, atol=2.0**-147)
    assert (low != 0).sum() > w.numel() / 2


def test_parts_of_values_that_are_not_finite() -> None:
    """Infinity is `high` 1 and an infinite low part; NaN stays NaN, of any bits."""
    infinity = float("inf")
    high, low = parts_of([infinity] * 64)
    assert torch.equal(high, torch.ones(64))
    assert torch.equal(low, torch.full((64,), infinity))
    high, low = parts_of([-infinity] * 64)
    assert torch.equal(high, -torch.ones(64))
    assert torch.equal(low, torch.full((64,), -infinity))
    for bits in (0x7F800001, 0x7FC00000, -1):
        high, low = parts_of(torch.full((64,), bits, dtype=torch.int32).view(torch.float32))
        assert high.isnan().all()
        assert low.isnan().all()


# --- calls ------------------------------------------------------------------------------------------------------------
def test_a_call_takes_values_that_are_packed_for_either_precision() -> None:
    x, w = torch.randn(2, 20, 30), torch.randn(36, 20, 5)
    wanted = sluice.conv1d(x, w)
    for own, given in PAIRS:
        packed = packed_for(w, given)
        assert torch.equal(torch.ops.sluice.conv1d(x, w, packed=packed, precision=own), wanted)
        opcheck(torch.ops.sluice.conv1d.default, (x, w), {"packed": packed, "precision": own})
        opcheck(torch.ops.sluice._pack_conv1d_weight.default, (w,), {"precision": own})
        assert torch.equal(sluice.conv1d(x, PackedWeight(w, packed)), wanted)


def test_a_call_reads_values_of_its_precision_only() -> None:
    """A result may overlap values that the call does not read."""
    x, w = torch.randn(1, 8, 10), torch.randn(8, 8, 3)
    for own, given in PAIRS:
        packed = packed_for(w, given)
        out = packed.view(-1)[:64].view(1, 8, 8)
        if own == given:
            with pytest.raises(RuntimeError, match="conv1d: out must not overlap packed"):
                torch.ops.sluice.conv1d_out(x, w, packed=packed, precision=own, out=out)
        else:
            torch.ops.sluice.conv1d_out(x, w, packed=packed, precision=own, out=out)
            assert torch.equal(out, torch.ops.sluice.conv1d(x, w))


@pytest.mark.skipif(not HAS_CODE, reason="built for other GPUs")
def test_a_plan_packs_a_weight_that_is_packed_for_the_other_precision(setting: Setting) -> None:
    x, w = torch.empty(2, 64, 500, device="meta"), torch.empty(64, 64, 3, device="meta")
    for own, given in PAIRS:
        setting.put(own)
        found = sluice.plan("conv1d", x, PackedWeight(w, packed_for(w, given)), device=H200)
        parts = 2 if own == "ieee" else 1
        assert (found.method, found.workspace_bytes) == ("dense", 0 if own == given else parts * w.nbytes)


def test_packed_values_of_another_shape_are_refused_with_the_shape_of_the_calls_precision() -> None:
    x, w = torch.randn(2, 20, 30), torch.randn(36, 20, 5)
    fake_x, fake_w, fake_packed = fakes((2, 20, 30), (36, 20, 5), (1, 5, 40, 24))
    for precision, taps in (("ieee", 10), ("tf32", 5)):
        words = (
            f"conv1d: packed must have shape (1, {taps}, 40, 32) for a weight of (36, 20, 5), as sluice.pack makes it, "
            "got (1, 5, 40, 24)"
        )
        for *tensors, packed in ((x, w, torch.zeros(1, 5, 40, 24)), (fake_x, fake_w, fake_packed)):
            with pytest.raises(RuntimeError) as error:
                torch.ops.sluice.conv1d(*tensors, packed=packed, precision=precision)
            assert str(error.value).split("\n", 1)[0] == words


def test_options_are_checked_before_packed_values() -> None:
    shapes = (2, 4, 30), (4, 4, 3), (1, 1, 1, 1)
    for x, w, packed in (map(torch.zeros, shapes), fakes(*shapes)):
        with pytest.raises(RuntimeError, match="conv1d: precision must be"):
            torch.ops.sluice.conv1d(x, w, packed=packed, precision="bf16")


# --- torch's setting --------------------------------------------------------------------------------------------------
def test_float32_weights_are_packed_for_the_setting(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: True)
    w = torch.randn(8, 4, 3)
    for precision in ("tf32", "ieee", "none"):
        setting.put(precision)
        wanted = packed_for(w, "tf32" if precision == "tf32" else "ieee")
        for given, dtype in ((w, None), (w, torch.float32), (w.double(), torch.float32)):
            packed = sluice.pack(given, dtype).packed
            assert packed is not None
            assert torch.equal(packed, wanted)
        packed = sluice.pack(w, torch.float16).packed
        assert packed is not None
        assert torch.equal(packed, packed_for(w.half(), "ieee"))
        assert sluice.pack(w.double()).packed is None
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: False)
    assert sluice.pack(w).packed is None


class Kept:
    """What a module keeps, without a GPU's streams."""

    def __init__(self) -> None:
        self.values: dict[object, Any] = {}

    def of(self, parameters: tuple[torch.Tensor, ...], compute: Callable[[], Any], key: object) -> Any:
        if key not in self.values:
            self.values[key] = compute()
        return self.values[key]


def test_what_a_module_keeps_is_packed_for_the_setting(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for dtype, taps in ((torch.float32, (3, 6, 6, 3)), (torch.float16, (3, 3, 3, 3))):
        module, kept = sluice.nn.Conv1d(4, 4, 3), Kept()
        [module._parameters["weight"]] = fakes((4, 4, 3), dtype=dtype)
        found = []
        for precision in ("tf32", "ieee", "none", "tf32"):
            setting.put(precision)
            with torch.no_grad():
                handle = packing.packed_weight(kept, module, module.weight)  # type: ignore[arg-type]
            assert isinstance(handle, PackedWeight)
            assert handle.packed is not None
            found.append(handle.packed)
        assert [packed.shape[1] for packed in found] == list(taps)
        assert found[0] is found[3]
        assert found[1] is found[2]


# --- devices ----------------------------------------------------------------------------------------------------------
def test_a_gpu_that_is_not_there_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sluice.pack.__globals__, "_known", {})
    for _ in range(2):
        assert not has_kernels(torch.device("cuda", 0))
    assert sluice.pack.__globals__["_known"] == {}


def test_the_gpus_with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kernels = {"": [], "portable": [], "torch": []}
    for capability in ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)):
        found = types.SimpleNamespace(major=capability[0], minor=capability[1])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, found=found: found)
        for wanted, found_on in kernels.items():
            monkeypatch.setitem(sluice.pack.__globals__, "_known", {})
            monkeypatch.setitem(sluice.pack.__globals__, "_WANTED_DENSE", wanted)
            found_on += [capability] if has_kernels(torch.device("cuda", 0)) else []
    assert kernels[""] == [(8, 0), (8, 6), (8, 9), (9, 0), (12, 0), (12, 1)]
    assert kernels["portable"] == [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)]
    assert kernels["torch"] == []


def test_a_gpu_is_asked_for_its_capability_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def properties(device: torch.device) -> types.SimpleNamespace:
        asked.append(device.index)
        return types.SimpleNamespace(major=9 + device.index, minor=0)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setitem(sluice.pack.__globals__, "_known", {})
    for _ in range(2):
        assert has_kernels(torch.device("cuda", 0))
        assert not has_kernels(torch.device("cuda", 1))
    assert asked == [0, 1]
    assert not has_kernels(torch.device("cpu"))
    assert not has_kernels(torch.device("meta"))
    monkeypatch.setitem(sluice.pack.__globals__, "is_compiling", lambda: True)
    assert has_kernels(torch.device("cuda", 0))
    assert asked == [0, 1, 0]
