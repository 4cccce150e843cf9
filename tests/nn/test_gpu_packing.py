"""sluice.nn on a GPU: weights are packed once, and again after they change; results never use old weights."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import sluice
from common import NARROW_TYPES, memory_in_use
from tf32 import tf32_allowed

pytestmark = pytest.mark.gpu


class Packs(TorchDispatchMode):
    """Counts the weights that are packed ahead of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += str(func) == "sluice._pack_conv1d_weight.default"
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _without_gradients(cuda: str) -> Iterator[None]:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("weights are packed for compute capability 9.0")
    with torch.no_grad():
        yield


def layer_and_x(dtype: torch.dtype = torch.bfloat16) -> tuple[sluice.nn.Conv1d, torch.Tensor]:
    layer = sluice.nn.Conv1d(64, 96, 5, padding=2, device="cuda", dtype=dtype)
    return layer, torch.randn(4, 64, 3000, device="cuda", dtype=dtype)


def packs_of(layer: sluice.nn.Conv1d, x: torch.Tensor) -> int:
    """How often a call packs the weight; its result must have the bits of a call that keeps nothing."""
    with Packs() as packs:
        result = layer(x)
    bias = layer.bias.to(result.dtype)
    assert torch.equal(result, sluice.conv1d(x.to(result.dtype), layer.weight.to(result.dtype), bias, padding=2))
    return packs.count


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_packed_once_and_after_each_change(dtype: torch.dtype) -> None:
    layer, x = layer_and_x(dtype)
    assert [packs_of(layer, x) for _ in range(3)] == [1, 0, 0]
    layer.weight.mul_(2)
    assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]
    layer.load_state_dict(sluice.nn.Conv1d(64, 96, 5).state_dict())
    assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]
    layer.load_state_dict(layer_and_x(dtype)[0].state_dict(), assign=True)
    assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]
    layer.weight.data = torch.randn_like(layer.weight)
    assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]
    layer.weight = torch.nn.Parameter(torch.randn_like(layer.weight))
    assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]
    layer.cpu().cuda()
    assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]


def test_float32_is_packed_for_each_precision() -> None:
    layer, x = layer_and_x(torch.float32)
    for counts in ((1, 1, 0, 0), (1, 1, 0, 0)):
        for allowed, count in zip((False, True, False, True), counts, strict=True):
            with tf32_allowed(allowed):
                assert [packs_of(layer, x), packs_of(layer, x)] == [count, 0]
        layer.weight.mul_(2)


def test_other_dtypes_and_depthwise_weights_are_not_packed() -> None:
    layer, x = layer_and_x(torch.float64)
    assert packs_of(layer, x) == 0
    depthwise = sluice.nn.Conv1d(64, 64, 5, padding=2, groups=64, device="cuda", dtype=torch.bfloat16)
    with Packs() as packs:
        depthwise(x.bfloat16())
    assert packs.count == 0


@pytest.mark.parametrize(("taps", "parts"), [(4, 1), (5, 2)])
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_transposed_weights_are_packed_once(dtype: torch.dtype, taps: int, parts: int) -> None:
    layer = sluice.nn.ConvTranspose1d(96, 64, taps, stride=2, padding=1, device="cuda", dtype=dtype)
    x = torch.randn(4, 96, 3000, device="cuda", dtype=dtype)
    for counts in ([parts, 0, 0], [parts, 0, 0]):
        for count in counts:
            with Packs() as packs:
                result = layer(x)
            assert packs.count == count
            assert torch.equal(result, sluice.conv_transpose1d(x, layer.weight, layer.bias, 2, 1))
            assert torch.equal(layer(x), result)  # a repeated call
        layer.weight.mul_(2)


def test_under_autocast_in_the_dtype_of_the_calls() -> None:
    layer, x = layer_and_x(torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            assert [packs_of(layer, x), packs_of(layer, x)] == [1, 0]


def test_copies_and_files_keep_nothing() -> None:
    layer, x = layer_and_x()
    packs_of(layer, x)
    file = io.BytesIO()
    torch.save(layer, file)
    assert file.tell() < 1.5 * layer.weight.nbytes + 20_000
    file.seek(0)
    for twin in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert [packs_of(twin, x), packs_of(twin, x)] == [1, 0]
    assert packs_of(layer, x) == 0


def test_other_streams_wait_for_a_packed_weight() -> None:
    layer, x = layer_and_x()
    side = torch.cuda.Stream()
    assert packs_of(layer, x) == 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert [packs_of(layer, x), packs_of(layer, x)] == [0, 0]
    torch.cuda.current_stream().wait_stream(side)
    assert packs_of(layer, x) == 0


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_graph_follows_the_weight(is_kept: bool) -> None:
    layer, x = layer_and_x()
    sluice.conv1d(x, layer.weight, layer.bias, padding=2)  # loads the kernels
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        if is_kept:
            assert packs_of(layer, x) == 1
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream), Packs() as packs:
        result = layer(x)
    assert packs.count == 0
    for _ in range(2):
        layer.weight.normal_()
        assert packs_of(layer, x) == 1  # the kept weight is dropped
        graph.replay()
        assert torch.equal(result, sluice.conv1d(x, layer.weight, layer.bias, padding=2))


def test_nothing_stays_on_a_device_that_the_module_leaves() -> None:
    layer, x = layer_and_x()
    packs_of(layer, x)
    before, weight = memory_in_use(), layer.weight.nbytes
    layer.cpu()
    assert memory_in_use() <= before - 2 * weight


def test_inference_tensors_are_not_kept() -> None:
    with torch.inference_mode():
        layer, x = layer_and_x()
        assert [packs_of(layer, x), packs_of(layer, x)] == [0, 0]
        layer.weight.mul_(2)
        packs_of(layer, x)
